//! A link, read whole: every input section that is loaded, where it fell, and whether it may be moved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::UnitKey;
use super::classify::{Class, classify};
use super::object::{Section, Symbol};
use super::rows::{PAGE, Row, Span, chain, low_bit, model, rows, takes_room};
use super::sources::{Lookup, Source, Sources};
use super::verify::{self, Linked, RELRO_PADDING};
use crate::error::{Error, Result};
use crate::image::map::{FILL, Landing, Placed};
use crate::link::{Input, Relink};
use crate::open::{self, Bytes};

const GROUP: u64 = object::elf::SHF_GROUP.0;

/// One input section of the pristine link.
#[derive(Clone, Debug)]
pub struct Unit {
    pub key: UnitKey,
    /// The output section that holds it.
    pub output: String,
    pub address: u64,
    /// In bytes, in the linked file.
    pub size: u64,
    pub align: u64,
    pub class: Class,
    /// As `align`, or what the pristine landing shows: a script may align further, what was merged away is not aligned.
    pub(super) model_align: u64,
    /// `model_align` is what the linker says.
    pub(super) told: bool,
    /// Bytes in front of it that no alignment explains: a script moved on (`. = . + 8`), or what gold takes for fill.
    pub(super) skip: u64,
    /// (object, ELF section index); `None` for what the linker made.
    pub(super) source: Option<(usize, usize)>,
    /// Indices of those symbols of its object's section which the pristine linked file has at their place.
    pub(super) held: Vec<usize>,
}

/// The pristine link of one version: units in address order within each output section, all of them accounted for.
pub struct Program {
    pub units: Vec<Unit>,
    /// Bytes that only align what follows.
    pub fill: u64,
    /// Loaded sections with content of the objects that the linker dropped (`--gc-sections`, COMDAT twins).
    pub dropped: u32,
    pub(super) sources: Sources,
    pub(super) baseline: Linked,
    pub(super) bytes: Bytes,
    by_key: BTreeMap<UnitKey, usize>,
    rows: Vec<Span>,
}

impl Program {
    /// Links once without a change, into `scratch` (which must exist), and reads map, linked file and every static
    /// input. Refuses LTO, inputs merged by `ld -r`, and inputs of another machine than the linked file's.
    pub fn open(link: &dyn Relink, scratch: &Path) -> Result<Program> {
        let output = scratch.join("pristine");
        let linked = link.relink(&BTreeMap::new(), &output)?;
        let bytes = open::map(&output)?;
        let baseline = Linked::parse(&bytes).map_err(|why| Error::input("reading the pristine link", why))?;
        let landing = Landing::parse(&linked.map)?;
        baseline.agrees_with(&landing).map_err(|why| Error::input("reading the pristine link", why))?;
        let mut reader = Reader { sources: Sources::open(link)?, inputs: link.inputs(), files: &linked.files };
        let pieces = loaded(&landing, &baseline);
        let mut units = reader.units(&pieces)?;
        same_machine(&reader.sources.list, &baseline)?;
        let unplaced = unplaced(&reader.sources.list, &units);
        let dropped = unplaced.iter().filter(|(_, _, s)| s.size > 0).count() as u32;
        judge(&mut units, &reader.sources, &baseline, &bytes);
        if link.folds() {
            folded(&mut units, &reader.sources, &baseline);
        }
        bracketed(&mut units, &landing, &baseline);
        let mut rows = rows(&units);
        rows.iter().for_each(|row| model(units.get_mut(row.units.clone()).unwrap_or_default()));
        chain(&mut rows, &units, &landing, baseline.relro.as_ref());
        let by_key = units.iter().enumerate().map(|(i, u)| (u.key.clone(), i)).collect();
        let fill =
            landing.placed.iter().filter(|p| p.section == FILL && baseline.loads(&p.output)).map(|p| p.size).sum();
        let Reader { sources, .. } = reader;
        Ok(Program { units, fill, dropped, sources, baseline, bytes, by_key, rows })
    }

