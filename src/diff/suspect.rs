//! Which moves could matter: the same bytes, on other lines.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::moves::{Change, Move, Moves};
use super::{Place, Suspect};
use crate::layout::Lines;
use crate::objects::{Class, Kind, Object};

/// A program has thousands of functions that only moved, and symbols do not say which are hot.
const FUNCTIONS: usize = 10;

/// Writable data: newly straddling first, then new line-mates, then another phase; in each, names that sound contended
/// first, then by address.
pub(super) fn data(moves: &Moves<'_, '_>) -> Vec<Suspect> {
    let mut list: Vec<(&Move, &Object<'_>, &Object<'_>)> = moves
        .paired()
        .filter(|(m, x, _)| m.change == Change::Moved && reason(m, x).is_some())
        .filter(|(_, x, _)| x.class.writable() || x.class == Class::PerCpu)
        .collect();
    list.sort_by_key(|(m, x, _)| (rank(m, x), Reverse(crate::objects::contended_by_name(x.name)), x.span.start));
    list.into_iter().map(|(m, x, y)| suspect(moves, m, x, y)).collect()
}

/// Code of equal bytes (or undecided) that starts at another phase: newly straddling first. Only the first ones; the
/// rest is counted.
pub(super) fn functions(moves: &Moves<'_, '_>, skipped: &mut BTreeMap<String, u64>) -> Vec<Suspect> {
    let mut list: Vec<(&Move, &Object<'_>, &Object<'_>)> = moves
        .paired()
        .filter(|(m, x, _)| (m.rephased || m.newly_straddling) && !matches!(x.class, Class::Init | Class::Metadata(_)))
        .collect();
    list.sort_by_key(|(m, x, _)| (m.change != Change::Moved, !m.newly_straddling, x.span.start));
    if list.len() > FUNCTIONS {
        skipped.insert("suspect functions beyond the first ones".into(), (list.len() - FUNCTIONS) as u64);
    }
    list.into_iter().take(FUNCTIONS).map(|(m, x, y)| suspect(moves, m, x, y)).collect()
}

/// 0 is the most suspicious.
fn rank(m: &Move, object: &Object<'_>) -> u8 {
    match () {
        () if m.newly_straddling => 0,
        () if m.new_neighbours && object.class.writable() => 1,
        () => 2,
    }
}

/// Why it is one, or `None`. New neighbours on a CPU's own copy of a line are none.
fn reason(m: &Move, object: &Object<'_>) -> Option<&'static str> {
    match (rank(m, object), m.no_longer_straddling, m.rephased) {
        (0, ..) => Some("newly straddles a line"),
        (_, true, _) => Some("no longer straddles a line"),
        (1, ..) => Some("other objects on its lines"),
        (_, _, true) => Some("another phase"),
        _ => None,
    }
}

fn suspect(moves: &Moves<'_, '_>, m: &Move, x: &Object<'_>, y: &Object<'_>) -> Suspect {
    let line = moves.base.1.line;
    let what = if x.kind == Kind::Data { "data" } else { "function" };
    Suspect {
        name: x.name.to_string(),
        kind: what.to_string(),
        section: moves.base.0.section(x.section).map_or_else(String::new, |s| s.name.to_string()),
        base: place(moves.base.1, m.a, x),
        patched: place(moves.patched.1, m.b, y),
        bytes_changed: (m.change != Change::Undecided).then_some(false),
        evidence: format!("static: {}", reason(m, x).unwrap_or("moved")),
        readers: None,
        writers: None,
        test: format!(
            "patched with {} back at phase {}, on the lines it had in base",
            x.name,
            line.phase_of(x.span.start)
        ),
    }
}

/// Neighbours of a function matter little; those of data are the point.
fn place(lines: &Lines<'_>, index: u32, object: &Object<'_>) -> Place {
    let with = lines.mates(index).filter_map(|i| lines.object(i)).map(|o| o.name.to_string()).collect();
    Place { address: object.span.start.to_string(), phase: lines.line.phase_of(object.span.start).0, with }
}
