//! Functions that moved: where they start, and where their loops lie.

use std::collections::BTreeMap;

use serde::Serialize;

use super::moves::{Change, Move, Moves};
use crate::code::Loop;
use crate::layout::Lines;
use crate::objects::{Class, Object};
use crate::units::{Addr, LineSize, Phase, Span};

/// `same + moved + changed + undecided + removed` is all of base; `rephased` is a subset of `moved` and `undecided`.
/// Loops are those of functions that moved and did not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionCounts {
    pub same: u64,
    pub moved: u64,
    pub rephased: u64,
    pub changed: u64,
    /// Of equal size, and whether they changed is not known: other bytes, in code that is not decoded here.
    pub undecided: u64,
    pub added: u64,
    pub removed: u64,
    /// Of `moved` and `same`, those found under another name.
    pub renamed: u64,
    pub loops: u64,
    /// Whose head is at another phase.
    pub loops_rephased: u64,
    /// Whose body fits a line, and now lies on two.
    pub loops_newly_crossing: u64,
    pub loops_no_longer_crossing: u64,
}

/// How function starts are aligned, as the image shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Starts {
    pub functions: u64,
    /// What all of them share, in bytes; 0: there are none.
    pub all: u64,
    /// What 95 % of them share, in bytes.
    pub most: u64,
    /// How many start at each phase.
    pub phases: BTreeMap<u32, u64>,
}

/// The alignment of function starts in both images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Alignment {
    pub base: Starts,
    pub patched: Starts,
    /// In both, every function starts on a line: no start changed its phase.
    pub starts_excluded: bool,
}

/// Code that may be hot: what only runs at start, and what every program is linked with, is not asked.
pub(super) fn may_be_hot(function: &Object<'_>, section: &str) -> bool {
    let cold = |text: &str| [".text.unlikely", ".text.startup", ".text.exit"].iter().any(|s| text.starts_with(s));
    let split = function.name.split('.').skip(1).any(|part| part == "cold");
    !matches!(function.class, Class::Init | Class::Metadata(_)) && !cold(section) && !split
}

pub(super) fn alignment(moves: &Moves<'_, '_>) -> Alignment {
    let starts = |image: &crate::image::Image<'_>, lines: &Lines<'_>| {
        let section = |o: &Object<'_>| image.section(o.section).map_or("", |s| s.name.as_ref());
        let hot = lines.objects.iter().filter(|o| may_be_hot(o, section(o)));
        starts(hot.map(|o| o.span.start.0), lines.line)
    };
    let (base, patched) = (starts(moves.base.0, moves.base.1), starts(moves.patched.0, moves.patched.1));
    let line = moves.base.1.line.bytes();
    let on_lines = |s: &Starts| s.functions > 0 && s.all >= line;
    let starts_excluded = on_lines(&base) && on_lines(&patched);
    Alignment { base, patched, starts_excluded }
}

/// Of functions at these addresses; alignments above 4096 bytes count as that.
fn starts(addresses: impl Iterator<Item = u64>, line: LineSize) -> Starts {
    let mut starts = Starts::default();
    let mut exponents = [0u64; 13];
    for address in addresses {
        starts.functions += 1;
        *starts.phases.entry(line.phase_of(Addr(address)).0).or_insert(0) += 1;
        let exponent = (address | 4096).trailing_zeros() as usize;
        exponents.iter_mut().take(exponent + 1).for_each(|n| *n += 1);
    }
    let share = |of: u64, hundred: u64| {
        let reached = exponents.iter().rposition(|n| n.saturating_mul(hundred) >= starts.functions.saturating_mul(of));
        reached.filter(|_| starts.functions > 0).map_or(0, |exponent| 1 << exponent)
    };
    (starts.all, starts.most) = (share(1, 1), share(95, 100));
    starts
}

/// Where a loop of a function lies.
pub(super) fn place(function: &Object<'_>, own: Loop) -> Span {
    let start = Addr(function.span.start.0.saturating_add(own.head.into()));
    Span { start, size: own.end.saturating_sub(own.head).into() }
}

/// What became of one loop of a function that did not change.
pub(super) struct LoopMove {
    pub base: Span,
    pub patched: Span,
}

impl LoopMove {
    pub(super) fn all(m: &Move, x: &Object<'_>, y: &Object<'_>) -> impl Iterator<Item = LoopMove> {
        let moved = m.change == Change::Moved;
        m.loops.iter().filter(move |_| moved).map(|own| LoopMove { base: place(x, *own), patched: place(y, *own) })
    }

    pub(super) fn phases(&self, line: LineSize) -> (Phase, Phase) {
        (line.phase_of(self.base.start), line.phase_of(self.patched.start))
    }

    pub(super) fn newly_crosses(&self, line: LineSize) -> bool {
        self.patched.straddles(line) && !self.base.straddles(line)
    }

    pub(super) fn no_longer_crosses(&self, line: LineSize) -> bool {
        self.base.straddles(line) && !self.patched.straddles(line)
    }
}

pub(super) fn counts(moves: &Moves<'_, '_>) -> FunctionCounts {
    let data = moves.data_counts();
    let mut counts = FunctionCounts {
        same: data.same,
        moved: data.moved,
        rephased: data.rephased,
        changed: data.resized + data.content_changed,
        undecided: data.undecided,
        added: data.added,
        removed: data.removed,
        renamed: data.renamed,
        ..FunctionCounts::default()
    };
    let line = moves.base.1.line;
    for own in moves.paired().flat_map(|(m, x, y)| LoopMove::all(m, x, y)) {
        let (before, after) = own.phases(line);
        counts.loops += 1;
        counts.loops_rephased += u64::from(before != after);
        counts.loops_newly_crossing += u64::from(own.newly_crosses(line));
        counts.loops_no_longer_crossing += u64::from(own.no_longer_crosses(line));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alignment_in_force_is_read_from_the_starts() {
        let all = |list: &[u64]| {
            let starts = starts(list.iter().copied(), LineSize::B64);
            (starts.functions, starts.all, starts.most)
        };
        assert_eq!(all(&[0, 64, 128, 192]), (4, 64, 64));
        assert_eq!(all(&[0x1000, 0x2010]), (2, 16, 16));
        assert_eq!(all(&[]), (0, 0, 0));
        let nearly: Vec<u64> = (0..99).map(|n| n * 64).chain([7]).collect();
        assert_eq!(all(&nearly), (100, 1, 64));
    }
}
