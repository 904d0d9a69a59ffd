//! Output sections as rows of units: what each starts and ends with, and which start where the one before ends.

use std::ops::Range;

use super::LINE;
use super::program::Unit;
use crate::image::map::{Dialect, Landing};

/// Segments begin on the same place in a page as the one before ended, one page on. Larger pages are multiples of it.
pub(super) const PAGE: u64 = 4096;

/// One output section.
pub(super) struct Span {
    pub output: String,
    pub units: Range<usize>,
    /// What its start is a multiple of.
    pub align: u64,
    /// See [`Row::trail`].
    pub trail: u64,
    /// See [`Row::follows`].
    pub follows: Option<u64>,
}

/// An output section with its units in address order.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub output: &'a str,
    pub units: &'a [Unit],
    /// What its start is a multiple of.
    pub align: u64,
    /// Bytes behind its last unit, where none of them can be padded: the end of unwind tables.
    pub trail: u64,
    /// How far it starts behind where its alignment puts it after the row before that takes room: whole pages, where a
    /// segment begins. `None` where the linker does not place it from there (at a page, or so that it ends at one).
    pub follows: Option<u64>,
}

impl Row<'_> {
    /// Thread-local zeros are no part of the image, and what follows lies where they do.
    pub fn takes_room(&self) -> bool {
        takes_room(self.output)
    }
}

/// Output sections in the map's order; a name that comes twice is two rows.
pub(super) fn rows(units: &[Unit]) -> Vec<Span> {
    let mut rows: Vec<Span> = Vec::new();
    for (i, unit) in units.iter().enumerate() {
        match rows.last_mut() {
            Some(row) if row.output == unit.output => row.units.end = i + 1,
            _ => rows.push(Span { output: unit.output.clone(), units: i..i + 1, align: 1, trail: 0, follows: None }),
        }
    }
    rows
}

pub(super) fn takes_room(output: &str) -> bool {
    output != ".tbss"
}

/// Finds the rows that start where the rows before end. lld and mold go on in the next page at the same place in it
/// where a segment begins; GNU ld and gold do so too at times, but move what is relocated and then read-only so that it
/// *ends* at a page.
pub(super) fn chain(rows: &mut [Span], units: &[Unit], landing: &Landing, relro: Option<&Range<u64>>) {
    let from_its_end = |start: u64| {
        let inside = relro.is_some_and(|r| r.start <= start && start <= r.end);
        inside && matches!(landing.dialect, Dialect::Gnu | Dialect::Gold)
    };
    let mut end: Option<u64> = None;
    for row in rows {
        let units = units.get(row.units.clone()).unwrap_or_default();
        let Some(start) = units.first().map(|u| u.address) else { continue };
        let widest = units.iter().map(|u| u.model_align).max().unwrap_or(1).max(1);
        let last = units.last().map_or(start, |u| u.address.saturating_add(u.size));
        let whole = landing.outputs.iter().find(|o| o.name == row.output && o.address == start);
        if let (Some(whole), false) = (whole, units.iter().any(|u| u.class.paddable())) {
            row.trail = whole.address.saturating_add(whole.size).saturating_sub(last);
        }
        let told = whole.and_then(|o| o.align);
        row.align = told.unwrap_or(widest);
        // What the linker makes itself may be aligned further than a map says.
        let most = if told.is_some() { row.align } else { low_bit(start).min(LINE) };
        let aligns = std::iter::successors(Some(row.align), |a| a.checked_mul(2)).take_while(|a| *a <= most);
        let after = aligns.filter_map(|a| Some((a, start.wrapping_sub(end?.checked_next_multiple_of(a)?))));
        let found = after.filter(|(_, pages)| pages.is_multiple_of(PAGE)).find(|_| !from_its_end(start));
        if let Some((align, pages)) = found {
            (row.align, row.follows) = (align, Some(pages));
        }
        if takes_room(&row.output) {
            end = Some(last.saturating_add(row.trail));
        }
    }
}

/// Where a unit lies further on than its alignment explains, a script aligned it: its address shows to what. Or it moved
/// on, by bytes that are told by the address too.
pub(super) fn model(row: &mut [Unit]) {
    let Some(mut end) = row.first().map(|u| u.address) else { return };
    for unit in row {
        let up = |align: u64| end.checked_next_multiple_of(align.max(1));
        if up(unit.model_align) != Some(unit.address) {
            // What the linker makes itself is aligned to little: the least that explains it. A script's is the most.
            let shown = low_bit(unit.address).min(4096);
            let mut aligns = std::iter::successors(Some(unit.model_align.max(1)), |a| a.checked_mul(2));
            let least = aligns.find(|&a| a >= shown || up(a) == Some(unit.address));
            let shown = if unit.source.is_none() { least.unwrap_or(shown) } else { shown };
            if up(shown) == Some(unit.address) && !unit.told {
                unit.model_align = shown;
            } else {
                unit.skip = unit.address.saturating_sub(end);
            }
        }
        end = unit.address.saturating_add(unit.size);
    }
}

pub(super) fn low_bit(address: u64) -> u64 {
    if address == 0 { LINE } else { 1 << address.trailing_zeros().min(63) }
}
