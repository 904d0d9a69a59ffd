//! The members of one type, each at its place.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Place;
use crate::finding::{Sensitivity, Share};
use crate::layout::{meeting, most_on_a_line, occupancy, sensitivity};
use crate::objects::pad_by_name;
use crate::types::{Bits, Contention, Elements, Kind, Row, Rows, TypeTable};
use crate::units::{Addr, Span};

/// One member of a flattened type.
#[derive(Clone, Debug, Serialize)]
pub struct MemberView {
    /// `lock`, `inner.lock`; of an element that was asked for, `events[10]`.
    pub path: String,
    #[serde(rename = "type")]
    pub type_name: String,
    /// From the start of the type, in bytes.
    pub offset: u64,
    /// In bytes; `null` is unknown (an array without length). Of a bit field, of the bytes that hold it.
    pub size: Option<u64>,
    pub bits: Option<Bits>,
    /// Counted from the line of the first byte, at the phase that is assumed: the first and the last that it touches.
    pub lines: Vec<u64>,
    /// At the phase that is assumed.
    pub straddles: bool,
    /// By its type; an array of contended elements is one piece.
    pub contended: Option<Contention>,
    /// Between `__cacheline_group_begin__X` and its end: X.
    pub group: Option<String>,
    /// How many members it lies in.
    pub depth: usize,
    /// Shares bytes with members beside it: in a union.
    pub overlaps: bool,
    /// Bytes that keep others apart.
    pub pad: bool,
    /// Over all bases: where it straddles, and where it meets a contended member.
    pub sensitivity: Sensitivity,
    /// The contended members that it shares a line with at some base.
    pub meets: Vec<Meets>,
    /// Of an array with several elements on a line.
    pub elements: Option<Occupancy>,
}

/// At how many bases a member shares a line with another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meets {
    pub path: String,
    pub at: u64,
    pub of: u64,
}

/// How the elements of an array divide into lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    pub count: u64,
    /// In bytes.
    pub stride: u64,
    /// On the fullest line, at the phase that is assumed.
    pub most_on_a_line: u64,
    /// For each phase of the base how many begin on each line; empty for an array of many lines.
    pub bases: Vec<(u64, Vec<u64>)>,
}

/// Bytes that no member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hole {
    pub offset: u64,
    pub size: u64,
}

/// What is known of a row beside its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rules) struct Mark {
    /// Contended as a whole, and in no other row that is.
    pub(super) piece: Option<Contention>,
    /// Inside a piece: its own affair.
    pub(super) inside: bool,
    pub(super) pad: bool,
    /// Begins or ends a group.
    pub(super) marker: bool,
    /// The row that begins its group.
    pub(super) group: Option<usize>,
    pub(super) overlaps: bool,
}

impl Mark {
    /// Holds data of its own and nothing that is a row.
    pub(super) fn leaf(&self, row: &Row<'_>) -> bool {
        !row.opened && !self.inside && !self.pad && !self.marker && row.field.size != Some(0)
    }

    /// Holds data that a neighbour meets, and is told by its own name.
    pub(in crate::rules) fn tells(&self, row: &Row<'_>) -> bool {
        self.leaf(row) || self.piece.is_some()
    }
}

const BEGIN: &str = "__cacheline_group_begin__";
const END: &str = "__cacheline_group_end__";

/// The name of the group that a member begins.
pub(in crate::rules) fn group_begun(name: &str) -> Option<&str> {
    name.strip_prefix(BEGIN)
}

pub(in crate::rules) fn group_ended(name: &str) -> Option<&str> {
    name.strip_prefix(END)
}

/// Bytes (not a lock, not a pointer) that are called a pad.
pub(super) fn is_pad(table: &TypeTable<'_>, name: &str, id: crate::types::TypeId) -> bool {
    let bytes = |kind: &Kind<'_>| match kind {
        Kind::Base => true,
        Kind::Array { element, .. } => table.bare(*element).is_some_and(|e| matches!(e.kind, Kind::Base)),
        // The kernel's `struct cacheline_padding` has no bytes but an alignment.
        Kind::Struct(_) => table.size(id) == Some(0) || table.name(id).ends_with("_padding"),
        _ => false,
    };
    pad_by_name(name) && table.bare(id).is_some_and(|t| bytes(&t.kind))
}

pub(in crate::rules) fn marks(table: &TypeTable<'_>, rows: &Rows<'_>) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(rows.list.len());
    // The group that is open, by the row that holds it.
    let mut open: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for (at, row) in rows.list.iter().enumerate() {
        let outer = row.parent.and_then(|p| marks.get(p)).copied().unwrap_or_default();
        let name = row.field.path.last().copied().unwrap_or_default();
        let mut mark = Mark { inside: outer.inside || outer.piece.is_some(), ..Mark::default() };
        mark.pad = outer.pad || is_pad(table, name, row.field.type_id);
        if !mark.inside && !mark.pad && row.bits.is_none() {
            mark.piece = table.contended_piece(row.field.type_id);
        }
        if group_begun(name).is_some() {
            mark.marker = true;
            open.insert(row.parent, at);
        } else if group_ended(name).is_some() {
            mark.marker = true;
            open.remove(&row.parent);
        } else {
            mark.group = outer.group.or_else(|| open.get(&row.parent).copied());
        }
        marks.push(mark);
    }
    mark_overlaps(rows, &mut marks);
    marks
}

