//! `simulation_*`: wrong and right verdicts counted where the truth is known. A wrong verdict is the worst thing this
//! tool can do, so each cell states how many campaigns it ran and how many may be wrong.
//!
//! The whole table (2,000 campaigns a cell) is for a script; here each cell is as large as two minutes allow.

use super::simulated::{Campaign, World, sweep};
use super::{Answer, Blocked, Verdict};
use crate::measure::record::Record;

/// How campaigns of one cell ended.
struct Tally {
    ended: Vec<(Verdict, Record)>,
}

impl Tally {
    fn of(world: &World, sd: f64, campaigns: u64) -> Tally {
        let run = |seed| Campaign::new(world.clone(), sd, 1 + seed).run();
        Tally { ended: (0..campaigns).map(run).collect() }
    }

    fn count(&self, what: impl Fn(&Verdict) -> bool) -> usize {
        self.ended.iter().filter(|(v, _)| what(v)).count()
    }

    /// At most 0.5 % wrong (one campaign, where that is less), and at least `right` % right.
    fn expect(&self, answer: Answer, right: usize) {
        let n = self.ended.len();
        let wrong = self.count(|v| v.verdict != answer && v.verdict != Answer::Inconclusive);
        let found = self.count(|v| v.verdict == answer);
        assert!(wrong <= 1.max(n / 200), "{wrong} of {n} are wrong");
        assert!(found * 100 >= right * n, "only {found} of {n} say {answer:?}: {:?}", self.blocked());
    }

    fn blocked(&self) -> Vec<(Option<Blocked>, usize)> {
        let kinds = [Blocked::Placement, Blocked::Unexplained, Blocked::AA, Blocked::Precision, Blocked::Budget];
        kinds.map(|kind| (Some(kind), self.count(|v| v.blocked_by == Some(kind)))).to_vec()
    }

    fn median_runs(&self) -> u64 {
        let mut runs: Vec<u64> = self.ended.iter().map(|(v, _)| v.runs).collect();
        runs.sort_unstable();
        runs[runs.len() / 2]
    }

    /// Share of campaigns whose interval holds the truth, in percent.
    fn covers(&self, of: impl Fn(&Verdict) -> super::Effect, truth: f64) -> usize {
        let truth = 100.0 * truth.exp_m1();
        let holds = |v: &Verdict| of(v).low.is_some_and(|low| low <= truth) && of(v).high.is_some_and(|h| h >= truth);
        self.count(holds) * 100 / self.ended.len()
    }
}

fn ln(x: f64) -> f64 {
    x.ln()
}

#[test]
fn simulation_luck_ln_8_at_1_percent_noise_n_600() {
    let tally = Tally::of(&World::new(0.0, ln(8.0)), 0.01, 600);
    tally.expect(Answer::Alignment, 99);
    assert!(tally.median_runs() <= 320, "{} runs", tally.median_runs());
    assert!(tally.covers(|v| v.code_effect, 0.0) >= 96);
    assert!(tally.covers(|v| v.layout_luck, ln(8.0)) >= 96);
    assert!(tally.covers(|v| v.code_over_layouts, 0.0) >= 96);
    assert!(tally.covers(|v| v.headline, ln(8.0)) >= 96);
}

#[test]
fn simulation_luck_5_percent_at_1_percent_noise_n_600() {
    let tally = Tally::of(&World::new(0.0, 0.05), 0.01, 600);
    tally.expect(Answer::Alignment, 97);
    assert!(tally.median_runs() <= 900, "{} runs", tally.median_runs());
    assert!(tally.covers(|v| v.layout_luck, 0.05) >= 96);
}

#[test]
fn simulation_code_5_percent_at_1_percent_noise_n_600() {
    Tally::of(&World::new(0.05, 0.0), 0.01, 600).expect(Answer::Code, 97);
}

#[test]
fn simulation_faster_code_at_1_percent_noise_n_300() {
    let tally = Tally::of(&World::new(-0.05, 0.0), 0.01, 300);
    tally.expect(Answer::Code, 97);
    assert_eq!(tally.count(|v| v.exit() == crate::error::Exit::Gate), 0, "faster code is no violation");
}

