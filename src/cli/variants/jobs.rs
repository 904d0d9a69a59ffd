//! What each kind links: one file a draw, or one of each version.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::folder::Folder;
use super::{Kind, Side, VariantsArgs};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::link::{self, Relink};
use crate::open;
use crate::variant::kinds::{self, Recipe};
use crate::variant::{self, Aim, Common, Entry, Landed, Lead, Named, Plan, Unit, Unmatched, Variant};

/// What is linked and proven together.
pub struct Job {
    number: u32,
    what: What,
}

enum What {
    /// One variant of the first version.
    One(Box<Recipe>),
    /// Both versions on one landing.
    Both(Box<Aim>),
    /// Both versions, the objects that differ behind the others.
    ChangedLast,
    /// The first version on the second's landing as built, behind whole lines.
    Transplant(Lead),
}

/// A job's variants.
pub struct Made {
    pub entries: Vec<Entry>,
    pub problems: Vec<String>,
}

/// The line in bytes.
const LINE: i64 = crate::units::LineSize::B64.bytes() as i64;

/// The jobs of a command line. Fails where a unit is not found or cannot be moved.
pub fn all(args: &VariantsArgs, sides: &[Side], problems: &mut Vec<String>) -> Result<Vec<Job>> {
    let side = sides.first().ok_or_else(|| Error::input("choosing variants", "there is no version"))?;
    let program = &side.program;
    let families = args.families();
    let rng = |number: u32| {
        let mut rng = ChaCha8Rng::seed_from_u64(args.seed);
        rng.set_stream(number.into());
        rng
    };
    let numbers = 0..args.count.unwrap_or(1);
    let mut unit = || {
        let unit = kinds::find(program, args.unit.as_deref().unwrap_or_default())?;
        let symbols: Vec<&str> = program.symbols(unit).collect();
        if let [first, more @ ..] = symbols.as_slice()
            && !more.is_empty()
        {
            let apart = "-fdata-sections and -ffunction-sections give each a unit of its own";
            problems.push(format!("{} moves as a whole: {first} and {} more; {apart}", unit.key, more.len()));
        }
        if kinds::of_a_thread(unit) {
            let why = "a thread's copy lies where its block does: the phase at run time may be another";
            problems.push(format!("{} is thread-local; {why}", unit.key));
        }
        Ok(unit)
    };
    let draws = |draw: &dyn Fn(u32) -> What| numbers.clone().map(|number| Job { number, what: draw(number) }).collect();
    let land = |aim: Aim| What::One(Box::new(Recipe::Land(Aim { seed: args.seed, ..aim })));
    let one = |what| vec![Job { number: 0, what }];
    Ok(match args.kind {
        Kind::Random => draws(&|n| land(kinds::random(program, &families, &mut rng(n)))),
        Kind::Placebo => {
            let lines = whole_lines(args.by)?;
            draws(&|n| land(kinds::placebo(program, &families, lines, &mut rng(n))))
        }
        Kind::Shift => {
            let (unit, by): (&Unit, i64) = (unit()?, args.by.unwrap_or_default());
            let aim = kinds::shift(program, unit, by)?;
            if by % LINE == 0 {
                problems.push(format!(
                    "{by} bytes are whole lines: no phase changes, so this is a placebo, useless for a phase test"
                ));
            }
            one(land(aim))
        }
        Kind::Isolate => one(land(kinds::isolate(program, unit()?)?)),
        Kind::Cycle => {
            let aims = kinds::cycle(program, unit()?)?;
            (0..).zip(aims).map(|(number, aim)| Job { number, what: land(aim) }).collect()
        }
        Kind::AlignAll => {
            let plan = kinds::aligned(program, &families, args.align.unwrap_or(LINE as u64));
            one(What::One(Box::new(Recipe::Make(plan))))
        }
        Kind::Keep => one(What::One(Box::new(Recipe::Make(plan(args)?.fit(program)?)))),
        Kind::Matched => {
            let (base, patched, common) = two(sides)?;
            draws(&|n| {
                let joint = variant::random_joint(&base.program, &patched.program, &common, &mut rng(n));
                let (targets, lines) = (joint.targets, joint.lines);
                What::Both(Box::new(Aim { kind: "matched".into(), seed: args.seed, targets, lines, ..Aim::default() }))
            })
        }
        Kind::Order => {
            let names = side.link.orderable();
            let plans: Result<Vec<Plan>> = numbers.clone().map(|n| kinds::shuffled(&names, &mut rng(n))).collect();
            let make = |plan| What::One(Box::new(Recipe::Make(Plan { seed: args.seed, ..plan })));
            numbers.zip(plans?).map(|(number, plan)| Job { number, what: make(plan) }).collect()
        }
        Kind::ChangedLast => one(What::ChangedLast),
        // The first is the other's landing and nothing else, the others re-roll what is not the landing.
        Kind::Transplant => draws(&|n| {
            let lead = if n == 0 { Lead::new() } else { variant::random_lead(program, &mut rng(n)) };
            What::Transplant(lead)
        }),
    })
}

fn whole_lines(by: Option<i64>) -> Result<Option<u64>> {
    match by {
        None => Ok(None),
        Some(by) if by > 0 && by % LINE == 0 => Ok(Some((by / LINE) as u64)),
        Some(by) => Err(Error::input("drawing a placebo", format!("{by} bytes are no whole lines of {LINE}"))
            .hint("--by 64, --by 4096, or none for a draw")),
    }
}