/// Members of one holder, by offset: one that begins before an earlier one ends shares bytes with it. Bit fields share
/// bytes and no bits.
fn mark_overlaps(rows: &Rows<'_>, marks: &mut [Mark]) {
    let mut by_holder: BTreeMap<Option<usize>, Vec<(u64, u64, usize)>> = BTreeMap::new();
    for (at, row) in rows.list.iter().enumerate().filter(|(_, row)| row.bits.is_none()) {
        let size = row.field.size.unwrap_or(0);
        if size > 0 {
            let end = row.field.offset.saturating_add(size);
            by_holder.entry(row.parent).or_default().push((row.field.offset, end, at));
        }
    }
    for mut siblings in by_holder.into_values() {
        siblings.sort_unstable();
        let mut reached = 0;
        let next = siblings.iter().skip(1).map(|s| s.0).chain([u64::MAX]);
        for (&(start, end, at), next) in siblings.iter().zip(next) {
            if (start < reached || next < end)
                && let Some(mark) = marks.get_mut(at)
            {
                mark.overlaps = true;
            }
            reached = reached.max(end);
        }
    }
}

/// Whether two rows can hurt each other: neither is part of the other, they hold data at the same time, and their author
/// did not put them side by side.
pub(super) fn apart(rows: &Rows<'_>, marks: &[Mark], (a, b): (usize, usize)) -> bool {
    let (Some(row_a), Some(row_b), Some(mark_a), Some(mark_b)) =
        (rows.list.get(a), rows.list.get(b), marks.get(a), marks.get(b))
    else {
        return false;
    };
    let end = |row: &Row<'_>| row.field.offset.saturating_add(row.field.size.unwrap_or(1));
    let overlap = row_a.field.offset < end(row_b) && row_b.field.offset < end(row_a);
    let one_group = mark_a.group.is_some() && mark_a.group == mark_b.group;
    a != b && !overlap && !one_group && !rows.within(a, b) && !rows.within(b, a)
}

/// The rows that are contended.
pub(super) fn pieces(marks: &[Mark]) -> Vec<usize> {
    (0..marks.len()).filter(|at| marks.get(*at).is_some_and(|m| m.piece.is_some())).collect()
}

pub(super) fn views(place: &Place<'_, '_>, marks: &[Mark]) -> Vec<MemberView> {
    let pieces = pieces(marks);
    let rows = place.rows.list.iter().zip(marks).enumerate();
    rows.map(|(at, (row, mark))| {
        let span = place.span(row.field.offset, row.field.size.unwrap_or(0));
        let others = if mark.leaf(row) || mark.piece.is_some() { near(place, marks, &pieces, at) } else { Vec::new() };
        let spans: Vec<Span> = others.iter().map(|(other, _)| span_of(place, *other)).collect();
        let meets =
            others.into_iter().map(|(other, share)| Meets { path: path(place, other), at: share.at, of: share.of });
        let group = mark.group.and_then(|at| group_begun(place.rows.list.get(at)?.field.path.last()?));
        let (first, last) = span.lines(place.line).into_inner();
        MemberView {
            path: path(place, at),
            type_name: place.table.name(row.field.type_id),
            offset: row.field.offset,
            size: row.field.size,
            bits: row.bits,
            lines: if first == last { vec![first] } else { vec![first, last] },
            straddles: span.straddles(place.line),
            contended: mark.piece,
            group: group.map(str::to_string),
            depth: row.field.path.len().saturating_sub(1),
            overlaps: mark.overlaps,
            pad: mark.pad,
            sensitivity: sensitivity(span, &spans, place.step, place.line),
            meets: meets.collect(),
            elements: if mark.inside { None } else { elements(place, row) },
        }
    })
    .collect()
}

/// Others that are told of one member. More lie near it only where hundreds share bytes: as the members of a union.
pub(super) const MOST_MET: usize = 256;

/// The contended members that a row shares a line with at some base.
fn near(place: &Place<'_, '_>, marks: &[Mark], pieces: &[usize], at: usize) -> Vec<(usize, Share)> {
    let own = span_of(place, at);
    let line = place.line.bytes();
    let close =
        |other: &Span| other.start.0 < own.end().saturating_add(line) && own.start.0 < other.end().saturating_add(line);
    let others =
        pieces.iter().filter(|other| close(&span_of(place, **other)) && apart(place.rows, marks, (at, **other)));
    let shares = others.map(|other| (*other, meeting(own, span_of(place, *other), place.step, place.line)));
    shares.filter(|(_, share)| share.at > 0).take(MOST_MET).collect()
}