#[test]
fn simulation_atomic_without_luck_n_600() {
    Tally::of(&World::atomic((ln(1.9), ln(1.9)), 0.0), 0.01, 600).expect(Answer::Code, 99);
    Tally::of(&World::atomic((0.45, 0.45), 0.0), 0.03, 600).expect(Answer::Code, 99);
}

#[test]
fn simulation_atomic_and_luck_ln_6_n_600() {
    let tally = Tally::of(&World::atomic((ln(1.9), 0.45), ln(6.0)), 0.01, 600);
    tally.expect(Answer::Both, 99);
    assert!(tally.median_runs() <= 320, "{} runs", tally.median_runs());
    Tally::of(&World::atomic((ln(1.9), 0.45), ln(6.0)), 0.10, 300).expect(Answer::Both, 99);
}

#[test]
fn simulation_4_and_4_percent_n_300() {
    let tally = Tally::of(&World::new(0.04, 0.04), 0.01, 300);
    tally.expect(Answer::Both, 97);
    assert_eq!(tally.count(|v| v.masked), 0);
    Tally::of(&World::new(0.04, 0.04), 0.03, 300).expect(Answer::Both, 95);
}

#[test]
fn simulation_masked_4_percent_n_300() {
    let tally = Tally::of(&World::new(0.04, -0.04), 0.01, 300);
    tally.expect(Answer::Both, 97);
    assert_eq!(tally.count(|v| v.masked), tally.count(|v| v.verdict == Answer::Both));
}

#[test]
fn simulation_only_together_n_300() {
    let world = World { code: (0.0, ln(8.0)), over: vec![(0.6, 0.0), (0.4, ln(8.0))], ..World::new(0.0, 0.0) };
    let tally = Tally::of(&world, 0.02, 300);
    let together = tally.count(|v| v.only_together);
    assert_eq!(together, tally.count(|v| v.verdict == Answer::Both));
    assert!(together >= 210, "{together}: {:?}", tally.blocked());
}

#[test]
fn simulation_nothing_at_1_percent_noise_n_600() {
    let tally = Tally::of(&World::new(0.0, 0.0), 0.01, 600);
    tally.expect(Answer::NotReproduced, 97);
    assert!(tally.median_runs() <= 900, "{} runs", tally.median_runs());
}

#[test]
fn simulation_luck_ln_8_at_10_percent_noise_n_300() {
    Tally::of(&World::new(0.0, ln(8.0)), 0.10, 300).expect(Answer::Alignment, 97);
}

/// The code costs exactly the margin: `alignment` and nothing else may be said, and at most 2.5 % may be wrong.
#[test]
fn simulation_code_on_the_margin_n_200() {
    let tally = Tally::of(&World::new(0.01, 0.05), 0.01, 200);
    let wrong = tally.count(|v| !matches!(v.verdict, Answer::Alignment | Answer::Inconclusive));
    assert!(wrong <= 5, "{wrong} of 200");
}

/// Every link has luck of its own, SD 1 %: four links, however often run, would take it for an effect in 40 %.
#[test]
fn simulation_link_luck_of_1_percent_n_200() {
    let world = World { link_luck: 0.01, ..World::new(0.0, 0.05) };
    let tally = Tally::of(&world, 0.01, 200);
    tally.expect(Answer::Alignment, 60);
    assert!(tally.covers(|v| v.code_effect, 0.0) >= 95);
    assert!(tally.covers(|v| v.layout_luck, 0.05) >= 95);
    Tally::of(&World { luck: 0.0, ..world }, 0.01, 200).expect(Answer::NotReproduced, 40);
}

/// 3 % of luck that a transplant fails to carry must not be blamed on the code.
#[test]
fn simulation_leaked_luck_is_never_code_n_60() {
    let world = World { code: (0.03, 0.03), over: vec![(1.0, 0.0)], ..World::new(0.0, 0.0) };
    let tally = Tally::of(&world, 0.01, 60);
    assert_eq!(tally.count(|v| matches!(v.verdict, Answer::Code | Answer::Both)), 0);
    assert!(tally.count(|v| v.blocked_by == Some(Blocked::Placement)) >= 50, "{:?}", tally.blocked());
}

