//! What an earlier scan or check found, so that only what is new is told. Two findings are one when rule, section, unit and
//! names agree; where neighbours are the point, when the same two meet.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::check::Told;
use super::{Identity, Named, Written};
use crate::error::{Error, Result};

/// The findings of a `straddle.scan/1` or `straddle.check/1`.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// Whether it holds what `scan` finds.
    pub scanned: bool,
    /// Findings about one thing alone, and how many of each.
    alone: HashMap<Identity, usize>,
    /// The findings that each of several is part of, by the kind of rule.
    met: HashMap<(&'static str, Named), HashSet<usize>>,
}

#[derive(Deserialize)]
struct File {
    schema: String,
    #[serde(default)]
    scanned: bool,
    findings: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    rule: String,
    subject: Written,
    #[serde(default)]
    others: Vec<Written>,
}

/// One kind for rules that say the same of neighbours: which of them speaks depends on what is known of who writes.
fn kind(rule: &str) -> &'static str {
    match rule {
        "shared-line" | "shared-tail" | "write-beside-read" => "neighbours",
        "adjacent-lines" => "adjacent-lines",
        "separate" => "separate",
        "own-line" => "own-line",
        "together" => "together",
        "group" => "group",
        _ => "other",
    }
}

impl Baseline {
    /// # Errors
    /// When the text is no JSON of one of these schemas. `path`: for messages.
    pub fn parse(text: &str, path: &str) -> Result<Baseline> {
        #[derive(Deserialize)]
        struct Head {
            schema: Option<String>,
        }
        let doing = || format!("reading the baseline {path}");
        let wrong = |e: serde_json::Error| Error::input(doing(), format!("no JSON of a scan or check: {e}")).because(e);
        let head: Head = serde_json::from_str(text).map_err(wrong)?;
        let known = [super::SCHEMA, super::check::SCHEMA];
        match head.schema {
            Some(schema) if known.contains(&schema.as_str()) => {}
            Some(schema) => {
                let problem = format!("its schema is {schema}");
                return Err(Error::input(doing(), problem).hint(known.join(" or ")));
            }
            None => return Err(Error::input(doing(), "it has no schema").hint(known.join(" or "))),
        }
        let file: File = serde_json::from_str(text).map_err(wrong)?;
        let mut baseline = Baseline { scanned: file.scanned || file.schema == super::SCHEMA, ..Baseline::default() };
        for (at, known) in file.findings.into_iter().enumerate() {
            if known.others.is_empty() {
                let identity = Identity { rule: known.rule, of: Named::from(&known.subject) };
                *baseline.alone.entry(identity).or_default() += 1;
                continue;
            }
            for one in std::iter::once(&known.subject).chain(&known.others) {
                baseline.met.entry((kind(&known.rule), Named::from(one))).or_default().insert(at);
            }
        }
        Ok(baseline)
    }

    /// Those that are new; of neighbours only the new ones are left, and named.
    #[must_use]
    pub fn new_in(&self, told: Vec<Told>) -> Vec<Told> {
        let mut left = self.alone.clone();
        told.into_iter().filter_map(|t| self.new_of(t, &mut left)).collect()
    }

    fn new_of(&self, mut told: Told, left: &mut HashMap<Identity, usize>) -> Option<Told> {
        let finding = &mut told.finding;
        if finding.others.is_empty() {
            return match left.get_mut(&Identity::of(finding)) {
                Some(n) if *n > 0 => {
                    *n -= 1;
                    None
                }
                _ => Some(told),
            };
        }
        let kind = kind(finding.rule);
        let of = |named: Named| self.met.get(&(kind, named));
        let own = of(Named::from(&finding.subject));
        let known = |named: Named| own.zip(of(named)).is_some_and(|(a, b)| !a.is_disjoint(b));
        let before = finding.others.len();
        finding.others.retain(|other| !known(Named::from(other)));
        let first = finding.others.first()?;
        if matches!(kind, "neighbours" | "adjacent-lines") {
            let more = finding.others.len() - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let whose = if kind == "neighbours" { "line" } else { "pair of lines" };
            let says = format!("this change moved {} onto {}'s {whose}{more}", finding.subject.name, first.name);
            let old = before - finding.others.len();
            let old = if old > 0 { format!(" ({old} were there before)") } else { String::new() };
            finding.advice = format!("{says}{old}; {}", finding.advice);
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Evidence, Finding, Severity, Subject};
    use crate::units::{Addr, Phase};

    fn subject(name: &str) -> Subject {
        Subject {
            name: name.to_string(),
            section: ".data".to_string(),
            address: Addr(64),
            size: 8,
            phase: Phase(0),
            type_name: None,
            file: Some("/build/one/fork.c".to_string()),
            line: None,
        }
    }

    fn told(rule: &'static str, name: &str, others: &[&str]) -> Told {
        let finding = Finding::about(rule, Severity::Low, Evidence::Static, subject(name));
        let others = others.iter().map(|name| subject(name)).collect();
        Told { image: "vmlinux".to_string(), rule_line: None, finding: Finding { others, ..finding } }
    }

    fn baseline(findings: &[Told]) -> Baseline {
        let text = serde_json::json!({ "schema": "straddle.check/1", "scanned": true, "findings": findings });
        Baseline::parse(&text.to_string(), "b.json").unwrap()
    }

    #[test]
    fn only_a_new_neighbour_is_new() {
        let old = baseline(&[
            told("shared-line", "a", &["b", "c"]),
            told("straddle", "s.12", &[]),
            told("straddle", "s.13", &[]),
        ]);
        // Who speaks for a line may change, and where the tree was built.
        let known = told("write-beside-read", "b", &["c", "a"]);
        let mut elsewhere = told("straddle", "s.99", &[]);
        elsewhere.finding.subject.file = Some("/elsewhere/fork.c".to_string());
        assert!(old.new_in(vec![known, elsewhere.clone(), told("straddle", "s.7", &[])]).is_empty());
        assert_eq!(old.new_in(vec![elsewhere.clone(), elsewhere.clone(), elsewhere]).len(), 1, "one more than before");
        let new = old.new_in(vec![told("shared-line", "tasklist_lock", &["a"]), told("shared-line", "a", &["b", "x"])]);
        assert!(new[0].finding.advice.starts_with("this change moved tasklist_lock onto a's line"), "{new:?}");
        assert!(new[1].finding.advice.starts_with("this change moved a onto x's line (1 were there before)"));
        assert_eq!(new[1].finding.others.len(), 1);
    }

    #[test]
    fn another_schema_is_an_error() {
        for text in [
            "{\"schema\": \"straddle.diff/1\", \"findings\": []}",
            "{}",
            "[]",
            "no",
            "{\"schema\": \"straddle.scan/1\"}",
        ] {
            let error = Baseline::parse(text, "b.json").unwrap_err().to_string();
            assert!(error.contains("b.json") && error.lines().count() == 1, "{error}");
        }
    }
}
