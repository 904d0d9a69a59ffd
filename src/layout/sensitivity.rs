//! How fragile a place is: of all the phases that something may get, at how many it straddles a line or meets a
//! contended neighbour. A shift upstream moves all that comes after it together, so that distances stay and only the
//! phase changes.

use crate::finding::{Sensitivity, Share};
use crate::units::{Addr, Align, LineSize, Span};

/// Over all shifts of less than a line in steps of `step`: `span` and its `contended` neighbours move together. A step of
/// a line or more leaves the one place it has.
#[must_use]
pub fn sensitivity(span: Span, contended: &[Span], step: Align, line: LineSize) -> Sensitivity {
    let mut out = Sensitivity::default();
    for shift in shifts(step, line.bytes()) {
        let own = moved(span, shift);
        let straddles = own.straddles(line);
        let meets = contended.iter().any(|other| on_one_line(own, moved(*other, shift), line));
        out.of += 1;
        out.straddles += u64::from(straddles);
        out.meets += u64::from(meets);
        out.either += u64::from(straddles || meets);
    }
    out
}

/// At how many places two spans touch a common line.
#[must_use]
pub fn meeting(a: Span, b: Span, step: Align, line: LineSize) -> Share {
    share(step, line.bytes(), |shift| on_one_line(moved(a, shift), moved(b, shift), line))
}

/// At how many places two spans have no line in common, but lie on the two lines of one pair (2N and 2N+1): what an
/// adjacent-line prefetcher fetches together.
#[must_use]
pub fn adjoining(a: Span, b: Span, step: Align, line: LineSize) -> Share {
    share(step, 2 * line.bytes(), |shift| on_one_pair(moved(a, shift), moved(b, shift), line))
}

/// See [`adjoining`]; where they lie.
#[must_use]
pub fn on_one_pair(a: Span, b: Span, line: LineSize) -> bool {
    let (first, second) =
        if a.start <= b.start { (a.lines(line), b.lines(line)) } else { (b.lines(line), a.lines(line)) };
    first.end() < second.start() && first.end() / 2 == second.start() / 2
}

fn on_one_line(a: Span, b: Span, line: LineSize) -> bool {
    let (a, b) = (a.lines(line), b.lines(line));
    a.start() <= b.end() && b.start() <= a.end()
}

fn share(step: Align, window: u64, bad: impl Fn(u64) -> bool) -> Share {
    shifts(step, window).fold(Share::default(), |s, shift| Share { at: s.at + u64::from(bad(shift)), of: s.of + 1 })
}

fn shifts(step: Align, window: u64) -> impl Iterator<Item = u64> {
    let step = usize::try_from(step.bytes()).unwrap_or(usize::MAX);
    (0..window).step_by(step)
}

fn moved(span: Span, by: u64) -> Span {
    Span { start: Addr(span.start.0.saturating_add(by)), ..span }
}

/// How many elements of an array begin on each of its lines, first line first.
#[must_use]
pub fn occupancy(start: Addr, count: u64, stride: u64, line: LineSize) -> Vec<u64> {
    let mut lines: Vec<(u64, u64)> = Vec::new();
    for at in 0..count {
        let number = line.line_of(Addr(start.0.saturating_add(at.saturating_mul(stride))));
        match lines.last_mut() {
            Some((last, elements)) if *last == number => *elements += 1,
            _ => lines.push((number, 1)),
        }
    }
    lines.into_iter().map(|(_, elements)| elements).collect()
}

