//! The look table: when a campaign may look at its data, and how wide its intervals are there.
//!
//! Looking again and again at growing data finds an effect sooner or later. So alpha is spent: 0.025 two-sided for each
//! estimate, linearly in the number of blocks, exact for correlated looks, turned into a t quantile with the degrees of
//! freedom of that look and rounded up; the family error is 0.024 in simulation. An anytime-valid t sequence was tried:
//! 4.8–5.1 at 8 blocks and 3.6–3.7 at 48, nothing gained early and 1.8 times the blocks late.

/// One column of the table. Both counts must be reached before the data may be looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// K: replicated 2×2s of four links.
    pub blocks: usize,
    /// L: matched pairs on drawn landings.
    pub layouts: usize,
    /// The multiple of a standard error over K blocks.
    pub t_blocks: f64,
    /// The multiple of a standard error over L layouts.
    pub t_layouts: f64,
}

const fn look(blocks: usize, t_blocks: f64, layouts: usize, t_layouts: f64) -> Look {
    Look { blocks, layouts, t_blocks, t_layouts }
}

/// The first look: also the pilot, from which the number of rounds is chosen.
pub const FIRST: Look = look(4, 10.4, 8, 4.8);

/// The last look: no campaign goes past it.
pub const LAST: Look = look(48, 2.65, 96, 2.6);

/// The rounds of a `--quick` campaign, whose only look is at its end.
pub const QUICK_ROUNDS: usize = 24;

/// Its multiple: two-sided 0.025 of t with the 11 degrees of freedom that the 12 of 24 rounds leave which are not trimmed.
pub const QUICK_T: f64 = 2.593;

/// Its effects must lie beyond so many margins. One link of each cell has the luck of that link, which no number of rounds
/// averages out: of an SD of 1 %, a margin of 1 % would take it for an effect in 11 %, five margins in none.
pub const QUICK_MARGINS: f64 = 5.0;

/// All looks, in order.
pub const LOOKS: [Look; 8] = [
    FIRST,
    look(6, 6.4, 12, 4.3),
    look(8, 5.0, 16, 3.9),
    look(12, 3.9, 24, 3.4),
    look(16, 3.5, 32, 3.2),
    look(24, 3.1, 48, 2.95),
    look(32, 2.9, 64, 2.8),
    LAST,
];

impl Look {
    /// The same look where so many layouts are one full phase cycle: a cycle for every block, and its multiple.
    #[must_use]
    pub fn in_cycles(self, of: Option<u32>) -> Look {
        match of {
            Some(of) => Look { layouts: self.blocks * of as usize, t_layouts: self.t_blocks, ..self },
            None => self,
        }
    }
}

/// The last look that so many blocks and layouts reach; `None` before the first.
#[must_use]
pub fn reached(blocks: usize, layouts: usize) -> Option<Look> {
    LOOKS.into_iter().rev().find(|l| l.blocks <= blocks && l.layouts <= layouts)
}

/// The look to go on to after this one, if the campaign may have so many blocks. With `None`: the first.
#[must_use]
pub fn after(look: Option<Look>, max_blocks: usize) -> Option<Look> {
    let done = look.map_or(0, |l| l.blocks);
    LOOKS.into_iter().find(|l| l.blocks > done && l.blocks <= max_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counts_must_be_reached_and_a_number_between_looks_waits() {
        let blocks = |k, l| reached(k, l).map(|x| x.blocks);
        assert_eq!(blocks(3, 96), None);
        assert_eq!(blocks(4, 7), None);
        assert_eq!(blocks(4, 8), Some(4));
        assert_eq!(blocks(11, 96), Some(8));
        assert_eq!(blocks(12, 23), Some(8));
        assert_eq!(blocks(500, 500), Some(48));
    }

    #[test]
    fn a_smaller_budget_stops_earlier_in_the_same_table() {
        let next = |k, max| after(reached(k, 2 * k), max).map(|x| x.blocks);
        assert_eq!(next(0, 48), Some(4));
        assert_eq!(next(4, 12), Some(6));
        assert_eq!(next(12, 12), None);
        assert_eq!(next(8, 10), None);
        assert_eq!(next(48, 1000), None);
    }
}