pub(super) fn span_of(place: &Place<'_, '_>, at: usize) -> Span {
    place.rows.list.get(at).map_or(place.span(0, 0), |row| place.span(row.field.offset, row.field.size.unwrap_or(0)))
}

pub(super) fn path(place: &Place<'_, '_>, at: usize) -> String {
    place.rows.list.get(at).map_or_else(String::new, |row| row.field.path.join("."))
}

/// Lines of an array that are listed one by one.
const LISTED: u64 = 8;

fn elements(place: &Place<'_, '_>, row: &Row<'_>) -> Option<Occupancy> {
    let Elements { count, stride, .. } = place.table.elements(row.field.type_id, row.field.size)?;
    let line = place.line.bytes();
    if count < 2 || stride == 0 || stride >= line {
        return None;
    }
    let start = place.span(row.field.offset, 0).start;
    let bases = if count.saturating_mul(stride) <= LISTED * line {
        let shifts = (0..line).step_by(usize::try_from(place.step.bytes()).unwrap_or(usize::MAX));
        shifts
            .map(|shift| {
                let start = Addr(start.0.saturating_add(shift));
                ((place.at + shift) % line, occupancy(start, count, stride, place.line))
            })
            .collect()
    } else {
        Vec::new()
    };
    Some(Occupancy { count, stride, most_on_a_line: most_on_a_line(place.line, start, count, stride), bases })
}

/// The rows that a path names: the member itself and what it holds, or one element of an array. `None`: there is none.
pub(super) fn of_path(place: &Place<'_, '_>, members: Vec<MemberView>, path: &str) -> Option<Vec<MemberView>> {
    let field = place.table.member(place.id, path)?;
    let inside = |m: &MemberView| m.path == path || m.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let found: Vec<MemberView> = members.iter().filter(|m| inside(m)).cloned().collect();
    if !found.is_empty() {
        return Some(found);
    }
    // An element: no row of its own. What it meets is what its array does, by its own place.
    let span = place.span(field.offset, field.size.unwrap_or(0));
    let others: Vec<&MemberView> = members.iter().filter(|m| m.contended.is_some()).collect();
    let spans = others.iter().map(|m| place.span(m.offset, m.size.unwrap_or(0)));
    let end = field.offset.saturating_add(field.size.unwrap_or(0));
    let beside = others
        .iter()
        .zip(spans)
        .filter(|(m, _)| m.offset >= end || m.offset.saturating_add(m.size.unwrap_or(0)) <= field.offset);
    let shares: Vec<(Meets, Span)> = beside
        .map(|(m, other)| {
            let share = meeting(span, other, place.step, place.line);
            (Meets { path: m.path.clone(), at: share.at, of: share.of }, other)
        })
        .filter(|(meets, _)| meets.at > 0)
        .take(MOST_MET)
        .collect();
    let spans: Vec<Span> = shares.iter().map(|(_, span)| *span).collect();
    let (first, last) = span.lines(place.line).into_inner();
    Some(vec![MemberView {
        path: path.to_string(),
        type_name: place.table.name(field.type_id),
        offset: field.offset,
        size: field.size,
        bits: None,
        lines: if first == last { vec![first] } else { vec![first, last] },
        straddles: span.straddles(place.line),
        contended: place.table.contended_piece(field.type_id),
        group: None,
        depth: field.path.len().saturating_sub(1),
        overlaps: false,
        pad: false,
        sensitivity: sensitivity(span, &spans, place.step, place.line),
        meets: shares.into_iter().map(|(meets, _)| meets).collect(),
        elements: None,
    }])
}

/// What no member takes, before the last of them and behind it. `None` where a member's size is not known, or the type has
/// bytes and no members (an enum with fields: which bytes it uses depends on its value).
pub(super) fn holes(place: &Place<'_, '_>, size: u64) -> (Option<Vec<Hole>>, u64) {
    let own = || place.rows.list.iter().filter(|row| row.parent.is_none());
    let unknown = |row: &Row<'_>| {
        row.field.size.is_none()
            && !matches!(place.table.bare(row.field.type_id).map(|t| &t.kind), Some(Kind::Array { .. }))
    };
    if place.rows.cut || own().any(unknown) || (size > 0 && own().next().is_none()) {
        return (None, 0);
    }
    let mut spans: Vec<(u64, u64)> = own().map(|row| (row.field.offset, row.field.size.unwrap_or(0))).collect();
    spans.sort_unstable();
    let (mut end, mut holes) = (0u64, Vec::new());
    for (offset, size) in spans.into_iter().filter(|(_, size)| *size > 0) {
        if offset > end {
            holes.push(Hole { offset: end, size: offset - end });
        }
        end = end.max(offset.saturating_add(size));
    }
    (Some(holes), size.saturating_sub(end))
}
