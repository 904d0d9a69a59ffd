//! `landed.json`: where every unit of every variant was to land and did, as the second reader found it.
//!
//! Units are listed once a version; what differs from variant to variant are arrays in the order of that list.

use std::collections::BTreeMap;

use serde::Serialize;

use super::make::{Landed, NOWHERE, Unmatched, Variant};
use super::program::Program;
use super::verify::{Linked, Proof, places};
use super::{LINE, phase};
use crate::error::{Error, Result};
use crate::open;
use crate::units::{Addr, Phase};

pub use super::verify::By;

/// All variants that one command made.
#[derive(Clone, Debug, Serialize)]
pub struct Landings {
    pub schema: &'static str,
    /// As it was asked for: `random`, `shift`, …
    pub kind: String,
    pub seed: String,
    /// The line that phases are counted in, in bytes.
    pub line: u64,
    /// One, or base and patched.
    pub versions: Vec<VersionAsBuilt>,
    pub variants: Vec<Entry>,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, usize>,
}

/// A captured link, as the build placed it.
#[derive(Clone, Debug, Serialize)]
pub struct VersionAsBuilt {
    /// `base` or `patched`, where there are two.
    pub name: Option<&'static str>,
    /// The linked file's path in its build.
    pub link: String,
    /// blake3 of the file as the build's own linker wrote it.
    pub hash: String,
    /// Units with bytes.
    pub units: Vec<UnitAsBuilt>,
    pub kept: Vec<Kept>,
}

/// A unit of the pristine link.
#[derive(Clone, Debug, Serialize)]
pub struct UnitAsBuilt {
    pub unit: String,
    /// The output section that holds it.
    pub output: String,
    pub size: u64,
    pub align: u64,
    pub address: Addr,
    pub phase: Phase,
    /// What shows where it is, in the variant that shows least.
    pub proven_by: By,
}

/// A unit that is neither padded nor aligned.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    pub unit: String,
    pub why: String,
    /// What it defines.
    pub symbols: Vec<String>,
}

/// One variant.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Below the folder.
    pub file: String,
    pub plan: String,
    /// Index into [`Landings::versions`].
    pub version: usize,
    /// Which draw of the seed.
    pub number: u32,
    /// blake3.
    pub hash: String,
    /// In hex.
    pub build_id: Option<String>,
    /// Of the plan: not always the kind that was asked for.
    pub kind: String,
    /// Units on another phase than as built.
    pub phases_moved: u32,
    /// Units at another address, on whatever phase.
    pub addresses_moved: u32,
    /// Units that were to be on a certain phase, and how many are.
    pub promised: u32,
    pub met: u32,
    pub missed: Vec<Missed>,
    pub proof: Proof,
    /// Planned phases (`null`: none was), actual phases and addresses (`null`: not there) of the version's units.
    pub planned: Vec<Option<Phase>>,
    pub phases: Vec<Option<Phase>>,
    pub addresses: Vec<Option<Addr>>,
    #[serde(skip)]
    proven_by: Vec<By>,
}

/// A unit that could not be given what was wanted for it.
#[derive(Clone, Debug, Serialize)]
pub struct Missed {
    pub unit: String,
    pub why: String,
}

/// What names a variant.
#[derive(Clone, Debug)]
pub struct Named {
    pub file: String,
    pub plan: String,
    pub version: usize,
    pub number: u32,
    pub hash: String,
    pub build_id: Option<String>,
}

pub const SCHEMA: &str = "straddle.landed/1";

