//! How much layouts differ from each other: remarks beside the estimates, never a gate.

use super::robust::{deviation, mean, sorted, trimmed_mean};
use super::runs::Unit;

/// What one version costs over the drawn layouts, in ln units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// SD of the layouts themselves, the runs' noise taken out.
    pub sd: Option<f64>,
    /// Its 95 % interval.
    pub sd_interval: Option<(f64, f64)>,
    /// The 5th and 95th percentile of layouts, against their median.
    pub p5: f64,
    pub p95: f64,
    pub modes: Option<Modes>,
}

/// Two tight groups instead of a centre: their mean would be a value that no layout has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// How many units lie in the lower and in the higher group.
    pub low: usize,
    pub high: usize,
    /// From the centre of the lower to the centre of the higher group, in ln units.
    pub apart: f64,
}

/// The spread of one version over layouts; `column` is 0 for base, 3 for patched. `None` below two layouts.
#[must_use]
pub fn spread(layouts: &[Unit], column: usize, margin: f64) -> Option<Spread> {
    let values = |unit: &Unit| unit.cells.get(column).cloned().unwrap_or_default();
    let levels = sorted(layouts.iter().filter_map(|unit| trimmed_mean(values(unit))));
    if levels.len() < 2 {
        return None;
    }
    let middle = quantile(&levels, 0.5);
    let (p5, p95) = (quantile(&levels, 0.05) - middle, quantile(&levels, 0.95) - middle);
    let table: Vec<(&[u32], Vec<f64>)> = layouts.iter().map(|u| (u.rounds.as_slice(), values(u))).collect();
    let squares = two_way(&table);
    Some(Spread {
        sd: squares.map(|s| s.sd()),
        sd_interval: squares.and_then(Squares::sd_interval),
        p5,
        p95,
        modes: modes(&levels, margin),
    })
}

/// Linear between order statistics. `sorted` is not empty.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * (sorted.len() - 1) as f64;
    let get = |i: f64| sorted.get(i as usize).copied().unwrap_or(f64::NAN);
    get(at.floor()) + (at - at.floor()) * (get(at.ceil()) - get(at.floor()))
}

/// Two groups with an empty gap between them, or `None`.
///
/// Every cut of the sorted values that leaves at least two, and a tenth, on each side is tried. The gap at the cut must
/// be (1.5 + 48/n) times the SD within the two groups and wider than the margin. The factor falls with n because gaps
/// of one cloud do: it finds two groups in at most 1 % of samples from one normal, uniform or exponential cloud at
/// n = 8 to 96, and in 9 of 10 whose centres are ten SDs apart. Hartigan's dip needs tables and has no power at
/// n = 8; a mixture fit finds two groups in every skewed cloud.
#[must_use]
pub fn modes(values: &[f64], margin: f64) -> Option<Modes> {
    let values = sorted(values.iter().copied());
    let n = values.len();
    let least = 2.max(n.div_ceil(10));
    let wanted = 1.5 + 48.0 / n as f64;
    let cut = |k: usize| {
        let (low, high) = values.split_at_checked(k)?;
        let gap = high.first()? - low.last()?;
        let within = ((squares(low) + squares(high)) / (n - 2) as f64).sqrt();
        let found = gap > margin && gap >= wanted * within;
        found.then(|| (gap, Modes { low: low.len(), high: high.len(), apart: mean(high) - mean(low) }))
    };
    let cuts = (least..=n.saturating_sub(least)).filter(|_| n >= 8).filter_map(cut);
    cuts.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, modes)| modes)
}

fn squares(values: &[f64]) -> f64 {
    deviation(values).map_or(0.0, |s| s * s * (values.len() - 1) as f64)
}

/// Mean squares of a layout × round table, holes allowed.
#[derive(Clone, Copy, Debug)]
struct Squares {
    between: f64,
    within: f64,
    between_df: f64,
    within_df: f64,
    /// Rounds a layout.
    rounds: f64,
}

impl Squares {
    fn sd(self) -> f64 {
        ((self.between - self.within) / self.rounds).max(0.0).sqrt()
    }

