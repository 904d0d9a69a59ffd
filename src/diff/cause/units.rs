//! Whose an address is: of which object by a link map, else of which source file by local symbols.

use std::collections::{BTreeMap, BTreeSet};

use super::Step;
use crate::image::map::{Landing, Placed};
use crate::image::{Home, Image, SymbolKind};

/// Whose an address is.
pub(super) struct Units<'m> {
    /// Of a link map: start, end, and what was placed there.
    placed: Vec<(u64, u64, &'m Placed)>,
    /// Without one, local symbols by address: their source file. A global one between two of a file is of it too.
    files: Vec<(u64, &'m str)>,
}

impl<'m> Units<'m> {
    pub(super) fn of(image: &'m Image<'_>, map: Option<&'m Landing>) -> Units<'m> {
        let mut placed: Vec<_> = map
            .iter()
            .flat_map(|m| &m.placed)
            .filter(|p| p.size > 0 && !p.file.is_empty())
            .map(|p| (p.address, p.address.saturating_add(p.size), p))
            .collect();
        placed.sort_by_key(|&(start, end, _)| (start, end));
        let mut files = Vec::new();
        let mut file: Option<&str> = None;
        for symbol in image.symbols.iter().filter(|_| map.is_none()) {
            match (symbol.kind, symbol.home, &file) {
                (SymbolKind::File, ..) => file = Some(symbol.name.as_ref()).filter(|n| !n.is_empty()),
                (SymbolKind::Data | SymbolKind::Function, Home::Section(_), Some(file)) if symbol.local => {
                    files.push((symbol.value, *file));
                }
                _ => {}
            }
        }
        files.sort();
        Units { placed, files }
    }

    #[cfg(test)]
    pub(super) fn none() -> Units<'m> {
        Units { placed: Vec::new(), files: Vec::new() }
    }

    pub(super) fn any(&self, address: u64) -> Option<String> {
        if !self.placed.is_empty() {
            let at = self.placed.partition_point(|&(start, ..)| start <= address).checked_sub(1)?;
            let &(_, end, placed) = self.placed.get(at)?;
            return (address < end).then(|| label(placed));
        }
        let at = self.files.partition_point(|(start, _)| *start <= address);
        let before = at.checked_sub(1).and_then(|at| self.files.get(at));
        let (before, after) = (before?, self.files.get(at));
        (before.0 == address || after.is_some_and(|a| a.1 == before.1)).then(|| before.1.to_string())
    }

    /// By link maps: which input section between two places changed its size most.
    pub(super) fn grown(
        units: (&Units<'_>, &Units<'_>),
        base: (u64, u64),
        patched: (u64, u64),
        bytes: i64,
    ) -> Option<Step> {
        let sizes = |units: &Units<'_>, (low, high): (u64, u64)| -> BTreeMap<(String, String, u32), i64> {
            let from = units.placed.partition_point(|&(_, end, _)| end <= low);
            let within = units.placed.iter().skip(from).take_while(|&&(start, ..)| start < high);
            within.map(|(_, _, p)| ((label(p), p.section.clone(), p.index), p.size.cast_signed())).collect()
        };
        if units.0.placed.is_empty() || units.1.placed.is_empty() {
            return None;
        }
        let (x, y) = (sizes(units.0, base), sizes(units.1, patched));
        let keys: BTreeSet<_> = x.keys().chain(y.keys()).collect();
        let by = |key: &(String, String, u32)| {
            y.get(key).copied().unwrap_or(0).wrapping_sub(x.get(key).copied().unwrap_or(0))
        };
        let key = keys.into_iter().filter(|k| by(k) != 0).max_by_key(|k| by(k).unsigned_abs())?;
        let what = match (x.get(key), y.get(key)) {
            (None, Some(size)) => format!("its {} came ({size} bytes)", key.1),
            (Some(size), None) => format!("its {} went ({size} bytes)", key.1),
            _ => format!("its {} {:+} bytes", key.1, by(key)),
        };
        Some(Step { unit: Some(key.0.clone()), tag: String::new(), what, bytes })
    }
}

fn label(placed: &Placed) -> String {
    match &placed.member {
        Some(member) => format!("{}({member})", placed.file),
        None => placed.file.clone(),
    }
}
