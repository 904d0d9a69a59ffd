//! Which pads make each unit land on the phase that is wanted: arithmetic, no link.
//!
//! An output section is a row of units. The linker puts each at the next multiple of its alignment after the one
//! before; bytes behind a unit push all that follow. So a row is a chain of segments, each up to and with the next unit
//! that may be padded, and each held by one pad, behind the unit that may be padded before it. Segments are placed from
//! left to right, each with the smallest pad that meets its targets: whatever has been placed already stays.
//!
//! A landing is also who shares a line with whom: where a distance in lines from an earlier unit is asked for, whole
//! lines are added to the pad, which changes no phase.
//!
//! Every row grows by whole lines, with a last pad behind its last unit. Then what follows (the relocated read-only
//! part, which GNU ld moves so that it *ends* at a page) keeps its phases too. Where the rows behind it start where it
//! ends, and the first that can be padded is still to come, its last pad rather meets the targets up to there.

use std::collections::BTreeMap;
use std::ops::Range;

use super::make::Aim;
use super::plan::Plan;
use super::program::{Program, Unit};
use super::rows::Row;
use super::{LINE, UnitKey};

/// A plan, and the targets that no pad can meet, with the reason.
#[derive(Clone, Debug, Default)]
pub struct Solved {
    pub plan: Plan,
    pub unmatched: Vec<(UnitKey, String)>,
    /// Where the arithmetic puts each unit, with its size, pads aside; in the order of [`Program::units`].
    pub places: Vec<(u64, u64)>,
}

/// Solves pads for the targets of `aim`, after its lead of whole lines in front of each section, from the pristine
/// landing. Targets of units that this version does not have are unmatched too.
#[must_use]
pub fn solve(program: &Program, aim: &Aim) -> Solved {
    solve_from(program, aim, &BTreeMap::new())
}

/// As [`solve`], with the starts of output sections as a previous attempt found them.
pub(super) fn solve_from(program: &Program, aim: &Aim, starts: &BTreeMap<String, u64>) -> Solved {
    let mut solved = Solved::default();
    for key in aim.targets.keys().filter(|k| program.unit(k).is_none()) {
        solved.unmatched.push((key.clone(), "this version has no such unit".into()));
    }
    let rows: Vec<Row> = program.spans().collect();
    let mut end: Option<u64> = None;
    for (i, row) in rows.iter().enumerate() {
        let Some(first) = row.units.first() else { continue };
        let after = row.follows.and_then(|pages| Some(end?.checked_next_multiple_of(row.align)?.wrapping_add(pages)));
        let start = starts.get(row.output).copied().or(after).unwrap_or(first.address);
        let own = slots(row.units, aim);
        let moves = row.takes_room() && row.units.iter().any(|u| u.class.paddable());
        let ahead = if moves { ahead(rows.get(i + 1..).unwrap_or_default(), aim) } else { Vec::new() };
        let settled = settle(&own, &ahead, start, aim.lead.get(row.output).copied().unwrap_or(0) * LINE);
        if row.takes_room() {
            end = Some(settled.end.saturating_add(row.trail));
        }
        solved.places.extend(settled.at.iter().zip(row.units).map(|(&at, unit)| (at, unit.size)));
        for ((unit, slot), verdict) in row.units.iter().zip(&settled.pads).zip(settled.missed) {
            let pad = *slot + behind(aim, unit);
            if pad > 0 {
                solved.plan.pads.insert(unit.key.clone(), pad);
            }
            match (aim.targets.get(&unit.key), verdict) {
                (Some(_), Some(why)) => solved.unmatched.push((unit.key.clone(), why)),
                (Some(&phase), None) => {
                    solved.plan.targets.insert(unit.key.clone(), phase);
                }
                (None, _) => {}
            }
        }
    }
    solved
}

