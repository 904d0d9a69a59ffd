//! A plan, linked and proven.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::patch::Edit;
use super::plan::Plan;
use super::program::{Program, Unit};
use super::solve::{Solved, solve_from};
use super::verify::{Linked, Proof, order, prove};
use super::{Lead, Lines, Targets, UnitKey, phase};
use crate::error::{Error, Result};
use crate::image::map::Landing;
use crate::link::{Relink, discard};
use crate::open;
use crate::units::{Addr, LineSize, Phase, Span};

/// A linked file whose landing is proven.
#[derive(Clone, Debug)]
pub struct Variant {
    pub path: PathBuf,
    pub plan: Plan,
    /// Every unit: the phase that was planned, if one was, and the phase in the linked file.
    pub landing: Vec<(UnitKey, Option<Phase>, Phase)>,
    /// Address and size of every unit in the linked file, its pad included; in the order of [`Program::units`]. A piece of
    /// an unwind table that only the build's own order has is [`NOWHERE`].
    pub places: Vec<(u64, u64)>,
    pub proof: Proof,
}

/// The place of what is not in the linked file.
pub const NOWHERE: (u64, u64) = (u64::MAX, 0);

/// A unit that could not be given the phase that was wanted, with the reason.
pub type Unmatched = (UnitKey, String);

/// The landing that is wanted, as far as it can be had.
#[derive(Clone, Debug, Default)]
pub struct Aim {
    /// For the plan: `matched`, `transplant`, `placebo`, …
    pub kind: String,
    pub seed: u64,
    pub targets: Targets,
    pub lead: Lead,
    /// Distances to be kept or reached; what cannot be is not named by [`land`], but by [`super::differences`].
    pub lines: Lines,
    /// Whole lines behind units: what follows stays on its phase, and moves.
    pub behind: BTreeMap<UnitKey, u64>,
    /// The variant is about this unit: it fails where the unit cannot be given its phase.
    pub subject: Option<UnitKey>,
    /// No other unit may have a byte on a line of the subject.
    pub alone: bool,
}

/// A variant, and the units of its aim that are not on their phase.
#[derive(Clone, Debug)]
pub struct Landed {
    pub variant: Variant,
    pub unmatched: Vec<Unmatched>,
}

/// One link and at most two corrections.
const ATTEMPTS: usize = 3;

/// Links `plan` into `output` and proves it. Fails, and leaves nothing at `output`, when a unit of the plan is not in
/// the program or must not be touched, when the link fails, or when a check fails; the error names unit and check.
pub fn make(program: &Program, link: &dyn Relink, plan: &Plan, output: &Path) -> Result<Variant> {
    let attempt = attempt(program, link, plan, output)?;
    finish(program, plan.clone(), attempt, output)
}

/// As [`make`], for a plan that orders the objects anew: `link` must have that order already. Proves that the program is
/// the same as the one in the build's own order, `program`, whose units the variant then tells about.
pub fn make_ordered(
    program: &Program,
    link: &dyn Relink,
    plan: &Plan,
    scratch: &Path,
    output: &Path,
) -> Result<Variant> {
    let ordered = Program::open(link, scratch)?;
    let same = order::same_program(program, &ordered).map_err(|why| {
        refused(plan, why).hint("the order of these objects has a meaning: try another --seed, or another kind")
    })?;
    let made = make(&ordered, link, plan, output)?;
    let places: Vec<(u64, u64)> =
        same.iter().map(|i| made.places.get((*i)?).copied()).map(|at| at.unwrap_or(NOWHERE)).collect();
    let landing = program.units.iter().zip(&places);
    let landing =
        landing.map(|(unit, &(address, _))| (unit.key.clone(), plan.targets.get(&unit.key).copied(), phase(address)));
    Ok(Variant { landing: landing.collect(), places, ..made })
}

/// Solves pads for an aim, links into `output`, corrects the plan by the starts of output sections that the linker
/// chose, and proves the result. What the plan still misses is named in [`Landed::unmatched`], and no longer promised.
/// Fails as [`make`] does, and when the aim's subject misses what is wanted of it.
pub fn land(program: &Program, link: &dyn Relink, aim: &Aim, output: &Path) -> Result<Landed> {
    let mut starts = BTreeMap::new();
    let mut last: Option<Plan> = None;
    for left in (0..ATTEMPTS).rev() {
        let Solved { mut plan, mut unmatched, .. } = solve_from(program, aim, &starts);
        plan.kind.clone_from(&aim.kind);
        plan.seed = aim.seed;
        plan.order = link.order().to_vec();
        let attempt = attempt(program, link, &plan, output)?;
        let missed = missed(program, &plan, &attempt.places);
        if !missed.is_empty() && left > 0 && last.as_ref() != Some(&plan) {
            starts = program.starts(&attempt.places);
            last = Some(plan);
            continue;
        }
        for (key, actual) in missed {
            plan.targets.remove(&key);
            unmatched.push((key, format!("the linker put it on phase {actual}")));
        }
        subject(program, aim, &unmatched, &attempt.places).inspect_err(|_| discard(output))?;
        let variant = finish(program, plan, attempt, output)?;
        return Ok(Landed { variant, unmatched });
    }
    Err(Error::input("linking a variant", "no attempt was made"))
}

