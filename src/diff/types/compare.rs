//! One type in both images, member by member.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::Serialize;

use super::{Flat, TypeChange, meet};
use crate::types::Row;
use crate::units::{Addr, LineSize, Span};

/// A member that only one of the two has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberSpot {
    pub path: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// In bytes.
    pub offset: u64,
    pub size: Option<u64>,
}

/// A member on other lines than before: first and last, counted from the start of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberMove {
    pub path: String,
    pub base_offset: u64,
    pub patched_offset: u64,
    pub base_lines: [u64; 2],
    pub patched_lines: [u64; 2],
}

/// What pushed the members that follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// In words.
    pub what: String,
    pub bytes: i64,
    /// Members behind it, up to the next step, that lie on other lines than before.
    pub members: u64,
}

/// The lines of some bytes of an object that begins on a line.
pub(super) fn lines(offset: u64, size: Option<u64>, line: LineSize) -> RangeInclusive<u64> {
    Span { start: Addr(offset), size: size.unwrap_or(1).max(1) }.lines(line)
}

pub(super) fn change(x: &Flat<'_, '_>, y: &Flat<'_, '_>, several: bool, line: LineSize) -> TypeChange {
    let (a, b) = (by_path(x), by_path(y));
    let lone = |flat: &Flat<'_, '_>, row: &Row<'_>, path: &str| MemberSpot {
        path: path.to_string(),
        type_name: flat.types.table.name(row.field.type_id),
        offset: row.field.offset,
        size: row.field.size,
    };
    // Of what came or went with its whole only the whole is told.
    let known = |map: &BTreeMap<String, &Row<'_>>, path: &str| {
        path.rsplit_once('.').is_none_or(|(outer, _)| map.contains_key(outer))
    };
    let removed = a.iter().filter(|(path, _)| !b.contains_key(*path) && known(&b, path));
    let added = b.iter().filter(|(path, _)| !a.contains_key(*path) && known(&a, path));
    let mut removed: Vec<_> = removed.map(|(path, row)| lone(x, row, path)).collect();
    let mut added: Vec<_> = added.map(|(path, row)| lone(y, row, path)).collect();
    removed.sort_by_key(|m| m.offset);
    added.sort_by_key(|m| m.offset);
    let mut moved_line: Vec<MemberMove> = a
        .iter()
        .filter_map(|(path, p)| {
            let q = b.get(path)?;
            let of = |row: &Row<'_>| lines(row.field.offset, row.field.size, line);
            let (before, after) = (of(p), of(q));
            (before != after).then(|| MemberMove {
                path: path.clone(),
                base_offset: p.field.offset,
                patched_offset: q.field.offset,
                base_lines: [*before.start(), *before.end()],
                patched_lines: [*after.start(), *after.end()],
            })
        })
        .collect();
    moved_line.sort_by(|m, n| (m.base_offset, &m.path).cmp(&(n.base_offset, &n.path)));
    let (came_together, separated) = meet::meetings(x, y, line);
    TypeChange {
        name: x.definition.name.clone(),
        unit: x.definition.unit.filter(|_| several).map(str::to_string),
        base_size: x.size(),
        patched_size: y.size(),
        steps: steps((x, &a), (y, &b), (&added, &removed), line),
        reordered: reordered(&a, &b),
        added,
        removed,
        moved_line,
        came_together,
        separated,
    }
}

/// Of several members of one path (through anonymous members of damaged types) the last.
fn by_path<'f, 'd>(flat: &'f Flat<'_, 'd>) -> BTreeMap<String, &'f Row<'d>> {
    flat.rows.list.iter().map(|row| (row.field.path.join("."), row)).collect()
}

/// The type's own members that both have, as base orders them: path, row before, row after.
fn own<'f, 'd>(
    a: &BTreeMap<String, &'f Row<'d>>,
    b: &BTreeMap<String, &'f Row<'d>>,
) -> Vec<(String, &'f Row<'d>, &'f Row<'d>)> {
    let both = a.iter().filter(|(_, row)| row.parent.is_none());
    let mut both: Vec<_> = both.filter_map(|(path, p)| Some((path.clone(), *p, *b.get(path)?))).collect();
    both.sort_by(|x, y| (x.1.field.offset, &x.0).cmp(&(y.1.field.offset, &y.0)));
    both
}

/// The same members, four at least, in another order.
fn reordered(a: &BTreeMap<String, &Row<'_>>, b: &BTreeMap<String, &Row<'_>>) -> bool {
    const FEW: usize = 4;
    let names = |map: &BTreeMap<String, &Row<'_>>| -> BTreeSet<String> {
        map.iter().filter(|(_, row)| row.parent.is_none()).map(|(path, _)| path.clone()).collect()
    };
    let both = own(a, b);
    both.len() >= FEW
        && names(a) == names(b)
        && both
            .windows(2)
            .any(|w| matches!(w, [p, q] if p.1.field.offset < q.1.field.offset && p.2.field.offset > q.2.field.offset))
}

fn steps(
    (x, a): (&Flat<'_, '_>, &BTreeMap<String, &Row<'_>>),
    (_, b): (&Flat<'_, '_>, &BTreeMap<String, &Row<'_>>),
    (added, removed): (&[MemberSpot], &[MemberSpot]),
    line: LineSize,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let outer = |list: &'_ [MemberSpot]| list.iter().filter(|m| !m.path.contains('.')).cloned().collect::<Vec<_>>();
    let (added, removed) = (outer(added), outer(removed));
    let between = |list: &[MemberSpot], low: u64, high: u64| {
        list.get(list.partition_point(|m| m.offset < low)).filter(|m| m.offset < high).cloned()
    };
    let (mut delta, mut low, mut low_to) = (0i64, 0, 0);
    let mut before: Option<(String, i64, String)> = None;
    for (path, p, q) in own(a, b) {
        let (from, to) = (p.field.offset, q.field.offset);
        let moved = to.wrapping_sub(from).cast_signed();
        if moved != delta {
            let grown = before.as_ref().filter(|(_, by, _)| *by != 0);
            let (came, went) = (between(&added, low_to, to), between(&removed, low, from));
            let what = match (grown, &came, &went) {
                (Some((name, by, kind)), _, _) => {
                    let way = if *by > 0 { "grew" } else { "shrank" };
                    format!("{name} ({kind}) {way} by {} bytes", by.unsigned_abs())
                }
                (_, Some(came), None) => format!("{} ({}) added", came.path, came.type_name),
                (_, None, Some(went)) => format!("{} ({}) removed", went.path, went.type_name),
                (_, Some(came), Some(went)) => format!("{} added, {} removed", came.path, went.path),
                _ => format!("{path} at another place or alignment"),
            };
            let follows = grown.is_none() && came.is_none() && went.is_none();
            match steps.last_mut().filter(|_| follows) {
                // What is aligned more coarsely keeps or doubles the shift.
                Some(last) => last.bytes = last.bytes.wrapping_add(moved.wrapping_sub(delta)),
                None => steps.push(Step { what, bytes: moved.wrapping_sub(delta), members: 0 }),
            }
            delta = moved;
        }
        if let Some(step) = steps.last_mut()
            && lines(from, p.field.size, line) != lines(to, q.field.size, line)
        {
            step.members += 1;
        }
        let by = match (p.field.size, q.field.size) {
            (Some(p), Some(q)) => q.wrapping_sub(p).cast_signed(),
            _ => 0,
        };
        before = Some((path, by, x.types.table.name(p.field.type_id)));
        (low, low_to) = (from, to);
    }
    steps
}
