//! Members of a type → blocks that may be moved → another order, where it makes the type smaller and nothing worse.

use serde::Serialize;

use super::Place;
use super::members::{group_begun, group_ended, is_pad};
use super::reorder::{Block, Fence, reorder};
use crate::layout::meeting;
use crate::types::{Kind, Member, TypeTable};
use crate::units::{Align, Span};

/// An order of a struct's members that makes it smaller. Deliberate pads, groups and alignments stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reorder {
    /// In bytes.
    pub size_before: u64,
    pub size_after: u64,
    /// Of an object that begins on a line.
    pub lines_before: u64,
    pub lines_after: u64,
    /// Every member in its new order.
    pub members: Vec<Moved>,
}

/// Where a member would lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// `null`: an anonymous struct or union.
    pub name: Option<String>,
    /// In bytes.
    pub offset_before: u64,
    pub offset_after: u64,
}

/// `None`: nothing is gained, or not without putting contended members on one line or members on two.
pub(super) fn suggest(place: &Place<'_, '_>, size: u64, align: u64, scalar: u64) -> Option<Reorder> {
    let Kind::Struct(members) = &place.table.bare(place.id)?.kind else { return None };
    let mut members: Vec<&Member<'_>> = members.iter().collect();
    members.sort_by_key(|m| m.offset);
    let (blocks, of) = blocks(place, &members, scalar)?;
    let (offsets, after) = reorder(&blocks, size, align)?;
    let moved = |at: usize, member: &Member<'_>| {
        let block = *of.get(at)?;
        Some(offsets.get(block)? + (member.offset - blocks.get(block)?.offset))
    };
    let before: Vec<u64> = members.iter().map(|m| m.offset).collect();
    let placed: Vec<u64> = members.iter().enumerate().map(|(at, m)| moved(at, m)).collect::<Option<_>>()?;
    if harm(place, &members, &placed) > harm(place, &members, &before) {
        return None;
    }
    let mut order: Vec<(u64, &Member<'_>)> = placed.into_iter().zip(members).collect();
    order.sort_by_key(|(offset, m)| (*offset, m.offset));
    let line = place.line.bytes();
    Some(Reorder {
        size_before: size,
        size_after: after,
        lines_before: size.div_ceil(line),
        lines_after: after.div_ceil(line),
        members: order
            .into_iter()
            .map(|(offset_after, m)| Moved { name: m.name.map(str::to_string), offset_before: m.offset, offset_after })
            .collect(),
    })
}

/// Blocks by offset, and the block of each member. `None` where members overlap, are packed, or their sizes are not known.
fn blocks(place: &Place<'_, '_>, members: &[&Member<'_>], scalar: u64) -> Option<(Vec<Block>, Vec<usize>)> {
    let (table, line) = (place.table, place.line.bytes());
    let mut blocks: Vec<Block> = Vec::new();
    let mut of = Vec::with_capacity(members.len());
    let (mut group, mut bits) = (false, false);
    for (at, member) in members.iter().enumerate() {
        let name = member.name.unwrap_or_default();
        let last = at + 1 == members.len();
        let size = match table.member_size(member) {
            Some(size) => size,
            // Of a flexible array, and of a marker in some compilers' words.
            None if last || group_begun(name).is_some() || group_ended(name).is_some() => 0,
            None => return None,
        };
        let end = member.offset.checked_add(size)?;
        let begins = group_begun(name).is_some();
        // All of a group, and bit fields side by side, are one block.
        if group || (bits && member.bits.is_some()) {
            let block = blocks.last_mut()?;
            block.size = block.size.max(end - block.offset);
        } else {
            let needs = table.natural_align(member.type_id, scalar).max(member.align.unwrap_or(1));
            let asked = table.asked_align(member.align, member.type_id).unwrap_or(1);
            let stays = begins || member.bits.is_some() || is_pad(table, name, member.type_id);
            let slides = asked >= line || (last && flexible(table, member)) || is_base(table, member);
            let fence = match (stays, slides) {
                (true, _) => Fence::Stays,
                (false, true) => Fence::Slides,
                (false, false) => Fence::Open,
            };
            let packed = !stays && member.offset % needs.max(1) != 0;
            if packed || blocks.last().is_some_and(|b| member.offset < b.offset + b.size) {
                return None;
            }
            blocks.push(Block { offset: member.offset, size, align: needs, fence });
        }
        group = (group || begins) && group_ended(name).is_none();
        bits = member.bits.is_some();
        of.push(blocks.len() - 1);
    }
    Some((blocks, of))
}

fn flexible(table: &TypeTable<'_>, member: &Member<'_>) -> bool {
    let kind = table.bare(member.type_id).map(|t| &t.kind);
    matches!(kind, Some(Kind::Array { .. })) && table.size(member.type_id).unwrap_or(0) == 0
}

/// The order of base classes is not that of members.
fn is_base(table: &TypeTable<'_>, member: &Member<'_>) -> bool {
    member.name.is_none() && table.get(member.type_id).is_some_and(|t| t.name.is_some())
}

/// Bases at which contended members meet, over all pairs, and members on two lines where an object begins on a line.
fn harm(place: &Place<'_, '_>, members: &[&Member<'_>], offsets: &[u64]) -> u64 {
    let mut pieces: Vec<(usize, Span)> = Vec::new();
    let mut straddling = 0;
    for (at, (member, offset)) in members.iter().zip(offsets).enumerate() {
        let span = place.span(*offset, place.table.member_size(member).unwrap_or(0));
        straddling += u64::from(place.known() && span.straddles(place.line));
        for (inside, size, _) in place.table.contended(member.type_id).into_iter().take(MOST) {
            pieces.push((at, place.span(offset.saturating_add(inside), size)));
        }
    }
    let step = Align::new(place.step.bytes()).unwrap_or_default();
    let pairs = pieces.iter().enumerate().flat_map(|(i, a)| pieces.iter().skip(i + 1).map(move |b| (a, b)));
    let met = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| meeting(a.1, b.1, step, place.line).at);
    met.sum::<u64>() + straddling
}

/// Contended pieces of one member that are compared with all others.
const MOST: usize = 16;
