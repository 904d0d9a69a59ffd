//! Measured accesses: the samples of profiles, each at the object and the function that it belongs to. A sample of an
//! access goes to the bytes at its address. One that only says where the program was goes to the reference of its
//! instruction, or to the nearest one of its function, first of those before it: what stalls is told late. What belongs
//! to no object is counted, by reason: the counts of one profile sum to its samples.

mod homes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::atlas::Atlas;
use super::flow::{Found, Reach};
use super::functions::Code;
use super::ops::{Decoder, Instructions, NO_OBJECT, Op, Place as Spot};
use super::{Access, Kind, NOBODY};
use crate::error::Result;
use crate::finding::Evidence;
use crate::formats::{Does, Format, Place, Sample, Samples, Stands};
use crate::image::Image;
use crate::objects::{Object, Space};
use homes::{Home, Homes, elsewhere};

/// Bytes of an object that a name means: index, offset and size.
pub type Named = Vec<(u32, u64, u64)>;

/// What the names in a profile mean here, and what types tell of its places.
pub trait Known {
    /// Nothing: no object has the name.
    fn named(&self, place: &Place<'_>) -> Named;
    /// Whether some byte of an object is one of a member; `None`: no types were read.
    fn in_member(&self, object: u32, offset: u64) -> Option<bool>;
}

/// What became of a profile's samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub path: String,
    pub format: Format,
    pub samples: u64,
    /// Samples that went to an object.
    pub objects: u64,
    /// Of those, samples that went to a member; `null`: no types were read.
    pub members: Option<u64>,
    /// The others, by reason. With `objects` they sum to `samples`.
    pub elsewhere: BTreeMap<String, u64>,
    /// CPUs of the samples that went to an object; 0: not told.
    pub cpus: u32,
    pub problems: Vec<String>,
    /// What is no sample, by reason.
    pub skipped: BTreeMap<String, u64>,
}

/// What a profile is laid over.
pub(super) struct Ground<'g, 'h, 'i> {
    pub(super) image: &'g Image<'i>,
    pub(super) objects: &'g [Object<'g>],
    pub(super) code: &'g Code<'h>,
    pub(super) atlas: &'g Atlas<'h, 'i>,
    pub(super) decoder: Option<Decoder>,
    pub(super) references: References,
}

/// What instructions touch, by instruction.
#[derive(Default)]
pub(super) struct References {
    list: Vec<(u64, u32, Reach)>,
}

impl References {
    pub(super) fn of(all: &[Found]) -> References {
        let own = all.iter().flat_map(|f| &f.own).filter(|own| own.reach.kind != Kind::Address);
        let mut list: Vec<_> = own.map(|own| (own.at, own.object, own.reach)).collect();
        list.sort_unstable();
        list.dedup();
        References { list }
    }

    fn at(&self, instruction: u64) -> Option<(u32, Reach)> {
        let at = self.list.partition_point(|r| r.0 < instruction);
        self.list.get(at).filter(|r| r.0 == instruction).map(|&(_, object, reach)| (object, reach))
    }

    /// The nearest between two addresses, first of those before.
    fn near(&self, instruction: u64, start: u64, end: u64) -> Option<(u32, Reach)> {
        let at = self.list.partition_point(|r| r.0 <= instruction);
        let before = at.checked_sub(1).and_then(|at| self.list.get(at)).filter(|r| r.0 >= start);
        let found = before.or_else(|| self.list.get(at).filter(|r| r.0 < end))?;
        Some((found.1, found.2))
    }
}

/// Accesses that are told apart. A kernel's objects have some ten thousand that are hot.
const MOST: usize = 1 << 20;

/// All that makes an access another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    object: u32,
    offset: u64,
    width: u32,
    kind: Kind,
    indexed: bool,
    function: u32,
    evidence: Evidence,
    cpu: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    hitm: u64,
    thread: Option<u32>,
}

const NO_PLACE: &str = "without an address";
const NO_OBJECT_THERE: &str = "in the image, where no object is (a gap, or one without a size)";
const NO_REFERENCE: &str = "in functions whose code names no data";
const NO_FUNCTION: &str = "in code that no function covers";
const NO_NAME: &str = "of names that no object, member or type has";
const TOO_MANY: &str = "left out: too many different accesses";

