//! [`Scan`] → [`Page`]: a summary by section, then the first findings.

use crate::finding::Finding;
use crate::rules::{Scan, SectionCounts};

use super::page::{Block, Page, Table};

const SECTIONS: usize = 12;
const FINDINGS: usize = 12;

/// `all`: every row instead of the first ones.
#[must_use]
pub fn page(scan: &Scan, all: bool) -> Page {
    let (image, totals) = (&scan.image, &scan.totals.counts);
    let mut page = Page {
        title: format!("{}: {} {}, line {} bytes", image.path, image.machine, kind(scan), image.line_size),
        sentence: sentence(scan),
        ..Page::default()
    };
    if totals.objects > 0 {
        page.blocks.push(Block::Table(sections(scan, all)));
        page.blocks.push(Block::Text(format!("classes: {}", listing(&scan.totals.classes))));
    }
    if !scan.findings.is_empty() {
        page.blocks.push(Block::Table(findings(scan, all)));
        page.notes.push(
            "Known from symbols only: what is named like a lock or a counter comes first; who reads and writes is not known."
                .to_string(),
        );
    }
    if image.symbols_from != crate::image::SymbolsFrom::Symtab {
        page.notes.push("Stripped: only the dynamic symbols (.dynsym) were read; local objects are not seen.".into());
    }
    page.notes.extend(scan.problems.iter().map(|p| format!("problem: {p}")));
    if !scan.skipped.is_empty() {
        page.notes.push(format!("left out: {}", listing(&scan.skipped)));
    }
    page
}

fn kind(scan: &Scan) -> &'static str {
    use crate::image::Kind as K;
    match scan.image.kind {
        K::Executable => "executable",
        K::Pie => "position-independent executable",
        K::Shared => "shared library",
        K::Object => "object file",
        K::Module => "kernel module",
        K::Vmlinux => "kernel",
    }
}

fn sentence(scan: &Scan) -> String {
    let c = &scan.totals.counts;
    if c.objects == 0 {
        return "No data objects: no symbol of data has a size here.".to_string();
    }
    format!(
        "{} data objects; {} of the {} that fit a line straddle one ({} of them metadata); {} lines hold two or more.",
        c.objects, c.straddling, c.small, c.straddling_metadata, c.lines_shared
    )
}

fn sections(scan: &Scan, all: bool) -> Table {
    let heads =
        ["section", ">objects", ">fit a line", ">straddle", ">lines shared", ">metadata", ">metadata that straddles"];
    let mut table = Table::new("", &heads);
    let mut order: Vec<&SectionCounts> = scan.sections.iter().collect();
    if !all {
        order.sort_by_key(|s| (std::cmp::Reverse(s.counts.objects), s.index));
    }
    let shown = if all { order.len() } else { SECTIONS };
    for section in order.iter().take(shown) {
        let c = &section.counts;
        let numbers = [c.objects, c.small, c.straddling, c.lines_shared, c.metadata, c.straddling_metadata];
        table.rows.push(std::iter::once(section.name.clone()).chain(numbers.iter().map(u64::to_string)).collect());
    }
    table.more = more(order.len(), shown, "sections");
    table
}

fn findings(scan: &Scan, all: bool) -> Table {
    let heads = ["severity", "rule", "object", "section", ">size (bytes)", ">phase", "with", ">cost (bytes)", "advice"];
    let mut table = Table::new("findings", &heads);
    let shown = if all { scan.findings.len() } else { FINDINGS };
    for finding in top(&scan.findings, shown) {
        let subject = &finding.subject;
        table.rows.push(vec![
            format!("{:?}", finding.severity).to_lowercase(),
            finding.rule.to_string(),
            subject.name.clone(),
            subject.section.clone(),
            subject.size.to_string(),
            subject.phase.to_string(),
            with(finding, all),
            finding.cost_bytes.map_or_else(|| "?".to_string(), |c| c.to_string()),
            finding.advice.clone(),
        ]);
    }
    table.more = more(scan.findings.len(), shown, "findings");
    table
}

/// The first ones, but no rule takes more than half while another has some left: fifty locks that straddle must not
/// hide the first line that is shared.
fn top(findings: &[Finding], shown: usize) -> Vec<&Finding> {
    if findings.len() <= shown {
        return findings.iter().collect();
    }
    let mut seen = std::collections::BTreeMap::new();
    let (mut picked, mut rest) = (Vec::new(), Vec::new());
    for (rank, finding) in findings.iter().enumerate() {
        let n: &mut usize = seen.entry(finding.rule).or_default();
        *n += 1;
        if *n <= shown / 2 { picked.push(rank) } else { rest.push(rank) }
    }
    picked.extend(rest.into_iter().take(shown.saturating_sub(picked.len())));
    picked.sort_unstable();
    picked.into_iter().take(shown).filter_map(|rank| findings.get(rank)).collect()
}

/// The others on the line; two of them unless all are wanted.
fn with(finding: &Finding, all: bool) -> String {
    let shown = if all { finding.others.len() } else { 2 };
    let mut names: Vec<String> = finding.others.iter().take(shown).map(|o| o.name.clone()).collect();
    if finding.others.len() > shown {
        names.push(format!("{} more", finding.others.len() - shown));
    }
    names.join(", ")
}

pub(super) fn more(of: usize, shown: usize, what: &str) -> Option<String> {
    (of > shown).then(|| format!("{} more {what}: --all", of - shown))
}

fn listing<K: AsRef<str>>(counts: &std::collections::BTreeMap<K, u64>) -> String {
    counts.iter().map(|(name, n)| format!("{n} {}", name.as_ref())).collect::<Vec<_>>().join("; ")
}
