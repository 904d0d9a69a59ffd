//! Records made by hand, where every number is known; and what must not change a verdict, or must turn it round.

use proptest::prelude::*;
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use super::simulated::{Campaign, World};
use super::*;
use crate::error::Exit;
use crate::measure::record::{Better, Cell, Group, Outcome, Sample};

/// A campaign of a fixed size with little noise.
fn record(world: World) -> Record {
    Campaign::new(world, 0.002, 11).fixed(12, 6)
}

/// The same with 24 rounds, so that the as-built pair is known well.
fn long(world: World) -> Record {
    Campaign::new(world, 0.002, 11).fixed(8, 24)
}

fn near(effect: Effect, percent: f64) -> bool {
    effect.percent.is_some_and(|p| (p - percent).abs() < 1.0)
}

fn percent(ln: f64) -> f64 {
    100.0 * ln.exp_m1()
}

#[test]
fn the_table_of_the_two_axes() {
    let cases = [
        (World::new(0.0, 0.3), Answer::Alignment, Exit::Done),
        (World::new(0.3, 0.0), Answer::Code, Exit::Gate),
        (World::new(-0.3, 0.0), Answer::Code, Exit::Done),
        (World::new(0.3, 0.3), Answer::Both, Exit::Gate),
        (World::new(-0.3, 0.5), Answer::Both, Exit::Done),
        (World::new(0.0, 0.0), Answer::NotReproduced, Exit::Done),
    ];
    for (world, answer, exit) in cases {
        let v = verdict(&long(world.clone()));
        assert_eq!((v.verdict, v.exit(), v.blocked_by), (answer, exit, None), "{world:?}: {:?}", v.reasons);
        assert!(v.settled());
        assert!(near(v.code_effect, percent(world.code.0)), "{:?}", v.code_effect);
        assert!(near(v.layout_luck, percent(world.luck)), "{:?}", v.layout_luck);
        assert!(near(v.headline, percent(world.code.0 + world.luck)), "{:?}", v.headline);
        assert_eq!(v.masked, world.code.0 * world.luck < 0.0);
        let (code, luck) = (world.code.0, world.luck);
        let share = (code * luck >= 0.0 && code + luck != 0.0).then_some(luck / (code + luck));
        match (v.layout_share, share) {
            (None, None) => {}
            // A code effect of nothing has either sign.
            (None, Some(_)) => assert!(code == 0.0 || luck == 0.0),
            (Some(a), Some(b)) => assert!((a - b).abs() < 0.02, "{a} {b}"),
            (Some(_), None) => panic!("{:?}", v.layout_share),
        }
    }
}

#[test]
fn only_together_is_said() {
    let world = World { code: (0.0, 0.6), over: vec![(0.5, 0.2), (0.5, 0.4)], ..World::new(0.0, 0.0) };
    let v = verdict(&record(world));
    assert!(v.only_together && v.verdict == Answer::Both && !v.masked, "{:?}", v.reasons);
    assert!(v.reasons[0].contains("only the two together"), "{}", v.reasons[0]);
    assert!(near(v.interaction, percent(0.6)) && near(v.transplant.code_on_patched_landing, percent(0.6)));
}

#[test]
fn each_reason_for_no_verdict() {
    let leak = World { over: vec![(1.0, 0.0)], ..World::new(0.3, 0.0) };
    let opposite = World { over: vec![(1.0, -0.2)], ..World::new(0.3, 0.0) };
    let remainder = World { remainder: 0.3, ..World::new(0.0, 0.0) };
    let twin = World { twin: 0.3, ..World::new(0.3, 0.0) };
    let edge = World::new(0.011, 0.0);
    let mut fixed = Campaign::new(edge.clone(), 0.01, 11);
    fixed.record.header.max_blocks = 8;
    let cases = [
        (long(leak), Blocked::Placement, true, "contradict"),
        (long(opposite), Blocked::Placement, true, "contradict"),
        (long(remainder), Blocked::Unexplained, true, "draws anew"),
        (long(twin), Blocked::AA, true, "two links of the same base differ"),
        (fixed.fixed(8, 6), Blocked::Precision, true, "too wide to call"),
        (Campaign::new(edge.clone(), 0.01, 11).fixed(8, 6), Blocked::Budget, false, "too wide to call"),
        (Campaign::new(edge, 0.01, 11).fixed(3, 6), Blocked::Budget, false, "the first look needs 4 and 8"),
    ];
    for (record, blocked, settled, words) in cases {
        let v = verdict(&record);
        assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(blocked)), "{:?}", v.reasons);
        assert_eq!((v.exit(), v.settled()), (Exit::Inconclusive, settled));
        assert!(v.reasons[0].contains(words), "{}", v.reasons[0]);
    }
}