/// Lays one profile over the image.
pub(super) fn measure(
    ground: &Ground<'_, '_, '_>,
    samples: &Samples<'_>,
    known: &dyn Known,
) -> Result<(Vec<Access>, Profile)> {
    let homes = Homes::of(ground.image, samples)?;
    let mut placing = Placing {
        ground,
        homes: &homes,
        known,
        bases: Bases::default(),
        instructions: HashMap::new(),
        sums: HashMap::new(),
        elsewhere: BTreeMap::new(),
        profile: Profile {
            path: samples.path.clone(),
            format: samples.format,
            samples: 0,
            objects: 0,
            members: None,
            elsewhere: BTreeMap::new(),
            cpus: 0,
            problems: homes.problems.clone(),
            skipped: BTreeMap::new(),
        },
    };
    if ground.objects.iter().any(|o| matches!(o.space, Space::Section(_))) && samples.format.has_addresses() {
        samples.each(&mut |sample| placing.learn_base(&sample))?;
        placing.bases.choose();
    }
    let told = samples.each(&mut |sample| placing.take(&sample))?;
    let Placing { sums, elsewhere, mut profile, .. } = placing;
    profile.elsewhere = elsewhere.into_iter().map(|(reason, n)| (reason.to_string(), n)).collect();
    profile.skipped = told.skipped.into_iter().map(|(reason, n)| (reason.to_string(), n)).collect();
    profile.problems.extend(told.problems);
    profile.cpus = u32::try_from(sums.keys().filter_map(|k| k.cpu).collect::<BTreeSet<_>>().len()).unwrap_or(u32::MAX);
    for (key, sum) in &sums {
        if let Some(is) = known.in_member(key.object, key.offset) {
            let members = profile.members.get_or_insert(0);
            *members = members.saturating_add(if is { sum.count } else { 0 });
        }
    }
    if profile.samples > 0 && profile.objects == 0 {
        profile.problems.push("none of its samples belongs to an object of this image".to_string());
    }
    Ok((sums.into_iter().map(|(key, sum)| key.access(sum)).collect(), profile))
}

impl Key {
    fn access(self, sum: Sum) -> Access {
        let Key { object, offset, width, kind, indexed, function, evidence, cpu } = self;
        let Sum { count, hitm, thread } = sum;
        let through = None;
        Access { object, offset, width, kind, indexed, function, through, evidence, cpu, thread, count, hitm }
    }
}

/// One profile while it is read.
struct Placing<'p, 'g, 'h, 'i, 'a> {
    ground: &'p Ground<'g, 'h, 'i>,
    homes: &'p Homes<'p, 'a>,
    known: &'p dyn Known,
    bases: Bases,
    /// What the instruction at an address does to memory.
    instructions: HashMap<u64, Option<(Kind, u32)>>,
    sums: HashMap<Key, Sum>,
    elsewhere: BTreeMap<&'static str, u64>,
    profile: Profile,
}

/// Where an instruction stands: its address in the image, and its function.
#[derive(Clone, Copy)]
struct At {
    address: Option<u64>,
    function: u32,
}

