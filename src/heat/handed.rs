//! What functions do with the addresses that they are handed: a lock is touched by `lock(&it)`, a list by `add(&it)`.

use rayon::prelude::*;

use super::flow::{Found, Passed, Reach};
use super::{Access, Kind};
use crate::finding::Evidence;

/// How far an address is followed from function to function.
const DEEPEST: usize = 4;
/// Accesses through one argument of a function. A lock's have some five; of what has more, the nearest are kept.
const MOST: usize = 64;

/// What each function does, itself or through others, to the bytes that its arguments point to.
pub(super) struct Handed {
    reaches: Vec<Vec<(u8, Reach)>>,
}

pub(super) fn resolve(all: &[Found]) -> Handed {
    let mut handed = Handed { reaches: all.iter().map(|f| f.reaches.clone()).collect() };
    for _ in 0..DEEPEST {
        let more = |(index, found): (usize, &Found)| {
            let mut own = handed.reaches.get(index).cloned().unwrap_or_default();
            for forward in &found.forwards {
                for reach in handed.of(forward.callee, forward.argument) {
                    add(&mut own, forward.parameter, shifted(reach, forward.offset.into(), forward.loose));
                }
            }
            own
        };
        handed = Handed { reaches: all.par_iter().enumerate().map(more).collect() };
    }
    handed
}

fn add(reaches: &mut Vec<(u8, Reach)>, argument: u8, reach: Reach) {
    let mut same = reaches.iter().filter(|(number, _)| *number == argument);
    if !same.any(|(_, known)| *known == reach) && reaches.iter().filter(|(n, _)| *n == argument).count() < MOST {
        reaches.push((argument, reach));
    }
}

fn shifted(reach: Reach, offset: i64, loose: bool) -> Reach {
    Reach { offset: reach.offset.saturating_add(offset), indexed: reach.indexed || loose, ..reach }
}

impl Handed {
    fn of(&self, function: u32, argument: u8) -> impl Iterator<Item = Reach> {
        let own = self.reaches.get(function as usize).map(Vec::as_slice).unwrap_or_default();
        own.iter().filter(move |(number, _)| *number == argument).map(|(_, reach)| *reach)
    }

    /// The accesses of one function: its own, and those of the functions that it hands an address to.
    pub(super) fn accesses<'f>(&'f self, function: u32, found: &'f Found) -> impl Iterator<Item = Access> + 'f {
        let own = found.own.iter().filter(|own| !own.doubtful);
        let own = own.filter_map(move |own| access(own.object, 0, own.reach, function, None));
        let handed = found.passed.iter().flat_map(move |passed| self.through(function, passed));
        own.chain(handed)
    }

    fn through(&self, function: u32, passed: &Passed) -> impl Iterator<Item = Access> {
        let reaches: Vec<Reach> = self.of(passed.callee, passed.argument).collect();
        let Passed { object, offset, rest, loose, callee, .. } = *passed;
        let inside = move |r: &Reach| {
            let from = i64::try_from(offset).ok().and_then(|o| o.checked_add(r.offset));
            from.is_some_and(|from| from >= 0) && u64::try_from(r.offset).map_or(true, |o| o < rest)
        };
        let reaches = reaches.into_iter().filter(inside).map(move |r| shifted(r, 0, loose));
        reaches.filter_map(move |r| access(object, offset, r, function, Some(callee)))
    }
}

fn access(object: u32, offset: u64, reach: Reach, function: u32, through: Option<u32>) -> Option<Access> {
    let Reach { offset: more, width, kind, indexed } = reach;
    let offset = offset.checked_add_signed(more)?;
    let width = if kind == Kind::Address { 0 } else { width };
    let (evidence, cpu, thread, count, hitm) = (Evidence::Decoded, None, None, 1, 0);
    Some(Access { object, offset, width, kind, indexed, function, through, evidence, cpu, thread, count, hitm })
}