/// Three blocks: centres are shown, intervals are not, and JSON has `null` where a number is not known.
#[test]
fn before_the_first_look_there_are_no_intervals() {
    let v = verdict(&Campaign::new(World::new(0.3, 0.0), 0.002, 11).fixed(3, 6));
    assert!(near(v.code_effect, percent(0.3)));
    assert_eq!((v.code_effect.low, v.code_effect.high, v.a_a.unwrap().low), (None, None, None));
    let empty = verdict(&Record { samples: vec![], ..record(World::new(0.0, 0.0)) });
    let json = serde_json::to_value(&empty).unwrap();
    assert_eq!(json["headline"], serde_json::json!({"percent": null, "low": null, "high": null}));
    assert_eq!((json["verdict"].as_str(), json["a_a"].is_null()), (Some("inconclusive"), true));
    assert_eq!(json["blocked_by"], "budget");
}

#[test]
fn the_json_has_every_promised_key_and_reads_back() {
    let v = verdict(&record(World { aligned: Some(0.3), ..World::new(0.3, 0.2) }));
    let json = serde_json::to_value(&v).unwrap();
    let keys = "schema problems skipped verdict masked only_together blocked_by metric headline code_effect layout_luck \
                code_over_layouts interaction remainder layout_share transplant aligned a_a cells matched blocks layouts \
                rounds runs noise_sd_percent layout_sd_percent rows suspects reasons seed host";
    for key in keys.split_whitespace() {
        assert!(json.get(key).is_some(), "{key}");
    }
    assert_eq!(json["schema"], "straddle.verdict/1");
    assert_eq!((&json["verdict"], &json["metric"]["better"]), (&"both".into(), &"lower".into()));
    assert_eq!(json["cells"].as_array().unwrap().len(), 12 * 4 + 24 * 2 + 4);
    assert_eq!(serde_json::from_value::<Verdict>(json).unwrap(), v);
    // What the text of the record holds is enough, and gives the same bytes.
    let lines = std::iter::once(record(World::new(0.3, 0.2)).header.line().unwrap());
    let again = record(World { aligned: Some(0.3), ..World::new(0.3, 0.2) });
    let text: String = lines.chain(again.samples.iter().map(|s| s.line().unwrap())).map(|l| l + "\n").collect();
    let again = verdict(&Record::parse(&text).unwrap());
    assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&v).unwrap());
}

#[test]
fn identical_links_are_not_reproduced_without_a_run() {
    let mut record = record(World::new(0.0, 0.0));
    record.samples.clear();
    record.header.identical = true;
    let v = verdict(&record);
    assert_eq!((v.verdict, v.runs, v.exit()), (Answer::NotReproduced, 0, Exit::Done));
    assert!(v.settled() && v.reasons[0].starts_with("identical"));
}

