//! [`Findings`] → GitLab's code quality report, which annotates a merge request.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::finding::Severity;

use super::findings::{Findings, Item};
use super::table::one_line;

/// Writes a JSON array, one entry a finding.
pub fn write(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    let entries: Vec<Value> = findings.items.iter().map(entry).collect();
    serde_json::to_writer_pretty(&mut *out, &entries)?;
    writeln!(out)
}

fn entry(item: &Item) -> Value {
    let (file, line) = item.place();
    json!({
        "description": item.message,
        "check_name": item.rule,
        "fingerprint": item.fingerprint,
        "severity": match item.severity {
            Severity::High => "critical",
            Severity::Medium => "major",
            Severity::Low => "minor",
            Severity::Info => "info",
        },
        // A line is a must: of a file without one it is the first.
        "location": { "path": one_line(file), "lines": { "begin": line.unwrap_or(1) } },
    })
}
