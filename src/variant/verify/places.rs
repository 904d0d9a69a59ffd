//! Where units stand in a linked file, read from the file itself.

use serde::Serialize;

use super::{Linked, first_difference};
use crate::variant::program::{Program, Unit};

/// What in the linked file shows where a unit is; the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A symbol of the unit's.
    Symbol,
    /// Its bytes, those outside relocated fields.
    Bytes,
    /// Nothing: the link map says it (`.bss` without symbols, a stripped file).
    Map,
}

/// So many bytes that are not all zero must be equal before they show anything.
const TELLING: u64 = 8;

/// The address of every unit in `linked`, and by what it is known. `places` are the addresses that the map gave, in the
/// order of [`Program::units`]; a symbol that the file has once gives its own address. Fails where the two disagree.
pub fn read(program: &Program, places: &[(u64, u64)], linked: &Linked, bytes: &[u8]) -> Result<Vec<(u64, By)>, String> {
    let units = program.units.iter().zip(places);
    units.map(|(unit, &(address, _))| place(program, unit, address, linked, bytes)).collect()
}

fn place(program: &Program, unit: &Unit, said: u64, linked: &Linked, bytes: &[u8]) -> Result<(u64, By), String> {
    let Some((_, section)) = program.section(unit) else { return Ok((said, By::Map)) };
    let mut shown = false;
    for symbol in unit.held.iter().filter_map(|&i| section.symbols.get(i)) {
        let mut all = linked.named(&symbol.name);
        let found = match (all.next(), all.next()) {
            (Some(one), None) => one.address.wrapping_sub(symbol.value),
            _ if linked.has_at(&symbol.name, said.wrapping_add(symbol.value)) => said,
            _ => return Err(format!("{}: its symbol {} is not where the map has it", unit.key, symbol.name)),
        };
        if found != said {
            return Err(format!(
                "{}: its symbol {} puts it at {found:#x}, the map at {said:#x}",
                unit.key, symbol.name
            ));
        }
        shown = true;
    }
    if shown {
        return Ok((said, By::Symbol));
    }
    let was = program.baseline.content(&program.bytes, &unit.output, unit.address, unit.size);
    let is = linked.content(bytes, &unit.output, said, unit.size);
    let same = match (was, is) {
        (Some(was), Some(is)) if section.has_bytes() => {
            first_difference(was, is, &section.masks).is_none() && telling(was, &section.masks)
        }
        _ => false,
    };
    Ok((said, if same { By::Bytes } else { By::Map }))
}

/// Whether there is enough outside the masks (sorted by start) to know a unit by.
fn telling(bytes: &[u8], masks: &[std::ops::Range<u64>]) -> bool {
    let (mut at, mut count, mut any) = (0, 0, false);
    let end = bytes.len() as u64..u64::MAX;
    for mask in masks.iter().chain([&end]) {
        let until = usize::try_from(mask.start).unwrap_or(bytes.len()).min(bytes.len());
        let open = bytes.get(at..until).unwrap_or_default();
        count += open.len() as u64;
        any |= open.iter().any(|b| *b != 0);
        if any && count >= TELLING {
            return true;
        }
        at = at.max(usize::try_from(mask.end).unwrap_or(bytes.len()));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn zeros_masked_bytes_and_few_bytes_tell_nothing() {
        assert!(telling(&[1; 8], &[]) && telling(&[0, 0, 0, 0, 0, 0, 0, 5], &[]));
        assert!(!telling(&[0; 100], &[]) && !telling(&[1; 7], &[]));
        let masked = |n: usize, mask: std::ops::Range<u64>| telling(&vec![1; n], std::slice::from_ref(&mask));
        assert!(!masked(15, 0..8) && masked(16, 4..12));
    }
}