    /// The unit of that name.
    #[must_use]
    pub fn unit(&self, key: &UnitKey) -> Option<&Unit> {
        self.by_key.get(key).and_then(|&i| self.units.get(i))
    }

    /// Output sections by name, each with its units in address order.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[Unit])> {
        self.spans().map(|row| (row.output, row.units))
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().filter_map(|s| {
            let units = self.units.get(s.units.clone())?;
            Some(Row { output: &s.output, units, align: s.align, trail: s.trail, follows: s.follows })
        })
    }

    /// Gives units that another version has elsewhere the names that they have there: a function or variable with a section
    /// of its own is the same one in another object too (rustc numbers its objects by size), if each version has one
    /// section of that name. What has no such name, as a private constant, is not looked for.
    pub fn adopt_names(&mut self, of: &Program) {
        let (theirs, ours) = (of.own_sections(), self.own_sections());
        for (name, at) in ours {
            let Some(there) = at.zip(theirs.get(&name).copied().flatten()).and_then(|(_, i)| of.units.get(i)) else {
                continue;
            };
            let Some(unit) = at.and_then(|i| self.units.get_mut(i)) else { continue };
            if of.by_key.contains_key(&unit.key) || self.by_key.contains_key(&there.key) {
                continue;
            }
            if let Some(i) = self.by_key.remove(&unit.key) {
                self.by_key.insert(there.key.clone(), i);
            }
            unit.key.clone_from(&there.key);
        }
    }

    /// The units that are named after a symbol in them (`-ffunction-sections`), by section; `None` for a name that comes
    /// twice.
    fn own_sections(&self) -> BTreeMap<String, Option<usize>> {
        let mut all = BTreeMap::new();
        for (i, unit) in self.units.iter().enumerate() {
            let Some((_, section)) = self.section(unit) else { continue };
            let named = |s: &Symbol| section.name.strip_suffix(s.name.as_str()).is_some_and(|stem| stem.ends_with('.'));
            if section.symbols.iter().any(named) {
                all.entry(section.name.clone()).and_modify(|at| *at = None).or_insert(Some(i));
            }
        }
        all
    }

    /// Where the output sections start in another landing, those left out that followed as in the pristine one: they will
    /// do so when what is before them is padded anew.
    pub(super) fn starts(&self, places: &[(u64, u64)]) -> BTreeMap<String, u64> {
        let mut starts = BTreeMap::new();
        let mut end: Option<u64> = None;
        for row in &self.rows {
            let places = places.get(row.units.clone()).unwrap_or_default();
            let Some(&(start, _)) = places.first() else { continue };
            let next = end.and_then(|e| e.checked_next_multiple_of(row.align));
            let followed = row.follows.is_some() && next.is_some_and(|n| start.wrapping_sub(n).is_multiple_of(PAGE));
            if !followed {
                starts.entry(row.output.clone()).or_insert(start);
            }
            if takes_room(&row.output) {
                end = places.last().map(|&(at, size)| at.saturating_add(size).saturating_add(row.trail));
            }
        }
        starts
    }

    /// What is left where it is, and why.
    pub fn kept(&self) -> impl Iterator<Item = (&UnitKey, &str)> {
        self.units.iter().filter_map(|u| match &u.class {
            Class::Kept(why) => Some((&u.key, why.as_str())),
            Class::Paddable(_) => None,
        })
    }

    /// The names of what a unit's object defines in it, so far as the linked file has it there.
    pub fn symbols<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = &'a str> {
        let all = self.section(unit).map(|(_, s)| s.symbols.as_slice()).unwrap_or_default();
        unit.held.iter().filter_map(|&i| all.get(i)).map(|s| s.name.as_str())
    }

    pub(super) fn section(&self, unit: &Unit) -> Option<(&Source, &Section)> {
        let (object, section) = unit.source?;
        let source = self.sources.list.get(object)?;
        Some((source, source.object.sections.get(section)?))
    }

    /// The addresses and sizes of this program's units in another landing of it, in the order of [`Program::units`].
    /// Fails, with the unit's name, when one is missing, new, or out of order.
    pub(super) fn follow(
        &self,
        landing: &Landing,
        files: &BTreeMap<String, usize>,
    ) -> std::result::Result<Vec<(u64, u64)>, String> {
        let pieces = loaded(landing, &self.baseline);
        let mut found = Vec::with_capacity(self.units.len());
        for (i, unit) in self.units.iter().enumerate() {
            match pieces.get(i) {
                Some(p) if self.is(unit, p, files) => found.push((p.address, p.size)),
                Some(p) => return Err(format!("{}: the map has {}({}) in its place", unit.key, p.file, p.section)),
                None => return Err(format!("{}: it is not in the map", unit.key)),
            }
        }
        match pieces.get(self.units.len()) {
            Some(extra) => Err(format!("{}({}) is new in the map", extra.file, extra.section)),
            None => Ok(found),
        }
    }

    /// File names differ from link to link (a patched input lies elsewhere): the input that they stand for does not.
    fn is(&self, unit: &Unit, piece: &Placed, files: &BTreeMap<String, usize>) -> bool {
        let same_object = || {
            let (source, _) = unit.source?;
            let source = self.sources.list.get(source)?;
            Some(source.member == piece.member && files.get(&piece.file) == Some(&source.input))
        };
        unit.key.section == piece.section && unit.output == piece.output && same_object().unwrap_or(true)
    }
}

