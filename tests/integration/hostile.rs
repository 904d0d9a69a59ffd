//! One image whose names are attacks, through every renderer: nothing in a name may become a command, a tag, a formula, a
//! link or a line of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use serde_sarif::sarif::Sarif;

const NAMES: [&str; 8] = [
    "a%0A::error file=x,line=1::pwned",
    "new^line`[31mred",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "=cmd|' /C calc'!A0",
    "::set-output name=x::y",
    "a,b:c%25|d`",
    "\u{202e}desrever &lt;b&gt; $x$ ~~y~~",
];

/// Of a declaration: what `#line` says.
const FILE: &str = "src/we,ird:%0A<b>.c";

struct World {
    folder: tempfile::TempDir,
    image: PathBuf,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let object = |name: &str| {
        format!(".balign 8\n.globl \"{name}\"\n.type \"{name}\", @object\n.size \"{name}\", 8\n\"{name}\": .quad 1\n")
    };
    let objects: String = NAMES.map(object).concat();
    let section = "\n.section \"::warning::s\", \"aw\"\n.type in, @object\n.size in, 8\nin: .quad 1\n";
    std::fs::write(folder.path().join("a.s"), format!(".data\n.balign 64\n.skip 60\n{objects}{section}")).unwrap();
    let c = format!(
        "#line 7 \"{FILE}\"\ntypedef struct {{ int counter; }} atomic_t; __attribute__((aligned(4))) struct {{ atomic_t a; }} \
         lock_a = {{{{1}}}}, lock_b = {{{{1}}}};\nvoid _start(void) {{ }}\n"
    );
    std::fs::write(folder.path().join("b.c"), c).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder.path()).args(["-g", "-nostdlib", "-static", "-o", "plain", "a.s", "b.c"]);
    let built = gcc.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // What an assembler does not take in a name.
    let mut bytes = std::fs::read(folder.path().join("plain")).unwrap();
    for name in NAMES {
        let wanted = name.replace('^', "\n").replace('`', "\x1b");
        assert_eq!(name.len(), wanted.len());
        let at = bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
        bytes[at..at + name.len()].copy_from_slice(wanted.as_bytes());
    }
    let image = folder.path().join("i m,a:g%0Ae\n<b>\u{202e}");
    std::fs::write(&image, bytes).unwrap();
    let rules = "[[rule]]\nno-straddle = \"*\"\nwhy = \"%0A::error::<b>\"\n[[rule]]\nown-line = \"*script*\"\n[[rule]]\nown-line = \"::no\"\n";
    std::fs::write(folder.path().join("straddle.toml"), rules).unwrap();
    World { folder, image }
}

fn run(world: &World, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
    command.current_dir(world.folder.path()).env_remove("GITHUB_STEP_SUMMARY").args(args).output().unwrap()
}

/// Everything that the commands print in a format.
fn printed(world: &World, format: &str) -> Vec<String> {
    let image = world.image.to_str().unwrap();
    let mut runs: Vec<Vec<&str>> = vec![
        vec!["scan", image, "--all", "--format", format],
        vec!["check", image, "--scan", "--all", "--format", format],
    ];
    if !["sarif", "github", "gitlab"].contains(&format) {
        runs.push(vec!["diff", image, "plain", "--all", "--format", format]);
        runs.push(vec!["scan", image, "--object", "a%0A::error file=x,line=1::pwned", "--format", format]);
    }
    let text = |args: Vec<&str>| {
        let out = run(world, &args);
        assert!(matches!(out.status.code(), Some(0 | 1)), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    runs.into_iter().map(text).collect()
}

fn seen(text: &str) -> bool {
    !text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}')
}

#[test]
fn a_name_is_shown_and_not_obeyed() {
    let world = world();
    for text in printed(&world, "table") {
        assert!(seen(&text), "{text}");
        assert!(text.lines().all(|l| !l.trim_start().starts_with("::")), "{text}");
    }
    for text in printed(&world, "markdown") {
        for markup in ["<", "](j", "|d", "$x", "~~"] {
            let escaped = |(at, _): (usize, &str)| text[..at].ends_with('\\');
            assert!(seen(&text) && text.match_indices(markup).all(escaped), "{markup} in {text}");
        }
    }
    let pages = printed(&world, "html");
    // The one that is a tag is ours; a browser test sees that theirs are text.
    assert!(pages.iter().all(|text| seen(text) && text.matches("<script").count() == 1), "{pages:?}");
    assert!(pages.iter().any(|text| text.contains("&lt;script")));
    for text in printed(&world, "csv") {
        assert!(seen(&text), "{text}");
        for table in text.split("\n\n") {
            let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{table}");
            assert!(rows.iter().flatten().all(|cell| !cell.starts_with(['=', '@'])), "{table}");
        }
    }
    for text in printed(&world, "json") {
        let _: Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains('\x1b'));
    }
    for text in printed(&world, "sarif") {
        let log: Sarif = serde_json::from_str(&text).unwrap();
        let results = log.runs[0].results.as_ref().unwrap();
        let link = |r: &serde_sarif::sarif::Result| r.message.text.as_ref().unwrap().contains("](j");
        assert!(seen(&text) && !results.iter().any(link), "{text}");
        let uris: Vec<&str> = results.iter().map(uri).collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
        assert!(uris.iter().all(|uri| uri.trim_start_matches("file://").chars().all(plain)), "{uris:?}");
        assert!(uris.contains(&"src/we%2Cird%3A%250A%3Cb%3E.c"), "{uris:?}");
    }
    for text in printed(&world, "gitlab") {
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert!(seen(&text) && all.iter().any(|f| f["location"]["path"] == FILE), "{text}");
    }
}

