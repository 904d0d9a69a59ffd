//! The whole simulation: how often a verdict is wrong where the truth is known, and what others would have said of the
//! same worlds. Every test run makes a few campaigns a row; `scripts/calibrate.sh sim` makes 2,000, and
//! writes `docs/calibration.md`.

use std::fmt::Write as _;

use rand::Rng;
use rayon::prelude::*;

use super::simulated::{Campaign, Noise, World};
use super::{Answer, Blocked, Effect, Verdict};

/// Campaigns of a row: few in every test run, so that the mechanism is tested; 2,000 for the published table, whose script
/// asks for them.
#[allow(clippy::disallowed_methods, reason = "the number is for the script that makes the table")]
fn repetitions() -> u64 {
    std::env::var("STRADDLE_REPETITIONS").map_or(3, |n| n.parse().unwrap())
}

/// The margin, in ln units: 1 %.
const MARGIN: f64 = 0.01;

/// A truth, under the name that the page gives it.
struct Truth {
    name: &'static str,
    world: World,
    /// The verdict that is right.
    answer: Answer,
}

fn truths() -> Vec<Truth> {
    let (ln, new) = (f64::ln, World::new);
    let truth = |name, world, answer| Truth { name, world, answer };
    let together = World { code: (0.0, ln(8.0)), over: vec![(0.6, 0.0), (0.4, ln(8.0))], ..new(0.0, 0.0) };
    vec![
        truth("nothing", new(0.0, 0.0), Answer::NotReproduced),
        truth("luck ×8", new(0.0, ln(8.0)), Answer::Alignment),
        truth("luck 5 %", new(0.0, 0.05), Answer::Alignment),
        truth("code 5 %", new(0.05, 0.0), Answer::Code),
        truth("code −5 %", new(-0.05, 0.0), Answer::Code),
        truth("code ×1.9, less where contended", World::atomic((ln(1.9), ln(1.9)), 0.0), Answer::Code),
        truth("the same, built contended", World::atomic((0.45, 0.45), 0.0), Answer::Code),
        truth("code ×1.9, luck ×6", World::atomic((ln(1.9), 0.45), ln(6.0)), Answer::Both),
        truth("code 4 %, luck 4 %", new(0.04, 0.04), Answer::Both),
        truth("code 4 %, luck −4 %", new(0.04, -0.04), Answer::Both),
        truth("only together ×8", together, Answer::Both),
        truth("code 1 % (= m), luck 5 %", new(MARGIN, 0.05), Answer::Alignment),
        truth("code 5 %, luck 1 % (= m)", new(0.05, MARGIN), Answer::Code),
        truth("code 1 % (= m)", new(MARGIN, 0.0), Answer::NotReproduced),
        truth("luck 1 % (= m)", new(0.0, MARGIN), Answer::NotReproduced),
        truth("luck 5 %, link luck 0.5 %", World { link_luck: 0.005, ..new(0.0, 0.05) }, Answer::Alignment),
        truth("luck 5 %, link luck 1 %", World { link_luck: 0.01, ..new(0.0, 0.05) }, Answer::Alignment),
        truth("nothing, link luck 1 %", World { link_luck: 0.01, ..new(0.0, 0.0) }, Answer::NotReproduced),
        truth("3 % that no landing carries", World { over: vec![(1.0, 0.0)], ..new(0.03, 0.0) }, Answer::Inconclusive),
        truth("5 % in one link alone", World { remainder: 0.05, ..new(0.0, 0.0) }, Answer::Inconclusive),
    ]
}

impl Truth {
    fn gamma(&self) -> f64 {
        (self.world.code.0 + self.world.code.1) / 2.0
    }

    /// What the move costs, averaged over the two codes.
    fn lambda(&self) -> f64 {
        self.world.luck + (self.world.code.1 - self.world.code.0) / 2.0
    }

    fn kappa(&self) -> f64 {
        self.world.over.iter().map(|(share, code)| share * code).sum()
    }

    /// Whether what a verdict claims is false.
    fn wrong(&self, answer: Answer) -> bool {
        let (gamma, kappa) = (self.gamma(), self.kappa());
        let lambda = self.lambda();
        let tolerance = (0.2 * (gamma + lambda).abs()).clamp(MARGIN, 5.0 * MARGIN) + 1e-12;
        let code_in = gamma.abs() <= tolerance && kappa.abs() <= tolerance;
        let code_out = gamma.abs() >= MARGIN && kappa.abs() >= MARGIN && gamma * kappa > 0.0;
        let luck_in = lambda.abs() <= tolerance;
        let luck_out = lambda.abs() >= MARGIN;
        !match answer {
            Answer::Alignment => code_in && luck_out,
            Answer::Code => code_out && luck_in,
            Answer::Both => code_out && luck_out,
            Answer::NotReproduced => code_in && luck_in && self.world.remainder == 0.0,
            Answer::Inconclusive => true,
        }
    }
}

