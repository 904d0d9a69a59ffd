//! The look table: when a campaign may look at its data, and how wide its intervals are there.
//!
//! Looking again and again at growing data finds an effect sooner or later. So alpha is spent: 0.025 two-sided for each
//! estimate, linearly in the number of blocks, exact for correlated looks, turned into a t quantile with the degrees of
//! freedom of that look and rounded up; the family error is 0.024 in simulation. An anytime-valid t sequence was tried:
//! 4.8–5.1 at 8 blocks and 3.6–3.7 at 48, nothing gained early and 1.8 times the blocks late.
//!
//! Where several rows of a sweep decide, each gets its share of alpha, by the same construction ([`shared`]).

use std::sync::OnceLock;

use statrs::function::erf::erfc;

use super::robust::t_two_sided;
use crate::measure::record::MOST_ROWS;

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

/// Two-sided, for each estimate, over all looks.
pub const LEVEL: f64 = 0.025;

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

/// The last of `looks` that so many blocks and layouts reach; `None` before the first.
#[must_use]
pub fn reached(looks: &[Look], blocks: usize, layouts: usize) -> Option<Look> {
    looks.iter().rev().copied().find(|l| l.blocks <= blocks && l.layouts <= layouts)
}

/// The looks of each of `rows` rows that decide together: [`LEVEL`] / rows for each of their estimates.
#[must_use]
pub fn shared(rows: usize) -> [Look; 8] {
    static TABLES: [OnceLock<[Look; 8]>; MOST_ROWS + 1] = [const { OnceLock::new() }; MOST_ROWS + 1];
    match TABLES.get(rows) {
        _ if rows <= 1 => LOOKS,
        Some(table) => *table.get_or_init(|| table_of(rows)),
        None => table_of(rows),
    }
}

/// The multiple of `--quick` where `rows` rows decide together.
#[must_use]
pub fn quick_t(rows: usize) -> f64 {
    if rows <= 1 { QUICK_T } else { up(t_two_sided(LEVEL / rows as f64, (QUICK_ROUNDS / 2 - 1) as f64)) }
}

/// By the construction of [`LOOKS`], with the reserve that its rounding up left at each look.
fn table_of(rows: usize) -> [Look; 8] {
    let (one, share) = (nominal(LEVEL), nominal(LEVEL / rows as f64));
    let mut looks = LOOKS;
    for ((look, one), share) in looks.iter_mut().zip(one).zip(share) {
        let t = |known: f64, n: usize| known * t_two_sided(share, n as f64 - 1.0) / t_two_sided(one, n as f64 - 1.0);
        (look.t_blocks, look.t_layouts) = (up(t(look.t_blocks, look.blocks)), up(t(look.t_layouts, look.layouts)));
    }
    looks
}

/// To a hundredth, so that two machines' arithmetic cannot make two tables.
fn up(t: f64) -> f64 {
    (100.0 * t).ceil() / 100.0
}

/// The two-sided level of each look, when `alpha` is spent linearly in the number of blocks: the density of a sum of
/// normal values that no earlier bound has stopped is carried from look to look (Armitage, McPherson and Rowe 1969), and
/// each bound is where the rest beyond it is what may be spent there (Lan and DeMets 1983).
fn nominal(alpha: f64) -> [f64; 8] {
    const HALF: usize = 120;
    let tail = |x: f64| 0.5 * erfc(x / std::f64::consts::SQRT_2);
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // Before the first look the sum is 0.
    let (mut going, mut before) = (vec![(0.0, 1.0)], 0.0);
    LOOKS.map(|look| {
        let blocks = look.blocks as f64;
        let (step, spent) = ((blocks - before).sqrt(), alpha * (blocks - before) / LAST.blocks as f64);
        let beyond = |bound: f64| -> f64 {
            going.iter().map(|(sum, mass)| mass * (tail((bound - sum) / step) + tail((bound + sum) / step))).sum()
        };
        let (mut low, mut high) = (0.0, 40.0 * blocks.sqrt());
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if beyond(middle) > spent { low = middle } else { high = middle }
        }
        // Simpson's rule over what goes on.
        let width = high / HALF as f64;
        going = (0..=2 * HALF)
            .map(|i| {
                let at = i as f64 * width - high;
                let weight = if i % (2 * HALF) == 0 {
                    1.0
                } else if i % 2 == 1 {
                    4.0
                } else {
                    2.0
                };
                let mass: f64 = going.iter().map(|(sum, mass)| mass * density((at - sum) / step) / step).sum();
                (at, mass * weight * width / 3.0)
            })
            .collect();
        before = blocks;
        2.0 * tail(high / blocks.sqrt())
    })
}

