//! The units of debug information: where each begins, what its abbreviations mean, and how its attributes refer to
//! strings, addresses and entries elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugAddr, DebugAddrBase, DebugAddrIndex, DebugInfo,
    DebugLine, DebugLineOffset, DebugLineStr, DebugStr, DebugStrOffsets, DebugStrOffsetsBase, DebugTypes, Expression,
    Operation, RunTimeEndian, UnitHeader, UnitOffset, UnitType,
};
use rayon::prelude::*;

use super::sections::{DebugSections, Slice};
use super::{Skipped, skip};

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
    pub(super) lines: Option<DebugLineOffset>,
    strings: DebugStrOffsetsBase,
    addresses: DebugAddrBase,
    /// The rest of it is in a `.dwo` file.
    split: bool,
}

pub(super) struct Dwarf<'d> {
    /// Those of `.debug_info` first, by offset.
    pub(super) units: Vec<Unit<'d>>,
    pub(super) lines: DebugLine<Slice<'d>>,
    pub(super) big_endian: bool,
    /// Bytes of all entries: the measure for what reading them may cost.
    pub(super) size: usize,
    in_info: usize,
    signatures: HashMap<u64, At>,
    strings: DebugStr<Slice<'d>>,
    line_strings: DebugLineStr<Slice<'d>>,
    string_offsets: DebugStrOffsets<Slice<'d>>,
    addresses: DebugAddr<Slice<'d>>,
}

/// Attributes of one entry. Compilers write a few dozen; without a bound, entries of one byte that have a million
/// attributes of no bytes would take for ever.
const MOST_ATTRIBUTES: usize = 256;

impl<'d> Dwarf<'d> {
    pub(super) fn of(sections: &'d DebugSections<'_>, skipped: &mut Skipped) -> Dwarf<'d> {
        let (mut headers, in_info) = headers(sections, skipped);
        let offsets = headers.iter().map(UnitHeader::debug_abbrev_offset);
        let abbreviations = abbreviations(sections, offsets);
        let units: Vec<Option<Unit<'d>>> = std::mem::take(&mut headers)
            .into_par_iter()
            .map(|header| unit(header, abbreviations.get(&header.debug_abbrev_offset().0)?.clone()?))
            .collect();
        let before = units.len();
        let in_info = units.iter().take(in_info).flatten().count();
        let units: Vec<Unit<'d>> = units.into_iter().flatten().collect();
        skip(skipped, "damaged units of debug information", before - units.len());
        let split = units.iter().filter(|u| u.split).count();
        skip(skipped, "units whose debug information is in a .dwo file", split);
        let signatures = (0u32..).zip(&units).filter_map(|(number, unit)| match unit.header.type_() {
            UnitType::Type { type_signature, type_offset } => {
                Some((type_signature.0, At { unit: number, offset: type_offset }))
            }
            _ => None,
        });
        Dwarf {
            lines: DebugLine::from(sections.slice(&sections.lines)),
            big_endian: sections.endian == RunTimeEndian::Big,
            size: sections.info.len() + sections.types.len(),
            in_info,
            signatures: signatures.collect(),
            strings: DebugStr::from(sections.slice(&sections.strings)),
            line_strings: DebugLineStr::from(sections.slice(&sections.line_strings)),
            string_offsets: DebugStrOffsets::from(sections.slice(&sections.string_offsets)),
            addresses: DebugAddr::from(sections.slice(&sections.addresses)),
            units,
        }
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
            AttributeValue::DebugInfoRef(offset) => {
                let info = self.units.get(..self.in_info)?;
                let start = |u: &Unit<'_>| u.header.debug_info_offset().map_or(0, |o| o.0);
                let number = info.partition_point(|u| start(u) <= offset.0).checked_sub(1)?;
                let offset = offset.to_unit_offset(&info.get(number)?.header)?;
                Some(At { unit: u32::try_from(number).ok()?, offset })
            }
            _ => None,
        }
    }

    /// `None` too where it is not UTF-8.
    pub(super) fn text(&self, unit: u32, value: &Value<'d>) -> Option<&'d str> {
        let unit = self.unit(unit)?;
        let text = match value {
            AttributeValue::String(text) => *text,
            AttributeValue::DebugStrRef(offset) => self.strings.get_str(*offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => self.line_strings.get_str(*offset).ok()?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offset = self.string_offsets.get_str_offset(unit.header.format(), unit.strings, *index).ok()?;
                self.strings.get_str(offset).ok()?
            }
            _ => return None,
        };
        std::str::from_utf8(text.slice()).ok().filter(|t| !t.is_empty())
    }

    pub(super) fn name(&self, unit: u32, entry: &Entry<'d>) -> Option<&'d str> {
        self.text(unit, &entry.attr_value(gimli::DW_AT_name)?)
    }

    /// The address that a location is, where it is one address and nothing else.
    pub(super) fn address(&self, unit: &Unit<'d>, location: Expression<Slice<'d>>) -> Option<u64> {
        let mut operations = location.operations(unit.header.encoding());
        let address = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.indexed(unit, index)?,
            _ => return None,
        };
        match operations.next().ok()? {
            None => Some(address),
            // clang's for one of several variables that it merged.
            Some(Operation::PlusConstant { value }) => {
                operations.next().ok()?.is_none().then(|| address.wrapping_add(value))
            }
            Some(_) => None,
        }
    }

    fn indexed(&self, unit: &Unit<'d>, index: DebugAddrIndex) -> Option<u64> {
        self.addresses.get_address(unit.header.address_size(), unit.addresses, index).ok()
    }
}