/// Fails when the unit that the variant is about missed its phase, or shares a line that it was to own.
fn subject(program: &Program, aim: &Aim, unmatched: &[Unmatched], places: &[(u64, u64)]) -> Result<()> {
    let Some(key) = &aim.subject else { return Ok(()) };
    let doing = || format!("moving {key} ({})", aim.kind);
    if let Some((_, why)) = unmatched.iter().find(|(k, _)| k == key) {
        return Err(Error::input(doing(), why.clone()));
    }
    match sharing(program, places, key).filter(|_| aim.alone) {
        Some(other) => Err(Error::input(doing(), format!("{other} still shares a line with it"))),
        None => Ok(()),
    }
}

/// A unit with a byte on a line of `key`'s. `.tbss` takes no room in the image.
fn sharing<'a>(program: &'a Program, places: &[(u64, u64)], key: &UnitKey) -> Option<&'a UnitKey> {
    let lines = |address: u64, size: u64| Span { start: Addr(address), size }.lines(LineSize::B64);
    let units = || program.units.iter().zip(places).filter(|(u, _)| u.size > 0 && u.output != ".tbss");
    let (subject, &(address, _)) = units().find(|(u, _)| u.key == *key)?;
    let own = lines(address, subject.size);
    let overlaps = |u: &Unit, at: u64| {
        let other = lines(at, u.size);
        u.key != *key && other.start() <= own.end() && own.start() <= other.end()
    };
    units().find(|(u, (at, _))| overlaps(u, *at)).map(|(u, _)| &u.key)
}

/// A link that is not proven yet.
struct Attempt {
    landing: Landing,
    places: Vec<(u64, u64)>,
    objects: usize,
}

fn attempt(program: &Program, link: &dyn Relink, plan: &Plan, output: &Path) -> Result<Attempt> {
    if plan.order != link.order() {
        return Err(refused(plan, "its order of objects is not the link's".into()));
    }
    let (replaced, objects) = program.sources.patch(&edits(program, plan)?)?;
    let linked = link.relink(&replaced, output)?;
    let read = Landing::parse(&linked.map).and_then(|landing| {
        let places = program.follow(&landing, &linked.files).map_err(|why| refused(plan, why))?;
        Ok(Attempt { landing, places, objects })
    });
    read.inspect_err(|_| discard(output))
}

/// The plan as edits of ELF sections: object, section → edit.
fn edits(program: &Program, plan: &Plan) -> Result<BTreeMap<usize, BTreeMap<usize, Edit>>> {
    let mut edits: BTreeMap<usize, BTreeMap<usize, Edit>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&UnitKey> = program.units.iter().map(|u| &u.key).filter(|k| !seen.insert(*k)).collect();
    for key in plan.pads.keys().chain(plan.aligns.keys()).chain(plan.targets.keys()) {
        let doing = || format!("reading the plan for {key}");
        let unit = program.unit(key).ok_or_else(|| {
            Error::input(doing(), "the link has no such unit").hint("a plan fits the build that it was made for")
        })?;
        if twice.contains(key) {
            return Err(Error::input(doing(), "the link has two such units, which nothing tells apart"));
        }
        let edit = Edit { pad: plan.pads.get(key).copied().unwrap_or(0), align: plan.aligns.get(key).copied() };
        if edit == Edit::default() {
            continue;
        }
        let (true, Some((object, section))) = (unit.class.paddable(), unit.source) else {
            return Err(
                Error::input(doing(), "this unit must not be touched").hint("see why in the list of kept units")
            );
        };
        edits.entry(object).or_default().insert(section, edit);
    }
    Ok(edits)
}

fn missed(program: &Program, plan: &Plan, places: &[(u64, u64)]) -> Vec<(UnitKey, Phase)> {
    let units = program.units.iter().zip(places);
    units
        .filter_map(|(unit, &(address, _))| {
            let actual = phase(address);
            let planned = plan.targets.get(&unit.key)?;
            (*planned != actual).then(|| (unit.key.clone(), actual))
        })
        .collect()
}

fn finish(program: &Program, plan: Plan, attempt: Attempt, output: &Path) -> Result<Variant> {
    let proven = open::map(output).and_then(|bytes| {
        let linked = Linked::parse(&bytes).map_err(|why| refused(&plan, why))?;
        linked
            .agrees_with(&attempt.landing)
            .and_then(|()| prove(program, &plan, &attempt.places, &linked, &bytes))
            .map_err(|why| refused(&plan, why))
    });
    let mut proof = proven.inspect_err(|_| discard(output))?;
    proof.objects = attempt.objects as u32;
    let landing = program
        .units
        .iter()
        .zip(&attempt.places)
        .map(|(unit, &(address, _))| (unit.key.clone(), plan.targets.get(&unit.key).copied(), phase(address)))
        .collect();
    Ok(Variant { path: output.to_owned(), plan, landing, places: attempt.places, proof })
}

fn refused(plan: &Plan, why: String) -> Error {
    Error::input(format!("proving the variant {}", plan.kind), why)
}