/// What lies in the rows behind one, from its end on, up to and with the first unit with bytes that may be padded: that
/// row's last pad moves it. (Empty ones in front could too, but then the distance to it would be left to chance.) Empty
/// when none of it has a target.
fn ahead(rows: &[Row], aim: &Aim) -> Vec<Slot> {
    let mut all = Vec::new();
    for row in rows.iter().take_while(|r| r.follows.is_some()).filter(|r| r.takes_room()) {
        let stop = row.units.iter().position(|u| u.class.paddable() && u.size > 0);
        let units = row.units.get(..stop.map_or(row.units.len(), |at| at + 1)).unwrap_or_default();
        for (i, slot) in slots(units, aim).into_iter().enumerate() {
            let align = if i == 0 { slot.align.max(row.align) } else { slot.align };
            all.push(Slot { align, paddable: false, gap: None, ..slot });
        }
        if stop.is_some() {
            break;
        }
        all.push(Slot { size: row.trail, align: 1, ..Slot::default() });
    }
    all.truncate(all.iter().rposition(|s| s.target.is_some()).map_or(0, |last| last + 1));
    all
}

fn slots(units: &[Unit], aim: &Aim) -> Vec<Slot> {
    let at: BTreeMap<&UnitKey, usize> = units.iter().enumerate().map(|(i, u)| (&u.key, i)).collect();
    let gap = |i: usize, unit: &Unit| {
        let gap = aim.lines.get(&unit.key)?;
        let from = *at.get(&gap.after)?;
        (from < i).then_some((from, gap.lines))
    };
    let slot = |(i, unit): (usize, &Unit)| Slot {
        size: unit.size + behind(aim, unit),
        align: unit.model_align,
        skip: unit.skip,
        paddable: unit.class.paddable(),
        target: aim.targets.get(&unit.key).map(|p| u64::from(p.0)),
        gap: gap(i, unit),
    };
    units.iter().enumerate().map(slot).collect()
}

/// Bytes behind a unit that the aim asks for: whole lines, so that no other phase has to give way.
fn behind(aim: &Aim, unit: &Unit) -> u64 {
    aim.behind.get(&unit.key).copied().unwrap_or(0) * LINE
}

/// One unit as the arithmetic sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    size: u64,
    align: u64,
    /// Bytes in front of it, before it is aligned.
    skip: u64,
    paddable: bool,
    /// Wanted phase, below [`LINE`].
    target: Option<u64>,
    /// Wanted distance in lines from an earlier unit of the row.
    gap: Option<(usize, u64)>,
}

impl Slot {
    /// Where it falls behind something that ends at `end`.
    fn after(&self, end: u64) -> u64 {
        let end = end.saturating_add(self.skip);
        end.checked_next_multiple_of(self.align.max(1)).unwrap_or(end)
    }
}

struct Settled {
    /// Bytes behind each unit.
    pads: Vec<u64>,
    /// Why a target could not be met.
    missed: Vec<Option<String>>,
    /// Where each unit falls.
    at: Vec<u64>,
    end: u64,
}

/// Places a row that starts at `start`, with `lead` bytes behind its first paddable unit (one with a target, if any:
/// both versions have that one), so that its last pad meets the targets of what is `ahead` of it, or without those so
/// that it ends on the phase of its pristine landing.
fn settle(own: &[Slot], ahead: &[Slot], start: u64, lead: u64) -> Settled {
    let row = [own, ahead].concat();
    let mut pads = vec![0; row.len()];
    let leading = row.iter().position(|s| s.paddable && s.target.is_some());
    if let Some(first) = leading.or_else(|| row.iter().position(|s| s.paddable)) {
        set(&mut pads, first, lead);
    }
    let mut placer = Placer { row: &row, start, pads, at: vec![start; row.len()] };
    let mut missed = vec![None; row.len()];
    let mut free: Option<usize> = None;
    for i in (0..row.len()).filter(|&i| row.get(i).is_some_and(|s| s.paddable)) {
        placer.segment(free, free.map_or(0, |j| j + 1)..i + 1);
        placer.explain(free, free.map_or(0, |j| j + 1)..i + 1, &mut missed);
        free = Some(i);
    }
    let tail = free.map_or(0, |j| j + 1)..row.len();
    placer.segment(free, tail.clone());
    if placer.score(&(own.len()..row.len())).1 == 0 {
        placer.finish(free, tail.clone(), own);
    }
    placer.explain(free, tail, &mut missed);
    let end = placer.end(own.len());
    placer.at.truncate(own.len());
    placer.pads.truncate(own.len());
    missed.truncate(own.len());
    Settled { pads: placer.pads, missed, at: placer.at, end }
}