impl Placing<'_, '_, '_, '_, '_> {
    fn take(&mut self, sample: &Sample<'_>) {
        self.profile.samples = self.profile.samples.saturating_add(sample.count);
        let placed = match sample.stands {
            Stands::Access => self.access(sample),
            Stands::Code => self.executed(sample),
            Stands::Word { weighted } => self.said(sample, weighted),
        };
        match placed {
            Ok(()) => self.profile.objects = self.profile.objects.saturating_add(sample.count),
            Err(reason) => {
                let counted = self.elsewhere.entry(reason).or_insert(0);
                *counted = counted.saturating_add(sample.count);
            }
        }
    }

    fn add(&mut self, key: Key, sample: &Sample<'_>) -> Result<(), &'static str> {
        let full = self.sums.len() >= MOST;
        let sum = match self.sums.get_mut(&key) {
            Some(sum) => {
                if sum.thread != sample.thread {
                    sum.thread = None;
                }
                sum
            }
            None if full => return Err(TOO_MANY),
            None => self.sums.entry(key).or_insert(Sum { thread: sample.thread, ..Sum::default() }),
        };
        sum.count = sum.count.saturating_add(sample.count);
        sum.hitm = sum.hitm.saturating_add(sample.hitm);
        Ok(())
    }

    fn access(&mut self, sample: &Sample<'_>) -> Result<(), &'static str> {
        let (object, offset) = match sample.data.ok_or(NO_PLACE)? {
            Place::Address(address) => self.object_at(address, sample)?,
            place => self.object_called(&place)?,
        };
        let at = self.code(sample).ok();
        let reference = at.and_then(|at| self.ground.references.at(at.address?));
        let own = reference.filter(|(o, r)| *o == object && !r.indexed).map(|(_, r)| (r.kind, r.width));
        let (seen, width) = own.or_else(|| self.instruction(at?.address?)).unzip();
        let kind = match (sample.does, seen) {
            (Some(does), Some(kind)) if agree(does, kind) => kind,
            (Some(does), _) => kind_of(does),
            (None, seen) => seen.unwrap_or(Kind::Address),
        };
        // The instruction that is named is not the one that did it.
        let width = width.filter(|_| Some(kind) == seen).unwrap_or(0);
        let size = self.ground.atlas.size(object).max(1);
        let width = if u64::from(width) > size.saturating_sub(offset) { 0 } else { width };
        let function = at.map_or(NOBODY, |at| at.function);
        let evidence = Evidence::Measured;
        self.add(Key { object, offset, width, kind, indexed: false, function, evidence, cpu: sample.cpu }, sample)
    }

    fn executed(&mut self, sample: &Sample<'_>) -> Result<(), &'static str> {
        let at = self.code(sample)?;
        let own = self.ground.code.functions.get(at.function as usize).ok_or(NO_FUNCTION)?;
        let (start, end) = (own.start, own.start.saturating_add(own.size));
        let address = at.address.unwrap_or(start);
        let near = self.ground.references.near(address, start, end);
        let (object, Reach { offset, width, kind, indexed }) = near.ok_or(NO_REFERENCE)?;
        let offset = u64::try_from(offset).map_err(|_| NO_REFERENCE)?;
        let evidence = Evidence::Sampled;
        self.add(Key { object, offset, width, kind, indexed, function: at.function, evidence, cpu: sample.cpu }, sample)
    }

    fn said(&mut self, sample: &Sample<'_>, weighted: bool) -> Result<(), &'static str> {
        let spots = self.known.named(&sample.data.ok_or(NO_PLACE)?);
        if spots.is_empty() {
            return Err(NO_NAME);
        }
        let kind = sample.does.map_or(Kind::Address, kind_of);
        let evidence = if weighted { Evidence::Sampled } else { Evidence::Typed };
        for (object, offset, size) in spots {
            let width = u32::try_from(size).unwrap_or(0);
            let key = Key { object, offset, width, kind, indexed: false, function: NOBODY, evidence, cpu: None };
            self.add(key, sample)?;
        }
        Ok(())
    }

    /// The instruction of a sample.
    fn code(&self, sample: &Sample<'_>) -> Result<At, &'static str> {
        let address = match (sample.code_address, sample.code) {
            (Some(address), _) | (None, Some(Place::Address(address))) => Some(self.homes.home(address, sample)),
            _ => None,
        };
        if let Some(Home::Image(address)) = address {
            let function = self.ground.code.covering(address).ok_or(NO_FUNCTION)?;
            return Ok(At { address: Some(address), function });
        }
        match sample.code.ok_or(NO_PLACE)? {
            Place::Symbol { name, offset, file } if file.is_none_or(|file| self.homes.is_file(file)) => {
                let function = self.ground.code.called(name).ok_or(NO_FUNCTION)?;
                let start = self.ground.code.functions.get(function as usize).map(|f| f.start.saturating_add(offset));
                // Without an offset it may be anywhere in the function.
                Ok(At { address: start.filter(|_| offset > 0), function })
            }
            Place::Symbol { file, .. } => Err(elsewhere(file.unwrap_or_default())),
            _ => match address {
                Some(Home::Elsewhere(reason)) => Err(reason),
                _ => Err(NO_PLACE),
            },
        }
    }

    fn object_at(&self, address: u64, sample: &Sample<'_>) -> Result<(u32, u64), &'static str> {
        match self.homes.home(address, sample) {
            Home::Image(own) => self.ground.atlas.find(Spot::at(own), false).ok_or(NO_OBJECT_THERE),
            Home::Elsewhere(reason) => self.bases.find(address, self.ground.atlas).ok_or(reason),
        }
    }

    fn object_called(&self, place: &Place<'_>) -> Result<(u32, u64), &'static str> {
        let Place::Symbol { file, .. } = *place else { return Err(NO_NAME) };
        if let Some(file) = file.filter(|file| !self.homes.is_file(file)) {
            return Err(elsewhere(file));
        }
        // Several objects may have the name: which is meant is not known.
        match self.known.named(place).as_slice() {
            [(object, offset, _)] => Ok((*object, *offset)),
            _ => Err(NO_NAME),
        }
    }

    /// What an instruction does to memory, and how wide: where it does one thing.
    fn instruction(&mut self, address: u64) -> Option<(Kind, u32)> {
        let known = self.instructions.get(&address).copied();
        known.unwrap_or_else(|| {
            let found = self.decode(address);
            if self.instructions.len() < MOST {
                self.instructions.insert(address, found);
            }
            found
        })
    }

    fn decode(&self, address: u64) -> Option<(Kind, u32)> {
        let (ground, decoder) = (self.ground, self.ground.decoder?);
        let holds = |s: &&crate::image::Section<'_>| {
            s.executable && (s.address..s.address.saturating_add(s.size)).contains(&address)
        };
        let section = ground.image.sections.iter().find(holds)?;
        let from = usize::try_from(address - section.address).ok()?;
        let bytes = section.bytes?;
        let code = bytes.get(from..bytes.len().min(from.saturating_add(LONGEST)))?;
        let mut instructions = Instructions::default();
        decoder.decode(code, address, &[], ground.atlas, &mut instructions);
        let own = instructions.ops.iter().skip(1).take_while(|op| !matches!(op, Op::At(_)));
        let does: BTreeSet<(Kind, u32)> = own
            .filter_map(|op| match op {
                Op::Access { width, kind, .. } => Some((*kind, *width)),
                _ => None,
            })
            .collect();
        let mut does = does.into_iter();
        does.next().filter(|_| does.next().is_none())
    }

    /// Where a CPU has its copy of per-CPU data: an instruction that names such an object, and the address it had.
    fn learn_base(&mut self, sample: &Sample<'_>) {
        let (Some(Place::Address(address)), Some(cpu)) = (sample.data, sample.cpu) else { return };
        let Some(at) = self.code(sample).ok().and_then(|at| at.address) else { return };
        let Some((object, reach)) = self.ground.references.at(at).filter(|(_, r)| !r.indexed) else { return };
        let Some(own) = self.ground.objects.get(object as usize) else { return };
        let Space::Section(section) = own.space else { return };
        let Some(linked) = own.span.start.0.checked_add_signed(reach.offset) else { return };
        self.bases.vote(section, cpu, address.wrapping_sub(linked));
    }
}

/// Bytes of the longest instruction that is known here.
const LONGEST: usize = 15;

/// Whether a sample and the instruction that it names say the same.
fn agree(does: Does, kind: Kind) -> bool {
    // A sample of a load says nothing of what the same instruction stores.
    (!does.reads || kind.reads()) && (!does.writes || kind.writes())
}

fn kind_of(does: Does) -> Kind {
    match does {
        Does { locked: true, writes: true, .. } => Kind::Atomic,
        Does { reads: true, writes: true, .. } => Kind::ReadWrite,
        Does { writes: true, .. } => Kind::Write,
        Does { reads: true, .. } => Kind::Read,
        Does { .. } => Kind::Address,
    }
}

/// Where each CPU has its copies of per-CPU sections.
#[derive(Default)]
struct Bases {
    votes: HashMap<(u32, u32), BTreeMap<u64, u64>>,
    /// Section, and what is added to its addresses.
    chosen: Vec<(u32, u64)>,
}

impl Bases {
    fn vote(&mut self, section: u32, cpu: u32, base: u64) {
        // A copy begins on a page.
        if base.is_multiple_of(4096) && self.votes.len() < MOST {
            let votes = self.votes.entry((section, cpu)).or_default();
            if votes.len() < 64 {
                *votes.entry(base).or_insert(0) += 1;
            }
        }
    }

    fn choose(&mut self) {
        for (&(section, _), votes) in &self.votes {
            let all: u64 = votes.values().sum();
            let most = votes.iter().max_by_key(|(_, n)| **n);
            self.chosen.extend(most.filter(|(_, n)| **n * 3 >= all * 2).map(|(base, _)| (section, *base)));
        }
        self.chosen.sort_unstable();
        self.chosen.dedup();
    }

    fn find(&self, address: u64, atlas: &Atlas<'_, '_>) -> Option<(u32, u64)> {
        self.chosen.iter().find_map(|&(section, base)| {
            let linked = address.wrapping_sub(base);
            let place = atlas.address(section, linked);
            atlas
                .holds(section, linked)
                .then(|| atlas.find(Spot { address: place, object: NO_OBJECT }, false))
                .flatten()
        })
    }
}
