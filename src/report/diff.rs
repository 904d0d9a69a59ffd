//! [`Diff`] → [`Page`]: how much moved, what pushed it, then the moves that could matter: one screen.

use crate::diff::{Alignment, Diff, Meeting, Place, Rebinned, SectionShifts, Suspect, TypeChange};

use super::page::{Block, Page, Table};
use super::scan::{more, of_places};

/// Suspects on one screen, of each kind.
const DATA: usize = 10;
const CODE: usize = 3;
const TYPES: usize = 4;
const CAUSES: usize = 8;
/// Meetings and steps that are told of one type.
const TOLD: usize = 2;

/// `all`: everything instead of the first ones. `violated`: what `--fail-on` found.
#[must_use]
pub fn page(diff: &Diff, all: bool, violated: &[String]) -> Page {
    let mut page = Page {
        title: format!(
            "{} → {}: {}, line {} bytes",
            diff.base.path, diff.patched.path, diff.base.machine, diff.base.line_size
        ),
        sentence: sentence(diff),
        ..Page::default()
    };
    if !diff.statements.is_empty() {
        page.blocks.push(Block::List { heading: "to be known first".to_string(), items: diff.statements.clone() });
    }
    page.blocks.push(Block::Table(counts(diff)));
    if !diff.cause.is_empty() || diff.without_cause > 0 {
        page.blocks.push(Block::Table(causes(diff, all)));
    }
    if let Some(types) = types(diff, all) {
        page.blocks.push(types);
    }
    if !diff.suspects.is_empty() {
        page.blocks.push(Block::Table(suspects(&diff.suspects, all)));
        page.notes.push(known(diff));
    }
    if let Some(rebinned) = &diff.rebinned {
        profiled(rebinned, all, &mut page);
    }
    page.notes.extend(starts(&diff.alignment));
    if diff.data.undecided + diff.functions.undecided > 0 {
        page.notes.push(format!(
            "undecided: {} data objects and {} functions of equal size whose bytes differ, perhaps only in addresses.",
            diff.data.undecided, diff.functions.undecided
        ));
    }
    page.notes.extend(violated.iter().map(|v| format!("--fail-on: {v}")));
    page.notes.extend(diff.problems.iter().map(|p| format!("problem: {p}")));
    if !diff.skipped.is_empty() {
        let listed: Vec<String> = diff.skipped.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        page.notes.push(format!("left out: {}", listed.join("; ")));
    }
    page
}

/// Lines of sharing, and sections that are shifted.
const SHARING: usize = 8;

/// What the accesses that were seen on base would meet on patched.
fn profiled(rebinned: &Rebinned, all: bool, page: &mut Page) {
    let most = if all { usize::MAX } else { SHARING };
    let mut table = Table::new(
        format!(
            "sharing of the {} accesses seen on base: {} pairs there, {} as patched lays them out",
            rebinned.accesses, rebinned.conflict_base, rebinned.conflict_patched
        ),
        &["data", "and", ">pairs on base", ">on patched", ""],
    );
    for sharing in rebinned.changes.iter().take(most) {
        let [one, other] = &sharing.data;
        let word = match (sharing.base, sharing.patched) {
            (0, _) => "patched adds it",
            (_, 0) => "patched removes it",
            (a, b) if b > a => "more",
            _ => "less",
        };
        table.rows.push(vec![
            one.clone(),
            other.clone(),
            sharing.base.to_string(),
            sharing.patched.to_string(),
            word.into(),
        ]);
    }
    table.more = more(rebinned.changes.len(), most, "pairs of data");
    page.blocks.push(Block::Table(table));
    if !rebinned.shifts.is_empty() {
        page.blocks.push(Block::Table(shifts(&rebinned.shifts)));
    }
    let left = [(rebinned.lost, "to what patched does not have"), (rebinned.indexed, "to elements that are not known")];
    let left: Vec<String> = left.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
    let left = if left.is_empty() { String::new() } else { format!(" Left out: {} accesses.", left.join(", ")) };
    page.notes.push(format!("Nothing of patched was run: accesses keep their objects and offsets.{left}"));
    page.notes.extend(rebinned.profiles.iter().flat_map(super::scan::profile));
}