/// 5 % in the as-built link alone is neither the code nor the landing.
#[test]
fn simulation_a_remainder_is_unexplained_n_60() {
    let tally = Tally::of(&World { remainder: 0.05, ..World::new(0.0, 0.0) }, 0.01, 60);
    assert_eq!(tally.count(|v| v.verdict == Answer::Code), 0);
    assert!(tally.count(|v| v.blocked_by == Some(Blocked::Unexplained)) >= 54, "{:?}", tally.blocked());
    let tally = Tally::of(&World { remainder: ln(2.0), ..World::new(0.0, 0.0) }, 0.01, 60);
    assert!(tally.count(|v| v.blocked_by == Some(Blocked::Unexplained)) >= 59, "{:?}", tally.blocked());
}

#[test]
fn simulation_3_percent_noise_n_100() {
    Tally::of(&World::new(0.0, 0.05), 0.03, 100).expect(Answer::Alignment, 90);
    Tally::of(&World::new(0.05, 0.0), 0.03, 100).expect(Answer::Code, 90);
    Tally::of(&World::new(0.0, 0.0), 0.03, 100).expect(Answer::NotReproduced, 85);
}

/// The twin has the level of all others, 2.5 % over all looks: two equal links are called different in no more campaigns.
/// The bound is three standard deviations above that.
#[test]
fn simulation_luck_ln_8_at_3_percent_noise_n_600() {
    let tally = Tally::of(&World::new(0.0, ln(8.0)), 0.03, 600);
    tally.expect(Answer::Alignment, 99);
    let a_a = tally.count(|v| v.blocked_by == Some(Blocked::AA));
    assert!(a_a <= 26, "{a_a} of 600 are stopped by two equal links");
}

/// A campaign of a fixed size uses its column of the table; its as-built pair has no more rounds than the others, and
/// two links of one base must not be called different for that.
#[test]
fn simulation_of_a_fixed_size_n_300() {
    let fixed = |world: World, sd, seed: u64| {
        let record = Campaign::new(world, sd, 1 + seed).fixed(12, 6);
        (super::verdict(&record), record)
    };
    let tally = Tally { ended: (0..300).map(|seed| fixed(World::new(0.0, ln(8.0)), 0.03, seed)).collect() };
    tally.expect(Answer::Alignment, 98);
    assert!(tally.count(|v| v.blocked_by == Some(Blocked::AA)) <= 3, "{:?}", tally.blocked());
    let tally = Tally { ended: (0..300).map(|seed| fixed(World::new(0.0, 0.0), 0.005, seed)).collect() };
    tally.expect(Answer::NotReproduced, 90);
}

/// The inside of the changed object costs ×8 on one phase of eight, and patched was built there. Four cycles clear the code,
/// where 32 layouts, drawn so that each stands for itself, cannot.
#[test]
fn simulation_phase_cycles_n_200() {
    let of = |truth, cycles, cycle, seed: u64| {
        let mut record = super::tests::noisy_cycles(truth, cycles, 0.03, 1 + seed);
        record.header.cycle = cycle;
        (super::verdict(&record), record)
    };
    let tally = |truth, cycles, cycle| Tally { ended: (0..200).map(|seed| of(truth, cycles, cycle, seed)).collect() };
    tally((0.0, 0.0, ln(8.0)), 4, Some(8)).expect(Answer::Alignment, 90);
    tally((0.0, 0.0, ln(8.0)), 4, None).expect(Answer::Inconclusive, 100);
    // Nothing but the code: luck* has the noise of two estimates, and takes more blocks.
    tally((ln(1.9), 0.0, 0.0), 12, Some(8)).expect(Answer::Code, 95);
    tally((ln(1.9), ln(6.0), ln(8.0)), 12, Some(8)).expect(Answer::Both, 95);
    let unmatched = tally((ln(1.9), 0.0, ln(8.0)), 12, Some(8));
    unmatched.expect(Answer::Inconclusive, 100);
    assert!(unmatched.count(|v| v.blocked_by == Some(Blocked::Unmatched)) >= 190, "{:?}", unmatched.blocked());
}