impl Landings {
    /// Puts the variants of all versions together. `skipped` is counted here: units without bytes, dropped sections.
    #[must_use]
    pub fn new(
        kind: &str,
        seed: u64,
        programs: &[&Program],
        mut versions: Vec<VersionAsBuilt>,
        variants: Vec<Entry>,
        mut problems: Vec<String>,
    ) -> Landings {
        let mut first = BTreeMap::new();
        for entry in &variants {
            let same = *first.entry((entry.version, entry.hash.as_str())).or_insert(entry.file.as_str());
            if same != entry.file {
                problems.push(format!("{} is the same file as {same}: there are fewer layouts than draws", entry.file));
            }
        }
        for entry in &variants {
            let units = versions.get_mut(entry.version).map(|v| v.units.as_mut_slice()).unwrap_or_default();
            units.iter_mut().zip(&entry.proven_by).for_each(|(u, by)| u.proven_by = u.proven_by.max(*by));
        }
        let sum = |of: &dyn Fn(&Program) -> usize| programs.iter().map(|p| of(p)).sum::<usize>();
        let skipped = [
            ("units without bytes", sum(&|p| p.units.iter().filter(|u| u.size == 0).count())),
            ("sections that the linker dropped", sum(&|p| p.dropped as usize)),
        ];
        let skipped = skipped.into_iter().filter(|(_, n)| *n > 0).map(|(why, n)| (why.to_owned(), n)).collect();
        let (kind, seed) = (kind.to_owned(), format!("{seed:#x}"));
        Landings { schema: SCHEMA, kind, seed, line: LINE, versions, variants, problems, skipped }
    }
}

impl VersionAsBuilt {
    #[must_use]
    pub fn new(program: &Program, name: Option<&'static str>, link: &str, hash: &str) -> VersionAsBuilt {
        let units = program.units.iter().filter(|u| u.size > 0);
        let kept = program.units.iter().filter(|u| u.size > 0).filter_map(|u| {
            let super::Class::Kept(why) = &u.class else { return None };
            let symbols = program.symbols(u).map(str::to_owned).collect();
            Some(Kept { unit: u.key.to_string(), why: why.clone(), symbols })
        });
        let kept = kept.collect();
        let units = units.map(|u| UnitAsBuilt {
            unit: u.key.to_string(),
            output: u.output.clone(),
            size: u.size,
            align: u.align,
            address: Addr(u.address),
            phase: phase(u.address),
            proven_by: By::Symbol,
        });
        VersionAsBuilt { name, link: link.to_owned(), hash: hash.to_owned(), units: units.collect(), kept }
    }
}

impl Entry {
    /// Reads a variant's file anew, by the second reader. Fails where it is not what its link map said.
    pub fn read(program: &Program, landed: &Landed, named: Named) -> Result<Entry> {
        let Landed { variant, unmatched } = landed;
        let bytes = open::map(&variant.path)?;
        let found = Linked::parse(&bytes).and_then(|linked| places::read(program, &variant.places, &linked, &bytes));
        let found = found.map_err(|why| Error::input(format!("reading the variant {}", named.file), why))?;
        let counted: Vec<_> = program.units.iter().zip(found).filter(|(u, _)| u.size > 0).collect();
        let there: Vec<Option<u64>> =
            counted.iter().map(|(_, (address, _))| (*address != NOWHERE.0).then_some(*address)).collect();
        let moved = |differ: &dyn Fn(u64, u64) -> bool| {
            let both = counted.iter().zip(&there).filter_map(|((u, _), at)| Some((u.address, (*at)?)));
            both.filter(|(was, is)| differ(*was, *is)).count() as u32
        };
        let planned = counted.iter().map(|(u, _)| variant.plan.targets.get(&u.key).copied()).collect();
        Ok(Entry {
            file: named.file,
            plan: named.plan,
            version: named.version,
            number: named.number,
            hash: named.hash,
            build_id: named.build_id,
            kind: variant.plan.kind.clone(),
            phases_moved: moved(&|a, b| phase(a) != phase(b)),
            addresses_moved: moved(&|a, b| a != b),
            promised: promised(variant, unmatched),
            met: variant.proof.targets,
            missed: unmatched.iter().map(|(k, why)| Missed { unit: k.to_string(), why: why.clone() }).collect(),
            proof: variant.proof,
            planned,
            phases: there.iter().map(|at| at.map(phase)).collect(),
            addresses: there.iter().map(|at| at.map(Addr)).collect(),
            proven_by: counted.iter().map(|(_, (_, by))| *by).collect(),
        })
    }
}

fn promised(variant: &Variant, unmatched: &[Unmatched]) -> u32 {
    let also = unmatched.iter().filter(|(k, _)| !variant.plan.targets.contains_key(k)).count();
    (variant.plan.targets.len() + also) as u32
}