#[test]
fn a_name_is_no_workflow_command() {
    let world = world();
    let texts = printed(&world, "github");
    for line in texts.iter().flat_map(|t| t.lines()) {
        assert!(seen(line), "{line}");
        // As the runner reads it: the command up to the first blank, its properties up to the next `::`.
        let (head, data) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let (command, properties) = head.split_once(' ').unwrap();
        assert!(["error", "warning", "notice"].contains(&command), "{line}");
        for property in properties.split(',') {
            let (key, value) = property.split_once('=').unwrap();
            assert!(["file", "line", "title"].contains(&key) && !value.contains(':'), "{line}");
        }
        let escapes = |at: usize| ["%25", "%0A", "%0D", "%3A", "%2C"].iter().any(|e| line[at..].starts_with(e));
        assert!(line.match_indices('%').all(|(at, _)| escapes(at)), "{line}");
        assert!(!unescaped(data).contains("\n::"), "{line}");
    }
    assert!(texts.iter().any(|t| t.contains("file=src/we%2Cird%3A%250A<b>.c,line=7")), "{texts:?}");
}

/// What is wrong with such a name is one line, too.
#[test]
fn an_error_is_one_line_whatever_it_names() {
    let world = world();
    for args in [&["scan", "plain", "--object", "no\n::error::\x1b[31m"][..], &["check", "no\nsuch\x1b"]] {
        let out = run(&world, args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("\n::"), "{text}");
    }
}

fn unescaped(text: &str) -> String {
    text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
}

fn uri(result: &serde_sarif::sarif::Result) -> &str {
    let place = &result.locations.as_ref().unwrap()[0];
    place.physical_location.as_ref().unwrap().artifact_location.as_ref().unwrap().uri.as_deref().unwrap()
}

/// RFC 4180.
fn cells(line: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out
}

/// Nothing is left behind where it cannot be written.
#[test]
fn an_output_is_whole_or_not_there() {
    let world = world();
    let here = |path: &str| world.folder.path().join(path);
    let out = run(&world, &["scan", "plain", "--format", "json", "-o", "none/out.json"]);
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("none/out.json"));
    let out = run(&world, &["scan", "plain", "--format", "json", "-o", "out.json"]);
    assert!(out.status.success() && out.stdout.is_empty());
    let _: Value = serde_json::from_slice(&std::fs::read(here("out.json")).unwrap()).unwrap();
    let out = run(&world, &["scan", "plain", "--format", "sarif", "-o", "/dev/full"]);
    assert_eq!(out.status.code(), Some(4));
    let summary = here("summary.md");
    let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
    command.current_dir(world.folder.path()).env("GITHUB_STEP_SUMMARY", &summary);
    let out = command.args(["scan", "plain", "--format", "github"]).output().unwrap();
    assert!(out.status.success() && Path::new(&summary).exists());
    let text = std::fs::read_to_string(summary).unwrap();
    assert!(text.contains("data objects") && text.contains("| section |"), "{text}");
}
