//! [`TypeReport`] → [`Page`]: one type member by member, or a list of types with their worst finding.

use crate::finding::{Finding, Severity};
use crate::rules::types::{MemberView, TypeReport, TypeView};

use super::drawn::of_type;
use super::page::{Block, Page, Table, View};
use super::scan::{alternatives, listing, more, of_places};

const TYPES: usize = 20;
const FINDINGS: usize = 12;
/// Definitions of one name that are shown in full.
const DEFINITIONS: usize = 4;

/// `list`: one row a type; otherwise every member of each.
#[must_use]
pub fn page(report: &TypeReport, list: bool, view: View) -> Page {
    let image = &report.image;
    let mut page =
        Page { title: format!("{}: {}, line {} bytes", image.path, image.machine, image.line_size), ..Page::default() };
    if list {
        list_of(report, view, &mut page);
    } else {
        let of = report.types.len();
        if of > 1 {
            page.sentence = format!("{of} definitions differ.");
        }
        let shown = if view == View::All { of } else { DEFINITIONS };
        for one in report.types.iter().take(shown) {
            if view == View::Document {
                page.blocks.extend(of_type(one, image.line_size));
            }
            detail(one, view == View::All, &mut page);
        }
        page.notes.extend(more(of, shown, "definitions"));
    }
    page.notes.extend(report.problems.iter().map(|p| format!("problem: {p}")));
    if !report.skipped.is_empty() {
        page.notes.push(format!("left out: {}", listing(&report.skipped)));
    }
    page
}

fn worst(view: &TypeView) -> Option<Severity> {
    view.findings.first().map(|f| f.severity)
}

fn severity(of: Option<Severity>) -> String {
    of.map_or_else(String::new, |s| format!("{s:?}").to_lowercase())
}

fn list_of(report: &TypeReport, view: View, page: &mut Page) {
    // What stands beside a lock of its own struct is often what the lock guards.
    let strong = |v: &&TypeView| view == View::All || worst(v).is_some_and(|s| s < Severity::Info);
    let views: Vec<&TypeView> = report.types.iter().filter(strong).collect();
    let weak = report.types.len() - views.len();
    page.sentence = format!(
        "{} types; {} with findings above info.",
        report.types.len(),
        report.types.iter().filter(|v| worst(v).is_some_and(|s| s < Severity::Info)).count()
    );
    let heads = ["severity", "type", ">size (bytes)", ">lines", "objects begin", ">findings", "the first"];
    let mut table = Table::new("", &heads);
    let shown = view.rows(TYPES);
    for view in views.iter().take(shown) {
        table.rows.push(vec![
            severity(worst(view)),
            view.name.clone(),
            view.size.to_string(),
            view.lines.to_string(),
            begin(view),
            view.findings.len().to_string(),
            view.findings.first().map_or_else(String::new, |f| f.advice.clone()),
        ]);
    }
    table.more = more(views.len(), shown, "types");
    if !table.rows.is_empty() {
        page.blocks.push(Block::Table(table));
    }
    if weak > 0 {
        page.notes.push(format!("{weak} more types have nothing above info: --all"));
    }
    page.notes.push("One type by its name shows its members: straddle type IMAGE NAME.".to_string());
}

/// Where objects begin, in a few words.
fn begin(view: &TypeView) -> String {
    match view.base.phase {
        Some(phase) => format!("at phase {phase}"),
        None => format!("at multiples of {}", view.base.align),
    }
}

fn detail(view: &TypeView, all: bool, page: &mut Page) {
    let place = match view.base.phase {
        Some(phase) if view.base.phases == 1 && view.base.align >= view.align => {
            format!("assumed: every object begins at phase {phase} of a line")
        }
        _ => format!(
            "assumed: objects begin at any multiple of {} ({} phases; --align and --at say otherwise); lines are shown \
             for phase 0",
            view.base.align, view.base.phases
        ),
    };
    let copies = if view.copies > 1 { format!(", {} equal definitions", view.copies) } else { String::new() };
    let whole = view.sensitivity.filter(|s| s.straddles > 0).map_or_else(String::new, |s| {
        format!(
            " An object lies on two lines at {} of {} bases; aligned({}) ends it.",
            s.straddles,
            s.of,
            view.size.next_power_of_two()
        )
    });
    page.blocks.push(Block::Text(format!(
        "{} {}: {} bytes on {}, needs alignment {}{copies}; {place}.{whole}",
        view.kind,
        view.name,
        view.size,
        lines(view.lines),
        view.align
    )));
    page.blocks.push(Block::Table(members(view, all)));
    let spread: Vec<String> = view.members.iter().filter_map(occupancy).collect();
    if !spread.is_empty() {
        let heading = "elements that begin on each line, by the phase of the base".to_string();
        page.blocks.push(Block::List { heading, items: spread });
    }
    if !view.findings.is_empty() {
        page.blocks.push(Block::Table(findings(view, all)));
        page.blocks.extend(alternatives(view.findings.iter().take(FINDINGS)));
    }
    if let Some(reorder) = &view.reorder {
        let names: Vec<&str> = reorder.members.iter().map(|m| m.name.as_deref().unwrap_or("{…}")).collect();
        page.blocks.push(Block::Text(format!(
            "in another order {} bytes instead of {} ({} instead of {}), pads, groups and alignments kept: {}",
            reorder.size_after,
            reorder.size_before,
            lines(reorder.lines_after),
            reorder.lines_before,
            names.join(", ")
        )));
    }
}