/// Every run is used or counted once, and a hole takes its whole quad with it.
#[test]
fn every_run_is_accounted_for() {
    let mut campaign = Campaign::new(World::new(0.0, 0.3), 0.002, 11);
    campaign.disturbed = 0.2;
    let mut record = campaign.fixed(12, 6);
    let at = |record: &Record, group, number, cell| {
        let found = |s: &Sample| s.group == group && s.number == number && s.cell == cell && !s.contaminated;
        record.samples.iter().position(found).unwrap()
    };
    let (a, b) = (at(&record, Group::Block, 2, Cell::PB), at(&record, Group::Layout, 5, Cell::P0));
    record.samples[a].outcome = Outcome::Failed("signal 11".into());
    record.samples[b].outcome = Outcome::TimedOut;
    let c = at(&record, Group::Layout, 6, Cell::B0);
    record.samples[c].value = Some(-1.0);
    let d = at(&record, Group::Layout, 7, Cell::P0);
    let mut twice = record.samples[d].clone();
    twice.order += 100_000;
    record.samples.push(twice);
    record.samples.push(Sample { cell: Cell::PB, ..record.samples[d].clone() });
    let runs = Runs::of(&record, Key::first(&record.header));
    let used: usize = runs
        .blocks
        .iter()
        .chain(&runs.layouts)
        .chain(&runs.aligned)
        .chain(&runs.twin)
        .map(|u| u.cells.concat().len())
        .sum();
    let skipped: u64 = runs.skipped.values().sum();
    assert_eq!(used as u64 + skipped, runs.total, "{:?}", runs.skipped);
    let of = |why: &str| runs.skipped.get(why).copied().unwrap_or(0);
    use runs::reason::*;
    assert_eq!([of(FAILED), of(TIMED_OUT), of(NO_VALUE), of(REPLACED), of(FOREIGN)], [1, 1, 1, 1, 1]);
    assert_eq!(of(NEIGHBOUR), 3 + 1 + 1);
    assert_eq!(of(DISTURBED), record.samples.iter().filter(|s| s.contaminated).count() as u64);
    assert_eq!(verdict(&record).verdict, Answer::Alignment);
}

/// A machine that is disturbed all the time cannot tell; it does not get an answer from what is left.
#[test]
fn too_little_clean_is_no_verdict() {
    let mut record = record(World::new(0.3, 0.0));
    record.header.max_blocks = 12;
    record.samples.iter_mut().filter(|s| s.number % 4 != 1).for_each(|s| s.contaminated = true);
    let v = verdict(&record);
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Precision)));
    assert!(v.reasons[0].contains("3 of 12 blocks"), "{}", v.reasons[0]);
    assert!(v.reasons.iter().any(|r| r.contains("disturbed from outside")), "{:?}", v.reasons);
}

#[test]
fn rounds_follow_the_noise_of_the_pilot_and_the_price_of_a_link() {
    let wanted = |sd, price| rounds_wanted(&Campaign::new(World::new(0.0, 0.0), sd, 3).fixed(4, 6), price);
    assert_eq!(wanted(0.005, 1), 6);
    assert!((12..=24).contains(&wanted(0.04, 1)), "{}", wanted(0.04, 1));
    assert_eq!(wanted(0.2, 1), 30);
    assert_eq!((wanted(0.005, 7), wanted(0.005, 100)), (12, 100));
    // Chosen once: what is run later does not change it.
    let (_, all) = Campaign::new(World::new(0.0, 0.0), 0.03, 3).run();
    let is_pilot = |s: &&Sample| s.round < 6;
    let pilot = Record { samples: all.samples.iter().filter(is_pilot).cloned().collect(), ..all.clone() };
    assert_eq!(rounds_wanted(&all, 1), rounds_wanted(&pilot, 1));
    assert_eq!(rounds_wanted(&Record { samples: vec![], ..all }, 1), 6);
}

#[test]
fn the_pilot_says_what_can_be_decided_and_what_it_takes() {
    let pilot = |sd| Campaign::new(World::new(0.0, 0.0), sd, 3).fixed(4, 6);
    let cost = Cost { run: 0.01, link: 0.5 };
    let say = |sd, rounds, left| forecast(&pilot(sd), rounds, cost, left);
    let good = say(0.005, 6, None);
    assert!(good.reachable == Some(true) && good.decidable_margin_percent.unwrap() < 0.5, "{good:?}");
    assert!(good.blocks.unwrap() <= 8 && good.budget_blocks.is_none(), "{good:?}");
    let still = say(0.0, 6, Some(1e9));
    assert_eq!((still.blocks, still.seconds, still.budget_blocks), (Some(4), Some(0.0), Some(48)));
    // Two blocks and four layouts more: 2·4 + 4·2 = 16 links, and with block 0 and the twin 16 + 6 cells of 12 rounds.
    // Before that, the first look's 28 cells and the twin's two lack 6 rounds of theirs; block 0 is one of the 28 + 4.
    let six = say(0.0, 12, Some(16.0 * 0.5 + 12.0 * 22.0 * 0.01 + 6.0 * 34.0 * 0.01 + 1e-9));
    assert_eq!((six.seconds, six.budget_blocks), (Some(6.0 * 34.0 * 0.01), Some(6)));
    let bad = say(0.2, 30, Some(100.0));
    assert!(bad.reachable == Some(false) && bad.blocks.is_none(), "{bad:?}");
    assert!(bad.decidable_margin_percent.unwrap() > 2.0 && bad.seconds.unwrap() > 100.0, "{bad:?}");
    assert!(bad.budget_blocks.unwrap() < 48 && bad.budget_margin_percent > bad.decidable_margin_percent, "{bad:?}");
    let three = Campaign::new(World::new(0.0, 0.0), 0.01, 3).fixed(3, 6);
    let none = forecast(&three, 6, cost, None);
    assert_eq!((none.rounds, none.seconds, none.reachable), (6, None, None));
}

