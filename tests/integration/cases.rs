//! Public reports of performance changes, as records made from their figures: what is said of them must be right.
//!
//! Each report is named by the number that it has in the project's list of cases.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use straddle::error::Exit;
use straddle::measure::record::{Better, Cell, Group, Header, Outcome, Record, SCHEMA, Sample};
use straddle::verdict::{Answer, Blocked, TwoModes, Verdict, verdict};

const CELLS: [Cell; 4] = [Cell::B0, Cell::PB, Cell::BP, Cell::P0];

/// A record that is filled with the figures of a report.
struct Report {
    record: Record,
    rng: ChaCha8Rng,
    /// SD of a run.
    noise: f64,
    /// SD of the luck of a single link, or of a boot.
    link: f64,
    rounds: u32,
    workers: Option<u32>,
}

impl Report {
    fn new(case: &str) -> Report {
        let header: Header = serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "tool": "0", "case": case, "seed": "0x1", "started": "", "command": "{bin}", "host": {},
            "metric": {"name": "stdout:cost ([0-9.]+)", "unit": "", "better": "lower"}, "margin_percent": 1.0,
            "max_blocks": 48, "matched": {"units": 1, "of": 1, "rest": []}, "suspects": [], "identical": false, "hashes": {}
        }))
        .unwrap();
        Report {
            record: Record::new(header),
            rng: ChaCha8Rng::seed_from_u64(1),
            noise: 0.001,
            link: 0.0,
            rounds: 8,
            workers: None,
        }
    }

    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.rng)
    }

    /// One group; `costs` in the order `b0 pB bP p0`, or of base and patched.
    fn group(&mut self, group: Group, number: u32, costs: &[f64]) {
        let cells: Vec<Cell> = if costs.len() == 4 { CELLS.into() } else { vec![Cell::B0, Cell::P0] };
        for (cell, cost) in cells.into_iter().zip(costs) {
            let level = cost * (self.link * self.normal()).exp();
            for round in 0..self.rounds {
                let value = level * (self.noise * self.normal()).exp();
                let value = if self.record.header.metric.better == Better::Lower { value } else { 1.0 / value };
                self.record.samples.push(Sample {
                    group,
                    number,
                    cell,
                    workers: self.workers,
                    round,
                    attempt: 0,
                    order: self.record.samples.len() as u64,
                    start_ns: 0,
                    outcome: Outcome::Ok,
                    value: Some(value),
                    also: Vec::new(),
                    wall: 0.02,
                    user: 0.02,
                    sys: 0.0,
                    max_rss: 0,
                    voluntary_switches: 0,
                    involuntary_switches: 0,
                    steal_ticks: None,
                    contaminated: false,
                    stack_offset: 0,
                });
            }
        }
    }

    /// A campaign of so many blocks, two layouts for each, and the twin.
    fn campaign(&mut self, blocks: u32, block: [f64; 4], layout: impl Fn(u32) -> [f64; 2]) {
        (0..blocks).for_each(|n| self.group(Group::Block, n, &block));
        (0..2 * blocks).for_each(|n| self.group(Group::Layout, n, &layout(n)));
        let link = std::mem::take(&mut self.link);
        self.group(Group::Twin, 0, &[block[0], block[0]]);
        self.link = link;
    }

    fn aligned(&mut self, base: f64, patched: f64) {
        self.group(Group::Aligned, 0, &[base, patched]);
    }

    /// One such campaign for each worker count, of which only the code effect differs.
    fn sweep(&mut self, blocks: u32, code: &[(u32, f64)]) {
        for &(workers, cost) in code {
            self.record.header.workers.push(workers);
            self.workers = Some(workers);
            self.campaign(blocks, [1.0, cost, 1.0, cost], |_| [1.0, cost]);
        }
    }

    fn verdict(&self) -> Verdict {
        verdict(&self.record)
    }
}

fn says(v: &Verdict, words: &str) {
    assert!(v.reasons.iter().any(|r| r.contains(words)), "no {words:?} in {:#?}", v.reasons);
}

fn groups(modes: Option<TwoModes>) -> Option<(usize, usize)> {
    modes.map(|m| (m.low, m.high))
}

/// page_counter: moving `parent` away from `usage` won 2.4 to 20.2 % for page_fault2, and lost 4 % for malloc1 on one
/// platform. Here as two counts of one sweep.
#[test]
fn a3_a_loss_in_one_row_is_not_averaged_away() {
    let mut report = Report::new("A3");
    report.record.header.metric.better = Better::Higher;
    report.sweep(8, &[(16, 1.0 / 1.024), (48, 1.0 / 0.96), (96, 1.0 / 1.202)]);
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit(), v.workers), (Answer::Code, Exit::Gate, Some(48)), "{:?}", v.reasons);
    says(&v, "mixed: the patch is slower at 48 workers and faster at 16, 96");
    let ratios: Vec<f64> = v.rows.iter().map(|row| row.as_built.ratio.unwrap()).collect();
    assert!(ratios.iter().zip([1.024, 0.96, 1.202]).all(|(a, b)| (a - b).abs() < 0.002), "{ratios:?}");
}

