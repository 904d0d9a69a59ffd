//! Runs → the numbers of a verdict, each with its interval, in ln units; plus means that patched is worse.
//!
//! Landing B is where base put its units as built, P where patched put them; `b0`, `pB`, `bP`, `p0` are the four cells
//! of base and patched code on them. The unit of every interval is a *link*, never a run: more runs of one binary only
//! make a wrong answer tighter.

use super::looks::{self, Look};
use super::robust::{self, Interval, additive_fit, mean_interval, trimmed_interval, trimmed_mean};
use super::runs::{Runs, Unit, contrast};
use super::spread::{Modes, Spread, modes, spread};

/// The four cells' weights in the order `b0 pB bP p0`.
mod weights {
    /// What the patch costs, averaged over the two landings.
    pub const CODE: [f64; 4] = [-0.5, 0.5, -0.5, 0.5];
    /// What the move costs, averaged over the two codes.
    pub const LUCK: [f64; 4] = [-0.5, -0.5, 0.5, 0.5];
    pub const TOTAL: [f64; 4] = [-1.0, 0.0, 0.0, 1.0];
    pub const INTERACTION: [f64; 4] = [1.0, -1.0, -1.0, 1.0];
    pub const CODE_ON_BASE: [f64; 4] = [-1.0, 1.0, 0.0, 0.0];
    pub const CODE_ON_PATCHED: [f64; 4] = [0.0, 0.0, -1.0, 1.0];
    pub const MOVE_BASE: [f64; 4] = [-1.0, 0.0, 1.0, 0.0];
    pub const MOVE_PATCHED: [f64; 4] = [0.0, -1.0, 0.0, 1.0];
}

/// What the patch costs at one landing, or the move with one code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transplant {
    pub code_on_base: Interval,
    pub code_on_patched: Interval,
    pub move_with_base: Interval,
    pub move_with_patched: Interval,
}

/// A block's four cells (`b0 pB bP p0`) after the additive fit, in ln(cost).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockFit {
    pub number: u32,
    pub cells: [f64; 4],
}

/// A layout's two cells, and its D: the trimmed mean of patched less base within rounds. D is not the difference of
/// the two, which would carry the drift between rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayoutFit {
    pub number: u32,
    pub base: f64,
    pub patched: f64,
    pub difference: f64,
}

/// All numbers of a verdict, in ln units.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// The table, at the level of this row.
    pub looks: [Look; 8],
    /// `None` before the first look: centres only, no intervals.
    pub look: Option<Look>,
    /// Layouts of a full phase cycle, which is then the unit of kappa.
    pub cycle: Option<u32>,
    /// One block, and its rounds the unit.
    pub quick: bool,
    /// m: what is too small to matter.
    pub margin: f64,
    /// An effect lies beyond it: m, or more where the luck of single links is not averaged out.
    pub beyond: f64,
    /// M: within it, an effect counts as none.
    pub tolerance: f64,
    pub gamma: Interval,
    pub lambda: Interval,
    pub iota: Interval,
    /// gamma + lambda: what the two axes explain.
    pub total: Interval,
    /// gamma and lambda without the as-built block: what they are if that one has something of its own.
    pub without_as_built: (Interval, Interval),
    pub kappa: Interval,
    /// What the headline has beyond the code: lambda, or with phase cycles luck* = total − kappa, which holds the interaction
    /// too.
    pub luck: Interval,
    /// The as-built pair, as measured here.
    pub delta: Interval,
    /// delta − (gamma + lambda).
    pub rho: Interval,
    pub transplant: Transplant,
    pub aligned: Option<Interval>,
    pub twin: Option<Interval>,
    pub blocks: Vec<BlockFit>,
    pub layouts: Vec<LayoutFit>,
    /// What the patch costs in each unit of kappa: a layout, or a cycle.
    pub differences: Vec<f64>,
    /// The runs of the as-built pair, and of the aligned one, base and patched: centre and SD in ln(cost).
    pub as_built_runs: Option<[(f64, f64); 2]>,
    pub aligned_runs: Option<[(f64, f64); 2]>,
    /// The two cells of the aligned pair, and of the twin, in ln(cost).
    pub aligned_cells: Option<(f64, f64)>,
    pub twin_cells: Option<(f64, f64)>,
    /// s_w: SD of the luck contrast of one round, which is the SD of one run.
    pub noise: Option<f64>,
    pub base_spread: Option<Spread>,
    pub patched_spread: Option<Spread>,
    /// Two groups of layouts by what the patch costs there.
    pub code_modes: Option<Modes>,
    pub hodges_lehmann: Option<f64>,
    /// Layouts in which the patch is slower, and faster, by more than the margin.
    pub slower_in: usize,
    pub faster_in: usize,
    /// Rounds of a cell (median over units).
    pub rounds: u32,
}