    /// From the exact F interval of the variance ratio (Searle, Casella, McCulloch 1992, 3.5), times the runs' mean
    /// square.
    fn sd_interval(self) -> Option<(f64, f64)> {
        if self.within <= 0.0 {
            return None;
        }
        let bound = |p: f64| {
            let f = f_quantile(p, self.between_df, self.within_df);
            (self.within * ((self.between / self.within / f - 1.0) / self.rounds).max(0.0)).sqrt()
        };
        Some((bound(0.975), bound(0.025)))
    }
}

/// The p quantile of F with these degrees of freedom, through the beta distribution.
fn f_quantile(p: f64, d1: f64, d2: f64) -> f64 {
    let x = statrs::function::beta::inv_beta_reg(d1 / 2.0, d2 / 2.0, p);
    d2 * x / (d1 * (1.0 - x))
}

/// Layout + round by least squares. Layouts that share no round, directly or through others, were measured at
/// different times: they are compared only among themselves.
fn two_way(table: &[(&[u32], Vec<f64>)]) -> Option<Squares> {
    let rounds = distinct(table.iter().flat_map(|(rounds, _)| rounds.iter().copied()));
    let cells: Vec<(usize, usize, f64)> = table
        .iter()
        .enumerate()
        .flat_map(|(l, (r, y))| r.iter().zip(y).map(move |(r, y)| (l, *r, *y)))
        .filter_map(|(l, r, y)| Some((l, rounds.binary_search(&r).ok()?, y)))
        .collect();
    let (layout, round) = fit(&cells, table.len(), rounds.len());
    let get = |of: &[f64], i: usize| of.get(i).copied().unwrap_or(0.0);
    let within: f64 = cells.iter().map(|&(l, r, y)| (y - get(&layout, l) - get(&round, r)).powi(2)).sum();
    let part = parts(&cells, table.len(), rounds.len());
    let names = distinct(part.iter().copied());
    let between_df = table.len().checked_sub(names.len()).filter(|&df| df > 0)?;
    let within_df = (cells.len() + names.len()).checked_sub(table.len() + rounds.len()).filter(|&df| df > 0)?;
    let count = cells.len() as f64 / table.len() as f64;
    let of_part = |name: usize| -> Vec<f64> {
        layout.iter().zip(&part).filter(|&(_, &p)| p == name).map(|(value, _)| *value).collect()
    };
    let between: f64 = names.iter().map(|&name| squares(&of_part(name))).sum::<f64>() * count;
    Some(Squares {
        between: between / between_df as f64,
        within: within / within_df as f64,
        between_df: between_df as f64,
        within_df: within_df as f64,
        rounds: count,
    })
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<std::collections::BTreeSet<T>>().into_iter().collect()
}

/// Row and column effects by alternating means; exact after one pass where no cell is missing.
fn fit(cells: &[(usize, usize, f64)], layouts: usize, rounds: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut layout, mut round) = (vec![0.0; layouts], vec![0.0; rounds]);
    for _ in 0..20 {
        layout = means(cells.iter().map(|&(l, r, y)| (l, y - round.get(r).copied().unwrap_or(0.0))), layouts);
        round = means(cells.iter().map(|&(l, r, y)| (r, y - layout.get(l).copied().unwrap_or(0.0))), rounds);
    }
    (layout, round)
}

fn means(values: impl Iterator<Item = (usize, f64)>, slots: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); slots];
    for (slot, value) in values {
        if let Some((sum, n)) = sums.get_mut(slot) {
            *sum += value;
            *n += 1.0;
        }
    }
    sums.into_iter().map(|(sum, n)| if n > 0.0 { sum / n } else { 0.0 }).collect()
}

/// For each layout the smallest layout that it is joined to through shared rounds.
fn parts(cells: &[(usize, usize, f64)], layouts: usize, rounds: usize) -> Vec<usize> {
    let (mut layout, mut round): (Vec<usize>, Vec<usize>) = ((0..layouts).collect(), vec![usize::MAX; rounds]);
    loop {
        let mut changed = false;
        for &(l, r, _) in cells {
            if let (Some(a), Some(b)) = (layout.get_mut(l), round.get_mut(r)) {
                let least = (*a).min(*b);
                changed |= *a != least || *b != least;
                (*a, *b) = (least, least);
            }
        }
        if !changed {
            return layout;
        }
    }
}
