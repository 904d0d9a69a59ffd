//! Entries of variables that have a fixed address.

use gimli::{AttributeValue, DW_AT_location, DW_TAG_variable, Reader as _};
use rayon::prelude::*;

use super::layout::Builder;
use super::lines::Files;
use super::scopes::{Scopes, Walked, walk};
use super::units::{At, Dwarf, Entry};
use super::{Skipped, skip};
use crate::types::Variable;
use crate::units::Addr;

/// A variable's entry, and the address it has.
pub(super) struct AtAddress {
    at: At,
    section: Option<u32>,
    address: u64,
}

/// Of all units that are the image's, in their order.
pub(super) fn find(dwarf: &Dwarf<'_>, skipped: &mut Skipped) -> (Vec<Scopes>, Vec<AtAddress>) {
    let numbers = 0..u32::try_from(dwarf.units.len()).unwrap_or(u32::MAX);
    let units: Vec<(Walked, Vec<AtAddress>)> = numbers.into_par_iter().map(|number| in_unit(dwarf, number)).collect();
    let damaged = units.iter().filter(|(walked, _)| !walked.whole).count();
    skip(skipped, "damaged units of debug information", damaged);
    let mut all = Vec::new();
    let scopes = units.into_iter().map(|(walked, found)| {
        all.extend(found);
        walked.scopes
    });
    (scopes.collect(), all)
}

/// Function-local statics lie deep inside, so every entry is passed; nearly all are skipped unread.
fn in_unit(dwarf: &Dwarf<'_>, number: u32) -> (Walked, Vec<AtAddress>) {
    let mut found = Vec::new();
    let walked = walk(dwarf, number, |entries, at, abbreviation| {
        let attributes = abbreviation.attributes();
        if abbreviation.tag() != DW_TAG_variable || !attributes.iter().any(|a| a.name() == DW_AT_location) {
            return entries.skip_attributes(attributes).ok();
        }
        for specification in attributes {
            let attribute = entries.read_attribute(*specification).ok()?;
            if attribute.name() == DW_AT_location
                && let Some(location) = attribute.exprloc_value()
                && !location.0.is_empty()
                && let Some((section, address)) = dwarf.place(number, location)
            {
                found.push(AtAddress { at, section, address });
            }
        }
        Some(())
    });
    (walked, found)
}

/// How far a definition is followed to the declaration it completes.
const STEPS: usize = 8;

impl AtAddress {
    /// A definition leaves out what its declaration (a static member's, an `extern`'s) or the abstract instance of its
    /// function says already.
    pub(super) fn declared<'d>(
        &self,
        dwarf: &Dwarf<'d>,
        files: &mut Files<'_, 'd>,
        builder: &mut Builder<'_, 'd>,
    ) -> Variable<'d> {
        let mut out = Variable {
            name: None,
            linkage_name: None,
            section: self.section,
            address: Addr(self.address),
            file: None,
            line: None,
            align: None,
            type_id: None,
        };
        let mut next = Some(self.at);
        for _ in 0..STEPS {
            let Some((at, entry)) = next.take().and_then(|at| Some((at, dwarf.entry(at)?))) else { break };
            fill(&mut out, at.unit, &entry, dwarf, files, builder);
            next = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin]
                .iter()
                .find_map(|name| dwarf.target(at.unit, &entry.attr_value(*name)?));
        }
        out
    }
}

fn fill<'d>(
    out: &mut Variable<'d>,
    unit: u32,
    entry: &Entry<'d>,
    dwarf: &Dwarf<'d>,
    files: &mut Files<'_, 'd>,
    builder: &mut Builder<'_, 'd>,
) {
    let text = |name| dwarf.text(unit, &entry.attr_value(name)?);
    let number = |name| entry.attr(name)?.udata_value();
    out.name = out.name.or_else(|| text(gimli::DW_AT_name));
    out.linkage_name = out.linkage_name.or_else(|| text(gimli::DW_AT_linkage_name));
    out.linkage_name = out.linkage_name.or_else(|| text(gimli::DW_AT_MIPS_linkage_name));
    out.align = out.align.or_else(|| number(gimli::DW_AT_alignment));
    out.type_id = out.type_id.or_else(|| builder.id(dwarf.target(unit, &entry.attr_value(gimli::DW_AT_type)?)?));
    // File and line belong together: a definition may repeat the line alone when its file is the same.
    let line = number(gimli::DW_AT_decl_line).and_then(|l| u32::try_from(l).ok());
    let file = entry.attr_value(gimli::DW_AT_decl_file).and_then(|value| match value {
        AttributeValue::FileIndex(index) => files.get(unit, index),
        _ => None,
    });
    out.line = out.line.or(line);
    out.file = out.file.or(file);
}