/// Millions of an operation a second: more is better, and slower is still plus.
#[test]
fn a_throughput_enters_upside_down() {
    let cost = record(World::new(0.3, 0.2));
    let mut throughput = cost.clone();
    throughput.header.metric.better = Better::Higher;
    throughput.samples.iter_mut().for_each(|s| s.value = s.value.map(|v| 1.0 / v));
    let (a, b) = (verdict(&cost), verdict(&throughput));
    assert_eq!((a.verdict, a.exit()), (b.verdict, b.exit()));
    assert!(near(b.code_effect, a.code_effect.percent.unwrap()));
    let product = a.cells[0].value.unwrap() * b.cells[0].value.unwrap();
    assert!((product - 1.0).abs() < 1e-6, "values stay in the metric's own unit");
}

fn worlds() -> impl Strategy<Value = (World, f64)> {
    let effect = prop::sample::select(vec![-0.4, -0.05, 0.0, 0.004, 0.05, 0.4, 2.0]);
    (effect.clone(), effect, prop::sample::select(vec![0.002, 0.01, 0.05]))
        .prop_map(|(code, luck, sd)| (World { aligned: Some(code), ..World::new(code, luck) }, sd))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Nanoseconds or hours: the unit is no matter.
    #[test]
    fn a_constant_factor_changes_nothing((world, sd) in worlds(), seed in 0u64..1000, factor in 1e-6f64..1e6) {
        let record = Campaign::new(world, sd, seed).fixed(6, 6);
        let mut scaled = record.clone();
        scaled.samples.iter_mut().for_each(|s| s.value = s.value.map(|v| v * factor));
        let (a, b) = (verdict(&record), verdict(&scaled));
        prop_assert_eq!((a.verdict, a.blocked_by, a.masked), (b.verdict, b.blocked_by, b.masked));
        for (x, y) in [(a.code_effect, b.code_effect), (a.layout_luck, b.layout_luck), (a.headline, b.headline)] {
            prop_assert!((x.low.unwrap() - y.low.unwrap()).abs() < 1e-3 * (1.0 + x.low.unwrap().abs()));
        }
    }

    /// The other way round, every effect is the other way round.
    #[test]
    fn swapping_the_versions_flips_the_signs((world, sd) in worlds(), seed in 0u64..1000) {
        let mut record = Campaign::new(world, sd, seed).fixed(6, 6);
        record.samples.retain(|s| s.group != Group::Twin);
        let mut swapped = record.clone();
        for sample in &mut swapped.samples {
            sample.cell = match sample.cell {
                Cell::B0 => Cell::P0,
                Cell::PB => Cell::BP,
                Cell::BP => Cell::PB,
                Cell::P0 => Cell::B0,
            };
        }
        let (a, b) = (verdict(&record), verdict(&swapped));
        prop_assert_eq!((a.verdict, a.blocked_by, a.masked), (b.verdict, b.blocked_by, b.masked));
        let ln = |p: Option<f64>| (p.unwrap() / 100.0).ln_1p();
        let effects = |v: &Verdict| [v.headline, v.code_effect, v.layout_luck, v.code_over_layouts, v.aligned.unwrap()];
        for (x, y) in effects(&a).into_iter().zip(effects(&b)) {
            prop_assert!((ln(x.percent) + ln(y.percent)).abs() < 2e-4, "{:?} {:?}", x, y);
            prop_assert!((ln(x.low) + ln(y.high)).abs() < 2e-4, "{:?} {:?}", x, y);
        }
    }

    /// The file's order is no matter, and the same record gives the same bytes.
    #[test]
    fn the_order_of_lines_is_no_matter((world, sd) in worlds(), seed in 0u64..1000, by in 1usize..500) {
        let mut campaign = Campaign::new(world, sd, seed);
        campaign.disturbed = 0.1;
        let record = campaign.fixed(5, 6);
        let mut shuffled = record.clone();
        let at = by % shuffled.samples.len();
        shuffled.samples.rotate_left(at);
        shuffled.samples[..by.min(record.samples.len())].reverse();
        let bytes = |r: &Record| serde_json::to_string(&verdict(r)).unwrap();
        prop_assert_eq!(bytes(&record), bytes(&shuffled));
    }

    /// Whatever a record says, there is a verdict and no panic.
    #[test]
    fn any_samples_give_a_verdict(seed in 0u64..1000, holes in prop::collection::vec((0usize..400, 0u8..8), 0..200)) {
        let mut record = Campaign::new(World::new(0.1, 0.1), 0.01, seed).fixed(4, 6);
        for (at, how) in holes {
            let at = at % record.samples.len();
            let sample = &mut record.samples[at];
            match how {
                0 => sample.value = None,
                1 => sample.value = Some(f64::NAN),
                2 => sample.value = Some(f64::INFINITY),
                3 => sample.value = Some(5e-324),
                4 => sample.number = u32::MAX,
                5 => sample.cell = Cell::PB,
                6 => sample.group = Group::Twin,
                _ => sample.outcome = Outcome::TimedOut,
            }
        }
        let mut other = record.clone();
        other.header.started = "another day".into();
        let (mut quick, mut cycles) = (record.clone(), record.clone());
        quick.header.quick = true;
        cycles.header.cycle = Some(1 + seed as u32 % 5);
        let mut all: Vec<Verdict> = [&record, &quick, &cycles].map(verdict).into();
        all.extend(verdicts(&[record, other]).unwrap());
        for v in all {
            prop_assert!(!serde_json::to_string(&v).unwrap().contains("NaN"));
            prop_assert!(serde_json::from_str::<Verdict>(&serde_json::to_string(&v).unwrap()).is_ok());
            prop_assert!(v.skipped.values().sum::<u64>() <= v.runs);
        }
    }
}