struct Placer<'a> {
    row: &'a [Slot],
    start: u64,
    pads: Vec<u64>,
    at: Vec<u64>,
}

impl Placer<'_> {
    /// Places a segment with the smallest pad behind `free` that meets the targets in it; where they contradict one
    /// another, that of its last unit, which may be padded, goes first. Multiples of 8 are tried first, so that what has
    /// no target keeps its natural alignment. Then whole lines are added where a distance asks for them.
    fn segment(&mut self, free: Option<usize>, range: Range<usize>) {
        let Some(j) = free else {
            self.lay(None, 0, range);
            return;
        };
        let slots = self.row.get(range.clone()).unwrap_or_default();
        let wanted = slots.iter().filter(|s| s.target.is_some()).count();
        let steps = (0..LINE).step_by(8).chain((0..LINE).filter(|p| p % 8 != 0));
        let mut best = (0, (false, 0));
        for extra in steps.take(if wanted == 0 { 1 } else { LINE as usize }) {
            self.lay(free, extra, range.clone());
            let score = self.score(&range);
            if extra == 0 || score > best.1 {
                best = (extra, score);
            }
            if score.1 == wanted {
                break;
            }
        }
        self.pad(j, best.0);
        self.lay(free, 0, range.clone());
        let short = range.clone().filter_map(|i| {
            let (from, lines) = self.row.get(i)?.gap.filter(|(from, _)| *from <= j)?;
            lines.checked_sub(self.line(i)?.checked_sub(self.line(from)?)?)
        });
        if let Some(more @ 1..) = short.max() {
            self.pad(j, more * LINE);
            self.lay(free, 0, range);
        }
    }

    /// Whether its last, paddable unit is on its target, and how many units are.
    fn score(&self, range: &Range<usize>) -> (bool, usize) {
        let met = |i: &usize| self.row.get(*i).and_then(|s| s.target).is_some_and(|t| self.phase(*i) == Some(t));
        let last = range.end.checked_sub(1).filter(|l| self.row.get(*l).is_some_and(|s| s.paddable));
        (last.as_ref().is_some_and(met), range.clone().filter(met).count())
    }

    /// The linker's own arithmetic (`size_input_section` in binutils `ld/ldlang.c`); returns where the range ends.
    fn lay(&mut self, free: Option<usize>, extra: u64, range: Range<usize>) -> u64 {
        let mut end = free.map_or(self.start, |j| {
            let pad = self.pads.get(j).copied().unwrap_or(0);
            let size = self.row.get(j).map_or(0, |s| s.size);
            self.at.get(j).copied().unwrap_or(0).saturating_add(size).saturating_add(pad).saturating_add(extra)
        });
        for i in range {
            let Some(slot) = self.row.get(i) else { continue };
            let here = slot.after(end);
            set(&mut self.at, i, here);
            let pad = self.pads.get(i).copied().unwrap_or(0);
            end = here.saturating_add(slot.size).saturating_add(pad);
        }
        end
    }

    /// Pads the last unit so that the row ends on the phase of its pristine landing; what stands behind that unit keeps
    /// the targets it has met.
    fn finish(&mut self, free: Option<usize>, tail: Range<usize>, own: &[Slot]) {
        let Some(j) = free else { return };
        let mut pristine = self.start;
        for slot in own {
            pristine = slot.after(pristine).saturating_add(slot.size);
        }
        let held = self.score(&tail);
        let extra = (0..LINE).find(|&extra| {
            self.lay(free, extra, tail.clone());
            let pad = if own.len() == j + 1 { extra } else { 0 };
            (self.end(own.len()) + pad) % LINE == pristine % LINE && self.score(&tail) >= held
        });
        self.pad(j, extra.unwrap_or(0));
        self.lay(free, 0, tail);
    }

    /// Where the first `count` units end, pads and all.
    fn end(&self, count: usize) -> u64 {
        let Some(i) = count.checked_sub(1) else { return self.start };
        let of = |all: &[u64]| all.get(i).copied().unwrap_or(0);
        of(&self.at).saturating_add(self.row.get(i).map_or(0, |s| s.size)).saturating_add(of(&self.pads))
    }

    /// Says why the targets of a segment that are not met are not.
    fn explain(&self, free: Option<usize>, range: Range<usize>, missed: &mut [Option<String>]) {
        for i in range.clone() {
            let Some((slot, target)) = self.row.get(i).and_then(|s| Some((s, s.target?))) else { continue };
            if self.phase(i) == Some(target) {
                continue;
            }
            let shares = range.clone().any(|k| k != i && self.row.get(k).is_some_and(|s| s.target.is_some()));
            let why = if !target.is_multiple_of(slot.align.clamp(1, LINE)) {
                format!("phase {target} is no multiple of its alignment {}", slot.align)
            } else if free.is_none() {
                "nothing before it in its output section can be padded".into()
            } else if shares {
                "nothing between it and its neighbour can be padded, and the neighbour's phase forbids this one".into()
            } else {
                "a larger alignment between it and the last unit that can be padded forbids this phase".into()
            };
            set(missed, i, Some(why));
        }
    }

    fn pad(&mut self, j: usize, more: u64) {
        let old = self.pads.get(j).copied().unwrap_or(0);
        set(&mut self.pads, j, old + more);
    }

    fn phase(&self, i: usize) -> Option<u64> {
        self.at.get(i).map(|a| a % LINE)
    }

    fn line(&self, i: usize) -> Option<u64> {
        self.at.get(i).map(|a| a / LINE)
    }
}

