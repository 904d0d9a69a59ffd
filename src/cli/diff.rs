//! `straddle diff BASE PATCHED`.

use std::io::Write;
use std::path::PathBuf;

use super::format::{Format, Views};
use super::images;
use super::output::OutputArgs;
use super::pool::pool;
use super::scan::{line_size, profiles, samples};
use super::types::{Tier, TypesArgs};
use crate::diff::{Ask, Gate};
use crate::error::{Error, Exit, Result};
use crate::image::map::Landing;
use crate::image::{Image, Kind, SymbolsFrom, TypesFrom};
use crate::report::findings::Findings;
use crate::rules::types::TypeAsk;
use crate::types::{Btf, Source, Types};
use crate::units::LineSize;
use crate::{diff, open, report};

/// What changed, what merely moved, what moved it, and which moves could matter.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// The version before, as `scan` takes it
    pub base: PathBuf,
    /// The version after
    pub patched: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
    #[arg(long, value_parser = line_size, value_name = "BYTES")]
    #[arg(help = "Cache line in bytes: 64, 128 or 256 (default: of the images' machine)")]
    pub line: Option<LineSize>,
    #[arg(long, value_enum, default_value_t, value_name = "TIER")]
    #[arg(
        help = "Where types come from. auto: BTF where both kernels have it (it has every type), else DWARF, else none"
    )]
    pub types: Tier,
    #[arg(long = "type", value_name = "NAME")]
    #[arg(help = "Of types, only this one, or those that a glob names; also of large debug information, of which \
                  otherwise only the types of variables are read")]
    pub only_type: Option<String>,
    #[arg(long, value_name = "BASE,PATCHED", value_delimiter = ',')]
    #[arg(help = "Link maps of both: causes by input section (also as --map BASE --map PATCHED)")]
    pub map: Vec<PathBuf>,
    #[arg(long, value_name = "FILE", conflicts_with = "names_only")]
    #[arg(
        help = "What was seen to run of BASE, as scan takes it: which sharing PATCHED's layout would add and remove"
    )]
    pub profile: Vec<PathBuf>,
    #[arg(long, requires = "profile", help = "The same for every shift of each section: which are lucky")]
    pub shifts: bool,
    #[arg(long, conflicts_with_all = ["types", "only_type"])]
    #[arg(help = "Names, places and sizes only: no bytes are compared and no code is decoded (the fastest)")]
    pub names_only: bool,
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    #[arg(
        help = "Exit 1 if there is any: new-straddle, new-neighbour, new-phase, new-crossing (each with :hot for what \
                  code is seen to use), moved, changed, resized, type-changed"
    )]
    pub fail_on: Vec<String>,
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(help = "Threads that read and compare [default: one a CPU]")]
    pub jobs: Option<u16>,
    #[arg(long, help = "Every cause, type and suspect, not only the first (JSON is never cut)")]
    pub all: bool,
}