/// What is kept of one campaign: its record may hold 12,000 runs.
struct Ended {
    answer: Answer,
    blocked: Option<Blocked>,
    blocks: usize,
    runs: u64,
    /// Whether the intervals of code effect, luck, code over layouts and headline hold the truth.
    covered: [bool; 4],
}

fn campaign(truth: &Truth, sd: f64, seed: u64) -> Ended {
    let (v, _) = Campaign::new(truth.world.clone(), sd, 1 + seed).run();
    let holds = |effect: Effect, truth: f64| {
        let truth = 100.0 * truth.exp_m1();
        effect.low.is_some_and(|low| low <= truth) && effect.high.is_some_and(|high| high >= truth)
    };
    let covered = [
        holds(v.code_effect, truth.gamma()),
        holds(v.layout_luck, truth.lambda()),
        holds(v.code_over_layouts, truth.kappa()),
        holds(v.headline, truth.world.code.1 + truth.world.luck + truth.world.remainder),
    ];
    Ended { answer: v.verdict, blocked: v.blocked_by, blocks: v.blocks, runs: v.runs, covered }
}

/// A line of the table, and the share of wrong verdicts in percent.
fn row(truth: &Truth, sd: f64) -> (String, f64) {
    let ended: Vec<Ended> = (0..repetitions()).into_par_iter().map(|seed| campaign(truth, sd, seed)).collect();
    let percent =
        |what: &dyn Fn(&Ended) -> bool| 100.0 * ended.iter().filter(|e| what(e)).count() as f64 / ended.len() as f64;
    let decided = |e: &Ended| e.answer != Answer::Inconclusive;
    let median = |of: &dyn Fn(&Ended) -> u64| {
        let mut all: Vec<u64> = ended.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let mean = ended.iter().map(|e| e.runs as f64).sum::<f64>() / ended.len() as f64;
    let covered = |i: usize| percent(&|e| e.covered[i]);
    let right = if truth.answer == Answer::Inconclusive {
        "–".into()
    } else {
        format!("{:.1}", percent(&|e| e.answer == truth.answer))
    };
    let mut why: Vec<(f64, &str)> = [
        (Blocked::Placement, "placement"),
        (Blocked::Unexplained, "unexplained"),
        (Blocked::AA, "a/a"),
        (Blocked::Precision, "precision"),
    ]
    .map(|(kind, name)| (percent(&|e| e.blocked == Some(kind)), name))
    .into();
    why.retain(|(share, _)| *share > 0.0);
    let wrong = percent(&|e| decided(e) && truth.wrong(e.answer));
    let why: Vec<String> = why.iter().map(|(share, name)| format!("{name} {share:.1}")).collect();
    let line = format!(
        "| {} | {:.0} % | {right} | {:.2} | {} | {} | {} / {mean:.0} | {:.1} {:.1} {:.1} {:.1} |",
        truth.name,
        100.0 * sd,
        wrong,
        if why.is_empty() { "–".into() } else { why.join(", ") },
        median(&|e| e.blocks as u64),
        median(&|e| e.runs),
        covered(0),
        covered(1),
        covered(2),
        covered(3),
    );
    (line, wrong)
}

/// Prints the table of verdicts; [`super::Verdict`]'s own campaigns, look after look.
#[test]
fn calibration_of_verdicts() {
    let mut table = String::from(
        "| truth | noise | right % | wrong % | undecided % | blocks | runs, median / mean | coverage %: code, luck, over layouts, headline |\n\
         |---|--:|--:|--:|---|--:|--:|---|\n",
    );
    for sd in [0.01, 0.03, 0.10] {
        for truth in truths() {
            let (line, wrong) = row(&truth, sd);
            // What statistics on the margin may come to; off it, the table has to show less.
            assert!(wrong <= 2.5, "{line}");
            writeln!(table, "{line}").unwrap();
        }
    }
    println!("BEGIN\n{table}END");
}

/// Two-sided Mann–Whitney at 5 % by the normal approximation; good from 8 runs an arm on.
fn mann_whitney(a: &[f64], b: &[f64]) -> bool {
    let mut all: Vec<(f64, bool)> = a.iter().map(|&x| (x, true)).chain(b.iter().map(|&x| (x, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let ranks: f64 = all.iter().zip(1..).filter(|((_, first), _)| *first).map(|(_, rank)| f64::from(rank)).sum();
    let (n, m) = (a.len() as f64, b.len() as f64);
    let u = ranks - n * (n + 1.0) / 2.0;
    (u - n * m / 2.0).abs() > 1.96 * (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// Two-sided test of means at 5 %, by the pooled runs.
fn pooled(a: &[f64], b: &[f64]) -> bool {
    let moments = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        (mean, x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (x.len() as f64 - 1.0) / x.len() as f64)
    };
    let ((x, vx), (y, vy)) = (moments(a), moments(b));
    (x - y).abs() > 1.96 * (vx + vy).sqrt()
}

fn ranges_apart(a: &[f64], b: &[f64]) -> bool {
    let range = |x: &[f64]| x.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    let ((low_a, high_a), (low_b, high_b)) = (range(a), range(b));
    high_a < low_b || high_b < low_a
}

/// A patch in a world where layouts differ: every link's luck has this SD.
struct Patch {
    name: &'static str,
    code: f64,
    /// What the as-built move costs; `None`: the luck of two links.
    luck: Option<f64>,
    /// SD of layouts.
    layouts: f64,
}

const PATCHES: [Patch; 9] = [
    Patch { name: "nothing, layouts alike", code: 0.0, luck: None, layouts: 0.0 },
    Patch { name: "nothing, layout SD 0.5 %", code: 0.0, luck: None, layouts: 0.005 },
    Patch { name: "nothing, layout SD 1 %", code: 0.0, luck: None, layouts: 0.01 },
    Patch { name: "nothing, layout SD 2 %", code: 0.0, luck: None, layouts: 0.02 },
    Patch { name: "luck 5 %", code: 0.0, luck: Some(0.05), layouts: 0.01 },
    Patch { name: "luck ×8", code: 0.0, luck: Some(2.079_441_541_679_835_7), layouts: 0.01 },
    Patch { name: "code 5 %", code: 0.05, luck: None, layouts: 0.01 },
    Patch { name: "code 4 %, luck −4 %", code: 0.04, luck: Some(-0.04), layouts: 0.01 },
    Patch { name: "code 4 %, luck 4 %", code: 0.04, luck: Some(0.04), layouts: 0.01 },
];

/// What each method says of one patch: whether the code changed.
fn said(patch: &Patch, sd: f64, seed: u64) -> [bool; 6] {
    let mut noise = Noise::new(sd, seed);
    let drawn = patch.layouts * std::f64::consts::SQRT_2 * noise.normal();
    let luck = patch.luck.unwrap_or(drawn);
    // Runs of two binaries, one after the other.
    let pair = |noise: &mut Noise, n: usize, base: f64, patched: f64| -> (Vec<f64>, Vec<f64>) {
        (0..n).map(|_| (base + noise.run(), patched + noise.run())).unzip()
    };
    let (b, p) = pair(&mut noise, 20, 0.0, patch.code + luck);
    let one_binary = mann_whitney(&b, &p);
    let (b, p) = pair(&mut noise, 6, 0.0, patch.code + luck);
    let ranges = ranges_apart(&b, &p);
    // In favour of the method: that alignment takes all luck away.
    let (b, p) = pair(&mut noise, 20, 0.0, patch.code);
    let aligned = mann_whitney(&b, &p);
    let (mut base, mut patched) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        let (at, other) = (patch.layouts * noise.normal(), patch.code + patch.layouts * noise.normal());
        let (b, p) = pair(&mut noise, 512, at, other);
        base.extend(b);
        patched.extend(p);
    }
    let sixteen = pooled(&base, &patched);
    let (b, p): (Vec<f64>, Vec<f64>) = (0..20)
        .map(|_| {
            let (x, y) = (patch.layouts * noise.normal(), patch.layouts * noise.normal());
            (x + noise.run(), patch.code + y + noise.run())
        })
        .unzip();
    let randomised = mann_whitney(&b, &p);
    let seed = noise.rng.random();
    let (verdict, _): (Verdict, _) = Campaign::new(World::new(patch.code, luck), sd, seed).run();
    let ours = matches!(verdict.verdict, Answer::Code | Answer::Both);
    [one_binary, ranges, aligned, sixteen, randomised, ours]
}

/// Prints in how many percent of cases each method says that the code changed.
#[test]
fn calibration_of_other_methods() {
    let mut table = String::from(
        "| truth, noise 1 % | Mann–Whitney, one binary, n = 20 | ranges apart, n = 6 | forced alignment, n = 20 | \
         16 layouts × 512 runs pooled | a layout a run, n = 20 | straddle |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for patch in &PATCHES {
        let said: Vec<[bool; 6]> = (0..repetitions()).into_par_iter().map(|seed| said(patch, 0.01, seed)).collect();
        let share = |i: usize| 100.0 * said.iter().filter(|s| s[i]).count() as f64 / said.len() as f64;
        assert!(patch.code != 0.0 || share(5) <= 0.5, "{}: no code changed", patch.name);
        let shares: Vec<String> = (0..6).map(|i| format!("{:.1}", share(i))).collect();
        writeln!(table, "| {} | {} |", patch.name, shares.join(" | ")).unwrap();
    }
    println!("BEGIN\n{table}END");
}