fn set<T>(all: &mut [T], i: usize, value: T) {
    if let Some(slot) = all.get_mut(i) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An independent linker: (address of each unit, end of the row).
    fn linked(row: &[Slot], start: u64, pads: &[u64]) -> (Vec<u64>, u64) {
        let mut dot = start;
        let mut at = Vec::new();
        for (slot, pad) in row.iter().zip(pads) {
            while !dot.is_multiple_of(slot.align) {
                dot += 1;
            }
            at.push(dot);
            dot += slot.size + pad;
        }
        (at, dot)
    }

    fn slot() -> impl Strategy<Value = Slot> {
        (0u64..200, 0u32..9, any::<bool>(), proptest::option::of(0u64..64)).prop_map(|(size, exponent, paddable, t)| {
            let align = 1u64 << exponent;
            let target = t.filter(|_| paddable).map(|t| t - t % align.min(64));
            Slot { size, align, paddable, target, ..Slot::default() }
        })
    }

    proptest! {
        #[test]
        fn landing_is_as_planned_or_the_unit_is_named(
            row in proptest::collection::vec(slot(), 1..30), start in 0u64..512, lines in 0u64..64,
        ) {
            let start = start * row[0].align;
            let settled = settle(&row, &[], start, lines * LINE);
            let (at, end) = linked(&row, start, &settled.pads);
            for (i, slot) in row.iter().enumerate() {
                let Some(target) = slot.target else { continue };
                prop_assert_eq!(at[i] % LINE == target, settled.missed[i].is_none(), "unit {}: {:?}", i, settled.missed[i]);
            }
            let (_, plain) = linked(&row, start, &vec![0; row.len()]);
            let last = row.iter().rposition(|s| s.paddable);
            let strict = last.is_some_and(|l| row[l..].iter().skip(1).all(|s| s.align == 1));
            prop_assert!(!strict || end % LINE == plain % LINE);
            let pads: u64 = settled.pads.iter().sum();
            prop_assert!(pads <= (row.len() as u64 + 1 + lines) * LINE);
        }

        #[test]
        fn landing_as_built_needs_no_pad_and_a_lead_moves_by_whole_lines(
            sizes in proptest::collection::vec((1u64..200, 0u32..7), 2..20), lines in 0u64..64,
        ) {
            let mut row: Vec<Slot> = sizes
                .iter()
                .map(|&(size, e)| Slot { size, align: 1 << e, paddable: true, ..Slot::default() })
                .collect();
            let (built, _) = linked(&row, 0, &vec![0; row.len()]);
            row.iter_mut().zip(&built).for_each(|(slot, at)| slot.target = Some(at % LINE));
            let settled = settle(&row, &[], 0, lines * LINE);
            prop_assert!(settled.missed.iter().all(Option::is_none));
            let (at, _) = linked(&row, 0, &settled.pads);
            prop_assert_eq!(at[1] - built[1], lines * LINE);
            prop_assert_eq!(settled.pads.iter().sum::<u64>(), lines * LINE);
        }
    }

    proptest! {
        /// Two versions of a row: common units in one order, with others between them in patched. By the independent
        /// linker, both have the same phases, and the distances in lines are the larger of the two.
        #[test]
        fn landing_of_two_versions_has_the_same_lines(
            common in proptest::collection::vec((1u64..100, 0u32..7, 0u64..64, proptest::option::of(1u64..150)), 2..20),
        ) {
            let mut rows = [Vec::new(), Vec::new()];
            let mut index = [Vec::new(), Vec::new()];
            for (n, &(size, exponent, target, new)) in common.iter().enumerate() {
                let align = 1 << exponent;
                for side in 0..2 {
                    // The first has nothing before it: both start there.
                    if let Some(size) = new.filter(|_| side == 1 && n > 0) {
                        rows[side].push(Slot { size, align: 8, paddable: true, ..Slot::default() });
                    }
                    index[side].push(rows[side].len());
                    let target = (n > 0).then_some(target - target % align);
                    rows[side].push(Slot { size, align, paddable: true, target, ..Slot::default() });
                }
            }
            let place = |rows: &[Vec<Slot>; 2]| [0, 1].map(|side: usize| {
                let settled = settle(&rows[side], &[], 0, 0);
                let (at, _) = linked(&rows[side], 0, &settled.pads);
                assert_eq!(at, settled.at);
                assert!(settled.missed.iter().all(Option::is_none), "{:?}", settled.missed);
                index[side].iter().map(|&i| at[i]).collect::<Vec<u64>>()
            });
            let gaps = |at: &[u64]| at.windows(2).map(|w| w[1] / LINE - w[0] / LINE).collect::<Vec<_>>();
            let [b, p] = place(&rows).map(|at| gaps(&at));
            let most: Vec<u64> = b.iter().zip(&p).map(|(b, p)| *b.max(p)).collect();
            for side in 0..2 {
                for (k, &lines) in most.iter().enumerate() {
                    rows[side][index[side][k + 1]].gap = Some((index[side][k], lines));
                }
            }
            let [b, p] = place(&rows);
            prop_assert_eq!(gaps(&b), most.clone());
            prop_assert_eq!(gaps(&p), most);
            prop_assert!(b.iter().zip(&p).all(|(b, p)| b % LINE == p % LINE));
        }
    }

    #[test]
    fn a_unit_that_may_not_be_padded_is_matched_where_it_can_be() {
        let slot = |size, align, paddable, target| Slot { size, align, paddable, target, ..Slot::default() };
        // Strings between two tables: the pad in front of both puts both on their phase, or the one that may be padded.
        let row = |strings| [slot(16, 8, true, None), slot(3, 1, false, strings), slot(8, 8, true, Some(40))];
        assert!(settle(&row(Some(36)), &[], 0, 0).missed.iter().all(Option::is_none));
        let settled = settle(&row(Some(3)), &[], 0, 0);
        assert_eq!(settled.at[2] % LINE, 40);
        assert!(settled.missed[1].as_ref().unwrap().contains("neighbour"), "{:?}", settled.missed);
        // At the end of a row, and what follows it.
        let settled = settle(&[slot(16, 8, true, None), slot(4, 4, false, Some(60))], &[], 0, 0);
        assert_eq!(settled.at[1] % LINE, 60);
        let [own, ahead] = [[slot(16, 8, true, None)], [slot(8, 32, false, Some(32))]];
        let settled = settle(&own, &ahead, 0, 0);
        assert_eq!((settled.end.next_multiple_of(32) % LINE, settled.at.len()), (32, 1));
    }

    #[test]
    fn what_cannot_be_met_says_why() {
        let slot = |align, paddable, target| Slot { size: 8, align, paddable, target, ..Slot::default() };
        let row = [slot(8, true, Some(8)), slot(64, true, Some(8)), slot(64, false, None), slot(8, true, Some(16))];
        let why: Vec<String> = settle(&row, &[], 0, 0).missed.into_iter().map(Option::unwrap_or_default).collect();
        assert!(why[0].contains("nothing before it"), "{why:?}");
        assert!(why[1].contains("no multiple of its alignment 64"), "{why:?}");
        assert!(why[3].contains("larger alignment between"), "{why:?}");
    }
}