/// Those of `.debug_info` and how many they are, then those of `.debug_types` (DWARF 4).
fn headers<'d>(sections: &'d DebugSections<'_>, skipped: &mut Skipped) -> (Vec<UnitHeader<Slice<'d>>>, usize) {
    let mut info = DebugInfo::from(sections.slice(&sections.info)).units();
    let mut types = DebugTypes::from(sections.slice(&sections.types)).units();
    let mut headers = every(|| info.next(), skipped);
    let in_info = headers.len();
    headers.extend(every(|| types.next(), skipped));
    (headers, in_info)
}

fn every<'d>(
    mut next: impl FnMut() -> gimli::Result<Option<UnitHeader<Slice<'d>>>>,
    skipped: &mut Skipped,
) -> Vec<UnitHeader<Slice<'d>>> {
    let mut headers = Vec::new();
    loop {
        match next() {
            Ok(Some(header)) => headers.push(header),
            Ok(None) => return headers,
            Err(_) => {
                skip(skipped, "sections of debug information that are damaged from some unit on", 1);
                return headers;
            }
        }
    }
}

/// Abbreviations by their offset. Each table ends before the next one that a unit names: tables of real files do not
/// overlap, and a thousand that are each other's tails would be read a thousand times.
fn abbreviations(
    sections: &DebugSections<'_>,
    used: impl Iterator<Item = DebugAbbrevOffset>,
) -> BTreeMap<usize, Option<Arc<Abbreviations>>> {
    let mut starts: Vec<usize> = used.map(|offset| offset.0).collect();
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([sections.abbreviations.len()]);
    let ranges: Vec<(usize, usize)> = starts.iter().copied().zip(ends).collect();
    let read = |&(start, end): &(usize, usize)| {
        let table = sections.abbreviations.get(start..end)?;
        let table = DebugAbbrev::new(table, sections.endian).abbreviations(DebugAbbrevOffset(0));
        Some(Arc::new(table.ok()?))
    };
    ranges.par_iter().map(|range| (range.0, read(range))).collect::<Vec<_>>().into_iter().collect()
}

fn unit<'d>(header: UnitHeader<Slice<'d>>, abbreviations: Arc<Abbreviations>) -> Option<Unit<'d>> {
    let mut unit = Unit {
        header,
        abbreviations,
        lines: None,
        strings: DebugStrOffsetsBase(0),
        addresses: DebugAddrBase(0),
        split: matches!(header.type_(), UnitType::Skeleton(_)),
    };
    let mut entries = header.entries_raw(&unit.abbreviations, None).ok()?;
    let root = entries.read_abbreviation().ok()??;
    for specification in checked(root.attributes())? {
        match entries.read_attribute(*specification).ok()?.value() {
            AttributeValue::DebugLineRef(offset) => unit.lines = Some(offset),
            AttributeValue::DebugStrOffsetsBase(base) => unit.strings = base,
            AttributeValue::DebugAddrBase(base) => unit.addresses = base,
            _ if specification.name() == gimli::DW_AT_GNU_dwo_name => unit.split = true,
            _ => {}
        }
    }
    Some(unit)
}

/// `None` when there are more than an entry can have.
pub(super) fn checked(attributes: &[gimli::AttributeSpecification]) -> Option<&[gimli::AttributeSpecification]> {
    (attributes.len() <= MOST_ATTRIBUTES).then_some(attributes)
}