/// struct file: with f_ref on a line of its own RocksDB reads 1.3, 2.2, 7.2 and 20.9 % more at 16, 32, 64 and 128 threads.
/// A throughput; one thread has nobody to share a line with.
#[test]
fn a10_an_effect_that_grows_with_the_threads_is_the_code_and_nothing_at_one_thread_is_no_answer() {
    let gains = [(16, 1.013), (32, 1.022), (64, 1.072), (128, 1.209)];
    let of = |counts: &[(u32, f64)]| {
        let mut report = Report::new("A10");
        report.record.header.metric.better = Better::Higher;
        report.sweep(12, &counts.iter().map(|(n, gain)| (*n, 1.0 / gain)).collect::<Vec<_>>());
        report.verdict()
    };
    let v = of(&[(1, 1.0), gains[0], gains[1], gains[2], gains[3]]);
    assert_eq!((v.verdict, v.exit(), v.workers), (Answer::Code, Exit::Done, Some(128)), "{:?}", v.reasons);
    let answers: Vec<Answer> = v.rows.iter().map(|row| row.verdict).collect();
    let code = Answer::Code;
    assert_eq!(answers, [Answer::NotReproduced, code, code, code, code], "{:?}", v.reasons);
    for (row, (workers, gain)) in v.rows[1..].iter().zip(gains) {
        assert!((row.as_built.ratio.unwrap() / gain - 1.0).abs() < 0.001, "{row:?}");
        let (low, high) = (row.code_effect.low.unwrap(), row.code_effect.high.unwrap());
        let truth = 100.0 * (1.0 / gain - 1.0);
        assert!(row.workers == Some(workers) && low < truth && truth < high && high < 0.0, "{row:?}");
    }
    says(&v, "with 128 workers, the patch is 17.3 % faster");
    says(
        &v,
        "nothing at 1 worker; 1.3 % faster (code) at 16; 2.2 % faster (code) at 32; 6.7 % faster (code) at 64; 17.3",
    );
    let one = of(&[(1, 1.0)]);
    assert_eq!((one.verdict, one.exit()), (Answer::NotReproduced, Exit::Done));
    says(&one, "limit: only 1 worker was run; what several cost each other where they share lines was not measured");
    let mut named = Report::new("A10");
    named.sweep(12, &[(1, 1.0), (128, 1.209)]);
    named.record.header.decides = Some(1);
    let v = named.verdict();
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Row)));
    named.record.header.decides = None;
    assert_eq!(
        (named.verdict().verdict, named.verdict().exit()),
        (Answer::Code, Exit::Gate),
        "and it is slower without"
    );
}

/// Larger anonymous mappings aligned to huge pages: will-it-scale lost up to 90 %, and no byte of the image moved.
#[test]
fn a24_a_change_of_run_time_placement_is_not_explained_by_the_image() {
    let mut report = Report::new("A24");
    report.record.header.identical = true;
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit(), v.runs), (Answer::NotReproduced, Exit::Done, 0));
    says(&v, "not explained by image layout");
    says(&v, "placed at run time");
}

/// finish_lock_switch: −1.6 % after one load became another of the same line, where boots differ by 1.2 %. A throughput.
#[test]
fn a25_an_effect_near_the_noise_floor_is_undecided_or_the_code_never_the_layout() {
    let slower = 1.0 / (1.0 - 0.016);
    let of = |blocks| {
        let mut report = Report::new("A25");
        (report.link, report.record.header.metric.better) = (0.012, Better::Higher);
        report.campaign(blocks, [1.0, slower, 1.0, slower], |_| [1.0, slower]);
        report.verdict()
    };
    let few = of(6);
    assert_eq!(
        (few.verdict, few.blocked_by, few.exit()),
        (Answer::Inconclusive, Some(Blocked::Budget), Exit::Inconclusive)
    );
    says(&few, "too wide to call either way");
    let all = of(48);
    assert!(all.code_effect.low.unwrap() > 1.0 && !all.layout_luck.beyond(1.0), "{:?}", all.reasons);
    assert!(matches!(all.verdict, Answer::Code | Answer::Inconclusive), "{:?}", all.reasons);
}

/// zap: +6 to +11 %, n = 30, p = 0.000, with one layout; and a dashboard on random layouts without more repeats: 2.29 %.
#[test]
fn b7_one_layout_says_nothing_of_the_code_and_few_layouts_little() {
    let mut report = Report::new("B7");
    report.rounds = 30;
    report.campaign(1, [1.0, 1.08, 1.0, 1.08], |_| [1.0, 1.08]);
    let v = report.verdict();
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Budget)));
    says(&v, "too few layouts: 1 block and 2 layouts");
    assert!(v.code_effect.low.is_none(), "no interval either");

    // Eight layouts whose luck is 3 %, and that happen to come out 2.29 % apart.
    let drawn = [5.1, -1.2, 6.0, 0.4, 4.9, -2.0, 3.3, 1.82];
    assert!((drawn.iter().sum::<f64>() / 8.0 - 2.29).abs() < 0.01);
    let mut report = Report::new("B7");
    report.campaign(4, [1.0; 4], |n| [1.0, 1.0 + drawn[n as usize] / 100.0]);
    let v = report.verdict();
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Budget)), "{:?}", v.reasons);
    assert!((v.code_over_layouts.percent.unwrap() - 2.29).abs() < 0.1);
    says(&v, "the code effect over layouts is 2.3 % slower [");
}