/// Compares and writes; nothing is written when an image cannot be read.
pub fn run(args: &DiffArgs, out: &mut impl Write) -> Result<Exit> {
    args.output.format.among("diff", Format::OF_PAGES)?;
    let gates: Vec<Gate> = args.fail_on.iter().map(|text| Gate::parse(text)).collect::<Result<_>>()?;
    let maps = args.maps()?;
    let read_profiles = profiles(&args.profile)?;
    let profiles = samples(&read_profiles)?;
    let wanted = TypeAsk { name: args.only_type.as_deref(), ..TypeAsk::default() };
    let (source_a, source_b) = (images::Source::file(&args.base)?, images::Source::file(&args.patched)?);
    let (mut base, mut patched) = (source_a.image()?, source_b.image()?);
    let files = TypesArgs { tier: args.tier(&base, &patched), ..TypesArgs::default() };
    let (files_a, files_b) = (files.open()?, files.open()?);
    let (types_a, types_b) = (files_a.source(&mut base)?, files_b.source(&mut patched)?);
    let (tier_a, tier_b) = (tier_of(&types_a), tier_of(&types_b));
    let whole = args.only_type.is_some() || [&types_a, &types_b].iter().all(|source| size(source) <= LARGE);
    let diff = pool(args.jobs)?.install(|| {
        let alike = tier_a.is_some() && tier_a == tier_b;
        let wants = |name: &str| wanted.wants(name);
        let types_a = alike.then(|| read(&types_a, &base, &wants, whole)).transpose()?;
        let types_b = alike.then(|| read(&types_b, &patched, &wants, whole)).transpose()?;
        let ask = Ask {
            line: args.line,
            names_only: args.names_only,
            types: types_a.as_ref().zip(types_b.as_ref()),
            maps: maps.as_ref().map(|(a, b)| (a, b)),
            profiles: &profiles,
            shifts: args.shifts,
        };
        diff::diff(&base, &patched, &ask)
    });
    let mut diff = diff.map_err(|e| files_b.explain(files_a.explain(e)))?;
    if let (Some(a), Some(b), true) = (tier_a, tier_b, tier_a != tier_b) {
        let problem = format!("types not compared: base has {a:?}, patched {b:?} (try: --types btf)");
        diff.problems.push(problem);
    }
    if !whole {
        diff.problems.push("of the types only those of variables were read (--type '*' reads all)".to_string());
    }
    diff.problems.extend(files_a.told().into_iter().chain(files_b.told()));
    let violated: Vec<String> = gates.iter().filter_map(|gate| gate.violated(&diff)).collect();
    let page = || report::diff::page(&diff, args.output.whole(args.all), &violated);
    args.output.write(&diff, Views { page, findings: Findings::default }, out)?;
    Ok(if violated.is_empty() { Exit::Done } else { Exit::Gate })
}

/// Debug information beyond this is read for the types of variables only: a kernel's takes ten times as long in whole.
const LARGE: u64 = 64 << 20;

/// `whole`: every type, not only those of variables.
fn read<'s>(
    source: &'s Source<'_>,
    image: &Image<'_>,
    wants: &(dyn Fn(&str) -> bool + Sync),
    whole: bool,
) -> Result<Types<'s>> {
    if whole {
        return source.read_named(wants);
    }
    let mut types = source.read(image)?;
    types.define(wants);
    Ok(types)
}

/// Of what is to be read, in bytes.
fn size(source: &Source<'_>) -> u64 {
    match source {
        Source::Dwarf(sections) => sections.size(),
        Source::Btf { .. } | Source::Names(_) => 0,
    }
}

fn tier_of(source: &Source<'_>) -> Option<TypesFrom> {
    match source {
        Source::Dwarf(_) => Some(TypesFrom::Dwarf),
        Source::Btf { .. } => Some(TypesFrom::Btf),
        Source::Names(_) => None,
    }
}

impl DiffArgs {
    /// A module's BTF continues that of a kernel which is not there; a stripped image needs the symbols of its debug file.
    fn tier(&self, base: &Image<'_>, patched: &Image<'_>) -> Tier {
        let own = |image: &Image<'_>| {
            Btf::present(image) && image.kind != Kind::Module && image.symbols_from == SymbolsFrom::Symtab
        };
        match self.types {
            _ if self.names_only => Tier::None,
            Tier::Auto if own(base) && own(patched) => Tier::Btf,
            tier => tier,
        }
    }

    fn maps(&self) -> Result<Option<(Landing, Landing)>> {
        let read = |path: &PathBuf| {
            let landing = Landing::parse(&open::text(path)?);
            landing.map_err(|e| Error { doing: format!("reading the link map {}", path.display()), ..e })
        };
        match self.map.as_slice() {
            [] => Ok(None),
            [base, patched] => Ok(Some((read(base)?, read(patched)?))),
            other => {
                let problem = format!("--map wants the maps of both, and {} is named", other.len());
                Err(Error::input("reading the command line", problem).hint("--map BASE.map,PATCHED.map"))
            }
        }
    }
}