/// Case: eight bytes before the hot variable, in one object file with something aligned to a line. The phase of the hot
/// variable differs in every block and in every layout, whatever is padded.
#[test]
fn the_code_is_not_blamed_for_an_inside_that_no_layout_can_move() {
    let mut record = record(World::new(0.3, 0.0));
    assert_eq!(verdict(&record).verdict, Answer::Code);
    record.header.matched.rigid = vec!["state.o:.data (alignment 64)".into()];
    let v = verdict(&record);
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Unmatched)));
    let mut same = self::record(World::new(0.0, 0.3));
    same.header.matched.rigid = record.header.matched.rigid;
    assert_eq!(verdict(&same).verdict, Answer::Alignment, "a cleared code needs no such care");
}

/// A changed object of one section: the patch moves its inside by one step of eight, and on one of the eight phases the
/// data straddles a line. `inside` is what that costs; `code` and `luck` are true beside it.
fn cycles(code: f64, luck: f64, inside: f64, cycles: u32) -> Record {
    noisy_cycles((code, luck, inside), cycles, 0.003, 1)
}

/// The same; `sd` is that of a run.
pub(super) fn noisy_cycles((code, luck, inside): (f64, f64, f64), cycles: u32, sd: f64, seed: u64) -> Record {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut record = Campaign::new(World::new(0.0, 0.0), 0.002, 11).fixed(1, 1);
    record.header.cycle = Some(8);
    record.header.matched.inside_moved = vec!["hot.o:.data (alignment 8)".into()];
    let template = record.samples[0].clone();
    record.samples.clear();
    let at = |phase: u32| if phase % 8 == 7 { inside } else { 0.0 };
    let mut put = |group, number: u32, cells: &[(Cell, f64)]| {
        for round in 0..8 {
            for &(cell, level) in cells {
                let order = record.samples.len() as u64;
                let noise: f64 = StandardNormal.sample(&mut rng);
                let value = Some(10.0 * (level + sd * noise).exp());
                record.samples.push(Sample { group, number, cell, round, order, value, ..template.clone() });
            }
        }
    };
    // As built, base's data stands on phase 6 and patched's on phase 7: on both landings.
    let (b, p) = (at(6), code + at(7));
    for number in 0..cycles {
        put(Group::Block, number, &[(Cell::B0, b), (Cell::PB, p), (Cell::BP, luck + b), (Cell::P0, luck + p)]);
    }
    for number in 0..8 * cycles {
        put(Group::Layout, number, &[(Cell::B0, at(number)), (Cell::P0, code + at(number + 1))]);
    }
    put(Group::Twin, 0, &[(Cell::B0, 0.0), (Cell::P0, 0.0)]);
    record
}