/// How many elements of an array touch the line that most do. The pattern repeats after as many elements as a line has
/// bytes.
#[must_use]
pub fn most_on_a_line(line: LineSize, start: Addr, count: u64, stride: u64) -> u64 {
    if stride >= line.bytes() {
        return 1;
    }
    let (mut most, mut here, mut number) = (0, 0, None);
    for at in 0..count.min(2 * line.bytes()) {
        let first = start.0.saturating_add(at.saturating_mul(stride));
        let last = line.line_of(Addr(first.saturating_add(stride.saturating_sub(1))));
        let first = line.line_of(Addr(first));
        if number != Some(first) {
            (here, number) = (0, Some(first));
        }
        here += 1;
        most = most.max(here);
        // One that lies on two lines is the first of the next.
        if last != first {
            (here, number) = (1, Some(last));
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use proptest::prelude::*;

    fn span(start: u64, size: u64) -> Span {
        Span { start: Addr(start), size }
    }

    fn align(bytes: u64) -> Align {
        Align::new(bytes).unwrap()
    }

    /// Case A18: half a line, 8-aligned: 3 of 8. Aligned to its size, never.
    #[test]
    fn half_a_line_straddles_at_three_of_eight_places() {
        let at = |step| sensitivity(span(0x1000, 32), &[], align(step), LineSize::B64);
        assert_eq!((at(8).straddles, at(8).of, at(8).either), (3, 8, 3));
        assert_eq!((at(32).straddles, at(32).of), (0, 2));
        assert_eq!(at(64).of, 1);
    }

    /// Case A13: 32 bytes apart, 8-aligned: half of the bases. Case C8: side by side, apart at one base of eight.
    #[test]
    fn two_members_meet_at_some_bases() {
        let share = |distance| meeting(span(0, 8), span(distance, 8), align(8), LineSize::B64);
        assert_eq!(share(32), Share { at: 4, of: 8 });
        assert_eq!(share(8), Share { at: 7, of: 8 });
        assert_eq!(share(64), Share { at: 0, of: 8 });
    }

    /// Case A2: lines 2N and 2N+1 are a pair, 2N+1 and 2N+2 are not.
    #[test]
    fn a_pair_begins_at_an_even_line() {
        let pair = |a, b| adjoining(span(a, 8), span(b, 8), align(128), LineSize::B64);
        assert_eq!(pair(56, 64), Share { at: 1, of: 1 });
        assert_eq!(pair(64, 56), Share { at: 1, of: 1 });
        assert_eq!(pair(120, 128), Share { at: 0, of: 1 });
        assert_eq!(pair(48, 56), Share { at: 0, of: 1 }, "one line is no pair of lines");
        // A base that is aligned to one line may begin on either of a pair.
        assert_eq!(adjoining(span(56, 8), span(64, 8), align(64), LineSize::B64), Share { at: 1, of: 2 });
    }

    /// Case C5: eight counters of eight bytes in a block that malloc aligns to 16.
    #[test]
    fn counters_divide_by_the_phase_of_their_base() {
        let at = |phase| occupancy(Addr(phase), 8, 8, LineSize::B64);
        assert_eq!([at(0), at(16), at(32), at(48)], [vec![8], vec![6, 2], vec![4, 4], vec![2, 6]]);
    }

    fn bytes_lines(start: u64, size: u64) -> BTreeSet<u64> {
        (start..start + size).map(|b| b / 64).collect()
    }

    proptest! {
        /// Against the obvious way: every byte of every span at every shift.
        #[test]
        fn sensitivity_is_what_every_byte_says(
            start in 0u64..300, size in 1u64..100, exponent in 0u32..8,
            others in prop::collection::vec((0u64..300, 1u64..100), 0..4),
        ) {
            let spans: Vec<Span> = others.iter().map(|&(s, n)| span(s, n)).collect();
            let found = sensitivity(span(start, size), &spans, align(1 << exponent), LineSize::B64);
            let mut want = Sensitivity::default();
            for k in (0..64).filter(|k| k % (1u64 << exponent) == 0) {
                let own = bytes_lines(start + k, size);
                let straddles = size <= 64 && own.len() > 1;
                let meets = others.iter().any(|&(s, n)| !own.is_disjoint(&bytes_lines(s + k, n)));
                want.of += 1;
                want.straddles += u64::from(straddles);
                want.meets += u64::from(meets);
                want.either += u64::from(straddles || meets);
            }
            prop_assert_eq!(found, want);
        }

        #[test]
        fn pairs_are_what_every_byte_says(a in 0u64..300, b in 0u64..300, size in 1u64..100, exponent in 0u32..9) {
            let found = adjoining(span(a, size), span(b, size), align(1 << exponent), LineSize::B64);
            let shifts = (0..128).filter(|k| k % (1u64 << exponent) == 0);
            let bad = shifts.filter(|k| {
                let (a, b) = (bytes_lines(a + k, size), bytes_lines(b + k, size));
                a.is_disjoint(&b) && a.iter().any(|x| b.contains(&(x ^ 1)))
            });
            prop_assert_eq!(found.at, bad.count() as u64);
        }

        /// Against the obvious way: list every line of every element.
        #[test]
        fn the_fullest_line_is_found(start in 0u64..256, count in 1u64..300, stride in 1u64..80) {
            let mut touched: BTreeMap<u64, u64> = BTreeMap::new();
            for at in 0..count {
                span(start + at * stride, stride).lines(LineSize::B64).for_each(|line| *touched.entry(line).or_default() += 1);
            }
            let most = touched.into_values().max().unwrap();
            // Elements of a line or more are apart, or as good as it gets.
            let found = most_on_a_line(LineSize::B64, Addr(start), count, stride);
            prop_assert_eq!(found, if stride < 64 { most } else { 1 });
            prop_assert_eq!(occupancy(Addr(start), count, stride, LineSize::B64).iter().sum::<u64>(), count);
        }
    }
}
