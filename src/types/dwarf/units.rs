//! The units of debug information: where each begins, what its abbreviations mean, and how its attributes refer to
//! strings, addresses and entries elsewhere, in other files too.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugAddr, DebugAddrBase, DebugAddrIndex, DebugInfo,
    DebugInfoOffset, DebugLine, DebugLineOffset, DebugLineStr, DebugStr, DebugStrOffsets, DebugStrOffsetsBase,
    DebugTypes, DwLang, DwarfFileType, DwoId, EndianSlice, Expression, Operation, Reader as _, RunTimeEndian,
    UnitHeader, UnitOffset, UnitType,
};
use rayon::prelude::*;

use super::relocate::Places;
use super::sections::{DebugSections, Part, Slice};
use super::{Skipped, packages, skip};

pub(super) type Entry<'d> = gimli::DebuggingInformationEntry<Slice<'d>>;
pub(super) type Value<'d> = AttributeValue<Slice<'d>>;

/// An entry: in which unit, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) unit: u32,
    pub(super) offset: UnitOffset,
}

pub(super) struct Unit<'d> {
    pub(super) header: UnitHeader<Slice<'d>>,
    pub(super) abbreviations: Arc<Abbreviations>,
    pub(super) part: u32,
    /// In which part, and where in its `.debug_line`.
    pub(super) lines: Option<(u32, DebugLineOffset)>,
    /// It is the image's: not another file's that has the same supplement, not another build's.
    pub(super) live: bool,
    pub(super) language: Option<DwLang>,
    strings: DebugStrOffsetsBase,
    addresses: DebugAddrBase,
    /// The other half is in another file.
    half: Option<Half<'d>>,
}

/// What ties the two halves of a split unit together.
#[derive(Clone, Copy)]
struct Half<'d> {
    id: DwoId,
    /// The file of the other half; the folder that it counts from.
    name: Option<Value<'d>>,
    folder: Option<Value<'d>>,
}

/// The tables of one file, or of one unit's share of a package.
#[derive(Clone, Copy)]
pub(super) struct Tables<'d> {
    pub(super) role: Role,
    pub(super) info: Slice<'d>,
    pub(super) types: Slice<'d>,
    pub(super) abbreviations: Slice<'d>,
    pub(super) string_offsets: Slice<'d>,
    pub(super) lines: Slice<'d>,
    strings: DebugStr<Slice<'d>>,
    line_strings: DebugLineStr<Slice<'d>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Main,
    Supplement,
    Split,
}

pub(super) struct Dwarf<'d> {
    /// Part by part; in each those of `.debug_info` first, by offset.
    pub(super) units: Vec<Unit<'d>>,
    pub(super) big_endian: bool,
    /// Bytes of all entries: the measure for what reading them may cost.
    pub(super) size: usize,
    pub(super) parts: Vec<Tables<'d>>,
    /// The units of each part that are in its `.debug_info`.
    in_info: Vec<Range<usize>>,
    signatures: HashMap<u64, At>,
    addresses: DebugAddr<Slice<'d>>,
    /// Where nothing is linked yet: the section of each address.
    places: Option<&'d Places>,
}

/// Attributes of one entry. Compilers write a few dozen; without a bound, entries of one byte that have a million
/// attributes of no bytes would take for ever.
const MOST_ATTRIBUTES: usize = 256;