/// The pieces of the map that become units.
fn loaded<'a>(landing: &'a Landing, linked: &Linked) -> Vec<&'a Placed> {
    landing.placed.iter().filter(|p| taken(p, linked)).collect()
}

/// Whether a piece of the map becomes a unit. Fill does not, nor what fills up the relocated read-only part, which comes
/// and goes with the addresses.
fn taken(piece: &Placed, linked: &Linked) -> bool {
    piece.section != FILL && piece.output != RELRO_PADDING && linked.loads(&piece.output)
}

struct Reader<'a> {
    sources: Sources,
    inputs: &'a [Input],
    files: &'a BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn units(&mut self, pieces: &[&Placed]) -> Result<Vec<Unit>> {
        // How often the map places a section of one name of one object.
        let mut times: BTreeMap<(&str, Option<&str>, &str), usize> = BTreeMap::new();
        for p in pieces {
            *times.entry((&p.file, p.member.as_deref(), &p.section)).or_default() += 1;
        }
        let mut made: BTreeMap<&str, u32> = BTreeMap::new();
        let mut units = Vec::with_capacity(pieces.len());
        for p in pieces {
            let count = times.get(&(p.file.as_str(), p.member.as_deref(), p.section.as_str())).copied().unwrap_or(0);
            let unit = match self.behind(p, count)? {
                Ok((input, source, section)) => self.unit(p, input, source, section),
                Err(why) => {
                    let nth = made.entry(&p.section).or_default();
                    let key = UnitKey {
                        file: "(linker)".into(),
                        member: None,
                        section: p.section.clone(),
                        index: std::mem::replace(nth, *nth + 1),
                    };
                    let guess = if p.file.is_empty() || p.size == 0 { 1 } else { low_bit(p.address).min(16) };
                    unit(key, p, p.align.unwrap_or(guess), Class::kept(why))
                }
            };
            units.push(unit);
        }
        twins(&mut units);
        Ok(units)
    }

    /// The input, object and ELF section that a piece came from, or why there is none.
    fn behind(&mut self, p: &Placed, count: usize) -> Result<std::result::Result<(usize, usize, usize), String>> {
        let Some(&input) = self.files.get(&p.file) else {
            if [".ltrans", ".lto.", "lto.tmp"].iter().any(|late| p.file.contains(late)) {
                return Err(
                    Error::input("reading the link map", "the link was done with LTO").hint("build without -flto")
                );
            }
            let whose =
                if p.file.is_empty() { "made by the linker" } else { "its file is not among the captured inputs" };
            return Ok(Err(whose.into()));
        };
        let index = match self.sources.find(self.inputs, input, p.member.as_deref())? {
            Lookup::Source(index) => index,
            Lookup::Not(why) => return Ok(Err(why.into_owned())),
        };
        if matches!(p.section.as_str(), "COMMON" | "LARGE_COMMON" | ".common" | ".tls_common") {
            return Ok(Err("COMMON symbols have no section (build with -fno-common)".into()));
        }
        let sections = self.sources.list.get(index).map(|s| s.object.sections.as_slice()).unwrap_or_default();
        let named: Vec<usize> = (0..sections.len())
            .filter(|&i| sections.get(i).is_some_and(|s| s.allocated() && s.name == p.section))
            .collect();
        Ok(match named.len() {
            0 => Err("made by the linker".into()),
            n if n == count => named.get(p.index as usize).map(|&s| (input, index, s)).ok_or_else(String::new),
            n => Err(format!("its object has {n} sections of that name, the map {count}")),
        })
    }

    fn unit(&self, p: &Placed, input: usize, source: usize, section: usize) -> Unit {
        let sections = self.sources.list.get(source).map(|s| s.object.sections.as_slice()).unwrap_or_default();
        let before = sections.iter().take(section).filter(|s| s.allocated() && s.name == p.section).count();
        let key = UnitKey {
            file: self.inputs.get(input).map(|i| i.name.clone()).unwrap_or_default(),
            member: p.member.clone(),
            section: p.section.clone(),
            index: before as u32,
        };
        let empty = Section::default();
        let head = sections.get(section).unwrap_or(&empty);
        let class = match classify(head) {
            Class::Paddable(_) if head.size != p.size => {
                Class::kept(format!("the linker made {} bytes of its {}", p.size, head.size))
            }
            class => class,
        };
        let merged_away = p.size == 0 && head.size > 0;
        let model_align = if merged_away { 1 } else { head.align.max(p.align.unwrap_or(1)) };
        Unit { source: Some((source, section)), model_align, ..unit(key, p, head.align, class) }
    }
}

