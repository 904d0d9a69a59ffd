//! Two links of the same objects in another order, held against each other as sets.

use std::collections::BTreeMap;

use super::{Linked, first_difference};
use crate::variant::program::{Program, Unit};

/// A symbol, with the name of its output section in place of the index.
type Named<'a> = (&'a str, u8, u64, std::result::Result<&'a str, usize>);

/// What of a COMDAT copy must be the same when another object gives it: section, output section, size, symbols.
type Twin<'a> = (&'a str, &'a str, u64, Vec<&'a str>);

/// For every unit of `program` its index in `other`, a link of the same objects in another order. Fails, with the name,
/// where a symbol or a unit is new, gone, or of another size, or where bytes outside relocated fields differ.
///
/// The first object that brings a COMDAT copy wins, so a copy may come from another object: then it must be the same.
/// What the linker makes or merges has no bytes of its own to compare; of the unwind tables, which it cuts into pieces as
/// the order has it, one may be new or gone (`None`).
pub fn same_program(program: &Program, other: &Program) -> Result<Vec<Option<usize>>, String> {
    same_outputs(&program.baseline, &other.baseline)?;
    same_symbols(&program.baseline, &other.baseline)?;
    let at: BTreeMap<_, usize> = other.units.iter().enumerate().map(|(i, u)| (&u.key, i)).collect();
    let mut twins = twins(program, other);
    let mut found = Vec::with_capacity(program.units.len());
    for unit in &program.units {
        let known = at.get(&unit.key).copied();
        let index = known.or_else(|| twins.get_mut(&twin(program, unit)).and_then(Vec::pop));
        match index.and_then(|i| other.units.get(i)) {
            Some(now) => {
                same_unit(program, unit, other, now).map_err(|why| format!("{}: {why}", unit.key))?;
            }
            None if unwinds(unit) => {}
            None => return Err(format!("{} is gone, and no object brings its like", unit.key)),
        }
        found.push(index);
    }
    match twins.values().flatten().filter_map(|&i| other.units.get(i)).find(|u| !unwinds(u)) {
        Some(new) => Err(format!("{} is new", new.key)),
        None => Ok(found),
    }
}

fn same_outputs(was: &Linked, is: &Linked) -> Result<(), String> {
    let names = |linked: &Linked| {
        let mut all: Vec<_> = linked.outputs.iter().map(|o| (o.name.clone(), o.kind, o.flags)).collect();
        all.sort_unstable();
        all
    };
    let (was, is) = (names(was), names(is));
    match was.iter().find(|o| !is.contains(o)).or_else(|| is.iter().find(|o| !was.contains(o))) {
        Some((name, ..)) => Err(format!("the output section {name} is not in both")),
        None => Ok(()),
    }
}

fn same_symbols(was: &Linked, is: &Linked) -> Result<(), String> {
    let (was, is) = (symbols(was), symbols(is));
    let differ = was.iter().zip(&is).find(|(a, b)| a != b);
    match differ {
        Some((a, b)) => Err(format!("the symbol {} ({} bytes) became {} ({} bytes)", a.0, a.2, b.0, b.2)),
        None if was.len() != is.len() => Err(format!("{} symbols became {}", was.len(), is.len())),
        None => Ok(()),
    }
}

fn symbols(linked: &Linked) -> Vec<Named<'_>> {
    let place = |index: usize| linked.outputs.get(index).map(|o| o.name.as_str()).ok_or(index);
    let mut all: Vec<Named> =
        linked.symbols.iter().map(|s| (s.name.as_str(), s.info, s.size, place(s.section))).collect();
    all.sort_unstable();
    all
}

/// Units of `other` that `program` has not, by what they are.
fn twins<'a>(program: &Program, other: &'a Program) -> BTreeMap<Twin<'a>, Vec<usize>> {
    let mut all: BTreeMap<Twin, Vec<usize>> = BTreeMap::new();
    for (i, unit) in other.units.iter().enumerate().filter(|(_, u)| program.unit(&u.key).is_none()) {
        all.entry(twin(other, unit)).or_default().push(i);
    }
    all
}

/// What the linker makes is known by its output section alone: unwind tables are cut into other pieces.
fn twin<'a>(program: &'a Program, unit: &'a Unit) -> Twin<'a> {
    if unit.source.is_none() {
        return ("", &unit.output, 0, Vec::new());
    }
    let mut symbols: Vec<&str> = program.symbols(unit).collect();
    symbols.sort_unstable();
    (&unit.key.section, &unit.output, unit.size, symbols)
}

fn unwinds(unit: &Unit) -> bool {
    unit.source.is_none() && unit.output.starts_with(".eh_frame")
}

fn same_unit(program: &Program, was: &Unit, other: &Program, is: &Unit) -> Result<(), String> {
    if was.output != is.output {
        return Err(format!("it moved from {} to {}", was.output, is.output));
    }
    // What the linker merges, or makes, goes to whoever comes first.
    let (Some((_, old)), Some((_, new))) = (program.section(was), other.section(is)) else { return Ok(()) };
    if old.size != was.size || new.size != is.size || old.kind != new.kind {
        return Ok(());
    }
    if was.size != is.size {
        return Err(format!("its {} bytes became {}", was.size, is.size));
    }
    let rewritten = was.key.section.starts_with(".eh_frame") || !was.class.paddable() && old.entry_size > 0;
    if !old.has_bytes() || was.size == 0 || rewritten {
        return Ok(());
    }
    let content =
        |p: &Program, u: &Unit| p.baseline.content(&p.bytes, &u.output, u.address, u.size).map(<[u8]>::to_vec);
    let (Some(a), Some(b)) = (content(program, was), content(other, is)) else {
        return Err("its bytes are not in the linked file".into());
    };
    match first_difference(&a, &b, &old.masks) {
        Some(at) => Err(format!("its byte {at:#x} became another")),
        None => Ok(()),
    }
}
