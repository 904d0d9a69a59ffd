//! [`Check`] → [`Page`] and [`Findings`]: which rule holds, which image proved it, and what is wrong.

use crate::finding::Severity;
use crate::rules::check::{Check, InImage, Outcome, RuleReport, Told};

use super::findings::{Declared, Findings};
use super::page::{Block, Page, Table};
use super::scan::{listing, more};

const FINDINGS: usize = 20;

/// `file`: where the rules stand. `all`: every row instead of the first ones.
#[must_use]
pub fn page(check: &Check, file: &str, all: bool) -> Page {
    let mut page = Page { title: title(check), sentence: sentence(check), ..Page::default() };
    if !check.rules.is_empty() {
        page.blocks.push(Block::Table(rules(check)));
    }
    let strong = |t: &&Told| all || t.finding.severity < Severity::Info;
    let told: Vec<&Told> = check.findings.iter().filter(strong).collect();
    if !told.is_empty() {
        page.blocks.push(Block::Table(findings(&told, all)));
    }
    let weak = check.findings.len() - told.len();
    if weak > 0 {
        page.notes.push(format!("{weak} more findings are of severity info: --all"));
    }
    if !file.is_empty() {
        page.notes.push(format!("Rules: {file}."));
    }
    page.notes.extend(check.problems.iter().map(|p| format!("problem: {p}")));
    if !check.skipped.is_empty() {
        page.notes.push(format!("left out: {}", listing(&check.skipped)));
    }
    page
}

/// `weak`: those of severity `info` too.
#[must_use]
pub fn of_check(check: &Check, file: &str, weak: bool) -> Findings {
    let mut found = Findings { title: images(check), problems: check.problems.clone(), ..Findings::default() };
    let place = |t: &Told| {
        let line = t.rule_line.filter(|_| t.finding.rule == "no-match");
        line.map(|line| Declared { file: file.to_string(), line })
    };
    found.extend(check.findings.iter().map(|t| (t.image.as_str(), &t.finding, place(t))), weak);
    found
}

fn title(check: &Check) -> String {
    format!("{}: {} rules", images(check), check.rules.len())
}

fn images(check: &Check) -> String {
    match check.images.as_slice() {
        [one] => one.path.clone(),
        images => format!("{} images", images.len()),
    }
}

fn sentence(check: &Check) -> String {
    let holding = check.rules.iter().filter(|r| r.holds).count();
    let applied = |r: &&RuleReport| r.images.iter().any(|i| i.outcome != Outcome::NotApplied);
    let failing = check.rules.iter().filter(applied).filter(|r| !r.holds).count();
    let rest = check.rules.len() - holding - failing;
    let mut parts = Vec::new();
    if !check.rules.is_empty() {
        parts.push(match (failing, rest) {
            (0, 0) => "Every rule holds.".to_string(),
            (_, 0) => format!("{holding} of {} rules hold, {failing} do not.", check.rules.len()),
            _ => format!(
                "{holding} of {} rules hold, {failing} do not, and {rest} are for no image that is here.",
                check.rules.len()
            ),
        });
    }
    if let Some(known) = check.known {
        parts.push(match check.findings.len() {
            0 => format!("Nothing is new; the baseline has {known} findings of these."),
            new => format!("{new} findings are new; the baseline has {known} others."),
        });
    }
    parts.join(" ")
}

fn rules(check: &Check) -> Table {
    let mut table = Table::new("", &[">line", "rule", "image", "outcome", ">judged", "says"]);
    for rule in &check.rules {
        for (nth, image) in rule.images.iter().enumerate() {
            let first = |text: String| if nth == 0 { text } else { String::new() };
            table.rows.push(vec![
                first(rule.line.to_string()),
                first(rule.text.clone()),
                image.path.clone(),
                outcome(image).to_string(),
                image.matched.to_string(),
                image.says.clone().unwrap_or_default(),
            ]);
        }
    }
    table
}

fn outcome(image: &InImage) -> &'static str {
    match image.outcome {
        Outcome::Holds => "holds",
        Outcome::Violated => "violated",
        Outcome::NoMatch => "matches nothing",
        Outcome::NotApplied => "not for this image",
    }
}

fn findings(told: &[&Told], all: bool) -> Table {
    let heads = ["severity", "rule", "name", "declared", "image", "with", "says"];
    let mut table = Table::new("findings", &heads);
    let shown = if all { told.len() } else { FINDINGS };
    for t in told.iter().take(shown) {
        let (finding, subject) = (&t.finding, &t.finding.subject);
        let file = subject.file.as_deref().and_then(|f| f.rsplit('/').next());
        let declared = file.zip(subject.line).map_or_else(String::new, |(file, line)| format!("{file}:{line}"));
        let mut with: Vec<String> = finding.others.iter().take(2).map(|o| o.name.clone()).collect();
        if finding.others.len() > 2 {
            with.push(format!("{} more", finding.others.len() - 2));
        }
        table.rows.push(vec![
            format!("{:?}", finding.severity).to_lowercase(),
            finding.rule.to_string(),
            subject.name.clone(),
            declared,
            t.image.clone(),
            with.join(", "),
            finding.advice.clone(),
        ]);
    }
    table.more = more(told.len(), shown, "findings");
    table
}
