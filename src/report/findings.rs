//! The middle form of what annotates code: findings with their rule, their place in the source and a fingerprint. `scan`,
//! `type` and `check` build it; SARIF, GitHub and GitLab render it.

use std::collections::HashMap;

use crate::finding::{Finding, Severity, Subject};
use crate::objects::demangled;
use crate::rules::types::TypeReport;
use crate::rules::{Identity, Scan};

use super::table::one_line;

/// Findings of one or more images, worst first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What was looked at.
    pub title: String,
    pub items: Vec<Item>,
    /// Weaker ones that are not among the items.
    pub left_out: u64,
    /// What stood in the way.
    pub problems: Vec<String>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub rule: &'static str,
    pub severity: Severity,
    /// The object or member.
    pub name: String,
    /// One line that stands alone.
    pub message: String,
    /// The image's path.
    pub image: String,
    /// Where it is declared; the image where that is not known.
    pub at: Option<Declared>,
    /// The same in every build in which the finding is the same.
    pub fingerprint: String,
}

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub file: String,
    pub line: u32,
}

impl Item {
    /// The file to show it at, and the line where that is a source file.
    #[must_use]
    pub fn place(&self) -> (&str, Option<u32>) {
        self.at.as_ref().map_or((&self.image, None), |at| (&at.file, Some(at.line)))
    }
}

impl Findings {
    /// `weak`: those of severity `info` too.
    #[must_use]
    pub fn of_scan(scan: &Scan, weak: bool) -> Findings {
        let mut found =
            Findings { title: scan.image.path.clone(), problems: scan.problems.clone(), ..Findings::default() };
        found.extend(scan.findings.iter().map(|f| (scan.image.path.as_str(), f, None)), weak);
        found
    }

    /// `weak`: those of severity `info` too.
    #[must_use]
    pub fn of_types(report: &TypeReport, weak: bool) -> Findings {
        let mut found =
            Findings { title: report.image.path.clone(), problems: report.problems.clone(), ..Findings::default() };
        let all = report.types.iter().flat_map(|t| &t.findings);
        found.extend(all.map(|f| (report.image.path.as_str(), f, None)), weak);
        found
    }

    /// Adds those of an image. The place is that of the subject's declaration, or the one that is given.
    pub fn extend<'f>(&mut self, findings: impl Iterator<Item = (&'f str, &'f Finding, Option<Declared>)>, weak: bool) {
        let mut nth: HashMap<Identity, usize> = HashMap::new();
        for (image, finding, given) in findings {
            // Counted before any is left out: a fingerprint does not depend on what is shown.
            let identity = Identity::of(finding);
            let n = nth.entry(identity.clone()).or_default();
            let fingerprint = identity.fingerprint(*n);
            *n += 1;
            if finding.severity == Severity::Info && !weak {
                self.left_out += 1;
                continue;
            }
            let subject = &finding.subject;
            let declared = subject.file.clone().zip(subject.line).map(|(file, line)| Declared { file, line });
            self.items.push(Item {
                rule: finding.rule,
                severity: finding.severity,
                name: one_line(&demangled(&subject.name)),
                message: message(finding),
                image: image.to_string(),
                at: declared.or(given),
                fingerprint,
            });
        }
        self.items.sort_by_key(|item| item.severity);
    }

    /// With every path as `resolve` says: of a declaration, and of an image.
    #[must_use]
    pub fn located(mut self, resolve: impl Fn(&str) -> String) -> Findings {
        for item in &mut self.items {
            item.image = resolve(&item.image);
            if let Some(at) = &mut item.at {
                at.file = resolve(&at.file);
            }
        }
        self
    }
}

/// `lock (40 bytes, .data phase 8) with stats: …`, in plain names.
fn message(finding: &Finding) -> String {
    let subject = &finding.subject;
    let with = match finding.others.as_slice() {
        [] => String::new(),
        [one] => format!(" with {}", one.name),
        [one, rest @ ..] => format!(" with {} and {} more", one.name, rest.len()),
    };
    let said = finding.advice.as_str();
    let evidence = format!("{:?}", finding.evidence).to_lowercase();
    let text = format!("{}{}{with}: {said} (evidence: {evidence})", subject.name, place(subject));
    one_line(&demangled(&text))
}

/// Of what has no bytes in an image, nothing.
fn place(subject: &Subject) -> String {
    match (subject.size, subject.section.is_empty()) {
        (0, _) => String::new(),
        (size, true) => format!(" ({size} bytes at offset {})", subject.address.0),
        (size, false) => format!(" ({size} bytes, {} phase {})", subject.section, subject.phase),
    }
}

#[cfg(test)]
mod tests;
