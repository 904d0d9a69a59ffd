//! [`Findings`] → SARIF 2.1.0 (OASIS), which code scanning takes.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::finding::Severity;
use crate::rules::{About, about};

use super::findings::{Findings, Item};
use super::table::one_line;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Writes one run.
pub fn write(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    let used: BTreeSet<&str> = findings.items.iter().map(|item| item.rule).collect();
    let rules: Vec<&About> = used.into_iter().filter_map(about).collect();
    let results: Vec<Value> = findings.items.iter().map(|item| result(item, &rules)).collect();
    let mut told: Vec<Value> = findings.problems.iter().map(|p| json!({ "message": { "text": text(p) } })).collect();
    if findings.left_out > 0 {
        let weak = format!("{} findings of severity info are not listed (--all lists them)", findings.left_out);
        told.push(json!({ "level": "note", "message": { "text": weak } }));
    }
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "straddle",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| described(rule)).collect::<Vec<_>>(),
            } },
            "invocations": [{ "executionSuccessful": true, "toolExecutionNotifications": told }],
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

fn described(rule: &About) -> Value {
    json!({
        "id": rule.name,
        "shortDescription": { "text": rule.short },
        "fullDescription": { "text": rule.help },
        "help": { "text": rule.help },
    })
}

fn result(item: &Item, rules: &[&About]) -> Value {
    let (file, line) = item.place();
    let mut physical = json!({ "artifactLocation": { "uri": uri(file) } });
    if let (Some(line), Some(physical)) = (line, physical.as_object_mut()) {
        physical.insert("region".to_string(), json!({ "startLine": line.max(1) }));
    }
    let mut out = json!({
        "ruleId": item.rule,
        "level": match item.severity {
            Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low | Severity::Info => "note",
        },
        "message": { "text": text(&item.message) },
        "locations": [{
            "physicalLocation": physical,
            "logicalLocations": [{ "fullyQualifiedName": item.name, "kind": "variable" }],
        }],
        "partialFingerprints": { "straddleIdentity/v1": item.fingerprint },
        "properties": { "severity": item.severity, "image": one_line(&item.image) },
    });
    let index = rules.iter().position(|rule| rule.name == item.rule);
    if let (Some(index), Some(out)) = (index, out.as_object_mut()) {
        out.insert("ruleIndex".to_string(), json!(index));
    }
    out
}

/// `[words](target)` would be a link (SARIF 3.11.6); a name may look like one.
fn text(text: &str) -> String {
    one_line(text).replace("](", "] (")
}

/// A path as a URI (RFC 3986): of what is not below the root, an absolute one.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("src/a b%.c"), "src/a%20b%25.c");
        assert_eq!(uri("/usr/include/é:#?.h"), "file:///usr/include/%C3%A9%3A%23%3F.h");
    }
}