fn lines(n: u64) -> String {
    if n == 1 { "1 line".to_string() } else { format!("{n} lines") }
}

fn members(view: &TypeView, all: bool) -> Table {
    let heads = [">line", ">offset", ">size", "member", "type", "on two lines", "contended", "meets on a line"];
    let mut table = Table::new("", &heads);
    let told = |m: &MemberView| view.findings.iter().any(|f| about(f, &view.name, m));
    let shown = |m: &&MemberView| all || m.depth == 0 || view.members.len() == 1 || told(m);
    let mut holes = view.holes.iter().flatten().peekable();
    let mut group: Option<&str> = None;
    let mut left = 0;
    for member in &view.members {
        if member.depth == 0 {
            while let Some(hole) = holes.next_if(|h| h.offset < member.offset) {
                table.rows.push(gap(hole.offset, hole.size, "hole"));
            }
        }
        if !shown(&member) {
            left += 1;
            continue;
        }
        let before = std::mem::replace(&mut group, member.group.as_deref());
        if group != before
            && let Some(name) = group
        {
            table.rows.push(words(&format!("group {name}")));
        }
        table.rows.push(row(member));
    }
    if view.padding > 0 {
        table.rows.push(gap(view.size - view.padding, view.padding, "padding at the end"));
    }
    table.more = (left > 0).then(|| format!("{left} more members inside these: --all"));
    table
}

fn about(finding: &Finding, name: &str, member: &MemberView) -> bool {
    let is = |full: &str| full.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) == Some(member.path.as_str());
    is(&finding.subject.name) || (finding.severity < Severity::Info && finding.others.iter().any(|o| is(&o.name)))
}

fn row(member: &MemberView) -> Vec<String> {
    let lines = member.lines.iter().map(u64::to_string).collect::<Vec<_>>().join("–");
    let size = match (member.bits, member.size) {
        (Some(bits), _) => format!("{} bits", bits.count),
        (None, Some(size)) => size.to_string(),
        (None, None) => "[]".to_string(),
    };
    let straddles = match (member.straddles, member.sensitivity) {
        (_, s) if s.of > 1 && s.straddles > 0 => format!("{} of {}", s.straddles, s.of),
        (true, s) if s.of == 1 => "yes".to_string(),
        _ => String::new(),
    };
    let meets = member.meets.iter().take(3).map(|m| match m.of {
        1 => m.path.clone(),
        of => format!("{} ({} of {of})", m.path, m.at),
    });
    let mut meets: Vec<String> = meets.collect();
    if member.meets.len() > 3 {
        meets.push(format!("{} more", member.meets.len() - 3));
    }
    let mark = match (member.overlaps, member.pad) {
        (true, _) => " (in a union)",
        (_, true) => " (pad)",
        _ => "",
    };
    vec![
        lines,
        member.offset.to_string(),
        size,
        format!("{}{}{mark}", "  ".repeat(member.depth), member.path),
        member.type_name.clone(),
        straddles,
        member.contended.map_or_else(String::new, |c| format!("{c:?}").to_lowercase()),
        meets.join(", "),
    ]
}

fn gap(offset: u64, size: u64, what: &str) -> Vec<String> {
    let mut row = words(what);
    if let Some([_, at, bytes]) = row.first_chunk_mut() {
        (*at, *bytes) = (offset.to_string(), size.to_string());
    }
    row
}

fn words(what: &str) -> Vec<String> {
    let mut row = vec![String::new(); 8];
    if let Some(cell) = row.get_mut(3) {
        *cell = format!("({what})");
    }
    row
}

/// `n: 8 at phase 0, 6+2 at 16, 4+4 at 32, 2+6 at 48`.
fn occupancy(member: &MemberView) -> Option<String> {
    let elements = member.elements.as_ref().filter(|e| member.contended.is_some() && !e.bases.is_empty())?;
    let sums = elements
        .bases
        .iter()
        .map(|(phase, on)| format!("{} at {phase}", on.iter().map(u64::to_string).collect::<Vec<_>>().join("+")));
    Some(format!("{}: {}", member.path, sums.collect::<Vec<_>>().join(", ")))
}

fn findings(view: &TypeView, all: bool) -> Table {
    let heads = ["severity", "rule", "member", ">offset", "with", ">at bases", ">cost (bytes)", "advice"];
    let mut table = Table::new("findings", &heads);
    let shown = if all { view.findings.len() } else { FINDINGS };
    for finding in view.findings.iter().take(shown) {
        let short =
            |name: &str| name.strip_prefix(&view.name).and_then(|r| r.strip_prefix('.')).unwrap_or(name).to_string();
        let mut with: Vec<String> = finding.others.iter().take(2).map(|o| short(&o.name)).collect();
        if finding.others.len() > 2 {
            with.push(format!("{} more", finding.others.len() - 2));
        }
        table.rows.push(vec![
            severity(Some(finding.severity)),
            finding.rule.to_string(),
            short(&finding.subject.name),
            finding.subject.address.0.to_string(),
            with.join(", "),
            of_places(finding.sensitivity),
            finding.cost_bytes.map_or_else(String::new, |c| c.to_string()),
            finding.advice.clone(),
        ]);
    }
    table.more = more(view.findings.len(), shown, "findings");
    table
}