/// Two landings, one link each, and every link with a luck of its own of SD 1 %: at the margin that is an effect in one of
/// ten campaigns, at five margins in none.
#[test]
fn simulation_quick_at_1_percent_link_luck_n_1000() {
    let quick = |world: &World, sd, seed: u64| {
        let mut campaign = Campaign::new(World { link_luck: 0.01, ..world.clone() }, sd, 1 + seed);
        campaign.record.header.quick = true;
        let record = campaign.fixed(1, 24);
        (super::verdict(&record), record)
    };
    let tally = |world, sd, n| Tally { ended: (0..n).map(|seed| quick(&world, sd, seed)).collect() };
    tally(World::new(0.0, ln(8.0)), 0.01, 1000).expect(Answer::Alignment, 95);
    tally(World::atomic((ln(1.9), ln(1.9)), 0.0), 0.01, 1000).expect(Answer::Code, 95);
    tally(World::atomic((ln(1.9), 0.45), ln(6.0)), 0.03, 1000).expect(Answer::Both, 95);
    for (code, luck, answer) in [(0.05, 0.0, Answer::Code), (0.0, 0.05, Answer::Alignment), (0.04, 0.04, Answer::Both)]
    {
        tally(World::new(code, luck), 0.01, 1000).expect(answer, 0);
    }
    let nothing = tally(World::new(0.0, 0.0), 0.01, 1000);
    nothing.expect(Answer::NotReproduced, 0);
    let tempted = nothing.count(|v| v.code_effect.beyond(1.0) || v.layout_luck.beyond(1.0));
    assert!(tempted >= 50, "only {tempted} of 1000 would be wrong at the margin itself");
}

/// Four worker counts at a fixed size, with luck of single links: nothing in all of them is called an effect in no more
/// campaigns than in one, and what one of them has is found.
#[test]
fn simulation_of_a_sweep_n_200() {
    let of = |last: f64, seed: u64| {
        let world = |code| World { link_luck: 0.005, ..World::new(code, 0.0) };
        let rows = [(1, world(0.0)), (16, world(0.0)), (32, world(0.0)), (64, world(last))];
        let record = sweep(&rows, 0.005, 1 + seed, (16, 6));
        (super::verdict(&record), record)
    };
    let tally = |last| Tally { ended: (0..200).map(|seed| of(last, seed)).collect() };
    tally(0.0).expect(Answer::NotReproduced, 50);
    let found = tally(0.05);
    found.expect(Answer::Code, 90);
    assert_eq!(found.count(|v| v.verdict == Answer::Code && v.workers != Some(64)), 0);
}

#[test]
fn simulation_a_twin_that_differs_stops_everything_n_60() {
    let tally = Tally::of(&World { twin: 0.3, ..World::new(0.5, 0.0) }, 0.01, 60);
    assert!(tally.count(|v| v.blocked_by == Some(Blocked::AA)) >= 59, "{:?}", tally.blocked());
}

/// Disturbed quads lose most of a two-thread effect; marked and repeated, they cost nothing but runs.
#[test]
fn simulation_disturbed_and_repeated_n_60() {
    let run = |seed: u64| {
        let mut campaign = Campaign::new(World::new(0.0, ln(8.0)), 0.01, 1 + seed);
        campaign.disturbed = 0.4;
        campaign.run()
    };
    let tally = Tally { ended: (0..60).map(run).collect() };
    tally.expect(Answer::Alignment, 98);
    assert!(tally.covers(|v| v.layout_luck, ln(8.0)) >= 96);
}

/// The instrument is calibrated with a code effect of 2 %. `STRADDLE_PLANT=off` takes it out, and this test must fail.
#[test]
#[allow(clippy::disallowed_methods, reason = "the flag is for whoever doubts that this test can fail")]
fn simulation_a_planted_2_percent_code_effect_is_found_n_60() {
    let off = std::env::var("STRADDLE_PLANT").is_ok_and(|value| value == "off");
    let planted = if off { 0.0 } else { 0.02 };
    Tally::of(&World::new(planted, 0.0), 0.005, 60).expect(Answer::Code, 90);
}