/// The two landings blame the code for the inside of its object; the cycle does not.
#[test]
fn a_phase_cycle_takes_the_inside_out() {
    let eight = 8f64.ln();
    let v = verdict(&cycles(0.0, 0.0, eight, 4));
    assert!(near(v.code_effect, 700.0) && near(v.code_over_layouts, 0.0), "{:?}", v.reasons);
    assert_eq!((v.verdict, v.exit(), v.over_layouts.of), (Answer::Alignment, Exit::Done, 4), "{:?}", v.reasons);
    assert!(near(v.luck_or_interaction.unwrap(), 700.0));
    assert!(v.reasons[0].contains("over 4 full phase cycles"), "{}", v.reasons[0]);
    // The same runs as single layouts: one of eight pairs is ×8, another ÷8.
    let mut single = cycles(0.0, 0.0, eight, 4);
    single.header.cycle = None;
    let v = verdict(&single);
    assert_eq!(v.verdict, Answer::Inconclusive, "{:?}", v.reasons);
}

#[test]
fn with_phase_cycles_the_luck_needs_the_two_landings_as_its_witness() {
    let eight = 8f64.ln();
    let v = verdict(&cycles(0.3, 0.0, 0.0, 4));
    assert_eq!((v.verdict, v.exit()), (Answer::Code, Exit::Gate), "{:?}", v.reasons);
    let v = verdict(&cycles(0.3, 0.5, 0.0, 4));
    assert_eq!((v.verdict, v.masked), (Answer::Both, false), "{:?}", v.reasons);
    let v = verdict(&cycles(-0.3, 0.5, 0.0, 4));
    assert_eq!((v.verdict, v.masked, v.exit()), (Answer::Both, true, Exit::Done), "{:?}", v.reasons);
    let v = verdict(&cycles(0.3, 0.0, eight, 4));
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Unmatched)), "{:?}", v.reasons);
    assert!(v.reasons[0].contains("the rest, luck or interaction, is"), "{}", v.reasons[0]);
    let v = verdict(&cycles(0.0, 0.0, 0.0, 12));
    assert_eq!((v.verdict, v.blocked_by), (Answer::NotReproduced, None), "{:?}", v.reasons);
    // Moved inside and never averaged: one block cannot tell that from the code.
    let mut quick = cycles(0.0, 0.0, eight, 1);
    (quick.header.quick, quick.header.cycle) = (true, None);
    let more = quick.samples.clone();
    for shift in [8, 16] {
        quick.samples.extend(more.iter().map(|s| Sample { round: s.round + shift, ..s.clone() }));
    }
    let v = verdict(&quick);
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Unmatched)), "{:?}", v.reasons);
}

/// A cycle with a hole is none: the phases would not be visited alike.
#[test]
fn a_torn_cycle_is_left_out_whole() {
    let mut record = cycles(0.0, 0.0, 2.0, 4);
    record.samples.retain(|s| (s.group, s.number) != (Group::Layout, 21));
    let v = verdict(&record);
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Budget)));
    assert_eq!(v.skipped.get(runs::reason::TORN_CYCLE), Some(&(7 * 2 * 8)));
    assert!(near(v.code_over_layouts, 0.0), "the others are whole");
}
