//! Placement rules that a project writes down in `straddle.toml`: do they hold in these images?

mod ground;
mod judge;
mod spec;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Baseline, Scan, Seen};
use crate::error::Result;
use crate::finding::{Evidence, Finding, Severity, Subject};
use crate::heat::Heat;
use crate::image::{Class, Facts, Image};
use crate::layout::Lines;
use crate::objects::Objects;
use crate::types::Types;
use crate::units::{Addr, LineSize, Phase};

use ground::Ground;

pub use spec::{Bound, Deliberate, Relation, Rule, What, contradiction};

/// The schema of [`Check`].
pub const SCHEMA: &str = "straddle.check/1";

/// What a placement rule can ask, and what `check` says beside it.
pub const NAMES: &[&str] =
    &["drift", "group", "max-size", "no-match", "no-straddle", "offset", "own-line", "separate", "together"];

/// `straddle.check/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub schema: &'static str,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    pub images: Vec<Facts>,
    pub rules: Vec<RuleReport>,
    /// Whether what `scan` finds is among the findings.
    pub scanned: bool,
    /// Findings that the baseline has too; `null`: there is none.
    pub known: Option<u64>,
    /// Worst first.
    pub findings: Vec<Told>,
}

/// One rule and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReport {
    /// Of the file that it stands in.
    pub line: u32,
    /// As it is written there, on one line.
    pub text: String,
    pub why: Option<String>,
    /// It holds wherever it applies, and applies somewhere.
    pub holds: bool,
    pub images: Vec<InImage>,
}

/// What came of a rule in one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InImage {
    pub path: String,
    pub outcome: Outcome,
    /// Objects and members that were judged.
    pub matched: u64,
    /// Why nothing was judged, or the first violation.
    pub says: Option<String>,
}

/// Whether a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Holds,
    Violated,
    /// Nothing there is called so.
    NoMatch,
    /// The rule is for another word size.
    NotApplied,
}

/// A finding, and where it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    pub image: String,
    /// Of the rule in its file; `null`: it is none of a rule.
    pub rule_line: Option<u32>,
    #[serde(flatten)]
    pub finding: Finding,
}

/// What is asked of [`Check`].
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub rules: &'a [Rule],
    /// Layouts that are meant.
    pub allowed: &'a [Deliberate],
    /// Overrides the line of each image's machine.
    pub line: Option<LineSize>,
}

/// One image, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    facts: Facts,
    /// Of each rule.
    outcomes: Vec<InImage>,
    findings: Vec<Told>,
    problems: Vec<String>,
    skipped: BTreeMap<String, u64>,
    /// Of each deliberate layout: whether there is any.
    meant: Vec<bool>,
}

/// Judges every rule in one image. `types`: what it declares; `named`: its definitions, all of them.
///
/// # Errors
/// When the image has neither symbols nor types.
pub fn judge(
    image: &Image<'_>,
    (types, named): (Option<&Types<'_>>, Option<&Types<'_>>),
    rules: &Rules<'_>,
) -> Result<Judged> {
    if named.is_none_or(|t| t.from.is_none()) {
        image.need_symbols()?;
    }
    let size = rules.line.unwrap_or_else(|| image.line_size());
    let objects = Objects::data(image);
    let mut skipped = BTreeMap::new();
    let lines = Lines::of(objects, size);
    let heat = Heat::default();
    let seen = Seen::of(image, &lines, (types, &heat), &mut skipped);
    let mut ground = Ground::of(image, seen, named);
    let bits = match image.class {
        Class::Elf32 => 32,
        Class::Elf64 => 64,
    };
    let (mut outcomes, mut findings) = (Vec::new(), Vec::new());
    let told = |rule_line, finding| Told { image: image.path.clone(), rule_line, finding };
    for rule in rules.rules {
        let outcome = |outcome, matched, says| InImage { path: image.path.clone(), outcome, matched, says };
        if rule.bits.is_some_and(|wanted| wanted != bits) {
            outcomes.push(outcome(Outcome::NotApplied, 0, Some(format!("the image has {bits} bits"))));
            continue;
        }
        match judge::judge(&mut ground, rule) {
            Err(why) => outcomes.push(outcome(Outcome::NoMatch, 0, Some(why))),
            Ok(judged) if judged.findings.is_empty() => {
                outcomes.push(outcome(Outcome::Holds, judged.matched, None));
            }
            Ok(judged) => {
                let first = judged.findings.first().map(|f| format!("{}: {}", f.subject.name, f.advice));
                outcomes.push(outcome(Outcome::Violated, judged.matched, first));
                if judged.more > 0 {
                    *skipped.entry("violations of a rule beyond its first hundred".to_string()).or_insert(0) +=
                        judged.more;
                }
                findings.extend(judged.findings.into_iter().map(|f| told(Some(rule.line), with_why(f, rule))));
            }
        }
    }
    let mut meant = Vec::new();
    for deliberate in rules.allowed {
        let spots = ground.spots((0, &deliberate.name), None, true).unwrap_or_default();
        meant.push(!spots.is_empty());
        let moved = deliberate.offset.map_or_else(Vec::new, |offset| judge::drift(&spots, offset, size));
        findings.extend(moved.into_iter().map(|f| told(Some(deliberate.line), f)));
    }
    findings.extend(judge::groups(&mut ground).into_iter().map(|f| told(None, f)));
    let assumed = rules.line.map_or_else(|| image.line_problem(), |_| None);
    let problems = image.problems.iter().cloned().chain(assumed).collect();
    let from = named.and_then(|t| t.from);
    let facts = Facts { types_from: from, ..Facts::of(image, size) };
    Ok(Judged { facts, outcomes, findings, problems, skipped, meant })
}