/// M = 0.2·|gamma + lambda|, at least m and at most 5 m. Without the ceiling a headline of +600 % would let a code
/// effect of +5 % pass as alignment.
#[must_use]
pub fn tolerance(margin: f64, total: f64) -> f64 {
    let share = 0.2 * total.abs();
    if share.is_nan() { margin } else { share.clamp(margin, 5.0 * margin) }
}

impl Estimates {
    /// The numbers at the last look that the record reaches. `margin`: m in ln units; `rows`: how many rows share the level.
    #[must_use]
    pub fn at_look(runs: &mut Runs, margin: f64, cycle: Option<u32>, rows: usize) -> Estimates {
        let table = looks::shared(rows);
        let layouts = match cycle {
            Some(of) => {
                runs.keep_cycles(of);
                // Two layouts for every block, or one cycle.
                2 * runs.layouts.len() / of as usize
            }
            None => runs.layouts.len(),
        };
        let look = looks::reached(&table, runs.blocks.len(), layouts).map(|look| look.in_cycles(cycle));
        if let Some(look) = look {
            runs.keep(look);
        }
        Estimates::of(runs, (table, look), margin, cycle)
    }

    /// The numbers of one block alone, each over its rounds: 25 % trimmed means with winsorised errors. Intervals only
    /// when all rounds are there, for that is the one look. No number says what holds on other layouts, and none knows the
    /// luck of a single link.
    #[must_use]
    pub fn quick(runs: &mut Runs, margin: f64, rows: usize) -> Estimates {
        runs.keep_as_built(looks::QUICK_ROUNDS);
        let mut e = Estimates::of(runs, (looks::shared(rows), None), margin, None);
        e.quick = true;
        e.beyond = looks::QUICK_MARGINS * margin;
        let Some(block) = runs.blocks.first().filter(|b| b.rounds.len() >= looks::QUICK_ROUNDS) else { return e };
        let t = |kept: usize| {
            let known = (looks::QUICK_ROUNDS / 2 - 1) as f64;
            robust::with_fewer_degrees(looks::quick_t(rows), known, kept.saturating_sub(1) as f64)
        };
        // The centre is the additive fit's, so that the contrasts still add up.
        let over_rounds =
            |known: Interval, weights| Interval { half: trimmed_interval(block.contrasts(weights), t).half, ..known };
        let Transplant { code_on_base, code_on_patched, move_with_base, move_with_patched } = e.transplant;
        e.transplant = Transplant {
            code_on_base: over_rounds(code_on_base, weights::CODE_ON_BASE),
            code_on_patched: over_rounds(code_on_patched, weights::CODE_ON_PATCHED),
            move_with_base: over_rounds(move_with_base, weights::MOVE_BASE),
            move_with_patched: over_rounds(move_with_patched, weights::MOVE_PATCHED),
        };
        e.gamma = over_rounds(e.gamma, weights::CODE);
        e.lambda = over_rounds(e.lambda, weights::LUCK);
        e.luck = e.lambda;
        e.iota = over_rounds(e.iota, weights::INTERACTION);
        e.total = over_rounds(e.total, weights::TOTAL);
        e.delta = trimmed_interval(block.differences(), t);
        e.twin = runs.twin.as_ref().map(|unit| trimmed_interval(unit.differences(), t));
        e.aligned = runs.aligned.as_ref().map(|unit| trimmed_interval(unit.differences(), t));
        e
    }