/// Where each section would best and worst begin, beside where it does.
fn shifts(sections: &[SectionShifts]) -> Table {
    let mut table = Table::new(
        "patched with a section shifted by some bytes: pairs of all accesses",
        &["section", ">as it is", ">least", "at shifts", ">most", "at shifts"],
    );
    for of in sections {
        let values = || of.conflict.iter().map(|(_, c)| *c);
        let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let at = |wanted: u64| {
            let list = of.conflict.iter().filter(|(_, c)| *c == wanted).map(|(by, _)| by.to_string());
            list.collect::<Vec<_>>().join(" ")
        };
        let now = of.conflict.first().map_or(0, |(_, c)| *c);
        let row = [now.to_string(), least.to_string(), at(least), most.to_string(), at(most)];
        table.rows.push(std::iter::once(of.section.clone()).chain(row).collect());
    }
    table
}

fn known(diff: &Diff) -> String {
    let decoded = diff.suspects.iter().any(|s| s.kind == "data" && s.readers.is_some());
    let users = if decoded {
        "Who uses what is decoded from the code of patched: how often, and on how many CPUs, is not known."
    } else {
        "Known from symbols and bytes only: who reads and writes is not known, so a move that could matter may not."
    };
    format!("{users} fragile: at how many of the places that a change upstream can give it, it lies on two lines.")
}

fn starts(alignment: &Alignment) -> Option<String> {
    let (a, b) = (&alignment.base, &alignment.patched);
    (a.functions > 0 && b.functions > 0 && !alignment.starts_excluded).then(|| {
        format!(
            "Functions start at multiples of {} and {} bytes (95 % of them: {} and {}).",
            a.all, b.all, a.most, b.most
        )
    })
}

fn sentence(diff: &Diff) -> String {
    let (d, f) = (&diff.data, &diff.functions);
    format!(
        "{} of {} data objects merely moved ({} to another phase, {} to other neighbours, {} now straddle a line), {} \
         changed; of {} functions {} merely moved, {} changed.",
        d.moved,
        d.same + d.moved + d.resized + d.content_changed + d.undecided + d.removed,
        d.rephased,
        d.new_neighbours,
        d.newly_straddling,
        d.resized + d.content_changed,
        f.same + f.moved + f.changed + f.undecided + f.removed,
        f.moved,
        f.changed
    )
}

fn counts(diff: &Diff) -> Table {
    let (d, f) = (&diff.data, &diff.functions);
    let mut table = Table::new("", &["", ">data objects", ">functions", ">loops", ">types"]);
    let types = |of: fn(&crate::diff::TypeCounts) -> u64| diff.types.as_ref().map(of);
    let mut row = |name: &str, cells: [Option<u64>; 4]| {
        let cell = |n: Option<u64>| n.map_or_else(|| "-".to_string(), |n| n.to_string());
        table.rows.push(std::iter::once(name.to_string()).chain(cells.map(cell)).collect());
    };
    row("same", [Some(d.same), Some(f.same), None, types(|t| t.same)]);
    row("moved", [Some(d.moved), Some(f.moved), Some(f.loops), None]);
    row("  another phase", [Some(d.rephased), Some(f.rephased), Some(f.loops_rephased), None]);
    row("  other neighbours", [Some(d.new_neighbours), None, None, None]);
    row("  newly on two lines", [Some(d.newly_straddling), None, Some(f.loops_newly_crossing), None]);
    row("  no longer on two", [Some(d.no_longer_straddling), None, Some(f.loops_no_longer_crossing), None]);
    row("changed", [Some(d.resized + d.content_changed), Some(f.changed), None, types(|t| t.changed)]);
    row("  of them resized", [Some(d.resized), None, None, None]);
    if d.undecided + f.undecided > 0 {
        row("undecided", [Some(d.undecided), Some(f.undecided), None, None]);
    }
    row("added", [Some(d.added), Some(f.added), None, types(|t| t.added)]);
    row("removed", [Some(d.removed), Some(f.removed), None, types(|t| t.removed)]);
    if d.renamed + f.renamed > 0 {
        row("renamed", [Some(d.renamed), Some(f.renamed), None, None]);
    }
    table
}

/// As many as account for nine tenths of what moved, and no more than fit.
fn causes(diff: &Diff, all: bool) -> Table {
    let total: u64 = diff.cause.iter().map(|c| c.objects).sum::<u64>() + diff.without_cause;
    let mut table = Table::new(
        "what pushed the rest",
        &["section", "unit", "what happened", ">bytes", ">data moved", ">functions"],
    );
    let (mut told, mut shown) = (0, 0);
    for cause in &diff.cause {
        if !all && (told * 10 >= total * 9 || shown == CAUSES) {
            break;
        }
        shown += 1;
        told += cause.objects;
        table.rows.push(vec![
            cause.section.clone(),
            cause.unit.clone().unwrap_or_else(|| "-".to_string()),
            cause.what.clone(),
            format!("{:+}", cause.bytes),
            cause.data.to_string(),
            (cause.objects - cause.data).to_string(),
        ]);
    }
    let rest = total - told;
    if rest > 0 {
        let others = diff.cause.len() - shown;
        let lost = match diff.without_cause {
            0 => String::new(),
            n => format!(", {n} without a cause: they changed their section"),
        };
        table.more = Some(format!("{rest} of {total} that moved have {others} other causes{lost}: --all"));
    }
    table
}

