//! Lines: who straddles one, who shares one, and the totals of each section.

mod conflict;
mod rebin;
mod sensitivity;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::objects::{Object, Objects, Space};
use crate::units::LineSize;

pub use conflict::Touches;
pub use rebin::{Bin, Bins, Changed, Datum, Traffic, shifts};
pub use sensitivity::{adjoining, meeting, most_on_a_line, occupancy, on_one_pair, sensitivity};

/// The cache lines of an image's objects.
#[derive(Debug)]
pub struct Lines<'i> {
    pub line: LineSize,
    /// By space and address.
    pub objects: Vec<Object<'i>>,
    /// Which objects begin inside another one (a part that has its own name): they share its lines by construction,
    /// so they count, but they are nobody's neighbours.
    nested: Vec<bool>,
    /// Indices of the others, in the same order.
    apart: Vec<u32>,
}

/// Counts of one section or of the whole image. The keys are those of `straddle.scan/1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Distinct addresses of sized data symbols.
    pub objects: u64,
    /// No larger than a line.
    pub small: u64,
    /// Small, yet on two lines.
    pub straddling: u64,
    /// Lines that two or more objects touch.
    pub lines_shared: u64,
    pub metadata: u64,
    pub straddling_metadata: u64,
}

/// One line that two or more objects touch, nested ones left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLine {
    pub space: Space,
    /// The line's number: address / line size.
    pub number: u64,
    /// Indices into [`Lines::objects`], in address order.
    pub objects: Vec<u32>,
}

impl<'i> Lines<'i> {
    #[must_use]
    pub fn of(objects: Objects<'i>, line: LineSize) -> Lines<'i> {
        let objects = objects.list;
        let mut nested = Vec::with_capacity(objects.len());
        let mut apart = Vec::new();
        let mut reached: Option<(Space, u64)> = None;
        for (index, object) in (0u32..).zip(&objects) {
            let inside = reached.is_some_and(|(space, end)| space == object.space && object.span.start.0 < end);
            nested.push(inside);
            if !inside {
                apart.push(index);
            }
            let end = reached.filter(|_| inside).map_or(0, |(_, end)| end).max(object.span.end());
            reached = Some((object.space, end));
        }
        Lines { line, objects, nested, apart }
    }

    #[must_use]
    pub fn object(&self, index: u32) -> Option<&Object<'i>> {
        self.objects.get(index as usize)
    }

    /// Begins inside another object.
    #[must_use]
    pub fn is_nested(&self, index: u32) -> bool {
        self.nested.get(index as usize).copied().unwrap_or_default()
    }

    /// Totals by section index, and of the whole image. (A line on the seam of two sections is shared in the image
    /// though in neither section, so the image's `lines_shared` is no sum.)
    #[must_use]
    pub fn counts(&self) -> (BTreeMap<u32, Counts>, Counts) {
        let mut sections: BTreeMap<u32, Counts> = BTreeMap::new();
        let mut total = Counts::default();
        for object in &self.objects {
            sections.entry(object.section).or_default().add(object, self.line);
            total.add(object, self.line);
        }
        let mut of_section: BTreeMap<(u32, Space), Sweep> = BTreeMap::new();
        let mut of_space: BTreeMap<Space, Sweep> = BTreeMap::new();
        for object in &self.objects {
            let lines = object.span.lines(self.line);
            of_section.entry((object.section, object.space)).or_default().add(*lines.start(), *lines.end());
            of_space.entry(object.space).or_default().add(*lines.start(), *lines.end());
        }
        for ((section, _), sweep) in of_section {
            sections.entry(section).or_default().lines_shared += sweep.shared;
        }
        total.lines_shared = of_space.into_values().map(|sweep| sweep.shared).sum();
        (sections, total)
    }

    /// Every line that two or more objects touch, in address order.
    #[must_use]
    pub fn shared(&self) -> Vec<SharedLine> {
        let mut out: Vec<SharedLine> = Vec::new();
        let mut previous: Option<(&Object<'i>, u32)> = None;
        for &index in &self.apart {
            let Some(object) = self.object(index) else { continue };
            let first = *object.span.lines(self.line).start();
            if let Some((before, before_index)) = previous
                && before.space == object.space
                && *before.span.lines(self.line).end() == first
            {
                match out.last_mut().filter(|l| l.space == object.space && l.number == first) {
                    Some(line) => line.objects.push(index),
                    None => {
                        out.push(SharedLine { space: object.space, number: first, objects: vec![before_index, index] })
                    }
                }
            }
            previous = Some((object, index));
        }
        out
    }

    /// The other objects on an object's lines, by index. None for a nested object.
    pub fn mates(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        self.neighbourhood(index).filter(move |&i| i != index)
    }

    fn neighbourhood(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let range = self.mate_range(index).unwrap_or(0..0);
        self.apart.get(range).unwrap_or_default().iter().copied()
    }

    /// The objects before and after an object, and itself, as far as `near` holds; nested ones left out.
    pub fn near(&self, index: u32, near: impl Fn(&u32) -> bool) -> impl Iterator<Item = u32> + '_ {
        let at = self.apart.partition_point(|&i| i < index);
        let (before, after) = self.apart.split_at_checked(at).unwrap_or_default();
        let first = before.iter().rev().take_while(|i| near(i)).count();
        let last = after.iter().take_while(|i| **i == index || near(i)).count();
        self.apart.get(at - first..at + last).unwrap_or_default().iter().copied()
    }