impl<'d> Dwarf<'d> {
    pub(super) fn of(sections: &'d DebugSections<'_>, skipped: &mut Skipped) -> Dwarf<'d> {
        let slice = |bytes: &'d [u8]| EndianSlice::new(bytes, sections.endian);
        let mut dwarf = Dwarf::main(sections, skipped);
        dwarf.add(
            sections.supplement.iter().map(|p| Tables::of(p, Role::Supplement, sections.endian)).collect(),
            skipped,
        );
        let halves: Vec<(DwoId, u32)> =
            (0..).zip(&dwarf.units).filter_map(|(n, u)| Some((u.half.filter(|_| u.live)?.id, n))).collect();
        let mut split: Vec<_> = sections.split.iter().map(|p| Tables::of(p, Role::Split, sections.endian)).collect();
        for package in &sections.packages {
            let whole = Tables::of(&package.part, Role::Split, sections.endian);
            let indices = [slice(&package.units), slice(&package.type_units)];
            split.extend(packages::shares(&whole, indices, halves.iter().map(|(id, _)| *id), skipped));
        }
        dwarf.add(split, skipped);
        dwarf.join(&halves, skipped);
        dwarf.count();
        dwarf.import();
        dwarf
    }

    /// The image's own file alone.
    fn main(sections: &'d DebugSections<'_>, skipped: &mut Skipped) -> Dwarf<'d> {
        let mut dwarf = Dwarf {
            units: Vec::new(),
            big_endian: sections.endian == RunTimeEndian::Big,
            size: 0,
            parts: Vec::new(),
            in_info: Vec::new(),
            signatures: HashMap::new(),
            addresses: DebugAddr::from(EndianSlice::new(&sections.main.addresses, sections.endian)),
            places: sections.main.places.as_ref(),
        };
        dwarf.add(vec![Tables::of(&sections.main, Role::Main, sections.endian)], skipped);
        dwarf
    }

    /// The files that hold the other halves of split units, each once, with the folder that its name counts from.
    pub(super) fn split_units(sections: &'d DebugSections<'_>) -> Vec<(Option<&'d str>, &'d str)> {
        if !Dwarf::may_be_split(sections) {
            return Vec::new();
        }
        let dwarf = Dwarf::main(sections, &mut Skipped::new());
        let mut all: Vec<_> = (0..)
            .zip(&dwarf.units)
            .filter_map(|(number, unit)| {
                let half = unit.half?;
                let folder = half.folder.and_then(|folder| dwarf.text(number, &folder));
                Some((folder, dwarf.text(number, &half.name?)?))
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Told without the abbreviations, which take as much memory as all the rest: DWARF 5 says it in a unit's header, and
    /// before, an abbreviation has `DW_AT_GNU_dwo_name`, a number of two bytes.
    fn may_be_split(sections: &'d DebugSections<'_>) -> bool {
        let info = EndianSlice::new(&sections.main.info, sections.endian);
        let mut headers = DebugInfo::from(info).units();
        let skeleton = |h: &UnitHeader<Slice<'d>>| matches!(h.type_(), UnitType::Skeleton(_));
        std::iter::from_fn(|| headers.next().ok().flatten()).any(|h| skeleton(&h))
            || sections.main.abbreviations.windows(2).any(|bytes| bytes == [0xb0, 0x42])
    }

    /// Reads where the units of some parts begin, and what their first entries say.
    fn add(&mut self, parts: Vec<Tables<'d>>, skipped: &mut Skipped) {
        let mut found = Vec::new();
        for tables in parts {
            let part = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
            let mut info = DebugInfo::from(tables.info).units();
            let mut types = DebugTypes::from(tables.types).units();
            every(|| info.next(), skipped, |header| found.push((part, header)));
            every(|| types.next(), skipped, |header| found.push((part, header)));
            self.size = self.size.saturating_add(tables.info.len()).saturating_add(tables.types.len());
            self.parts.push(tables);
        }
        let table = |(part, header): &(u32, UnitHeader<Slice<'d>>)| {
            let mut table = self.parts.get(*part as usize)?.abbreviations;
            table.skip(header.debug_abbrev_offset().0).ok()?;
            Some(table)
        };
        let abbreviations = abbreviations(found.par_iter().filter_map(table).collect());
        let units = found.par_iter().map(|found| {
            let abbreviations = abbreviations.get(&(table(found)?.slice().as_ptr() as usize))?.clone()?;
            unit(found.1, abbreviations, found.0, self.parts.get(found.0 as usize)?.role)
        });
        let units: Vec<Option<Unit<'d>>> = units.collect();
        skip(skipped, "damaged units of debug information", units.iter().filter(|u| u.is_none()).count());
        self.units.extend(units.into_iter().flatten());
    }

    /// Gives the halves in other files what only those in the image's own file know.
    fn join(&mut self, halves: &[(DwoId, u32)], skipped: &mut Skipped) {
        let mut alone: HashMap<DwoId, u32> = halves.iter().copied().collect();
        skip(skipped, "split units with the id of another one", halves.len() - alone.len());
        for number in 0..self.units.len() {
            let Some(half) = self.units.get(number).filter(|u| !u.live).and_then(|u| u.half) else { continue };
            let Some(skeleton) = alone.remove(&half.id).and_then(|n| self.units.get(n as usize)) else { continue };
            let (lines, addresses, language) = (skeleton.lines, skeleton.addresses, skeleton.language);
            if let Some(unit) = self.units.get_mut(number) {
                (unit.lines, unit.addresses, unit.live) = (lines, addresses, true);
                unit.language = unit.language.or(language);
            }
        }
        skip(skipped, "units whose debug information is in a .dwo file that was not found", alone.len());
    }

    /// Which numbers the units of a part have, and which unit has a signature.
    fn count(&mut self) {
        for part in 0..self.parts.len() {
            let of = |upto: usize| self.units.partition_point(|u| (u.part as usize) < upto);
            let (from, end) = (of(part), of(part + 1));
            let own = self.units.get(from..end).unwrap_or_default();
            let in_info = own.partition_point(|u| u.header.debug_info_offset().is_some());
            self.in_info.push(from..from + in_info);
        }
        for (number, unit) in (0u32..).zip(&self.units) {
            if let UnitType::Type { type_signature, type_offset }
            | UnitType::SplitType { type_signature, type_offset } = unit.header.type_()
            {
                self.signatures.entry(type_signature.0).or_insert(At { unit: number, offset: type_offset });
            }
        }
    }

    /// Finds the units of the supplement that are the image's: it is made for several files.
    fn import(&mut self) {
        let Some(shared) = self.supplement().and_then(|part| self.in_info.get(part)).cloned() else { return };
        let own = |units: &[Unit<'_>]| (0..).zip(units).filter(|(_, u)| u.live).map(|(n, _)| n).collect::<Vec<u32>>();
        let mut open = own(&self.units);
        while let Some(number) = open.pop() {
            for imported in self.imported(number).unwrap_or_default() {
                let at = imported as usize;
                if let Some(unit) = self.units.get_mut(at).filter(|u| shared.contains(&at) && !u.live) {
                    unit.live = true;
                    open.push(imported);
                }
            }
        }
    }

    /// The units that one imports. dwz writes them before everything else.
    fn imported(&self, number: u32) -> Option<Vec<u32>> {
        let unit = self.unit(number)?;
        let mut imported = Vec::new();
        let mut entries = unit.header.entries_raw(&unit.abbreviations, None).ok()?;
        let root = entries.read_abbreviation().ok()??;
        entries.skip_attributes(checked(root.attributes())?).ok()?;
        while let Ok(Some(entry)) = entries.read_abbreviation()
            && entry.tag() == gimli::DW_TAG_imported_unit
        {
            for specification in checked(entry.attributes())? {
                let value = entries.read_attribute(*specification).ok()?.value();
                imported.extend(self.target(number, &value).map(|at| at.unit));
            }
        }
        Some(imported)
    }

    pub(super) fn unit(&self, number: u32) -> Option<&Unit<'d>> {
        self.units.get(number as usize)
    }

    pub(super) fn entry(&self, at: At) -> Option<Entry<'d>> {
        let unit = self.unit(at.unit)?;
        let mut entries = unit.header.entries_raw(&unit.abbreviations, Some(at.offset)).ok()?;
        checked(entries.read_abbreviation().ok()??.attributes())?;
        unit.header.entry(&unit.abbreviations, at.offset).ok()
    }

    /// The entry that an attribute of a unit refers to.
    pub(super) fn target(&self, unit: u32, value: &Value<'d>) -> Option<At> {
        match value {
            AttributeValue::UnitRef(offset) => Some(At { unit, offset: *offset }),
            AttributeValue::DebugTypesRef(signature) => self.signatures.get(&signature.0).copied(),
            AttributeValue::DebugInfoRef(offset) => self.in_part(self.unit(unit)?.part as usize, *offset),
            AttributeValue::DebugInfoRefSup(offset) => self.in_part(self.supplement()?, *offset),
            _ => None,
        }
    }

    fn in_part(&self, part: usize, offset: DebugInfoOffset) -> Option<At> {
        let range = self.in_info.get(part)?;
        let info = self.units.get(range.clone())?;
        let start = |u: &Unit<'_>| u.header.debug_info_offset().map_or(0, |o| o.0);
        let number = info.partition_point(|u| start(u) <= offset.0).checked_sub(1)?;
        let offset = offset.to_unit_offset(&info.get(number)?.header)?;
        Some(At { unit: u32::try_from(range.start + number).ok()?, offset })
    }

    fn supplement(&self) -> Option<usize> {
        self.parts.iter().position(|p| p.role == Role::Supplement)
    }

    /// `None` too where it is not UTF-8.
    pub(super) fn text(&self, unit: u32, value: &Value<'d>) -> Option<&'d str> {
        let unit = self.unit(unit)?;
        self.text_in(self.parts.get(unit.part as usize)?, unit, value)
    }

    /// Of a unit, in the tables of a part that need not be its own: the file names of a split unit are in its other
    /// half's.
    pub(super) fn text_in(&self, part: &Tables<'d>, unit: &Unit<'d>, value: &Value<'d>) -> Option<&'d str> {
        let text = match value {
            AttributeValue::String(text) => *text,
            AttributeValue::DebugStrRef(offset) => part.strings.get_str(*offset).ok()?,
            AttributeValue::DebugStrRefSup(offset) => {
                self.parts.get(self.supplement()?)?.strings.get_str(*offset).ok()?
            }
            AttributeValue::DebugLineStrRef(offset) => part.line_strings.get_str(*offset).ok()?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offsets = DebugStrOffsets::from(part.string_offsets);
                let offset = offsets.get_str_offset(unit.header.format(), unit.strings, *index).ok()?;
                part.strings.get_str(offset).ok()?
            }
            _ => return None,
        };
        std::str::from_utf8(text.slice()).ok().filter(|t| !t.is_empty())
    }

    pub(super) fn name(&self, unit: u32, entry: &Entry<'d>) -> Option<&'d str> {
        self.text(unit, &entry.attr_value(gimli::DW_AT_name)?)
    }

    /// The name of what a pointer points to, through a few qualifiers, and the entry that has it.
    pub(super) fn pointed(&self, mut at: At) -> Option<(At, &'d str)> {
        for _ in 0..4 {
            let target = self.entry(at)?;
            if let Some(name) = self.name(at.unit, &target) {
                return Some((at, name));
            }
            at = self.target(at.unit, &target.attr_value(gimli::DW_AT_type)?)?;
        }
        None
    }

    /// The address that a location is, where it is one address and nothing else; and in a file that is not linked the
    /// section that it counts from, without which it is no place.
    pub(super) fn place(&self, unit: u32, location: Expression<Slice<'d>>) -> Option<(Option<u32>, u64)> {
        let unit = self.unit(unit)?;
        let mut operations = location.operations(unit.header.encoding());
        let (address, section) = match operations.next().ok()?? {
            Operation::Address { address } => {
                let info = self.parts.get(unit.part as usize)?.info;
                // Behind the byte that says what it is.
                let stands = || (location.0.slice().as_ptr() as usize).checked_sub(info.slice().as_ptr() as usize);
                (address, self.places.map(|p| p.info.section(stands()? as u64 + 1)))
            }
            Operation::AddressIndex { index } => self.indexed(unit, index)?,
            _ => return None,
        };
        let section = match section {
            Some(section) => Some(section?),
            None => None,
        };
        match operations.next().ok()? {
            None => Some((section, address)),
            // clang's for one of several variables that it merged.
            Some(Operation::PlusConstant { value }) => {
                operations.next().ok()?.is_none().then(|| (section, address.wrapping_add(value)))
            }
            Some(_) => None,
        }
    }

    fn indexed(&self, unit: &Unit<'d>, index: DebugAddrIndex) -> Option<(u64, Option<Option<u32>>)> {
        let size = unit.header.address_size();
        let address = self.addresses.get_address(size, unit.addresses, index).ok()?;
        let stands = || (index.0 as u64).checked_mul(size.into())?.checked_add(unit.addresses.0 as u64);
        Some((address, self.places.map(|p| p.addresses.section(stands()?))))
    }
}

impl<'d> Tables<'d> {
    fn of(part: &'d Part<'_>, role: Role, endian: RunTimeEndian) -> Tables<'d> {
        let slice = |bytes: &'d [u8]| EndianSlice::new(bytes, endian);
        Tables {
            role,
            info: slice(&part.info),
            types: slice(&part.types),
            abbreviations: slice(&part.abbreviations),
            string_offsets: slice(&part.string_offsets),
            lines: slice(&part.lines),
            strings: DebugStr::from(slice(&part.strings)),
            line_strings: DebugLineStr::from(slice(&part.line_strings)),
        }
    }

    pub(super) fn line_tables(&self) -> DebugLine<Slice<'d>> {
        DebugLine::from(self.lines)
    }
}

fn every<'d>(
    mut next: impl FnMut() -> gimli::Result<Option<UnitHeader<Slice<'d>>>>,
    skipped: &mut Skipped,
    mut each: impl FnMut(UnitHeader<Slice<'d>>),
) {
    loop {
        match next() {
            Ok(Some(header)) => each(header),
            Ok(None) => return,
            Err(_) => return skip(skipped, "sections of debug information that are damaged from some unit on", 1),
        }
    }
}

/// Abbreviations by where they lie in memory. Each table ends before the next one that a unit names: tables of real
/// files do not overlap, and a thousand that are each other's tails would be read a thousand times.
fn abbreviations(mut starts: Vec<Slice<'_>>) -> BTreeMap<usize, Option<Arc<Abbreviations>>> {
    let place = |table: &Slice<'_>| table.slice().as_ptr() as usize;
    // The shares of a package end at different places.
    starts.sort_unstable_by_key(|table| (place(table), table.len()));
    starts.dedup_by_key(|table| place(table));
    let ends = starts.iter().skip(1).map(place).chain([usize::MAX]);
    let tables: Vec<(Slice<'_>, usize)> = starts.iter().copied().zip(ends).collect();
    let read = |&(table, end): &(Slice<'_>, usize)| {
        let mut table = table;
        table.truncate(table.len().min(end.saturating_sub(place(&table)))).ok()?;
        let table = DebugAbbrev::from(table).abbreviations(DebugAbbrevOffset(0));
        Some(Arc::new(table.ok()?))
    };
    tables.par_iter().map(|table| (place(&table.0), read(table))).collect::<Vec<_>>().into_iter().collect()
}

fn unit(header: UnitHeader<Slice<'_>>, abbreviations: Arc<Abbreviations>, part: u32, role: Role) -> Option<Unit<'_>> {
    let file = if role == Role::Split { DwarfFileType::Dwo } else { DwarfFileType::Main };
    let mut unit = Unit {
        header,
        abbreviations,
        part,
        lines: None,
        live: role == Role::Main,
        language: None,
        strings: DebugStrOffsetsBase::default_for_encoding_and_file(header.encoding(), file),
        addresses: DebugAddrBase(0),
        half: None,
    };
    let (mut id, mut name, mut folder) = (None, None, None);
    match header.type_() {
        UnitType::Skeleton(own) | UnitType::SplitCompilation(own) => id = Some(own),
        // A type is the image's when something of the image refers to it.
        UnitType::Type { .. } | UnitType::SplitType { .. } => unit.live = role != Role::Supplement,
        _ => {}
    }
    let mut entries = header.entries_raw(&unit.abbreviations, None).ok()?;
    let root = entries.read_abbreviation().ok()??;
    for specification in checked(root.attributes())? {
        let attribute = entries.read_attribute(*specification).ok()?;
        match (specification.name(), attribute.value()) {
            (_, AttributeValue::DebugLineRef(offset)) => unit.lines = Some((part, offset)),
            (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.strings = base,
            (_, AttributeValue::DebugAddrBase(base)) => unit.addresses = base,
            (_, AttributeValue::Language(language)) => unit.language = Some(language),
            (_, AttributeValue::DwoId(own)) => id = Some(own),
            (gimli::DW_AT_GNU_dwo_name | gimli::DW_AT_dwo_name, value) => name = Some(value),
            (gimli::DW_AT_comp_dir, value) => folder = Some(value),
            _ => {}
        }
    }
    unit.half = id.map(|id| Half { id, name, folder });
    Some(unit)
}

/// `None` when there are more than an entry can have.
pub(super) fn checked(attributes: &[gimli::AttributeSpecification]) -> Option<&[gimli::AttributeSpecification]> {
    (attributes.len() <= MOST_ATTRIBUTES).then_some(attributes)
}