fn plan(args: &VariantsArgs) -> Result<Plan> {
    let Some(path) = &args.plan else { return Err(Error::input("reading the plan", "--plan is not given")) };
    let text = open::text(path)?;
    serde_json::from_str(&text).map_err(|e| Error::input(format!("reading the plan {}", path.display()), e.to_string()))
}

fn two(sides: &[Side]) -> Result<(&Side, &Side, Common)> {
    match sides {
        [base, patched] => Ok((base, patched, variant::common(&base.program, &patched.program))),
        _ => Err(Error::input("choosing variants", "--with is not given")),
    }
}

impl Job {
    /// Links and proves, and writes the plan beside the binary.
    pub fn make(&self, args: &VariantsArgs, sides: &[Side], folder: &Folder) -> Result<Made> {
        let mut made = Made { entries: Vec::new(), problems: Vec::new() };
        match &self.what {
            What::One(recipe) => drop(self.link(sides, 0, recipe, folder, &mut made)?),
            What::ChangedLast => self.changed_last(args.seed, sides, folder, &mut made)?,
            What::Both(aim) => {
                let (base, patched, common) = two(sides)?;
                let recipe = Recipe::Land((**aim).clone());
                let b = self.link(sides, 0, &recipe, folder, &mut made)?;
                let p = self.link(sides, 1, &recipe, folder, &mut made)?;
                let found = variant::differences((&base.program, &b.places), (&patched.program, &p.places), &common);
                made.differ(self.number, found);
            }
            What::Transplant(lead) => {
                let (base, patched, common) = two(sides)?;
                let as_built: Vec<(u64, u64)> = patched.program.units.iter().map(|u| (u.address, u.size)).collect();
                let mut targets = variant::targets_as_built(&patched.program);
                targets.retain(|key, _| common.has(key));
                let lines = variant::lines_of(&patched.program, &as_built, &common);
                let (kind, lead) = ("transplant".to_owned(), lead.clone());
                let aim = Aim { kind, seed: args.seed, targets, lines, lead, ..Aim::default() };
                let b = self.link(sides, 0, &Recipe::Land(aim), folder, &mut made)?;
                let found = variant::differences((&base.program, &b.places), (&patched.program, &as_built), &common);
                made.differ(self.number, found);
            }
        }
        Ok(made)
    }

    fn changed_last(&self, seed: u64, sides: &[Side], to: &Folder, made: &mut Made) -> Result<()> {
        let (base, patched, common) = two(sides)?;
        let orders = [base, patched].map(|side| side.link.orderable());
        let hash = |side: &Side, name: &str| side.link.inputs().iter().find(|i| i.name == name).map(|i| i.hash.clone());
        let differ = |name: &str| hash(base, name) != hash(patched, name);
        let names = orders.each_ref().map(|names| names.iter().map(String::as_str).collect::<BTreeSet<_>>());
        let [b, p] = &names;
        if !b.union(p).any(|name| differ(name)) {
            return Err(Error::input(
                "ordering the objects",
                "no object on the link line differs between the versions",
            ));
        }
        let rest: BTreeSet<&str> = [base, patched]
            .iter()
            .flat_map(|side| side.link.inputs().iter().filter(|i| !i.system).map(|i| i.name.as_str()))
            .filter(|name| !b.contains(name) && !p.contains(name) && differ(name))
            .collect();
        let stay = |name: &&str| format!("{name} differs and stays where it is: it is no loose object");
        made.problems.extend(rest.iter().map(stay));
        let mut places = Vec::new();
        for (version, names) in orders.iter().enumerate() {
            let plan = Plan { seed, ..kinds::last(names, differ) };
            places.push(self.link(sides, version, &Recipe::Make(plan), to, made)?.places);
        }
        if let [b, p] = places.as_slice() {
            let found = variant::differences((&base.program, b), (&patched.program, p), &common);
            made.differ(self.number, found);
        }
        Ok(())
    }

    fn link(&self, sides: &[Side], version: usize, recipe: &Recipe, to: &Folder, made: &mut Made) -> Result<Variant> {
        let side = sides.get(version).ok_or_else(|| Error::input("linking a variant", "there is no such version"))?;
        let output = &side.link.captured().name;
        let name = output.rsplit('/').next().unwrap_or(output);
        let version_name = side.name.map_or_else(String::new, |name| format!("-{name}"));
        let file = format!("{name}-{:03}{version_name}", self.number);
        let landed = match recipe {
            Recipe::Make(plan) if !plan.order.is_empty() => {
                let (ordered, scratch) = (side.link.reordered(&plan.order)?, to.scratch()?);
                let made = variant::make_ordered(&side.program, &ordered, plan, scratch.path(), &to.path(&file))?;
                Landed { variant: made, unmatched: Vec::new() }
            }
            _ => recipe.link(&side.program, &side.link, &to.path(&file))?,
        };
        made.entries.push(entry(side, version, self.number, file, &landed, to)?);
        Ok(landed.variant)
    }
}

fn entry(side: &Side, version: usize, number: u32, file: String, landed: &Landed, to: &Folder) -> Result<Entry> {
    let plan = format!("{file}.plan.json");
    to.write_json(&plan, &landed.variant.plan)?;
    let path = &landed.variant.path;
    let bytes = open::map(path)?;
    let build_id = Image::parse(&bytes, &file)?.build_id;
    let hash = link::hash_file(path)?;
    Entry::read(&side.program, landed, Named { file, plan, version, number, hash, build_id })
}

impl Made {
    fn differ(&mut self, number: u32, found: Vec<Unmatched>) {
        self.problems.extend(found.into_iter().map(|(key, why)| format!("on landing {number}, {key}: {why}")));
    }
}
