//! Campaigns with a known truth, for tests: samples as a real machine would give them, in the order in which a real
//! campaign would run them, through the same record and the same looks.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

use super::{Verdict, looks, rounds_wanted, verdict};
use crate::measure::record::{Better, Cell, Group, Header, Matched, Metric, Outcome, Record, SCHEMA, Sample};

/// What is true of a patch, in ln units.
#[derive(Clone, Debug)]
pub struct World {
    /// What it costs on base's landing, and on patched's.
    pub code: (f64, f64),
    /// What the move alone costs base's code.
    pub luck: f64,
    /// What it costs over random layouts: (probability, value).
    pub over: Vec<(f64, f64)>,
    /// SD of the luck that every single link has for itself.
    pub link_luck: f64,
    /// Only in the as-built patched link.
    pub remainder: f64,
    /// Only in the second link of base.
    pub twin: f64,
    /// What the patch costs when everything is aligned; no aligned pair without it.
    pub aligned: Option<f64>,
}

impl World {
    /// The same code effect everywhere.
    pub fn new(code: f64, luck: f64) -> World {
        World {
            code: (code, code),
            luck,
            over: vec![(1.0, code)],
            link_luck: 0.0,
            remainder: 0.0,
            twin: 0.0,
            aligned: None,
        }
    }

    /// An added atomic: 0.64, or 0.45 in the 40 % of layouts where the line is contended already.
    pub fn atomic(code: (f64, f64), luck: f64) -> World {
        World { code, over: vec![(0.6, 0.64), (0.4, 0.45)], ..World::new(0.0, luck) }
    }
}

const CELLS: [Cell; 4] = [Cell::B0, Cell::PB, Cell::BP, Cell::P0];

/// A unit that is run: ln(cost) of each cell it has.
#[derive(Clone)]
struct Live {
    group: Group,
    number: u32,
    levels: [Option<f64>; 4],
}

/// What single runs add to their level, one after the other.
pub struct Noise {
    /// SD of a run.
    pub sd: f64,
    pub rng: ChaCha8Rng,
    drift: f64,
}

impl Noise {
    pub fn new(sd: f64, seed: u64) -> Noise {
        Noise { sd, rng: ChaCha8Rng::seed_from_u64(seed), drift: 0.0 }
    }

    pub fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.rng)
    }

    /// One run: N(0, .6 s) + Exp(.8 s) − .8 s, 2 % spikes of mean 6 s, 1 % hits from outside of mean +40 %, on an
    /// AR(1) drift of SD 2 s that keeps .95 from run to run.
    pub fn run(&mut self) -> f64 {
        let (sd, exponential) = (self.sd, |rng: &mut ChaCha8Rng| -> f64 { Exp1.sample(rng) });
        self.drift = 0.95 * self.drift + 2.0 * sd * (1.0f64 - 0.95 * 0.95).sqrt() * self.normal();
        let mut y = self.drift + 0.6 * sd * self.normal() + 0.8 * sd * (exponential(&mut self.rng) - 1.0);
        if self.rng.random::<f64>() < 0.02 {
            y += 6.0 * sd * exponential(&mut self.rng);
        }
        if self.rng.random::<f64>() < 0.01 {
            y += 0.4 * exponential(&mut self.rng);
        }
        y
    }
}

/// A campaign under way.
pub struct Campaign {
    world: World,
    noise: Noise,
    /// Share of quads and pairs that are marked as disturbed, and slowed; each is repeated once.
    pub disturbed: f64,
    round: u32,
    pub record: Record,
}

pub fn header(max_blocks: u32) -> Header {
    Header {
        schema: SCHEMA.into(),
        tool: "0.1.0".into(),
        case: "fixtures/simulated".into(),
        seed: "0x2a".into(),
        started: "2026-11-30T12:00:00Z".into(),
        host: serde_json::Map::new(),
        command: "{bin} 200000".into(),
        metric: Metric { name: "stdout:ns_per_op ([0-9.]+)".into(), unit: "ns".into(), better: Better::Lower },
        also: Vec::new(),
        workers: Vec::new(),
        decides: None,
        threads: None,
        margin_percent: 1.0,
        max_blocks,
        quick: false,
        cycle: None,
        matched: Matched { units: 31, of: 31, ..Matched::default() },
        suspects: Vec::new(),
        identical: false,
        problems: Vec::new(),
        hashes: std::collections::BTreeMap::new(),
    }
}

/// A sweep of a fixed size: what is true with each worker count.
pub fn sweep(rows: &[(u32, World)], sd: f64, seed: u64, (blocks, rounds): (usize, u32)) -> Record {
    let mut all = Record::new(header(48));
    for (&(workers, ref world), seed) in rows.iter().zip(1000 * seed..) {
        let samples = Campaign::new(world.clone(), sd, seed).fixed(blocks, rounds).samples;
        all.header.workers.push(workers);
        all.samples.extend(samples.into_iter().map(|s| Sample { workers: Some(workers), ..s }));
    }
    (0..).zip(&mut all.samples).for_each(|(order, s)| s.order = order);
    all
}