    fn of(runs: &Runs, (looks, look): ([Look; 8], Option<Look>), margin: f64, cycle: Option<u32>) -> Estimates {
        let (t_blocks, t_layouts) = look.map_or((f64::INFINITY, f64::INFINITY), |l| (l.t_blocks, l.t_layouts));
        let blocks: Vec<BlockFit> = runs.blocks.iter().filter_map(fit_block).collect();
        let layouts: Vec<LayoutFit> = runs.layouts.iter().filter_map(fit_layout).collect();
        let over_blocks = |weights| mean_interval(&contrasts(&blocks, weights), t_blocks);
        let drawn: Vec<BlockFit> = blocks.iter().copied().filter(|block| block.number != 0).collect();
        let over_drawn = |weights| mean_interval(&contrasts(&drawn, weights), t_blocks);
        let differences: Vec<f64> = layouts.iter().map(|l| l.difference).collect();
        // Over a cycle the inside of what moved has visited each phase as often in both versions.
        let differences: Vec<f64> = differences.chunks(cycle.unwrap_or(1).max(1) as usize).map(robust::mean).collect();
        let (lambda, kappa) = (over_blocks(weights::LUCK), mean_interval(&differences, t_layouts));
        let total = over_blocks(weights::TOTAL);
        // One, or one for each machine.
        let as_built = runs.blocks.iter().filter(|block| block.number == 0);
        let t_rounds = |kept: usize| t_over_rounds(look, kept);
        let delta = trimmed_interval(as_built.flat_map(Unit::differences), t_rounds);
        let arm = |unit: &Option<Unit>| unit.as_ref().map(|unit| trimmed_interval(unit.differences(), t_rounds));
        let cells = |unit: &Option<Unit>| unit.as_ref().and_then(fit_layout).map(|fit| (fit.base, fit.patched));
        Estimates {
            looks,
            look,
            cycle,
            quick: false,
            margin,
            beyond: margin,
            tolerance: tolerance(margin, total.centre),
            gamma: over_blocks(weights::CODE),
            lambda,
            iota: over_blocks(weights::INTERACTION),
            total,
            without_as_built: (over_drawn(weights::CODE), over_drawn(weights::LUCK)),
            kappa,
            luck: match cycle {
                Some(_) => Interval { centre: total.centre - kappa.centre, half: total.half.hypot(kappa.half) },
                None => lambda,
            },
            delta,
            rho: Interval { centre: delta.centre - total.centre, half: delta.half.hypot(total.half) },
            transplant: Transplant {
                code_on_base: over_blocks(weights::CODE_ON_BASE),
                code_on_patched: over_blocks(weights::CODE_ON_PATCHED),
                move_with_base: over_blocks(weights::MOVE_BASE),
                move_with_patched: over_blocks(weights::MOVE_PATCHED),
            },
            aligned: arm(&runs.aligned),
            twin: arm(&runs.twin),
            as_built_runs: runs_of(runs.blocks.iter().filter(|block| block.number == 0)),
            aligned_runs: runs_of(runs.aligned.iter()),
            aligned_cells: cells(&runs.aligned),
            twin_cells: cells(&runs.twin),
            noise: noise(&runs.blocks),
            base_spread: spread(&runs.layouts, 0, margin),
            patched_spread: spread(&runs.layouts, 3, margin),
            code_modes: modes(&differences, margin),
            hodges_lehmann: robust::hodges_lehmann(&differences),
            slower_in: differences.iter().filter(|&&d| d > margin).count(),
            faster_in: differences.iter().filter(|&&d| d < -margin).count(),
            rounds: rounds(runs),
            blocks,
            layouts,
            differences,
        }
    }
}

