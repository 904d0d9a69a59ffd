//! Two images → what changed, what merely moved, and which moves could matter ([`Suspect`]).

mod cause;
mod content;
mod functions;
mod gate;
mod loaded;
mod moves;
mod names;
mod pair;
mod statement;
mod suspect;
mod traffic;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::code::Reader;
use crate::error::{Error, Result};
use crate::formats::Samples;
use crate::heat::Heat;
use crate::image::{Facts, Image, Relocations, Sizes};
use crate::layout::Lines;
use crate::objects::{Kind, Objects, Space};
use crate::types::Types;
use crate::units::LineSize;

pub use cause::{Cause, Maps};
pub use content::Sameness;
pub use functions::{Alignment, FunctionCounts, Starts};
pub use gate::Gate;
pub use loaded::loaded_content_equal;
pub use moves::Change;
pub use pair::Told;
pub use suspect::{Place, Suspect};
pub use traffic::{Rebinned, SectionShifts, Sharing};
pub use types::{Meeting, MemberMove, MemberSpot, Step, TypeChange, TypeCounts};

use names::Names;
use pair::{Partners, Side};

/// The schema of [`Diff`].
pub const SCHEMA: &str = "straddle.diff/1";

/// `straddle.diff/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    pub schema: &'static str,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    pub base: Facts,
    pub patched: Facts,
    /// Everything that is loaded is the same, byte for byte, but the build id.
    pub loaded_content_equal: bool,
    pub data: DataCounts,
    pub functions: FunctionCounts,
    pub alignment: Alignment,
    /// `null`: no types were read.
    pub types: Option<TypeCounts>,
    /// Most objects first.
    pub cause: Vec<Cause>,
    /// Objects and functions that moved and that no cause accounts for: they changed their section.
    pub without_cause: u64,
    /// What is to be known before all else, each a sentence.
    pub statements: Vec<String>,
    /// Data objects that are not `same`, or were renamed.
    pub objects: Vec<Changed>,
    /// Functions that changed, were added or removed, or could not be decided.
    pub functions_changed: Vec<Changed>,
    /// What puts contended members on one line, or off one, first.
    pub types_changed: Vec<TypeChange>,
    /// Most suspicious first.
    pub suspects: Vec<Suspect>,
    /// What profiles of base say of patched; `null`: none was given.
    pub rebinned: Option<Rebinned>,
}

/// The first five and `removed` sum to all of base; the last four are subsets of `moved` and `undecided`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataCounts {
    pub same: u64,
    pub moved: u64,
    pub resized: u64,
    pub content_changed: u64,
    /// Of equal size, with bytes that differ in what may be addresses: no relocations were kept to tell.
    pub undecided: u64,
    pub added: u64,
    pub removed: u64,
    pub rephased: u64,
    pub new_neighbours: u64,
    pub newly_straddling: u64,
    pub no_longer_straddling: u64,
    /// Found under another name: by what they hold, or by who is around them.
    pub renamed: u64,
}

/// One object that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub name: String,
    pub section: String,
    pub change: Change,
    /// What told who it is in the other image; `null`: it is only in one.
    pub told: Option<Told>,
    /// Its name in patched, where it is another (the numbers that compilers append aside).
    pub renamed: Option<String>,
    /// Its section in patched, where it is another.
    pub moved_to: Option<String>,
    /// `null`: added.
    pub base: Option<Spot>,
    /// `null`: removed.
    pub patched: Option<Spot>,
}

/// Where an object lies and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    pub address: crate::units::Addr,
    /// In bytes.
    pub size: u64,
    pub phase: crate::units::Phase,
}

/// What is asked of [`diff`]; by default what a user sees who says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Overrides the line of the images' machine.
    pub line: Option<LineSize>,
    /// Names, places and sizes only: no bytes are compared, and no code is decoded.
    pub names_only: bool,
    /// Definitions of both, where they were read.
    pub types: Option<(&'a Types<'a>, &'a Types<'a>)>,
    /// Link maps of both.
    pub maps: Option<Maps<'a>>,
    /// What was seen to run, of base.
    pub profiles: &'a [Samples<'a>],
    /// The profiles' accesses at every shift of each section too.
    pub shifts: bool,
}

