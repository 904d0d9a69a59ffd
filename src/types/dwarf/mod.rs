//! DWARF 2 to 5 → [`Types`], by the `gimli` crate: of gcc, clang and rustc, with type units and compressed sections, of
//! programs and of objects, split into several files or not.
//!
//! Units are walked in parallel for variables at fixed addresses; then the types that those contain are read, each
//! once. Nothing in a file may cost more than its size justifies: tables that overlap, entries that are read again and
//! again and what expands too much are left out and counted.

mod definitions;
mod layout;
mod lines;
mod packages;
mod relocate;
mod scopes;
mod sections;
mod shape;
mod units;
mod variables;

use std::collections::BTreeMap;

pub use sections::DebugSections;

use super::{Definition, TypeTable, Types};
use crate::image::TypesFrom;

/// How many of what were left out, by reason.
type Skipped = BTreeMap<&'static str, u64>;

fn skip(skipped: &mut Skipped, reason: &'static str, times: usize) {
    if times > 0 {
        *skipped.entry(reason).or_insert(0) += times as u64;
    }
}

impl DebugSections<'_> {
    /// The files that hold the other halves of split units, each once: its name, and the folder that it counts from.
    #[must_use]
    pub fn split_units(&self) -> Vec<(Option<&str>, &str)> {
        units::Dwarf::split_units(self)
    }

    /// How much there is to read, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let packages = self.packages.iter().map(|p| &p.part);
        let parts = std::iter::once(&self.main).chain(&self.supplement).chain(&self.split).chain(packages);
        parts.map(|part| (part.info.len() + part.types.len()) as u64).sum()
    }

    /// Reads what the sections declare. Never fails: what is damaged is counted in [`Types::skipped`].
    #[must_use]
    pub fn read(&self) -> Types<'_> {
        let mut skipped = self.skipped.clone();
        let dwarf = units::Dwarf::of(self, &mut skipped);
        let (scopes, found) = variables::find(&dwarf, &mut skipped);
        let mut builder = layout::Builder::new(&dwarf, scopes);
        let mut files = lines::Files::new(&dwarf);
        let mut variables = Vec::with_capacity(found.len());
        for at_address in found {
            variables.push(at_address.declared(&dwarf, &mut files, &mut builder));
        }
        files.finish(&mut skipped);
        variables.sort_by_key(|v| (v.section, v.address));
        let list = builder.finish(&mut skipped);
        let table = TypeTable { list };
        Types { from: Some(TypesFrom::Dwarf), table, variables, definitions: Vec::new(), skipped }
    }

    /// Reads the structs, classes and unions of which `wanted` says yes to the name, alone or with what it is written
    /// behind (`ns::Outer`), and what they contain. No variables.
    #[must_use]
    pub fn read_named(&self, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Types<'_> {
        let mut skipped = self.skipped.clone();
        let dwarf = units::Dwarf::of(self, &mut skipped);
        let (scopes, found) = definitions::find(&dwarf, wanted, &mut skipped);
        let mut builder = layout::Builder::new(&dwarf, scopes);
        let mut files = lines::Files::new(&dwarf);
        let defined = found.into_iter().filter_map(|found| found.defined(&dwarf, &mut files, &mut builder));
        let mut definitions: Vec<Definition<'_>> = defined.collect();
        files.finish(&mut skipped);
        definitions.sort_by(|a, b| a.name.cmp(&b.name).then(b.copies.cmp(&a.copies)));
        let table = TypeTable { list: builder.finish(&mut skipped) };
        Types { from: Some(TypesFrom::Dwarf), table, variables: Vec::new(), definitions, skipped }
    }
}
