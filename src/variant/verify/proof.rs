//! A variant against the pristine link: the same program, and the landing that was promised.

use goblin::elf::section_header::{SHF_MERGE, SHT_NOBITS};

use super::linked::{Output, RELRO_PADDING};
use super::{Linked, first_difference};
use crate::variant::plan::Plan;
use crate::variant::program::{Program, Unit};
use crate::variant::{LINE, phase};

/// What was checked, in numbers: a proof that checked nothing shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Proof {
    /// Units whose presence, order and size were checked.
    pub units: u32,
    /// Units that landed on a promised phase.
    pub targets: u32,
    /// Symbols of the linked file that are the same in name, type, size and section.
    pub symbols: u32,
    /// Symbols whose address in the linked file is the map's landing plus their offset.
    pub placed_symbols: u32,
    /// Bytes equal to the pristine link's.
    pub bytes: u64,
    /// Bytes that relocations fill in, not compared.
    pub masked: u64,
    /// Units whose bytes were not compared: no bytes (`.bss`), merged, or made by the linker.
    pub uncompared: u32,
    /// Objects that were patched and read again.
    pub objects: u32,
}

/// Proves a variant, or names the unit and the check that failed. `places` are the units' addresses and sizes in the
/// new map, `linked` and `bytes` the linked file.
pub fn prove(
    program: &Program,
    plan: &Plan,
    places: &[(u64, u64)],
    linked: &Linked,
    bytes: &[u8],
) -> Result<Proof, String> {
    let mut proof = Proof::default();
    outputs(program, plan, linked)?;
    symbols(program, linked, &mut proof)?;
    for (unit, &(address, size)) in program.units.iter().zip(places) {
        let check = Check { program, plan, unit, address, size, linked, bytes };
        check.all(&mut proof).map_err(|why| format!("{}: {why}", unit.key))?;
    }
    Ok(proof)
}

/// The set of output sections, and the sizes of those that were not to change.
fn outputs(program: &Program, plan: &Plan, linked: &Linked) -> Result<(), String> {
    // The filler of the relocated read-only part is left out where that ends at a page by itself.
    let lasting = |all: &'_ Linked| all.outputs.iter().filter(|o| o.name != RELRO_PADDING).cloned().collect::<Vec<_>>();
    let (was, is) = (lasting(&program.baseline), lasting(linked));
    if was.len() != is.len() {
        return Err(format!("{} output sections became {}", was.len(), is.len()));
    }
    let padded: std::collections::BTreeSet<&str> = plan
        .pads
        .keys()
        .chain(plan.aligns.keys())
        .filter_map(|key| program.unit(key))
        .map(|u| u.output.as_str())
        .collect();
    for (a, b) in was.iter().zip(&is) {
        if (&a.name, a.kind, a.flags) != (&b.name, b.kind, b.flags) {
            return Err(format!("the output section {} became {}", a.name, b.name));
        }
        let fixed = program.baseline.loads(&a.name) && !a.elastic() && !padded.contains(a.name.as_str());
        // A script ends `.bss` with `. = ALIGN(8)`: at another address that is other fill. There is no content in it, and
        // the units are held one by one.
        let fill_only = a.kind == SHT_NOBITS && a.size.abs_diff(b.size) < LINE;
        if fixed && a.size != b.size && !fill_only {
            return Err(format!("the output section {} has {:#x} bytes, not {:#x}", a.name, b.size, a.size));
        }
    }
    Ok(())
}

/// Names, types, sizes and sections of all symbols.
fn symbols(program: &Program, linked: &Linked, proof: &mut Proof) -> Result<(), String> {
    let (was, is) = (&program.baseline.symbols, &linked.symbols);
    if was.len() != is.len() {
        return Err(format!("{} symbols became {}", was.len(), is.len()));
    }
    for (a, b) in was.iter().zip(is) {
        // ld gives what an empty section has left, a symbol without a size, to one of its neighbours.
        let left_over = a.size == 0 && program.baseline.between(a.address) && linked.between(b.address);
        let moved = program.baseline.home(a) != linked.home(b) && !left_over;
        if (&a.name, a.info, a.size) != (&b.name, b.info, b.size) || moved {
            return Err(format!("the symbol {} ({} bytes) became {} ({} bytes)", a.name, a.size, b.name, b.size));
        }
    }
    proof.symbols = was.len() as u32;
    Ok(())
}