fn with_why(finding: Finding, rule: &Rule) -> Finding {
    let why = rule.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    Finding { advice: format!("{}{why}", finding.advice), ..finding }
}

impl Judged {
    /// Adds what stood in the way of reading the image.
    pub fn tell(&mut self, problems: Vec<String>) {
        self.problems.extend(problems);
    }

    /// Adds what a scan of the same image found, without what it says of lines that nothing is known of.
    pub fn take(&mut self, scan: Scan) {
        self.findings.extend(scan.findings.into_iter().map(|finding| Told {
            image: scan.image.path.clone(),
            rule_line: None,
            finding,
        }));
        for (reason, count) in scan.skipped {
            *self.skipped.entry(reason).or_insert(0) += count;
        }
    }
}

impl Check {
    /// All images together; a rule that matches nothing in any is violated. With a baseline, only what it has not.
    #[must_use]
    pub fn of(judged: Vec<Judged>, rules: &Rules<'_>, scanned: bool, baseline: Option<&Baseline>) -> Check {
        let mut check = Check {
            schema: SCHEMA,
            problems: Vec::new(),
            skipped: BTreeMap::new(),
            images: Vec::new(),
            rules: Vec::new(),
            scanned,
            known: baseline.map(|_| 0),
            findings: Vec::new(),
        };
        for (at, rule) in rules.rules.iter().enumerate() {
            let images: Vec<InImage> = judged.iter().filter_map(|j| j.outcomes.get(at).cloned()).collect();
            let is = |outcome| move |i: &&InImage| i.outcome == outcome;
            let applied = images.iter().filter(|i| i.outcome != Outcome::NotApplied).count();
            let proved = images.iter().any(|i| i.outcome == Outcome::Holds);
            let violated = images.iter().any(|i| i.outcome == Outcome::Violated);
            if applied == 0 {
                check.problems.push(format!("line {}: no image that the rule is for: {rule}", rule.line));
            } else if !proved && !violated {
                let why = images.iter().find(is(Outcome::NoMatch)).and_then(|i| i.says.clone()).unwrap_or_default();
                check.findings.push(unmatched(rule, &judged, why));
            }
            let (line, text, why) = (rule.line, rule.to_string(), rule.why.clone());
            check.rules.push(RuleReport { line, text, why, holds: proved && !violated, images });
        }
        for (at, deliberate) in rules.allowed.iter().enumerate() {
            if !judged.iter().any(|j| j.meant.get(at).copied().unwrap_or_default()) {
                let problem =
                    format!("line {}: nothing is called {}, which is allowed", deliberate.line, deliberate.name);
                check.problems.push(problem);
            }
        }
        for image in judged {
            let path = &image.facts.path;
            check.problems.extend(image.problems.iter().map(|p| format!("{path}: {p}")));
            for (reason, count) in image.skipped {
                *check.skipped.entry(reason).or_insert(0) += count;
            }
            check.findings.extend(image.findings);
            check.images.push(image.facts);
        }
        if let Some(baseline) = baseline {
            let before = check.findings.len();
            check.findings = baseline.new_in(std::mem::take(&mut check.findings));
            check.known = Some((before - check.findings.len()) as u64);
        }
        check.findings.sort_by_key(|t| (t.finding.severity, t.rule_line.is_none(), t.finding.evidence));
        check
    }

    /// Whether a rule is violated that the baseline does not know to be.
    #[must_use]
    pub fn violated(&self) -> bool {
        self.findings.iter().any(|t| gates(t.finding.rule))
    }
}

/// Whether a finding of this rule fails a check by itself.
#[must_use]
pub fn gates(rule: &str) -> bool {
    NAMES.contains(&rule) && !matches!(rule, "drift" | "group")
}

/// A rule that proves nothing, anywhere.
fn unmatched(rule: &Rule, judged: &[Judged], why: String) -> Told {
    let subject = Subject {
        name: rule.what.targets().join(", "),
        section: String::new(),
        address: Addr(0),
        size: 0,
        phase: Phase(0),
        type_name: None,
        file: None,
        line: None,
    };
    let image = judged.first().map_or_else(String::new, |j| j.facts.path.clone());
    let finding = Finding {
        advice: format!("the rule {rule} matches nothing in any image: {why}"),
        ..Finding::about("no-match", Severity::High, Evidence::Static, subject)
    };
    Told { image, rule_line: Some(rule.line), finding }
}