/// Compares two builds of nearly the same program. Uses the threads of the current pool.
///
/// # Errors
/// When one has no symbols, or the two are not of one machine and class.
pub fn diff(base: &Image<'_>, patched: &Image<'_>, ask: &Ask<'_>) -> Result<Diff> {
    base.need_symbols()?;
    patched.need_symbols()?;
    if (base.machine, base.class) != (patched.machine, patched.class) {
        let doing = format!("comparing {} with {}", base.path, patched.path);
        let what = |i: &Image<'_>| format!("{} ({:?})", i.machine.name(), i.class).to_lowercase();
        return Err(Error::input(doing, format!("one is {}, the other {}", what(base), what(patched))));
    }
    let line = ask.line.unwrap_or_else(|| base.line_size());
    let mut skipped = BTreeMap::new();
    let (sides_a, sides_b) = rayon::join(|| Program::of(base, line, ask), || Program::of(patched, line, ask));
    for (version, image, sides) in [("base", base, &sides_a), ("patched", patched, &sides_b)] {
        for (reason, n) in sides.skipped.iter().chain(&image.skipped) {
            *skipped.entry(format!("{version}: {reason}")).or_insert(0) += n;
        }
    }
    let (reader_a, reader_b) = (sides_a.reader(base), sides_b.reader(patched));
    let names_a = Names::of(&reader_a, &sides_a.data, &sides_a.code);
    let names_b = Names::of(&reader_b, &sides_b.data, &sides_b.code);
    let unread = names_a.unread() + names_b.unread();
    if unread > 0 {
        skipped.insert("objects whose bytes were not read: together they cover the file many times".into(), unread);
    }
    let whole = !ask.names_only;
    let pairs = |a, b| pair::pair(Side { names: &names_a, lines: a }, Side { names: &names_b, lines: b }, whole);
    let (data, code) = rayon::join(|| pairs(&sides_a.data, &sides_b.data), || pairs(&sides_a.code, &sides_b.code));
    let partners = Partners::of(&data, &code);
    let content = content::Compare { base: &names_a, patched: &names_b, partners: &partners };
    let data = moves::compare(Kind::Data, (&names_a, &names_b), data, &content, whole);
    let code = moves::compare(Kind::Function, (&names_a, &names_b), code, &content, whole);
    let untold = code.moves.iter().chain(&data.moves).map(|m| u64::from(m.untold)).sum();
    if untold > 0 {
        skipped.insert("references to places without a name, whose content was not compared".to_string(), untold);
    }

    let heat = (!ask.names_only).then(|| Heat::decoded(patched, &sides_b.data.objects));
    let known = heat.as_ref().filter(|h| !h.functions.is_empty());
    let alignment = functions::alignment(&code);
    let (mut suspects, unused) = suspect::data(&data, &partners, known);
    if unused > 0 {
        skipped.insert("data on other lines that no code is seen to use".to_string(), unused);
    }
    suspects.extend(suspect::code(&code, &alignment));
    let traffic =
        traffic::Ask { profiles: ask.profiles, shifts: ask.shifts, line, types: ask.types.map(|(base, _)| base) };
    let rebinned = (!ask.profiles.is_empty())
        .then(|| traffic::rebinned((base, &sides_a.data), (patched, &sides_b.data), &partners, &traffic))
        .transpose()?;
    let (cause, without_cause) = cause::causes(&data, &code, ask.maps);
    let types = ask.types.map(|(a, b)| types::compare(a, b, line));
    let equal = loaded_content_equal(base, patched);
    let statements = statement::statements((base, patched), equal, &suspects, types.as_ref(), &alignment);
    let (types, types_changed) = types.map_or((None, Vec::new()), |t| (Some(t.counts), t.changed));
    let changed = |m: &moves::Move| !matches!(m.change, Change::Same | Change::Moved);
    Ok(Diff {
        schema: SCHEMA,
        problems: problems(base, patched, ask),
        skipped,
        base: Facts::of(base, line),
        patched: Facts::of(patched, line),
        loaded_content_equal: equal,
        data: data.data_counts(),
        functions: functions::counts(&code),
        alignment,
        types,
        cause,
        without_cause,
        statements,
        objects: data.changed(|m| m.change != Change::Same || m.told > Told::NameElsewhere),
        functions_changed: code.changed(|m| changed(m) || m.told > Told::NameElsewhere),
        types_changed,
        suspects,
        rebinned,
    })
}

/// What one image has, ready to be compared.
struct Program<'i> {
    data: Lines<'i>,
    code: Lines<'i>,
    relocations: Relocations<'i>,
    skipped: BTreeMap<&'static str, u64>,
}

impl<'i> Program<'i> {
    fn of(image: &'i Image<'_>, line: LineSize, ask: &Ask<'_>) -> Program<'i> {
        let (data, code) = rayon::join(|| Objects::data(image), || Objects::functions(image));
        let mut skipped = data.skipped.clone();
        for (reason, n) in &code.skipped {
            *skipped.entry(*reason).or_insert(0) += n;
        }
        let relocations = if ask.names_only { Relocations::default() } else { image.relocations() };
        Program { data: Lines::of(data, line), code: Lines::of(code, line), relocations, skipped }
    }

    fn reader<'r>(&'r self, image: &'r Image<'i>) -> Reader<'r, 'i> {
        let sections = self.data.objects.iter().filter_map(|o| match o.space {
            Space::Section(section) if !image.kind.relocatable() => Some(section),
            _ => None,
        });
        let per_cpu: BTreeSet<u32> = sections.collect();
        Reader::of(image, &self.relocations, &per_cpu.into_iter().collect::<Vec<_>>())
    }
}

fn problems(base: &Image<'_>, patched: &Image<'_>, ask: &Ask<'_>) -> Vec<String> {
    let own = |version: &'static str, image: &Image<'_>| -> Vec<String> {
        image.problems.iter().map(|problem| format!("{version}: {problem}")).collect()
    };
    let mut problems = [own("base", base), own("patched", patched)].concat();
    problems.extend(ask.line.map_or_else(|| base.line_problem(), |_| None));
    if ask.names_only {
        problems.push("names, places and sizes only: that bytes are the same is not known".to_string());
    }
    if [base, patched].iter().any(|i| i.sizes == Sizes::UpTo) {
        let problem = "symbols without sizes: each is taken to reach to the next one, so a gap that grew or shrank reads as \
                       another size";
        problems.push(problem.to_string());
    }
    problems
}

/// What moved though it did not change, most suspicious first, for a record: the first ones of each kind.
#[must_use]
pub fn suspects(diff: &Diff) -> Vec<Suspect> {
    const DATA: usize = 64;
    const CODE: usize = 10;
    let first = |kind: &str, most: usize| {
        let of = diff.suspects.iter().filter(|s| s.kind == kind).take(most).cloned();
        of.collect::<Vec<_>>()
    };
    [first("data", DATA), first("loop", CODE), first("function", CODE)].concat()
}