/// One unit at its new place.
struct Check<'a> {
    program: &'a Program,
    plan: &'a Plan,
    unit: &'a Unit,
    address: u64,
    size: u64,
    linked: &'a Linked,
    bytes: &'a [u8],
}

impl Check<'_> {
    fn all(&self, proof: &mut Proof) -> Result<(), String> {
        proof.units += 1;
        self.size_and_place()?;
        self.target(proof)?;
        self.symbols(proof)?;
        self.content(proof)
    }

    fn size_and_place(&self) -> Result<(), String> {
        let pad = self.plan.pads.get(&self.unit.key).copied().unwrap_or(0);
        let elastic = self.unit.source.is_none()
            && !self.plan.changes_nothing()
            && self.program.baseline.output(&self.unit.output).is_some_and(Output::elastic);
        if Some(self.size) != self.unit.size.checked_add(pad) && !elastic {
            return Err(format!("it has {} bytes, not {} and a pad of {pad}", self.size, self.unit.size));
        }
        if self.plan.changes_nothing() && self.address != self.unit.address {
            return Err(format!(
                "it moved from {:#x} to {:#x} though nothing was changed",
                self.unit.address, self.address
            ));
        }
        match self.plan.aligns.get(&self.unit.key) {
            Some(&align) if !self.address.is_multiple_of(align.max(1)) => {
                Err(format!("it lies at {:#x}, no multiple of {align}", self.address))
            }
            _ => Ok(()),
        }
    }

    fn target(&self, proof: &mut Proof) -> Result<(), String> {
        let Some(&planned) = self.plan.targets.get(&self.unit.key) else { return Ok(()) };
        let actual = phase(self.address);
        if planned != actual {
            return Err(format!("it lies on phase {actual}, planned was {planned} (of {LINE})"));
        }
        proof.targets += 1;
        Ok(())
    }

    /// The linked file's own symbol table must agree with the map.
    fn symbols(&self, proof: &mut Proof) -> Result<(), String> {
        let Some((_, section)) = self.program.section(self.unit) else { return Ok(()) };
        for symbol in self.unit.held.iter().filter_map(|&i| section.symbols.get(i)) {
            if !self.linked.has_at(&symbol.name, self.address.wrapping_add(symbol.value)) {
                return Err(format!(
                    "its symbol {} is not at {:#x}",
                    symbol.name,
                    self.address.wrapping_add(symbol.value)
                ));
            }
            proof.placed_symbols += 1;
        }
        Ok(())
    }

    fn content(&self, proof: &mut Proof) -> Result<(), String> {
        let unit = self.unit;
        let section = self.program.section(unit).map(|(_, s)| s).filter(|s| {
            let rewritten = s.name.starts_with(".eh_frame") || s.flags & u64::from(SHF_MERGE) != 0;
            s.kind != SHT_NOBITS && !rewritten && s.size == unit.size && unit.size > 0
        });
        let was = self.program.baseline.content(&self.program.bytes, &unit.output, unit.address, unit.size);
        let (Some(section), Some(was)) = (section, was) else {
            proof.uncompared += 1;
            return Ok(());
        };
        let is = self.linked.content(self.bytes, &unit.output, self.address, unit.size);
        let is = is.ok_or("its bytes are not in the linked file")?;
        if let Some(at) = first_difference(was, is, &section.masks) {
            return Err(format!("its byte {at:#x} is not that of the pristine link"));
        }
        let masked = masked(&section.masks, unit.size);
        proof.masked += masked;
        proof.bytes += unit.size - masked;
        Ok(())
    }
}

/// Bytes that the masks cover; they may overlap.
fn masked(masks: &[std::ops::Range<u64>], size: u64) -> u64 {
    let mut end = 0;
    masks.iter().fold(0, |sum, m| {
        let from = m.start.max(end).min(size);
        end = end.max(m.end.min(size));
        sum + end.saturating_sub(from)
    })
}
