//! Centres that a spike, a drift or a hit from outside does not carry away.
//!
//! Against clean data (12 rounds, spikes, drift, 2 % hits) the error of a block's contrast grows by a factor of 5.9 for
//! plain means, 1.8 for cell medians, 1.45 for the median of round contrasts and 1.27 for the fit used here.

/// A 97.5 % interval in ln units. The half-width is infinite where the data cannot give one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub centre: f64,
    pub half: f64,
}

impl Interval {
    /// Nothing is known.
    pub const UNKNOWN: Interval = Interval { centre: f64::NAN, half: f64::INFINITY };

    #[must_use]
    pub fn low(self) -> f64 {
        self.centre - self.half
    }

    #[must_use]
    pub fn high(self) -> f64 {
        self.centre + self.half
    }

    /// Whether a half-width could be computed at all.
    #[must_use]
    pub fn known(self) -> bool {
        self.centre.is_finite() && self.half.is_finite()
    }

    /// Beyond ±`m`: an effect.
    #[must_use]
    pub fn out(self, m: f64) -> bool {
        self.known() && self.centre.abs() - self.half > m
    }

    /// Within ±`tolerance` and not [`Interval::out`] of ±`m`: no effect that matters. OUT is tested first: a value
    /// between m and M may be called either, and both claims are then true.
    #[must_use]
    pub fn within(self, m: f64, tolerance: f64) -> bool {
        self.known() && !self.out(m) && self.centre.abs() + self.half <= tolerance
    }

    #[must_use]
    pub fn disjoint(self, other: Interval) -> bool {
        self.known() && other.known() && (self.centre - other.centre).abs() > self.half + other.half
    }
}

/// `None` for no values. Even counts give the mean of the two in the middle.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    let (low, high) = (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

pub(super) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation with n − 1; `None` below two values.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|x| (x - centre).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The mean without the lowest and the highest quarter, floor(n/4) each.
#[must_use]
pub fn trimmed_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    let cut = sorted.len() / 4;
    sorted.get(cut..sorted.len() - cut).filter(|kept| !kept.is_empty()).map(mean)
}

/// The 25 % trimmed mean with `t` times its winsorised standard error (Tukey and McLaughlin 1963).
#[must_use]
pub fn trimmed_interval(values: impl IntoIterator<Item = f64>, t: f64) -> Interval {
    let sorted = sorted(values);
    let (n, cut) = (sorted.len(), sorted.len() / 4);
    let (Some(kept), true) = (sorted.get(cut..n - cut), n > 0) else { return Interval::UNKNOWN };
    let (Some(&low), Some(&high)) = (kept.first(), kept.last()) else { return Interval::UNKNOWN };
    let pulled_in: Vec<f64> = sorted.iter().map(|x| x.clamp(low, high)).collect();
    let share = 1.0 - 2.0 * cut as f64 / n as f64;
    let error = deviation(&pulled_in).map(|s| s / (share * (n as f64).sqrt()));
    Interval { centre: mean(kept), half: error.map_or(f64::INFINITY, |e| t * e) }
}

/// The mean with `t` times its standard error. Unlike the rounds of a cell, blocks and layouts are few and none of
/// them is an accident: nothing is trimmed.
#[must_use]
pub fn mean_interval(values: &[f64], t: f64) -> Interval {
    match deviation(values) {
        Some(s) => Interval { centre: mean(values), half: t * s / (values.len() as f64).sqrt() },
        None => Interval { centre: values.first().copied().unwrap_or(f64::NAN), half: f64::INFINITY },
    }
}

/// The additive fit of a block: four cells, each a column of rounds of one length, in ln(cost) → the value of each cell.
///
/// Cell + round, by medians, twice; then a cell is the trimmed mean of what is left when the rounds are taken out.
/// Every contrast is linear in the result, so the contrasts of a block add up exactly: trimming each contrast by
/// itself would not.
#[must_use]
pub fn additive_fit(cells: &[Vec<f64>; 4]) -> Option<[f64; 4]> {
    let mut rest: [Vec<f64>; 4] = cells.clone();
    for _ in 0..2 {
        let [a, b, c, d] = centres(&rest, |column| median(column.iter().copied()))?;
        let [ya, yb, yc, yd] = cells;
        let rounds =
            ya.iter().zip(yb).zip(yc).zip(yd).map(|(((ya, yb), yc), yd)| middle([ya - a, yb - b, yc - c, yd - d]));
        let rounds: Vec<f64> = rounds.collect();
        rest = cells.each_ref().map(|column| column.iter().zip(&rounds).map(|(y, r)| y - r).collect());
    }
    centres(&rest, |column| trimmed_mean(column.iter().copied()))
}

fn centres(cells: &[Vec<f64>; 4], centre: impl Fn(&[f64]) -> Option<f64>) -> Option<[f64; 4]> {
    let [a, b, c, d] = cells;
    Some([centre(a)?, centre(b)?, centre(c)?, centre(d)?])
}

/// The median of four: the mean of the two in the middle.
fn middle(mut four: [f64; 4]) -> f64 {
    four.sort_by(f64::total_cmp);
    let [_, low, high, _] = four;
    (low + high) / 2.0
}

/// The median of all pairwise means: the Hodges–Lehmann centre.
#[must_use]
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    let pairs = values.iter().enumerate().flat_map(|(i, a)| values.iter().skip(i).map(move |b| (a + b) / 2.0));
    median(pairs)
}
