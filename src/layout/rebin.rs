//! Measured accesses on another layout: every access keeps its object and its offset, only the object's place changes. Pure
//! arithmetic: what runs does not change, so that a layout can be judged that was never run.
//!
//! What cannot be told: an access that an index moves (which element it was), and what the other layout would make run
//! differently. Accesses of objects without a place there are counted, not guessed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Touches;
use crate::heat::Access;
use crate::objects::Space;
use crate::units::{Addr, LineSize, Span};

/// One datum: an object and an offset in it, in bytes.
pub type Datum = (u32, u64);

/// All accesses to one datum.
#[derive(Clone, Debug)]
struct Own {
    datum: Datum,
    /// In bytes; the widest access to it.
    width: u64,
    touches: Touches,
}

/// Measured accesses, by datum: what can be put on any layout.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    data: Vec<Own>,
    /// Accesses of which the element is not known.
    pub indexed: u64,
}

/// One line of a layout, and what happens on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Accesses whose first byte is on it.
    pub count: u64,
    pub writes: u64,
    /// Pairs of a write and another CPU's access to different data.
    pub conflict: u64,
}

/// A line's place.
pub type Line = (Space, u64);

/// A layout: the traffic on its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    pub lines: BTreeMap<Line, Bin>,
    /// Accesses to objects that have no place in it.
    pub lost: u64,
    /// Pairs of data that disturb each other, and on which line they meet first.
    met: BTreeMap<(Datum, Datum), (u64, Line)>,
}

/// Two data whose conflict differs between two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub data: (Datum, Datum),
    /// Pairs of a write and another CPU's access, where they share a line: 0 where they do not.
    pub before: u64,
    pub after: u64,
    /// Where they meet.
    pub line_before: Option<Line>,
    pub line_after: Option<Line>,
}

impl Traffic {
    /// `accesses`: of one evidence, so that their counts are of one measure.
    #[must_use]
    pub fn of<'a>(accesses: impl Iterator<Item = &'a Access>) -> Traffic {
        let mut traffic = Traffic::default();
        let mut data: BTreeMap<Datum, Own> = BTreeMap::new();
        for access in accesses {
            if access.indexed {
                traffic.indexed = traffic.indexed.saturating_add(access.count);
                continue;
            }
            let datum = (access.object, access.offset);
            let own = data.entry(datum).or_insert_with(|| Own { datum, width: 1, touches: Touches::default() });
            own.width = own.width.max(u64::from(access.width));
            own.touches.add(access.cpu, access.thread, access.count, access.kind.writes());
        }
        traffic.data = data.into_values().collect();
        traffic
    }

    /// Accesses that have a place.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.data.iter().map(|d| d.touches.count()).fold(0, u64::saturating_add)
    }

    /// Puts it on a layout: `place` tells where an object begins there.
    #[must_use]
    pub fn on(&self, place: impl Fn(u32) -> Option<(Space, Addr)>, line: LineSize) -> Bins {
        let mut bins = Bins::default();
        let mut on: BTreeMap<Line, Vec<(Span, &Own)>> = BTreeMap::new();
        for own in &self.data {
            let Some((space, start)) = place(own.datum.0) else {
                bins.lost = bins.lost.saturating_add(own.touches.count());
                continue;
            };
            let span = Span { start: Addr(start.0.saturating_add(own.datum.1)), size: own.width.min(line.bytes()) };
            let lines = span.lines(line);
            let first = bins.lines.entry((space, *lines.start())).or_default();
            first.count = first.count.saturating_add(own.touches.count());
            first.writes = first.writes.saturating_add(own.touches.writes());
            for number in lines {
                on.entry((space, number)).or_default().push((span, own));
            }
        }
        for (at, data) in on {
            bins.meet(at, &data);
        }
        bins
    }
}

impl Bins {
    fn meet(&mut self, at: Line, data: &[(Span, &Own)]) {
        let mut conflict = 0u64;
        for (i, (span, own)) in data.iter().enumerate() {
            for (other_span, other) in data.iter().skip(i + 1) {
                // Two accesses to common bytes disturb each other wherever they lie.
                let apart = span.end() <= other_span.start.0 || other_span.end() <= span.start.0;
                let pairs = if apart { own.touches.pairs(&other.touches) } else { 0 };
                if pairs == 0 {
                    continue;
                }
                conflict = conflict.saturating_add(pairs);
                let pair = (own.datum.min(other.datum), own.datum.max(other.datum));
                self.met.entry(pair).or_insert((pairs, at));
            }
        }
        if conflict > 0 {
            self.lines.entry(at).or_default().conflict = conflict;
        }
    }