    fn mate_range(&self, index: u32) -> Option<Range<usize>> {
        if self.is_nested(index) {
            return None;
        }
        let object = self.object(index)?;
        let lines = object.span.lines(self.line);
        let at = self.apart.partition_point(|&i| i < index);
        let touches = |i: &u32| {
            self.object(*i).is_some_and(|other| {
                let theirs = other.span.lines(self.line);
                other.space == object.space && theirs.start() <= lines.end() && theirs.end() >= lines.start()
            })
        };
        let before = self.apart.get(..at)?.iter().rev().take_while(|i| touches(i)).count();
        let after = self.apart.get(at..)?.iter().take_while(|i| touches(i)).count();
        Some(at - before..at + after)
    }
}

impl Counts {
    fn add(&mut self, object: &Object<'_>, line: LineSize) {
        let (small, straddles) = (object.span.size <= line.bytes(), object.span.straddles(line));
        let metadata = object.class.is_metadata();
        self.objects += 1;
        self.small += u64::from(small);
        self.straddling += u64::from(straddles);
        self.metadata += u64::from(metadata);
        self.straddling_metadata += u64::from(metadata && straddles);
    }
}

/// Counts lines that two or more of a run of ranges touch; ranges arrive ordered by their start.
///
/// Counted arithmetically: an object of a gigabyte costs no more than one of a byte.
#[derive(Default)]
struct Sweep {
    shared: u64,
    /// One past the last line that any range has touched.
    touched: u64,
    /// One past the last line that was counted as shared.
    counted: u64,
}

impl Sweep {
    fn add(&mut self, first: u64, last: u64) {
        let end = last.saturating_add(1);
        let (from, to) = (first.max(self.counted), end.min(self.touched));
        if to > from {
            self.shared += to - from;
            self.counted = to;
        }
        self.touched = self.touched.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Class, Kind};
    use crate::units::{Addr, Span};
    use proptest::prelude::*;

    fn lines(spans: &[(u64, u64)]) -> Lines<'static> {
        let mut list: Vec<Object<'static>> = spans
            .iter()
            .map(|&(start, size)| Object {
                name: "x",
                kind: Kind::Data,
                class: Class::Data,
                section: 1,
                space: Space::Shared,
                span: Span { start: Addr(start), size },
                unit: None,
                aliases: 0,
                order: 0,
            })
            .collect();
        list.sort_by_key(|o| (o.span.start, std::cmp::Reverse(o.span.size)));
        list.dedup_by_key(|o| o.span.start);
        Lines::of(Objects { list, ..Objects::default() }, LineSize::B64)
    }

    #[test]
    fn a_part_with_its_own_name_is_no_neighbour() {
        let lines = lines(&[(0, 256), (128, 8), (256, 8), (264, 8)]);
        assert_eq!(lines.shared().iter().map(|l| l.objects.clone()).collect::<Vec<_>>(), [[2, 3]]);
        assert_eq!(lines.mates(1).count(), 0);
        assert_eq!(lines.mates(2).collect::<Vec<_>>(), [3]);
        // It still counts, as it does for a reader that only knows addresses: lines 2 and 4.
        assert_eq!(lines.counts().1.lines_shared, 2);
    }

    proptest! {
        /// Against the obvious way: list every line of every object.
        #[test]
        fn shared_lines_are_those_touched_twice(spans in prop::collection::vec((0u64..2000, 1u64..300), 0..40)) {
            let lines = lines(&spans);
            let mut touched: BTreeMap<u64, u32> = BTreeMap::new();
            for object in &lines.objects {
                for line in object.span.lines(LineSize::B64) {
                    *touched.entry(line).or_default() += 1;
                }
            }
            let want = touched.values().filter(|&&n| n > 1).count() as u64;
            prop_assert_eq!(lines.counts().1.lines_shared, want);
        }

        /// Mates are symmetric, and two objects that do not overlap are mates iff some line holds both.
        #[test]
        fn mates_are_who_is_on_a_common_line(gaps in prop::collection::vec((0u64..80, 1u64..200), 1..30)) {
            let mut spans = Vec::new();
            let mut at = 0;
            for (gap, size) in gaps {
                spans.push((at + gap, size));
                at += gap + size;
            }
            let lines = lines(&spans);
            for (i, a) in (0u32..).zip(&lines.objects) {
                let mates: Vec<u32> = lines.mates(i).collect();
                for (j, b) in (0u32..).zip(&lines.objects) {
                    let (x, y) = (a.span.lines(LineSize::B64), b.span.lines(LineSize::B64));
                    let common = i != j && x.start() <= y.end() && y.start() <= x.end();
                    prop_assert_eq!(mates.contains(&j), common);
                }
            }
            let by_line: usize = lines.shared().iter().map(|l| l.objects.len()).sum();
            prop_assert!(by_line >= 2 * lines.shared().len());
        }
    }
}
