//! Rule `write-beside-read` (and `shared-line`) inside one object: a member that functions write, on a line with members
//! that other functions use without it (`page_counter`'s usage and parent, `pcpu_chunk`'s free bytes and base address).

use std::collections::{BTreeMap, BTreeSet};

use super::contest::{self, Piece};
use super::{Ranked, Seen, room};
use crate::finding::{Evidence, Finding, Severity};
use crate::objects::Space;
use crate::types::{Row, Rows, TypeTable};
use crate::units::Span;

/// `told`: lines of which profiles say more.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    told: &BTreeSet<(Space, u64)>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    for (index, object, table, id) in seen.typed() {
        if object.span.size < 2 || seen.heat.of(index).len() < 2 || !room(ranked, skipped) {
            continue;
        }
        let rows = table.rows(id);
        let mut on: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        for row in members(&rows, |row| whole(table, row)) {
            let Some(subject) = seen.member(index, &row.field).filter(|s| s.size > 0) else { continue };
            let how = table.contention(row.field.type_id);
            let lines = Span { start: subject.address, size: subject.size }.lines(seen.lines.line);
            // What reaches over several lines meets others at its ends.
            for number in BTreeSet::from([*lines.start(), *lines.end()]) {
                let piece = Piece::of(seen, index, subject.clone(), (how, number));
                let used = piece.filter(|p| p.users.touch() || !p.users.takers.is_empty());
                on.entry(number).or_default().extend(used);
            }
        }
        for (_, pieces) in on.iter().filter(|(number, _)| !told.contains(&(object.space, **number))) {
            ranked.extend(finding(seen, index, pieces));
        }
    }
}

/// A lock or an atomic, from its first byte to its last.
pub(super) fn whole(table: &TypeTable<'_>, row: &Row<'_>) -> bool {
    table.contended_piece(row.field.type_id).is_some()
}

/// Members beside each other: what a lock or an atomic holds is one, everything else is taken apart.
pub(super) fn members<'r, 'd>(rows: &'r Rows<'d>, whole: impl Fn(&Row<'d>) -> bool) -> Vec<&'r Row<'d>> {
    let mut taken: Vec<bool> = Vec::with_capacity(rows.list.len());
    let mut out = Vec::new();
    for row in &rows.list {
        let inside = row.parent.and_then(|p| taken.get(p)).copied().unwrap_or_default();
        let take = !inside && (!row.opened || whole(row));
        taken.push(inside || take);
        if take {
            out.push(row);
        }
    }
    out
}

fn finding(seen: &Seen<'_, '_>, index: u32, pieces: &[Piece]) -> Option<Ranked> {
    let contest = contest::worst(pieces)?;
    let line = seen.lines.line.bytes();
    let (written, (first, _)) = (contest.written, contest.others.first()?);
    let rule = if contest.read_mostly() { "write-beside-read" } else { "shared-line" };
    // Beside its lock lies what it guards, and to keep them together is a choice.
    let severity = contest.severity().max(Severity::Low);
    let told = std::iter::once(written).chain(contest.others.iter().take(3).map(|(o, _)| *o));
    let advice = format!(
        "{}: {} at least {line} bytes away from it, where nothing else is written",
        contest.told(seen),
        first.subject.name
    );
    let finding = Finding {
        others: contest.all_others(),
        advice,
        accesses: told.flat_map(|p| seen.uses(index, p.span)).collect(),
        ..Finding::about(rule, severity, Evidence::Decoded, written.subject.clone())
    };
    Some(Ranked { index, weight: contest.weight(), finding })
}
