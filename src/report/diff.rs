//! [`Diff`] → [`Page`]: how much moved, then the moves that could matter.

use crate::diff::{Diff, Place, Suspect};

use super::page::{Block, Page, Table};
use super::scan::more;

const SUSPECTS: usize = 12;

/// `all`: every suspect instead of the first ones.
#[must_use]
pub fn page(diff: &Diff, all: bool) -> Page {
    let mut page = Page {
        title: format!(
            "{} → {}: {}, line {} bytes",
            diff.base.path, diff.patched.path, diff.base.machine, diff.base.line_size
        ),
        sentence: sentence(diff),
        ..Page::default()
    };
    page.blocks.push(Block::Table(counts(diff)));
    if !diff.suspects.is_empty() {
        page.blocks.push(Block::Table(suspects(&diff.suspects, all)));
        page.notes.push(
            "Known from symbols and bytes only: who reads and writes is not known, so a move that could matter may not."
                .to_string(),
        );
    }
    if diff.data.undecided + diff.functions.undecided > 0 {
        page.notes.push(format!(
            "undecided: {} data objects and {} functions of equal size whose bytes differ, perhaps only in addresses.",
            diff.data.undecided, diff.functions.undecided
        ));
    }
    page.notes.extend(diff.problems.iter().map(|p| format!("problem: {p}")));
    page.notes.extend(diff.skipped.iter().map(|(reason, n)| format!("left out: {n} {reason}")));
    page
}

fn sentence(diff: &Diff) -> String {
    let (d, f) = (&diff.data, &diff.functions);
    if diff.loaded_content_equal {
        return "What is loaded is the same, byte for byte (build id aside).".to_string();
    }
    format!(
        "{} of {} data objects merely moved ({} to another phase, {} to other neighbours, {} now straddle a line); \
         {} functions changed, {} merely moved.",
        d.moved,
        d.same + d.moved + d.resized + d.content_changed + d.undecided + d.removed,
        d.rephased,
        d.new_neighbours,
        d.newly_straddling,
        f.changed,
        f.moved
    )
}

fn counts(diff: &Diff) -> Table {
    let (d, f) = (&diff.data, &diff.functions);
    let mut table = Table::new("", &["", ">data objects", ">functions"]);
    let dash = || "-".to_string();
    let mut row = |name: &str, data: Option<u64>, functions: Option<u64>| {
        let cell = |n: Option<u64>| n.map_or_else(dash, |n| n.to_string());
        table.rows.push(vec![name.to_string(), cell(data), cell(functions)]);
    };
    row("same", Some(d.same), Some(f.same));
    row("moved", Some(d.moved), Some(f.moved));
    row("  another phase", Some(d.rephased), Some(f.rephased));
    row("  other neighbours", Some(d.new_neighbours), None);
    row("  newly straddling", Some(d.newly_straddling), None);
    row("  no longer straddling", Some(d.no_longer_straddling), None);
    row("changed", Some(d.resized + d.content_changed), Some(f.changed));
    row("undecided", Some(d.undecided), Some(f.undecided));
    row("added", Some(d.added), Some(f.added));
    row("removed", Some(d.removed), Some(f.removed));
    table
}

fn suspects(suspects: &[Suspect], all: bool) -> Table {
    let heads = ["suspect", "kind", "section", ">phase before", ">after", "was with", "is with", "why"];
    let mut table = Table::new("suspects", &heads);
    let shown = if all { suspects.len() } else { SUSPECTS };
    for s in suspects.iter().take(shown) {
        let (was, is) = if s.kind == "data" { (with(&s.base, all), with(&s.patched, all)) } else { Default::default() };
        table.rows.push(vec![
            s.name.clone(),
            s.kind.clone(),
            s.section.clone(),
            s.base.phase.to_string(),
            s.patched.phase.to_string(),
            was,
            is,
            s.evidence.clone(),
        ]);
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