fn types(diff: &Diff, all: bool) -> Option<Block> {
    if diff.types_changed.is_empty() {
        return None;
    }
    let shown = if all { diff.types_changed.len() } else { TYPES };
    let mut items: Vec<String> = diff.types_changed.iter().take(shown).map(|t| told(t, all)).collect();
    items.extend(more(diff.types_changed.len(), shown, "types"));
    Some(Block::List { heading: "types that changed".to_string(), items })
}

/// `mm_struct: 1024 → 1032 bytes; x (int) added: 14 later members changed line; count and owner: …`.
fn told(change: &TypeChange, all: bool) -> String {
    let size = |size: Option<u64>| size.map_or_else(|| "?".to_string(), |s| s.to_string());
    let most = if all { usize::MAX } else { TOLD };
    let mut parts = vec![match change.base_size == change.patched_size {
        true => format!("{}: {} bytes as before", change.name, size(change.base_size)),
        false => format!("{}: {} → {} bytes", change.name, size(change.base_size), size(change.patched_size)),
    }];
    if change.reordered {
        parts.push("the same members in another order".to_string());
    }
    let steps = change.steps.iter().filter(|s| s.members > 0);
    parts.extend(steps.take(most).map(|s| format!("{}: {} later members changed line", s.what, s.members)));
    if change.steps.is_empty() {
        let list = |what: &str, list: &[crate::diff::MemberSpot]| {
            let names: Vec<&str> = list.iter().take(most).map(|m| m.path.as_str()).collect();
            (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
        };
        parts.extend(list("added", &change.added).into_iter().chain(list("removed", &change.removed)));
    }
    let meeting = |m: &Meeting| {
        let lines =
            |[first, last]: [u64; 2]| if first == last { format!("{first}") } else { format!("{first}-{last}") };
        let both = |[a, b]: [[u64; 2]; 2]| match a == b {
            true => format!("on line {}", lines(a)),
            false => format!("on lines {} and {}", lines(a), lines(b)),
        };
        format!("{} and {}: {} before, {} now", m.member, m.other, both(m.base_lines), both(m.patched_lines))
    };
    for list in [&change.came_together, &change.separated] {
        parts.extend(list.iter().take(most).map(meeting));
        parts.extend(list.len().checked_sub(most).filter(|n| *n > 0).map(|n| format!("{n} more pairs like it")));
    }
    parts.join("; ")
}

fn suspects(suspects: &[Suspect], all: bool) -> Table {
    let heads = [
        "suspect",
        "kind",
        "section",
        ">phase before",
        ">after",
        "was with",
        "is with",
        ">readers",
        ">writers",
        ">fragile",
        "why",
    ];
    let mut table = Table::new("suspects", &heads);
    let most = |kind: &str| match kind {
        _ if all => usize::MAX,
        "data" => DATA,
        _ => CODE,
    };
    let mut shown = 0;
    for kind in ["data", "loop", "function"] {
        for s in suspects.iter().filter(|s| s.kind == kind).take(most(kind)) {
            shown += 1;
            let number = |n: Option<u32>| n.map_or_else(|| "?".to_string(), |n| n.to_string());
            let (readers, writers) = match kind {
                "data" => (number(s.readers), number(s.writers)),
                _ => Default::default(),
            };
            table.rows.push(vec![
                s.name.clone(),
                s.kind.clone(),
                s.section.clone(),
                s.base.phase.to_string(),
                s.patched.phase.to_string(),
                with(&s.base, all),
                with(&s.patched, all),
                readers,
                writers,
                of_places(s.sensitivity),
                s.evidence.clone(),
            ]);
        }
    }
    table.more = more(suspects.len(), shown, "suspects");
    table
}

fn with(place: &Place, all: bool) -> String {
    let shown = if all { place.with.len() } else { 2 };
    let mut names: Vec<String> = place.with.iter().take(shown).cloned().collect();
    if place.with.len() > shown {
        names.push(format!("{} more", place.with.len() - shown));
    }
    names.join(", ")
}
