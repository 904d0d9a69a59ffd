//! Forty findings through every renderer: the snapshots beside this file are what CI gets to see.

use serde_sarif::sarif::{ResultLevel, Sarif};

use super::*;
use crate::finding::Evidence;
use crate::image::{Class, Facts, Kind, Sizes, SymbolsFrom, TypesFrom};
use crate::layout::Counts;
use crate::report::page::View;
use crate::report::{csv, github, gitlab, html, markdown, sarif, scan};
use crate::rules::{NAMES, SCHEMA, Totals};
use crate::units::{Addr, Phase};

fn subject(n: u64) -> Subject {
    let address = 0x4000 + 24 * n;
    Subject {
        // Two statics of one name in one file: told apart by their order alone.
        name: if n % 20 == 7 { format!("state.{n}") } else { format!("counter_{n}.lock") },
        section: if n.is_multiple_of(3) { ".bss" } else { ".data" }.to_string(),
        address: Addr(address),
        size: 8 * (1 + n % 4),
        phase: Phase((address % 64) as u32),
        type_name: Some("spinlock_t".to_string()),
        file: (n % 5 != 4).then(|| format!("/build/linux-6.12/kernel/part {}.c", n % 4)),
        line: (n % 5 < 3).then_some(10 + n as u32),
    }
}

/// A scan as of a server, forty findings of every rule and severity, worst first.
fn forty() -> Scan {
    let severities = [Severity::High, Severity::Medium, Severity::Low, Severity::Info];
    let findings = (0..40u64).map(|n| {
        let at = n as usize;
        let severity = severities[at / 10];
        let others = (0..n % 3).map(|other| subject(100 + other)).collect();
        let advice = format!("aligned(64) keeps it apart, 100 % of the time (finding {n})");
        let finding = Finding::about(NAMES[at % NAMES.len()], severity, Evidence::Typed, subject(n));
        Finding { others, advice, cost_bytes: Some(8 * n), ..finding }
    });
    let counts = Counts { objects: 60, small: 50, straddling: 12, lines_shared: 9, ..Counts::default() };
    Scan {
        schema: SCHEMA,
        problems: vec!["not linked yet: addresses are offsets into sections".to_string()],
        skipped: [("no size".to_string(), 3)].into(),
        image: Facts {
            path: "build/server".to_string(),
            packed: None,
            kind: Kind::Pie,
            machine: "x86_64".to_string(),
            class: Class::Elf64,
            build_id: None,
            line_size: 64,
            symbols_from: SymbolsFrom::Symtab,
            sizes: Sizes::Exact,
            types_from: Some(TypesFrom::Dwarf),
        },
        totals: Totals { counts, classes: [("bss", 20), ("data", 40)].into() },
        sections: Vec::new(),
        findings: findings.collect(),
        maps: Vec::new(),
        profiles: Vec::new(),
    }
}

fn findings() -> Findings {
    let strip = |path: &str| path.strip_prefix("/build/linux-6.12/").unwrap_or(path).to_string();
    Findings::of_scan(&forty(), false).located(strip)
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn for_code_scanning() {
    let text = text(|out| sarif::write(&findings(), out));
    // Read back by another's types.
    let log: Sarif = serde_json::from_str(&text).unwrap();
    let run = &log.runs[0];
    let rules = run.tool.driver.rules.as_ref().unwrap();
    let results = run.results.as_ref().unwrap();
    assert_eq!((results.len(), rules.len()), (30, NAMES.len()));
    for result in results {
        let index = usize::try_from(result.rule_index.unwrap()).unwrap();
        assert_eq!(result.rule_id.as_deref(), Some(rules[index].id.as_str()));
        let place = result.locations.as_ref().unwrap()[0].physical_location.as_ref().unwrap();
        let uri = place.artifact_location.as_ref().unwrap().uri.as_deref().unwrap();
        assert_eq!(place.region.is_some(), uri.starts_with("kernel/part%20"), "{uri}");
        assert!(place.region.is_some() || uri == "build/server");
    }
    assert!(matches!(results[0].level, Some(ResultLevel::Error)));
    let prints: std::collections::HashSet<_> =
        results.iter().map(|r| r.partial_fingerprints.as_ref().unwrap()["straddleIdentity/v1"].clone()).collect();
    assert_eq!(prints.len(), results.len(), "each is one");
    insta::assert_snapshot!(text);
}

#[test]
fn for_the_lines_of_a_pull_request() {
    let text = text(|out| github::write(&findings(), out));
    assert!(text.lines().all(|line| line.starts_with("::")));
    insta::assert_snapshot!(text);
}

#[test]
fn for_the_lines_of_a_merge_request() {
    insta::assert_snapshot!(text(|out| gitlab::write(&findings(), out)));
}

#[test]
fn for_a_job_summary() {
    insta::assert_snapshot!(text(|out| markdown::write(&scan::page(&forty(), View::Screen), out)));
}

#[test]
fn for_a_browser() {
    let text = text(|out| html::write(&scan::page(&forty(), View::Document), out));
    // Style and script are files of their own.
    let body = text.split("<script>").next().and_then(|t| t.split_once("<body>")).unwrap().1;
    insta::assert_snapshot!(body);
}

#[test]
fn for_a_spreadsheet() {
    insta::assert_snapshot!(text(|out| csv::write(&scan::page(&forty(), View::All), out)));
}

/// A build elsewhere, at other addresses, has the same fingerprints; and what is shown does not change them.
#[test]
fn fingerprints_do_not_move() {
    let mut elsewhere = forty();
    for finding in &mut elsewhere.findings {
        finding.subject.address = Addr(finding.subject.address.0 + 0x1008);
        finding.subject.file = finding.subject.file.take().map(|f| f.replace("/build/linux-6.12", "/home/me/linux"));
    }
    let prints = |found: Findings| found.items.into_iter().map(|i| i.fingerprint).collect::<Vec<_>>();
    let (here, there) = (prints(Findings::of_scan(&forty(), true)), prints(Findings::of_scan(&elsewhere, true)));
    assert_eq!(here, there);
    assert_eq!(here[..30], prints(Findings::of_scan(&forty(), false)));
}
