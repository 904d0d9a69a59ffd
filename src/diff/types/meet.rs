//! Which members share a line: every contended one with every other. Elements of arrays of locks and atomics are members
//! here (`events[10]`); parts of a lock, too (its word and its owner).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Flat;
use super::compare::lines;
use crate::objects::pad_by_name;
use crate::units::LineSize;

/// Two members, and their lines before and after: first and last, from the start of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meeting {
    /// Contended.
    pub member: String,
    pub other: String,
    pub both_contended: bool,
    pub base_lines: [[u64; 2]; 2],
    pub patched_lines: [[u64; 2]; 2],
}

/// A member that is compared with others.
struct Piece {
    offset: u64,
    size: Option<u64>,
    contended: bool,
}

/// Elements that are told apart in one type. Statistics in a kernel are some hundred counters long.
const MOST_ELEMENTS: u64 = 4096;

/// Members on one line that are compared. More than bytes are there only where unions or damaged types overlap.
const MOST_ON_A_LINE: usize = 256;

/// Larger than this, a lock's parts are compared, not the whole: its word and its queue can be on two lines.
const WHOLE: u64 = 16;

/// Those that came to share a line, and those that no longer do.
pub(super) fn meetings(x: &Flat<'_, '_>, y: &Flat<'_, '_>, line: LineSize) -> (Vec<Meeting>, Vec<Meeting>) {
    let (a, b) = (pieces(x), pieces(y));
    let (before, after) = (sharing(&a, line), sharing(&b, line));
    let told = |(member, other): &(String, String)| {
        let of = |pieces: &BTreeMap<String, Piece>, name: &String| {
            let lines = pieces.get(name).map(|p| lines(p.offset, p.size, line))?;
            Some([*lines.start(), *lines.end()])
        };
        Some(Meeting {
            base_lines: [of(&a, member)?, of(&a, other)?],
            patched_lines: [of(&b, member)?, of(&b, other)?],
            both_contended: [&a, &b].iter().all(|p| p.get(other).is_some_and(|o| o.contended)),
            member: member.clone(),
            other: other.clone(),
        })
    };
    let ordered = |pairs: Vec<Option<Meeting>>| {
        let mut list: Vec<Meeting> = pairs.into_iter().flatten().collect();
        list.sort_by_key(|m| !m.both_contended);
        list
    };
    let together = after.difference(&before).map(told).collect();
    let apart = before.difference(&after).map(told).collect();
    (ordered(together), ordered(apart))
}

fn pieces(flat: &Flat<'_, '_>) -> BTreeMap<String, Piece> {
    let table = &flat.types.table;
    let mut pieces = BTreeMap::new();
    let mut whole: Vec<usize> = Vec::new();
    let mut left = MOST_ELEMENTS;
    for (index, row) in flat.rows.list.iter().enumerate() {
        if whole.iter().any(|outer| flat.rows.within(index, *outer)) {
            continue;
        }
        let (field, name) = (&row.field, row.field.path.join("."));
        let contended = table.contention(field.type_id).is_some();
        let small = field.size.is_some_and(|s| s <= WHOLE);
        if row.opened && !(contended && small && table.contended_piece(field.type_id).is_some()) {
            continue;
        }
        if row.opened {
            whole.push(index);
        }
        let elements = table.elements(field.type_id, field.size).filter(|e| contended && e.count <= left);
        match elements {
            Some(elements) => {
                left -= elements.count;
                for at in 0..elements.count {
                    let offset = field.offset.saturating_add(at.saturating_mul(elements.stride));
                    let piece = Piece { offset, size: Some(elements.stride), contended };
                    pieces.insert(format!("{name}[{at}]"), piece);
                }
            }
            None if pad_by_name(field.path.last().copied().unwrap_or_default()) => {}
            None => {
                pieces.insert(name, Piece { offset: field.offset, size: field.size, contended });
            }
        }
    }
    pieces
}

/// All pairs on one line of which one is contended: that one first, or of two the first by offset.
fn sharing(pieces: &BTreeMap<String, Piece>, line: LineSize) -> BTreeSet<(String, String)> {
    let mut on: BTreeMap<u64, Vec<(&String, &Piece)>> = BTreeMap::new();
    for (name, piece) in pieces.iter().filter(|(_, p)| p.size != Some(0)) {
        let lines = lines(piece.offset, piece.size, line);
        // What fills whole lines shares its first and its last one.
        for number in BTreeSet::from([*lines.start(), *lines.end()]) {
            let here = on.entry(number).or_default();
            if here.len() < MOST_ON_A_LINE {
                here.push((name, piece));
            }
        }
    }
    let mut pairs = BTreeSet::new();
    for here in on.values() {
        for (name, piece) in here.iter().filter(|(_, p)| p.contended) {
            for (other, theirs) in here.iter().filter(|(other, _)| other != name) {
                // Of two that are contended each pair is there once.
                if !theirs.contended || (piece.offset, name) < (theirs.offset, other) {
                    pairs.insert(((*name).clone(), (*other).clone()));
                }
            }
        }
    }
    pairs
}
