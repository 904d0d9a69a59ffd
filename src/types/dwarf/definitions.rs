//! Structs, classes and unions by name, of every unit: equal ones once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use gimli::{AttributeValue, DW_TAG_typedef, UnitOffset};
use rayon::prelude::*;

use super::layout::Builder;
use super::lines::Files;
use super::scopes::{Cursor, Scopes, open_type, walk};
use super::shape::Shapes;
use super::units::{At, Dwarf, Value};
use super::{Skipped, skip};
use crate::types::{DEEPEST, Definition};

/// One definition, the first of its equals.
pub(super) struct Found {
    pub(super) at: At,
    /// Its whole name.
    pub(super) name: String,
    /// Equal ones, itself too.
    pub(super) copies: u64,
}

impl Found {
    pub(super) fn defined<'d>(
        self,
        dwarf: &Dwarf<'d>,
        files: &mut Files<'_, 'd>,
        builder: &mut Builder<'_, 'd>,
    ) -> Option<Definition<'d>> {
        let entry = dwarf.entry(self.at)?;
        let unit = dwarf.unit(self.at.unit)?;
        let root = dwarf.entry(At { unit: self.at.unit, offset: UnitOffset(unit.header.size_of_header()) });
        let line = entry.attr(gimli::DW_AT_decl_line).and_then(|a| u32::try_from(a.udata_value()?).ok());
        let file = match entry.attr_value(gimli::DW_AT_decl_file) {
            Some(AttributeValue::FileIndex(index)) => files.get(self.at.unit, index),
            _ => None,
        };
        let unit = root.and_then(|root| dwarf.name(self.at.unit, &root));
        let (name, copies) = (self.name, self.copies);
        Some(Definition { name, type_id: builder.id(self.at)?, unit, file, line, copies })
    }
}

/// Those whose name, alone or with what it is written behind, is `wanted`; in the order of units.
pub(super) fn find(
    dwarf: &Dwarf<'_>,
    wanted: &(dyn Fn(&str) -> bool + Sync),
    skipped: &mut Skipped,
) -> (Vec<Scopes>, Vec<Found>) {
    let numbers = 0..u32::try_from(dwarf.units.len()).unwrap_or(u32::MAX);
    let units: Vec<_> = numbers.into_par_iter().map(|number| in_unit(dwarf, number, wanted)).collect();
    let damaged = units.iter().filter(|(_, whole, _)| !whole).count();
    skip(skipped, "damaged units of debug information", damaged);
    let (mut scopes, mut kept, mut seen) = (Vec::new(), Vec::<Found>::new(), HashMap::new());
    for (own, _, found) in units {
        scopes.push(own);
        for (at, name, shape) in found {
            let first = shape.map(|shape| *seen.entry(shape).or_insert(kept.len()));
            match first.and_then(|first| kept.get_mut(first)) {
                Some(first) => first.copies += 1,
                None => kept.push(Found { at, name, copies: 1 }),
            }
        }
    }
    (scopes, kept)
}

type OfUnit = (Scopes, bool, Vec<(At, String, Option<u64>)>);

fn in_unit(dwarf: &Dwarf<'_>, number: u32, wanted: &(dyn Fn(&str) -> bool + Sync)) -> OfUnit {
    let mut named: Vec<(At, &str, bool)> = Vec::new();
    let walked = walk(dwarf, number, |entries, at, abbreviation| {
        let tag = abbreviation.tag();
        if !open_type(tag) && tag != DW_TAG_typedef {
            return entries.skip_attributes(abbreviation.attributes()).ok();
        }
        if let Some(name) = defined(dwarf, number, entries, abbreviation)? {
            named.push((at, name, tag == DW_TAG_typedef));
        }
        Some(())
    });
    // Its own entries about once, and those of other units that hold what it shares with them.
    let own = dwarf.unit(number).map_or(0, |u| u.header.length_including_self());
    let mut shapes = Shapes::new(dwarf, own.saturating_mul(2).saturating_add(dwarf.size / dwarf.units.len().max(1)));
    let found = named.into_iter().filter_map(|(at, plain, typedef)| {
        let scope = walked.scopes.name(dwarf, at);
        let name = scope.map_or_else(|| plain.to_string(), |scope| format!("{scope}::{plain}"));
        let is = wanted(plain) || (name.len() > plain.len() && wanted(&name));
        if !is || (typedef && !stands_alone(dwarf, at, wanted)) {
            return None;
        }
        let shape = shapes.of(at).map(|shape| {
            let mut hasher = DefaultHasher::new();
            (&name, shape).hash(&mut hasher);
            hasher.finish()
        });
        Some((at, name, shape))
    });
    let found = found.collect();
    (walked.scopes, walked.whole, found)
}

/// The name of an entry that is no mere declaration, read where the walk is.
fn defined<'d>(
    dwarf: &Dwarf<'d>,
    unit: u32,
    entries: &mut Cursor<'_, 'd>,
    abbreviation: &gimli::Abbreviation,
) -> Option<Option<&'d str>> {
    let (mut name, mut completes, mut declared): (Option<Value<'d>>, _, _) = (None, None, false);
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification).ok()?;
        match attribute.name() {
            gimli::DW_AT_name => name = Some(attribute.value()),
            gimli::DW_AT_specification => completes = Some(attribute.value()),
            gimli::DW_AT_declaration | gimli::DW_AT_signature => declared = true,
            _ => {}
        }
    }
    if declared {
        return Some(None);
    }
    let of_declaration = || {
        let at = dwarf.target(unit, completes.as_ref()?)?;
        dwarf.name(at.unit, &dwarf.entry(at)?)
    };
    Some(name.and_then(|name| dwarf.text(unit, &name)).or_else(of_declaration))
}

/// A typedef of what has no name of its own, or of what is not found under its own.
fn stands_alone(dwarf: &Dwarf<'_>, at: At, wanted: &(dyn Fn(&str) -> bool + Sync)) -> bool {
    let mut next = Some(at);
    for _ in 0..DEEPEST {
        let Some((at, entry)) = next.and_then(|at| Some((at, dwarf.entry(at)?))) else { return false };
        if open_type(entry.tag()) {
            let declared = entry.attr_value(gimli::DW_AT_declaration) == Some(AttributeValue::Flag(true));
            return !declared && dwarf.name(at.unit, &entry).is_none_or(|name| !wanted(name));
        }
        let aliases = [gimli::DW_TAG_typedef, gimli::DW_TAG_const_type, gimli::DW_TAG_volatile_type];
        let attribute = [gimli::DW_AT_type, gimli::DW_AT_signature].iter().find_map(|name| entry.attr_value(*name));
        next = attribute.filter(|_| aliases.contains(&entry.tag())).and_then(|value| dwarf.target(at.unit, &value));
    }
    false
}