/// The centres and the noise of the pilot: the first look's blocks, so many rounds each, however much was run since.
#[must_use]
pub(super) fn pilot(runs: &Runs, rounds: usize) -> Option<(f64, f64)> {
    let first: Vec<Unit> = runs.blocks.iter().take(looks::FIRST.blocks).map(|b| b.first_rounds(rounds)).collect();
    let fits: Vec<BlockFit> = first.iter().filter_map(fit_block).collect();
    let total = contrasts(&fits, weights::TOTAL);
    Some((robust::mean(&total), noise(&first)?)).filter(|_| first.len() == looks::FIRST.blocks)
}

/// The multiple for intervals over the rounds of one pair: t_K, widened where fewer rounds than K were kept.
///
/// In a campaign of many looks the as-built pair has more rounds than there are blocks, and t_K holds. Of a fixed size
/// it has only the B rounds of all others: t_12 = 3.9 on the four values that six rounds leave would call two links of
/// one base different in 3 % of campaigns.
fn t_over_rounds(look: Option<Look>, kept: usize) -> f64 {
    look.map_or(f64::INFINITY, |l| {
        robust::with_fewer_degrees(l.t_blocks, (l.blocks - 1) as f64, kept.saturating_sub(1) as f64)
    })
}

/// Centre and SD (by the MAD, as for the noise) of the single runs of base and of patched, those of the same pair on several machines together.
fn runs_of<'u>(units: impl Iterator<Item = &'u Unit> + Clone) -> Option<[(f64, f64); 2]> {
    let of = |cell: usize| {
        let runs: Vec<f64> = units.clone().filter_map(|unit| unit.cells.get(cell)).flatten().copied().collect();
        let centre = robust::median(runs.iter().copied())?;
        let spread = robust::median(runs.iter().map(|run| (run - centre).abs()))?;
        Some((trimmed_mean(runs)?, 1.4826 * spread))
    };
    Some([of(0)?, of(3)?])
}

fn contrasts(blocks: &[BlockFit], weights: [f64; 4]) -> Vec<f64> {
    blocks.iter().map(|block| contrast(block.cells, weights)).collect()
}

fn fit_block(unit: &Unit) -> Option<BlockFit> {
    Some(BlockFit { number: unit.number, cells: additive_fit(&unit.cells)? })
}

fn fit_layout(unit: &Unit) -> Option<LayoutFit> {
    let [base, _, _, patched] = &unit.cells;
    Some(LayoutFit {
        number: unit.number,
        base: trimmed_mean(base.iter().copied())?,
        patched: trimmed_mean(patched.iter().copied())?,
        difference: trimmed_mean(unit.differences())?,
    })
}

/// s_w = 1.4826 · MAD of a round's luck contrast about its block's median · sqrt(B/(B−1)).
///
/// The four weights of the contrast are ±1/2, so its SD is that of one run. Blocks may have different numbers of
/// rounds (the as-built one has the most), so each block's residuals carry their own factor.
fn noise(blocks: &[Unit]) -> Option<f64> {
    let mut residuals = Vec::new();
    for block in blocks {
        let luck: Vec<f64> = block.contrasts(weights::LUCK).collect();
        let Some(centre) = robust::median(luck.iter().copied()).filter(|_| luck.len() > 1) else { continue };
        let n = luck.len() as f64;
        residuals.extend(luck.iter().map(|x| (x - centre).abs() * (n / (n - 1.0)).sqrt()));
    }
    robust::median(residuals).map(|mad| 1.4826 * mad)
}

/// The as-built block runs in every round of the campaign, so it says nothing about the rounds of the others.
fn rounds(runs: &Runs) -> u32 {
    let drawn = runs.blocks.iter().filter(|b| b.number != 0).chain(&runs.layouts);
    let counts: Vec<f64> = drawn.map(|unit| unit.rounds.len() as f64).collect();
    let as_built = || runs.blocks.first().map_or(0.0, |b| b.rounds.len() as f64);
    robust::median(counts).unwrap_or_else(as_built) as u32
}