impl Campaign {
    pub fn new(world: World, sd: f64, seed: u64) -> Campaign {
        Campaign { world, noise: Noise::new(sd, seed), disturbed: 0.0, round: 0, record: Record::new(header(48)) }
    }

    /// Pilot, rounds chosen from it, then look after look until a verdict stops it.
    pub fn run(mut self) -> (Verdict, Record) {
        let (first, mut units) = (looks::FIRST, self.arms());
        units.extend(self.blocks(0..first.blocks));
        units.extend(self.layouts(0..first.layouts));
        self.rounds(&units, 6);
        let rounds = rounds_wanted(&self.record, 1);
        self.rounds(&units, rounds - 6);
        units.truncate(self.always());
        let mut look = first;
        loop {
            let verdict = verdict(&self.record);
            let next = looks::after(Some(look), self.record.header.max_blocks as usize);
            let (false, Some(next)) = (verdict.settled(), next) else { return (verdict, self.record) };
            let mut live = units.clone();
            live.extend(self.blocks(look.blocks..next.blocks));
            live.extend(self.layouts(look.layouts..next.layouts));
            self.rounds(&live, rounds);
            look = next;
        }
    }

    /// A fixed number of blocks, twice as many layouts, and rounds.
    pub fn fixed(mut self, blocks: usize, rounds: u32) -> Record {
        let mut units = self.arms();
        units.extend(self.blocks(0..blocks));
        units.extend(self.layouts(0..2 * blocks));
        self.rounds(&units, rounds);
        self.record
    }

    /// How many of the first units run in every round: the arms and the as-built block.
    fn always(&self) -> usize {
        2 + usize::from(self.world.aligned.is_some())
    }

    fn arms(&mut self) -> Vec<Live> {
        let twin = [Some(0.0), None, None, Some(self.world.twin)];
        let mut arms = vec![Live { group: Group::Twin, number: 0, levels: twin }];
        if let Some(code) = self.world.aligned {
            arms.push(Live { group: Group::Aligned, number: 0, levels: [Some(-0.1), None, None, Some(code - 0.1)] });
        }
        arms
    }

    fn blocks(&mut self, numbers: std::ops::Range<usize>) -> Vec<Live> {
        let w = self.world.clone();
        let levels = [0.0, w.code.0, w.luck, w.luck + w.code.1];
        let mut block = |number: usize| {
            let mut levels = levels.map(|level| Some(level + self.link_luck()));
            if number == 0 {
                levels[3] = levels[3].map(|level| level + w.remainder);
            }
            Live { group: Group::Block, number: number as u32, levels }
        };
        numbers.map(&mut block).collect()
    }

    fn layouts(&mut self, numbers: std::ops::Range<usize>) -> Vec<Live> {
        let mut layout = |number: usize| {
            let level = 0.05 * self.noise.normal();
            let mut p = self.noise.rng.random::<f64>();
            let over = self.world.over.clone();
            let drawn = over.iter().find(|(share, _)| {
                p -= share;
                p < 0.0
            });
            let code = drawn.or(over.last()).map_or(0.0, |(_, value)| *value);
            let (base, patched) = (level + self.link_luck(), level + code + self.link_luck());
            Live { group: Group::Layout, number: number as u32, levels: [Some(base), None, None, Some(patched)] }
        };
        numbers.map(&mut layout).collect()
    }

    fn link_luck(&mut self) -> f64 {
        self.world.link_luck * self.noise.normal()
    }

    /// Each round runs every live unit once, in random order; the cells of a unit side by side, in random order.
    fn rounds(&mut self, units: &[Live], rounds: u32) {
        let mut order: Vec<usize> = (0..units.len()).collect();
        for _ in 0..rounds {
            order.shuffle(&mut self.noise.rng);
            for &unit in &order {
                let hit = self.noise.rng.random::<f64>() < self.disturbed;
                self.attempt(&units[unit], 0, hit);
                if hit {
                    self.attempt(&units[unit], 1, false);
                }
            }
            self.round += 1;
        }
    }

    fn attempt(&mut self, unit: &Live, attempt: u32, disturbed: bool) {
        let mut cells: Vec<usize> = (0..4).filter(|&c| unit.levels[c].is_some()).collect();
        cells.shuffle(&mut self.noise.rng);
        for cell in cells {
            // Outside load eats a two-thread effect, whatever the cell is.
            let level = unit.levels[cell].unwrap_or(0.0) * if disturbed { 0.3 } else { 1.0 };
            let y = level + self.noise.run();
            self.record.samples.push(Sample {
                group: unit.group,
                number: unit.number,
                cell: CELLS[cell],
                workers: None,
                round: self.round,
                attempt,
                order: self.record.samples.len() as u64,
                start_ns: 0,
                outcome: Outcome::Ok,
                value: Some(10.0 * y.exp()),
                also: Vec::new(),
                wall: 0.02,
                user: 0.02,
                sys: 0.0,
                max_rss: 1000,
                voluntary_switches: 0,
                involuntary_switches: if disturbed { 90 } else { 0 },
                steal_ticks: None,
                contaminated: disturbed,
                stack_offset: 0,
            });
        }
    }
}