fn unit(key: UnitKey, p: &Placed, align: u64, class: Class) -> Unit {
    Unit {
        key,
        output: p.output.clone(),
        address: p.address,
        size: p.size,
        align,
        class,
        model_align: align,
        told: p.align.is_some(),
        skip: 0,
        source: None,
        held: Vec::new(),
    }
}

/// Two units of one name could not be told apart by a plan: neither is touched.
fn twins(units: &mut [Unit]) {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<UnitKey> = units.iter().filter(|u| !seen.insert(&u.key)).map(|u| u.key.clone()).collect();
    for unit in units.iter_mut().filter(|u| twice.contains(&u.key)) {
        unit.class = Class::kept("two units have this name");
    }
}

/// Holds the map against the linked file: a unit's symbols, and the bytes of its data, must be where the map says.
/// A unit that fails is kept where it is, so that a wrong map can never become a variant.
fn judge(units: &mut [Unit], sources: &Sources, linked: &Linked, bytes: &[u8]) {
    for unit in units {
        let Some((object, index)) = unit.source else { continue };
        let Some(source) = sources.list.get(object) else { continue };
        let Some(section) = source.object.sections.get(index) else { continue };
        let mut astray = None;
        for (i, symbol) in section.symbols.iter().enumerate() {
            if linked.has_at(&symbol.name, unit.address.wrapping_add(symbol.value)) {
                unit.held.push(i);
            } else if symbol.strong && linked.defines(&symbol.name) {
                astray = Some(format!("its symbol {} lies elsewhere in the linked file", symbol.name));
            }
        }
        let compared = unit.class.paddable() && !section.executable() && section.has_bytes();
        let there = linked.content(bytes, &unit.output, unit.address, unit.size);
        if let (true, Some(there)) = (compared, there) {
            let from = usize::try_from(section.offset).unwrap_or(usize::MAX);
            let here = sources.pristine(source).get(from..).and_then(|b| b.get(..there.len())).unwrap_or_default();
            if verify::first_difference(here, there, &section.masks).is_some() {
                astray = Some("its bytes in the linked file are not its object's".into());
            }
        }
        if let (Some(why), true) = (astray, unit.class.paddable()) {
            unit.class = Class::kept(why);
        }
    }
}