    /// Of all data that meet somewhere, each pair once.
    #[must_use]
    pub fn conflict(&self) -> u64 {
        self.met.values().map(|(pairs, _)| *pairs).fold(0, u64::saturating_add)
    }

    /// What another layout of the same traffic adds and removes, the largest difference first. Lines have no identity from
    /// one layout to the next; data have.
    #[must_use]
    pub fn changes(&self, after: &Bins) -> Vec<Changed> {
        let pairs: BTreeSet<(Datum, Datum)> = self.met.keys().chain(after.met.keys()).copied().collect();
        let mut changes: Vec<Changed> = pairs
            .into_iter()
            .map(|data| {
                let of = |bins: &Bins| bins.met.get(&data).copied().unzip();
                let ((before, line_before), (after, line_after)) = (of(self), of(after));
                let (before, after) = (before.unwrap_or(0), after.unwrap_or(0));
                Changed { data, before, after, line_before, line_after }
            })
            .filter(|c| c.before != c.after)
            .collect();
        changes.sort_by_key(|c| (std::cmp::Reverse(c.before.abs_diff(c.after)), c.data));
        changes
    }
}

/// The conflict at every shift of less than a line, in steps of `step` bytes: the objects that `moves` names move along,
/// the others stay. By shift.
#[must_use]
pub fn shifts(
    traffic: &Traffic,
    place: impl Fn(u32) -> Option<(Space, Addr)>,
    moves: impl Fn(u32) -> bool,
    step: u64,
    line: LineSize,
) -> Vec<(u64, Bins)> {
    let step = usize::try_from(step.max(1)).unwrap_or(usize::MAX);
    let shifted = |by: u64| {
        let place = |object| {
            let (space, start) = place(object)?;
            Some((space, if moves(object) { Addr(start.0.saturating_add(by)) } else { start }))
        };
        (by, traffic.on(place, line))
    };
    (0..line.bytes()).step_by(step).map(shifted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Evidence;
    use crate::heat::{Kind, NOBODY};
    use proptest::prelude::*;

    fn access(object: u32, offset: u64, (cpu, kind): (u32, Kind), count: u64) -> Access {
        Access {
            object,
            offset,
            width: 8,
            kind,
            indexed: false,
            function: NOBODY,
            through: None,
            evidence: Evidence::Measured,
            cpu: Some(cpu),
            thread: None,
            count,
            hitm: 0,
        }
    }

    fn at(places: &[u64]) -> impl Fn(u32) -> Option<(Space, Addr)> + '_ {
        |object| places.get(object as usize).map(|start| (Space::Shared, Addr(*start)))
    }

    /// A counter that CPU 0 updates 10 times, a limit that CPU 1 reads 20 times and CPU 0 once.
    #[test]
    fn a_move_brings_two_together_and_parts_two_others() {
        let (write, read) = (Kind::Atomic, Kind::Read);
        let all = [
            access(0, 0, (0, write), 10),
            access(1, 0, (1, read), 20),
            access(1, 0, (0, read), 1),
            access(2, 8, (2, read), 5),
        ];
        let traffic = Traffic::of(all.iter());
        let before = traffic.on(at(&[0, 56, 64]), LineSize::B64);
        let after = traffic.on(at(&[0, 64, 32]), LineSize::B64);
        assert_eq!((before.conflict(), after.conflict()), (200, 50));
        let changes: Vec<_> = before.changes(&after).iter().map(|c| (c.data, c.before, c.after)).collect();
        assert_eq!(changes, [(((0, 0), (1, 0)), 200, 0), (((0, 0), (2, 8)), 0, 50)]);
        let shifted = shifts(&traffic, at(&[0, 56, 64]), |object| object > 0, 8, LineSize::B64);
        let conflicts: Vec<u64> = shifted.iter().map(|(_, bins)| bins.conflict()).collect();
        assert_eq!(
            conflicts,
            [200, 0, 0, 0, 0, 0, 0, 0],
            "once the limit is behind the counter's line, it stays there"
        );
    }

    fn accesses() -> impl Strategy<Value = Vec<Access>> {
        let kinds = prop::sample::select(vec![Kind::Read, Kind::Write, Kind::Atomic, Kind::Address]);
        let one = (0u32..5, 0u64..40, (0u32..3, kinds), 1u64..100, any::<bool>());
        prop::collection::vec(
            one.prop_map(|(object, offset, who, count, indexed)| Access {
                indexed: indexed && offset == 0,
                ..access(object, offset, who, count)
            }),
            0..40,
        )
    }

    fn places() -> impl Strategy<Value = Vec<u64>> {
        // The last object may be missing in a layout.
        prop::collection::vec(0u64..400, 4..6)
    }

    proptest! {
        #[test]
        fn accesses_are_neither_lost_nor_made(all in accesses(), places in places()) {
            let traffic = Traffic::of(all.iter());
            let bins = traffic.on(at(&places), LineSize::B64);
            let sum: u64 = all.iter().map(|a| a.count).sum();
            prop_assert_eq!(traffic.count() + traffic.indexed, sum);
            prop_assert_eq!(bins.lines.values().map(|b| b.count).sum::<u64>() + bins.lost, traffic.count());
        }

        #[test]
        fn the_same_layout_changes_nothing(all in accesses(), places in places()) {
            let traffic = Traffic::of(all.iter());
            let bins = traffic.on(at(&places), LineSize::B64);
            prop_assert_eq!(bins.changes(&traffic.on(at(&places), LineSize::B64)), []);
        }

        /// All by whole lines: every line is another one, and nothing else.
        #[test]
        fn a_shift_by_lines_changes_nothing(all in accesses(), places in places(), lines in 1u64..5) {
            let traffic = Traffic::of(all.iter());
            let moved: Vec<u64> = places.iter().map(|p| p + 64 * lines).collect();
            let (before, after) = (traffic.on(at(&places), LineSize::B64), traffic.on(at(&moved), LineSize::B64));
            prop_assert_eq!(before.changes(&after), []);
            prop_assert_eq!(before.lines.values().collect::<Vec<_>>(), after.lines.values().collect::<Vec<_>>());
        }

        /// Against the obvious way: every pair of accesses, byte by byte.
        #[test]
        fn conflict_is_what_every_pair_says(all in accesses(), places in places()) {
            let known: Vec<&Access> = all.iter().filter(|a| !a.indexed && (a.object as usize) < places.len()).collect();
            let bytes = |a: &Access| { let s = places[a.object as usize] + a.offset; s..s + 8 };
            let mut want = 0;
            for (i, a) in known.iter().enumerate() {
                for b in &known[..i] {
                    let (x, y) = (bytes(a), bytes(b));
                    let apart = x.end <= y.start || y.end <= x.start;
                    let common = x.start / 64 <= (y.end - 1) / 64 && y.start / 64 <= (x.end - 1) / 64;
                    let disturb = a.cpu != b.cpu && (a.kind.writes() || b.kind.writes());
                    want += if apart && common && disturb { a.count * b.count } else { 0 };
                }
            }
            prop_assert_eq!(Traffic::of(all.iter()).on(at(&places), LineSize::B64).conflict(), want);
        }

        /// One of the shifts is the layout as it is, and a shift is a layout like any other.
        #[test]
        fn every_shift_is_a_layout(all in accesses(), places in places(), moved in prop::collection::vec(any::<bool>(), 6)) {
            let traffic = Traffic::of(all.iter());
            let moves = |object: u32| moved.get(object as usize).copied().unwrap_or(false);
            let shifted = shifts(&traffic, at(&places), moves, 16, LineSize::B64);
            prop_assert_eq!(shifted.len(), 4);
            for (by, bins) in &shifted {
                let places: Vec<u64> =
                    (0u32..).zip(&places).map(|(n, p)| if moves(n) { p + by } else { *p }).collect();
                prop_assert_eq!(bins, &traffic.on(at(&places), LineSize::B64));
            }
        }
    }
}