/// The look to go on to after this one, if the campaign may have so many blocks. With `None`: the first.
#[must_use]
pub fn after(look: Option<Look>, max_blocks: usize) -> Option<Look> {
    let done = look.map_or(0, |l| l.blocks);
    LOOKS.into_iter().find(|l| l.blocks > done && l.blocks <= max_blocks)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Levels and quantiles from an independent program; the table's own multiples are these, rounded up.
    #[test]
    fn the_table_is_what_its_construction_gives() {
        let levels = [0.002083, 0.001545, 0.001713, 0.002869, 0.003447, 0.005903, 0.007234, 0.012378];
        for ((level, wanted), look) in nominal(LEVEL).into_iter().zip(levels).zip(LOOKS) {
            assert!((level - wanted).abs() < 1e-6, "{level} {wanted}");
            for (n, t) in [(look.blocks, look.t_blocks), (look.layouts, look.t_layouts)] {
                let exact = t_two_sided(level, n as f64 - 1.0);
                assert!(exact <= t && t < 1.035 * exact, "{n}: {exact} {t}");
            }
        }
        assert_eq!(shared(1), LOOKS);
        let four = shared(4).map(|l| (l.t_blocks, l.t_layouts));
        let exact = [16.104, 8.551, 6.329, 4.683, 4.191, 3.642, 3.452, 3.152];
        assert!(four.iter().zip(exact).all(|((t, _), e)| *t >= e && *t < 1.04 * e), "{four:?}");
        assert!((quick_t(4) - t_two_sided(0.00625, 11.0)).abs() < 0.01);
        let wider = |n: usize| shared(n + 1).iter().zip(shared(n)).all(|(more, less)| more.t_blocks > less.t_blocks);
        assert!((1..MOST_ROWS + 2).all(wider));
    }

    /// Nothing is true in any row, and all are looked at eight times: the two axes of all rows together are called an
    /// effect in at most 5 % of campaigns. With the multiples of one row it would be far more. Rows are drawn independent of
    /// each other, where they err most often together.
    #[test]
    fn the_family_error_of_a_sweep_is_that_of_one_row() {
        const CAMPAIGNS: usize = 6000;
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let mut errs = |rows: usize, tables: [[Look; 8]; 2]| {
            let mut found = [0; 2];
            for _ in 0..CAMPAIGNS {
                let mut out = [false; 2];
                for _ in 0..2 * rows {
                    let (mut n, mut sum, mut squares) = (0, 0.0, 0.0);
                    for at in 0..LOOKS.len() {
                        for _ in n..LOOKS[at].blocks {
                            let x: f64 = StandardNormal.sample(&mut rng);
                            (sum, squares) = (sum + x, squares + x * x);
                        }
                        n = LOOKS[at].blocks;
                        let k = n as f64;
                        let t = (sum / k).abs() / ((squares - sum * sum / k) / (k - 1.0) / k).sqrt();
                        for (out, table) in out.iter_mut().zip(tables) {
                            *out |= t > table[at].t_blocks;
                        }
                    }
                }
                found.iter_mut().zip(out).for_each(|(n, out)| *n += usize::from(out));
            }
            found.map(|n| n as f64 / CAMPAIGNS as f64)
        };
        for rows in [2, 4, 8] {
            let [with, without] = errs(rows, [shared(rows), LOOKS]);
            assert!(with <= 0.05 && without > 0.08, "{rows} rows: {with}, {without}");
        }
    }

    #[test]
    fn both_counts_must_be_reached_and_a_number_between_looks_waits() {
        let blocks = |k, l| reached(&LOOKS, k, l).map(|x| x.blocks);
        assert_eq!(blocks(3, 96), None);
        assert_eq!(blocks(4, 7), None);
        assert_eq!(blocks(4, 8), Some(4));
        assert_eq!(blocks(11, 96), Some(8));
        assert_eq!(blocks(12, 23), Some(8));
        assert_eq!(blocks(500, 500), Some(48));
    }

    #[test]
    fn a_smaller_budget_stops_earlier_in_the_same_table() {
        let next = |k, max| after(reached(&LOOKS, k, 2 * k), max).map(|x| x.blocks);
        assert_eq!(next(0, 48), Some(4));
        assert_eq!(next(4, 12), Some(6));
        assert_eq!(next(12, 12), None);
        assert_eq!(next(8, 10), None);
        assert_eq!(next(48, 1000), None);
    }
}