/// Keeps what the linker script brackets with symbols: it may be a table that somebody walks from one to the other.
fn bracketed(units: &mut [Unit], landing: &Landing, linked: &Linked) {
    // A unit for each piece that `loaded` lets through: how many come before each piece of the map.
    let mut before = Vec::with_capacity(landing.placed.len() + 1);
    let mut count = 0usize;
    for p in &landing.placed {
        before.push(count);
        count += usize::from(taken(p, linked));
    }
    before.push(count);
    for b in &landing.brackets {
        let (Some(&from), Some(&to)) = (before.get(b.placed.start), before.get(b.placed.end)) else { continue };
        let inner = units.get_mut(from..to).unwrap_or_default();
        for unit in inner.iter_mut().filter(|u| u.class.paddable() && u.output == b.output) {
            unit.class = Class::kept(format!("the linker script brackets it with {} and {}", b.from, b.to));
        }
        // A pad behind the unit in front of the bracket falls between it and the first symbol, which is harmless:
        // the symbol is assigned after the pad.
    }
}

fn same_machine(sources: &[Source], linked: &Linked) -> Result<()> {
    match sources.iter().find(|s| s.object.machine != linked.machine || s.object.wide != linked.wide) {
        None => Ok(()),
        Some(other) => {
            Err(Error::input(format!("reading {}", other.name), "it is for another machine than the linked file"))
        }
    }
}

/// Object, index and header of the loaded sections that are nowhere in the map: garbage, twins of a group, folded, empty.
/// Merged ones, unwind tables and notes are not counted: some linkers list what they make of them, not where it came from.
fn unplaced<'a>(sources: &'a [Source], units: &[Unit]) -> Vec<(usize, usize, &'a Section)> {
    let placed: BTreeSet<(usize, usize)> = units.iter().filter_map(|u| u.source).collect();
    let all =
        sources.iter().enumerate().flat_map(|(o, s)| s.object.sections.iter().enumerate().map(move |(i, s)| (o, i, s)));
    all.filter(|(o, i, s)| s.allocated() && s.taken_whole() && !placed.contains(&(*o, *i))).collect()
}

/// Keeps what other sections were folded into (`--icf`): with a pad it would no longer be equal to them, and they would
/// come back. One is folded that was dropped, has a unit's bytes, and whose symbols the linked file has at that unit, or
/// which has no symbols to tell. A twin of its group is none: it was dropped for its name before anything was compared.
fn folded(units: &mut [Unit], sources: &Sources, linked: &Linked) {
    let content = |object: usize, section: &Section| {
        let from = usize::try_from(section.offset).ok().filter(|_| section.has_bytes())?;
        let bytes = sources.pristine(sources.list.get(object)?).get(from..)?;
        Some((bytes.get(..usize::try_from(section.size).ok()?)?, section.flags & !GROUP))
    };
    let mut gone: BTreeMap<(&[u8], u64), Vec<&Section>> = BTreeMap::new();
    for (object, _, section) in unplaced(&sources.list, units) {
        if let Some(content) = content(object, section) {
            gone.entry(content).or_default().push(section);
        }
    }
    for unit in units.iter_mut().filter(|u| u.class.paddable()) {
        let Some((object, index)) = unit.source else { continue };
        let Some(own) = sources.list.get(object).and_then(|s| s.object.sections.get(index)) else { continue };
        let into_it = |s: &&&Section| {
            let twin = s.flags & own.flags & GROUP != 0 && s.name == own.name;
            let there = |y: &Symbol| linked.has_at(&y.name, unit.address.wrapping_add(y.value));
            !twin && (s.symbols.is_empty() || linked.symbols.is_empty() || s.symbols.iter().any(there))
        };
        let equal = content(object, own).and_then(|c| gone.get(&c)?.iter().find(into_it));
        if let Some(other) = equal {
            unit.class = Class::kept(format!("another section, {}, was folded into it (--icf)", other.name));
        }
    }
}
