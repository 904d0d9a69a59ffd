//! Which pads make each unit land on the phase that is wanted: arithmetic, no link.
//!
//! An output section is a row of units. The linker puts each at the next multiple of its alignment after the one
//! before; bytes behind a unit push all that follow. So units are placed from left to right, and each target is met by
//! the smallest pad on the nearest earlier unit that may be padded: whatever has been placed already stays.
//!
//! Every row grows by whole lines, with a last pad behind its last unit. Then what follows (`.bss` after `.data`, the
//! relocated read-only part, which the linker moves so that it *ends* at a page) keeps its phases too.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::program::Program;
use super::{LINE, Lead, Targets, UnitKey};

/// A plan, and the targets that no pad can meet, with the reason.
#[derive(Clone, Debug, Default)]
pub struct Solved {
    pub plan: Plan,
    pub unmatched: Vec<(UnitKey, String)>,
}

/// Solves pads for `targets`, after `lead` whole lines in front of each section, from the pristine landing. Targets of
/// units that this version does not have are unmatched too.
#[must_use]
pub fn solve(program: &Program, targets: &Targets, lead: &Lead) -> Solved {
    solve_from(program, targets, lead, &BTreeMap::new())
}

/// As [`solve`], with the starts of output sections as a previous attempt found them.
pub(super) fn solve_from(program: &Program, targets: &Targets, lead: &Lead, starts: &BTreeMap<String, u64>) -> Solved {
    let mut solved = Solved::default();
    for key in targets.keys().filter(|k| program.unit(k).is_none()) {
        solved.unmatched.push((key.clone(), "this version has no such unit".into()));
    }
    for (output, units) in program.rows() {
        let Some(first) = units.first() else { continue };
        let row: Vec<Slot> = units
            .iter()
            .map(|u| Slot {
                size: u.size,
                align: u.model_align,
                paddable: u.class.paddable(),
                target: targets.get(&u.key).map(|p| u64::from(p.0)),
            })
            .collect();
        let start = starts.get(output).copied().unwrap_or(first.address);
        let settled = settle(&row, start, lead.get(output).copied().unwrap_or(0) * LINE);
        for ((unit, slot), verdict) in units.iter().zip(&settled.pads).zip(settled.missed) {
            if *slot > 0 {
                solved.plan.pads.insert(unit.key.clone(), *slot);
            }
            match (targets.get(&unit.key), verdict) {
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

/// One unit as the arithmetic sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    size: u64,
    align: u64,
    paddable: bool,
    /// Wanted phase, below [`LINE`].
    target: Option<u64>,
}

struct Settled {
    /// Bytes behind each unit.
    pads: Vec<u64>,
    /// Why a target could not be met.
    missed: Vec<Option<String>>,
}

/// Places a row that starts at `start`, with `lead` bytes behind its first paddable unit.
fn settle(row: &[Slot], start: u64, lead: u64) -> Settled {
    let mut settled = Settled { pads: vec![0; row.len()], missed: vec![None; row.len()] };
    let mut walk = Walk { row, end: start };
    let mut first = true;
    // The last unit that may be padded, and where the walk stood before it: the place to come back to.
    let mut free: Option<(usize, u64)> = None;
    for (i, slot) in row.iter().enumerate() {
        if let Some(target) = slot.target {
            let seen = walk.place(i) % LINE;
            if seen != target {
                let met = reach(row, &mut settled.pads, free, i, target);
                match met {
                    Ok(end) => walk.end = end,
                    Err(why) => set(&mut settled.missed, i, Some(why)),
                }
            }
        }
        if slot.paddable {
            free = Some((i, walk.end));
            if first {
                first = false;
                set(&mut settled.pads, i, lead);
            }
        }
        walk.take(i, settled.pads.get(i).copied().unwrap_or(0));
    }
    round_up(row, start, &mut settled.pads, free, walk.end);
    settled
}

/// The smallest pad behind the unit `free` that puts unit `i` on `target`; returns where the row then ends before `i`.
/// Multiples of 8 come first, so that what has no target keeps its natural alignment.
fn reach(row: &[Slot], pads: &mut [u64], free: Option<(usize, u64)>, i: usize, target: u64) -> Result<u64, String> {
    let slot = row.get(i).ok_or("no such unit")?;
    let pinned = slot.align.min(LINE);
    if !target.is_multiple_of(pinned) {
        return Err(format!("phase {target} is no multiple of its alignment {}", slot.align));
    }
    let (j, from) = free.ok_or("nothing before it in its output section can be padded")?;
    let old = pads.get(j).copied().unwrap_or(0);
    let mut steps = (0..LINE).step_by(8).chain((0..LINE).filter(|p| p % 8 != 0));
    let tried = |extra: u64| {
        let mut walk = Walk { row, end: from };
        walk.take(j, old + extra);
        (j + 1..i).for_each(|k| walk.take(k, 0));
        (walk.place(i) % LINE == target).then_some((old + extra, walk.end))
    };
    match steps.find_map(tried) {
        Some((pad, end)) => {
            set(pads, j, pad);
            Ok(end)
        }
        None => Err("a larger alignment between it and the last unit that can be padded forbids this phase".into()),
    }
}

/// Makes the row grow by whole lines.
fn round_up(row: &[Slot], start: u64, pads: &mut [u64], free: Option<(usize, u64)>, end: u64) {
    let Some((j, from)) = free else { return };
    let mut pristine = Walk { row, end: start };
    (0..row.len()).for_each(|i| pristine.take(i, 0));
    let old = pads.get(j).copied().unwrap_or(0);
    if end % LINE == pristine.end % LINE {
        return;
    }
    let grown = |extra: &u64| {
        let mut walk = Walk { row, end: from };
        walk.take(j, old + extra);
        (j + 1..row.len()).for_each(|i| walk.take(i, 0));
        walk.end % LINE == pristine.end % LINE
    };
    if let Some(extra) = (0..LINE).find(grown) {
        set(pads, j, old + extra);
    }
}

/// The linker's own arithmetic (`size_input_section` in binutils `ld/ldlang.c`).
struct Walk<'a> {
    row: &'a [Slot],
    /// One past the last byte so far.
    end: u64,
}

impl Walk<'_> {
    /// Where unit `i` falls.
    fn place(&self, i: usize) -> u64 {
        let align = self.row.get(i).map_or(1, |s| s.align.max(1));
        self.end.checked_next_multiple_of(align).unwrap_or(self.end)
    }

    fn take(&mut self, i: usize, pad: u64) {
        self.end = self.place(i).saturating_add(self.row.get(i).map_or(0, |s| s.size)).saturating_add(pad);
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
            Slot { size, align, paddable, target }
        })
    }

    proptest! {
        #[test]
        fn landing_is_as_planned_or_the_unit_is_named(
            row in proptest::collection::vec(slot(), 1..30), start in 0u64..512, lines in 0u64..64,
        ) {
            let start = start * row[0].align;
            let settled = settle(&row, start, lines * LINE);
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
                .map(|&(size, e)| Slot { size, align: 1 << e, paddable: true, target: None })
                .collect();
            let (built, _) = linked(&row, 0, &vec![0; row.len()]);
            row.iter_mut().zip(&built).for_each(|(slot, at)| slot.target = Some(at % LINE));
            let settled = settle(&row, 0, lines * LINE);
            prop_assert!(settled.missed.iter().all(Option::is_none));
            let (at, _) = linked(&row, 0, &settled.pads);
            prop_assert_eq!(at[1] - built[1], lines * LINE);
            prop_assert_eq!(settled.pads.iter().sum::<u64>(), lines * LINE);
        }
    }

    #[test]
    fn what_cannot_be_met_says_why() {
        let slot = |align, paddable, target| Slot { size: 8, align, paddable, target };
        let row = [slot(8, true, Some(8)), slot(64, true, Some(8)), slot(64, false, None), slot(8, true, Some(16))];
        let why: Vec<String> = settle(&row, 0, 0).missed.into_iter().map(Option::unwrap_or_default).collect();
        assert!(why[0].contains("nothing before it"), "{why:?}");
        assert!(why[1].contains("no multiple of its alignment 64"), "{why:?}");
        assert!(why[3].contains("larger alignment between"), "{why:?}");
    }
}