/// An 8-byte loop that is twice as slow in 6 of 32 phases; an unused function moves it there.
#[test]
fn b9_two_groups_of_layouts_are_named_not_averaged() {
    let slow = |n: u32| if n % 16 < 3 { 2.0 } else { 1.0 };
    let mut report = Report::new("B9");
    report.campaign(16, [1.0, 1.0, 2.0, 2.0], |n| [slow(n), slow(n)]);
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit()), (Answer::Alignment, Exit::Done), "{:?}", v.reasons);
    says(&v, "bimodal: base's layouts fall into two groups, 26 low / 6 high, the higher 100 % slower");
    let spread = v.layout_spread.base.unwrap();
    assert_eq!((groups(spread.modes), spread.sd_percent, v.layout_sd_percent.base), (Some((26, 6)), None, None));
}

/// ThreadX: 24 % or nothing, by the loop's place in its line; two nops flipped it, and a silicon bug was reported.
#[test]
fn b15_phases_that_disagree_are_both_shown_and_nothing_is_claimed_of_the_code() {
    let phase = |n: u32| if n % 4 < 2 { 1.0 } else { 1.24 };
    let mut nops = Report::new("B15");
    nops.campaign(8, [1.0, 1.0, 1.24, 1.24], |n| [phase(n), phase(n)]);
    let v = nops.verdict();
    assert_eq!((v.verdict, v.exit()), (Answer::Alignment, Exit::Done), "{:?}", v.reasons);
    says(&v, "two groups, 8 low / 8 high, the higher 24.0 % slower: no mean describes them");

    // Where the code costs 24 % in one half of the phases and nothing in the other.
    let mut both = Report::new("B15");
    both.campaign(4, [1.0, 1.24, 1.0, 1.24], |n| [1.0, phase(n)]);
    let v = both.verdict();
    assert_eq!(v.verdict, Answer::Inconclusive, "{:?}", v.reasons);
    says(&v, "bimodal: the code effects over layouts fall into two groups, 4 low / 4 high");
    says(&v, "slower in 4 of 8 layouts");
}

/// Two 8-byte Klass fields share a line in 7 of 8 phases; padding them apart helps there, and the true sharing of one of
/// them stays in all.
#[test]
fn c8_one_layout_in_eight_is_lucky_and_what_padding_leaves_is_true_sharing() {
    let mut report = Report::new("C8");
    let base = |n: u32| if n % 8 == 7 { 2.0 } else { 3.5 };
    report.campaign(8, [3.5, 2.0, 3.5, 2.0], |n| [base(n), 2.0]);
    report.aligned(3.5, 2.0);
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit()), (Answer::Code, Exit::Done), "{:?}", v.reasons);
    says(&v, "bimodal: base's layouts fall into two groups, 2 low / 14 high");
    says(&v, "slower in 0 of 16 layouts and faster in 14");
    // Contention in every layout of the padded version: no layout is to blame for it.
    assert_eq!(groups(v.layout_spread.patched.unwrap().modes), None);
    assert!(!v.aligned_disagrees && !v.layout_luck.beyond(1.0));
}

/// CRYPTO_malloc writes one global each time: many writers of one datum. No padding changes that.
#[test]
fn d1_true_sharing_is_the_code() {
    let mut report = Report::new("D1");
    report.campaign(8, [1.0, 1.7, 1.0, 1.7], |n| [1.0, 1.7].map(|cost| cost * (1.0 + 0.01 * f64::from(n % 5))));
    report.aligned(1.0, 1.7);
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit(), v.aligned_disagrees), (Answer::Code, Exit::Gate, false), "{:?}", v.reasons);
    says(&v, "is the code");
    says(&v, "slower in 16 of 16 layouts");
}

/// The aligned build is faster than parent and culprit both, and their difference stays: alignment is another lever.
#[test]
fn d5_a_faster_aligned_build_does_not_clear_the_code() {
    let mut report = Report::new("D5");
    report.campaign(8, [1.0, 1.06, 1.0, 1.06], |n| [1.0, 1.06].map(|cost| cost * (1.0 + 0.03 * f64::from(n % 7))));
    report.aligned(0.7, 0.742);
    let v = report.verdict();
    assert_eq!((v.verdict, v.exit(), v.aligned_disagrees), (Answer::Code, Exit::Gate, false), "{:?}", v.reasons);
    says(&v, "slower in 16 of 16 layouts");
    let aligned = |cell: &str| v.cells.iter().find(|c| c.cell == cell).and_then(|c| c.value).unwrap();
    assert!(aligned("aligned p0") < aligned("b0") && (v.aligned.unwrap().percent.unwrap() - 6.0).abs() < 0.2);
}
