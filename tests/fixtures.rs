//! The fixtures, measured: each `fixtures/*/build.sh` says which verdict is right in which link order, and `triage`
//! must reach it. One at a time, alone on the machine: a build beside them would be the measurement.
//!
//! `cargo test --release --test fixtures [FILTER]`. A disturbed machine may honestly end in `inconclusive`; then, and
//! only then, the same case is run once more. A wrong verdict fails at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stderr)]
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// `# expect ORDER=3: both masked faster`; with `(also under gold, lld)` behind it, one for each of those linkers too.
#[derive(Clone, Debug)]
struct Expectation {
    order: String,
    /// `None`: the compiler's own choice.
    linker: Option<String>,
    verdict: String,
    masked: bool,
    /// Why it is inconclusive: `unmatched`.
    blocked: Option<String>,
    /// `slower`, `faster` or nothing to say.
    headline: Option<String>,
}

fn expectations(build: &Path) -> Vec<Expectation> {
    let text = std::fs::read_to_string(build).unwrap();
    let lines = text.lines().filter_map(|l| l.strip_prefix("# expect ORDER="));
    lines
        .flat_map(|line| {
            let (order, answer) = line.split_once(':').expect("# expect ORDER=n: verdict");
            let (answer, linkers) = answer.split_once(" (also under ").unwrap_or((answer, ""));
            let words: Vec<&str> = answer.split_whitespace().collect();
            let expectation = |linker: Option<&str>| Expectation {
                order: order.to_string(),
                linker: linker.map(str::to_string),
                verdict: words[0].to_string(),
                masked: words.contains(&"masked"),
                blocked: words.iter().find(|w| **w == "unmatched").map(ToString::to_string),
                headline: words.iter().find(|w| ["slower", "faster"].contains(w)).map(ToString::to_string),
            };
            let linkers = linkers.trim_end_matches(')').split(", ").filter(|l| !l.is_empty());
            std::iter::once(None).chain(linkers.map(Some)).map(expectation).collect::<Vec<_>>()
        })
        .collect()
}

impl Expectation {
    fn name(&self) -> String {
        let linker = self.linker.as_ref().map(|l| format!("/{l}")).unwrap_or_default();
        format!("order-{}{linker}", self.order)
    }

    fn build(&self) -> String {
        let linker = self.linker.as_ref().map(|l| format!("LDFLAGS=-fuse-ld={l} ")).unwrap_or_default();
        format!("{linker}ORDER={} sh build.sh", self.order)
    }
}

fn triage(case: &Path, expected: &Expectation) -> Result<(i32, Value), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_straddle"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["triage", "--format", "json", "-q", "--build", &expected.build()])
        .arg(case)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text)
        .map_err(|e| Failed::from(format!("{e}: {text:?}; stderr: {}", String::from_utf8_lossy(&output.stderr))))?;
    Ok((output.status.code().unwrap_or(-1), value))
}

fn check(case: &Path, expected: &Expectation) -> Result<(), Failed> {
    let (mut exit, mut value) = triage(case, expected)?;
    let once = std::env::var_os("STRADDLE_FIXTURES_ONCE").is_some();
    if value["verdict"] == "inconclusive" && expected.blocked.is_none() && !once {
        eprintln!("inconclusive ({}); once more", value["blocked_by"]);
        (exit, value) = triage(case, expected)?;
    }
    let percent = |key: &str| value[key]["percent"].as_f64().unwrap_or(f64::NAN);
    eprintln!(
        "{}: code {:+.1} %, luck {:+.1} %, headline {:+.1} %, {} blocks, {} runs",
        value["verdict"],
        percent("code_effect"),
        percent("layout_luck"),
        percent("headline"),
        value["blocks"],
        value["runs"]
    );
    let wrong = |what: &str| Err(Failed::from(format!("{what}, expected {expected:?}: {}", value["reasons"])));
    if value["verdict"] != expected.verdict {
        return wrong(&format!("verdict {}", value["verdict"]));
    }
    if value["blocked_by"].as_str() != expected.blocked.as_deref() {
        return wrong(&format!("blocked by {}", value["blocked_by"]));
    }
    if value["masked"] != expected.masked {
        return wrong(&format!("masked {}", value["masked"]));
    }
    let slower = percent("headline") > 0.0;
    if expected.headline.as_ref().is_some_and(|h| (h == "slower") != slower) {
        return wrong(&format!("headline {:+.1} %", percent("headline")));
    }
    let right = match expected.verdict.as_str() {
        "code" | "both" => 1,
        "inconclusive" => 3,
        _ => 0,
    };
    if exit != right {
        return wrong(&format!("exit code {exit}"));
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).collect();
    cases.retain(|c| c.join("build.sh").is_file());
    cases.sort();
    let mut trials = Vec::new();
    for case in cases {
        let expectations = expectations(&case.join("build.sh"));
        assert!(!expectations.is_empty(), "{} states no expectation", case.display());
        for expected in expectations {
            let case = case.clone();
            let name = format!("{}/{}", case.file_name().unwrap().to_string_lossy(), expected.name());
            trials.push(Trial::test(name, move || check(&case, &expected)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
