//! What the compiler cannot say about the source text: crates keep to their rooms, rooms use only rooms above them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The order of src/lib.rs; a room uses only rooms before it.
const ROOMS: [&str; 20] = [
    "units", "error", "finding", "open", "image", "types", "objects", "code", "formats", "heat", "layout", "diff",
    "rules", "link", "variant", "measure", "verdict", "triage", "report", "cli",
];

/// Uses of a room below, each with its reason.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

/// A crate and where it may be named; tests may name any.
const CRATES: [(&str, &[&str]); 15] = [
    // The second reader proves what the first one wrote: it must share nothing with it.
    ("goblin", &["variant/verify"]),
    ("tabled", &["report/table.rs"]),
    // A campaign runs one thing at a time: a second thread beside it would be measured.
    (
        "rayon",
        &["cli/pool.rs", "cli/triage", "cli/variants", "diff", "heat", "link", "types", "verdict/calibration.rs"],
    ),
    ("gimli", &["types/dwarf"]),
    ("iced_x86", &["code/x86.rs", "heat/x86.rs"]),
    ("yaxpeax", &["heat/arm64.rs"]),
    ("cpp_demangle", &["objects/demangle.rs"]),
    ("lzma_rust2", &["image/packed"]),
    ("ruzstd", &["image/packed"]),
    ("flate2", &["image/packed"]),
    ("bzip2::read", &["image/packed"]),
    ("lz4_flex", &["image/packed"]),
    ("lzokay", &["image/packed"]),
    ("clap", &["cli", "main.rs"]),
    ("libc::ptrace", &["link"]),
];

const LONGEST: usize = 600;

struct Source {
    /// Below `src`.
    path: String,
    whole: String,
    /// Without comments and tests.
    product: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    let texts: Vec<(PathBuf, String)> =
        found.into_iter().map(|p| (p.clone(), fs::read_to_string(p).unwrap())).collect();
    let declared = declared_for_tests();
    let tests: BTreeSet<PathBuf> = texts.iter().flat_map(|(path, text)| test_files(&declared, path, text)).collect();
    let of_tests = |path: &Path| tests.iter().any(|t| path == t.with_extension("rs") || path.starts_with(t));
    let source = |(path, whole): (PathBuf, String)| {
        let product = if of_tests(&path) { String::new() } else { product(&whole) };
        Source { path: path.strip_prefix(&root).unwrap().display().to_string(), whole, product }
    };
    texts.into_iter().map(source).collect()
}

fn declared_for_tests() -> Regex {
    Regex::new(r"(?m)^#\[cfg\(test\)\]\n(?:#\[.*\n)*(?:pub(?:\([a-z]+\))? )?mod (\w+);").unwrap()
}

/// The files (without `.rs`) that a file declares as modules for tests only.
fn test_files(declared: &Regex, path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match path.file_stem().unwrap().to_str().unwrap() {
        "mod" | "lib" | "main" => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    declared.captures_iter(text).map(|c| folder.join(&c[1])).collect()
}

/// Without comments, and without the items behind `#[cfg(test)]`. In text that rustfmt wrote, an item ends at the first
/// line of its own depth that closes it.
fn product(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        if code != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        let depth = line.len() - code.len();
        let ends = |l: &str| {
            let code = l.trim_start();
            l.len() - code.len() == depth && !code.starts_with('#') && code.ends_with(['}', ';'])
        };
        lines.by_ref().find(|l| ends(l));
    }
    kept
}

/// The rooms that `crate::…` names, in groups too.
fn rooms_used(product: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (_, rest) in product.match_indices("crate::").map(|(at, m)| product.split_at(at + m.len())) {
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        let Some(group) = rest.strip_prefix('{') else {
            used.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut names = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                c if depth == 0 => names.push(c),
                _ => {}
            }
        }
        used.extend(names.split(',').map(|n| word(n.trim())).filter(|n| !n.is_empty()));
    }
    used
}

fn room(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap()
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_this_file_reads() {
    let text = "use crate::{diff, open::{self, x},\n    rules};\n/// crate::cli\nfn f() {\n    crate::link::g();\n}\n\
        #[cfg(test)]\n#[allow(x)]\nmod tests {\n    use crate::measure;\n}\n#[cfg(test)]\nuse crate::report;\nuse crate::image;\n";
    let used = rooms_used(&product(text));
    assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), ["diff", "image", "link", "open", "rules"]);
    let files = test_files(&declared_for_tests(), Path::new("a/b.rs"), "#[cfg(test)]\npub(crate) mod fake;\n");
    assert_eq!(files, [Path::new("a/b/fake")]);
    let all = sources();
    let of = |path: &str| all.iter().find(|s| s.path == path).unwrap();
    assert!(rooms_used(&of("link/replay.rs").product).contains("open"));
    assert!(of("verdict/tests.rs").product.is_empty() && !of("verdict/tests.rs").whole.is_empty());
    assert!(ROOMS.iter().all(|r| all.iter().any(|s| room(&s.path) == *r)), "a room without a file");
}

#[test]
fn crates_keep_to_their_rooms() {
    let mut wrong = Vec::new();
    let all = sources();
    for (name, homes) in CRATES {
        let named = Regex::new(&format!(r"(?i)\b{name}(?:\b|_)")).unwrap();
        let (mut at_home, home) = (0, |path: &str| homes.iter().any(|h| Path::new(path).starts_with(h)));
        for source in all.iter().filter(|s| named.is_match(&s.product)) {
            if home(&source.path) {
                at_home += 1;
            } else {
                wrong.push(format!("src/{} names {name}, which belongs to {}", source.path, homes.join(", ")));
            }
        }
        if at_home == 0 {
            wrong.push(format!("{name} is named nowhere: this test is out of date"));
        }
    }
    none(&wrong);
}

#[test]
fn rooms_use_only_rooms_above_them() {
    let place = |name: &str| ROOMS.iter().position(|r| *r == name);
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for source in sources().iter().filter(|s| !matches!(s.path.as_str(), "lib.rs" | "main.rs")) {
        let own = room(&source.path);
        for used in rooms_used(&source.product) {
            let (Some(from), Some(to)) = (place(own), place(&used)) else {
                wrong.push(format!("src/{}: `{own}` or `{used}` is no room of this list", source.path));
                continue;
            };
            match EXCEPTIONS.iter().find(|(a, b, _)| (*a, *b) == (own, used.as_str())) {
                _ if to <= from => {}
                Some((a, b, _)) => drop(needed.insert((*a, *b))),
                None => wrong.push(format!("src/{} uses crate::{used}, which lies below it", source.path)),
            }
        }
    }
    let unneeded = EXCEPTIONS.iter().filter(|(a, b, _)| !needed.contains(&(*a, *b)));
    wrong.extend(unneeded.map(|(a, b, _)| format!("{a} uses {b} no more: take it off the exceptions")));
    none(&wrong);
}

#[test]
fn files_are_short_and_nothing_is_left_undone() {
    let undone = Regex::new(r"\btodo!|\bunimplemented!|\bFIXME\b|#\[ignore").unwrap();
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.whole.lines().count();
        if lines > LONGEST {
            wrong.push(format!("src/{} has {lines} lines, more than {LONGEST}: split it by idea", source.path));
        }
        for (at, line) in source.whole.lines().enumerate().filter(|(_, l)| undone.is_match(l)) {
            wrong.push(format!("src/{}:{}: {}", source.path, at + 1, line.trim()));
        }
    }
    none(&wrong);
}
