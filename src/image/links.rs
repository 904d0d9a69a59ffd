//! Which other files go with an image: its debug file, and what that shares with others.

use super::{Home, Image, SymbolsFrom};

/// `.gnu_debuglink`: the name of the file that debug information was moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugLink<'a> {
    pub name: &'a str,
    /// CRC-32 of that file.
    pub crc: u32,
}

/// `.gnu_debugaltlink` or `.debug_sup`: the file that dwz moved to what is the same in several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supplement<'a> {
    /// Where it is not absolute, it counts from the folder of the file that names it.
    pub path: &'a str,
    /// Its build id, in hex.
    pub build_id: String,
}

impl<'a> Image<'a> {
    #[must_use]
    pub fn debug_link(&self) -> Option<DebugLink<'a>> {
        let bytes = self.named(".gnu_debuglink")?;
        let (name, rest) = text(bytes)?;
        // The checksum is aligned to four bytes.
        let at = (bytes.len() - rest.len()).next_multiple_of(4);
        let crc = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let crc = if self.big_endian { u32::from_be_bytes(crc) } else { u32::from_le_bytes(crc) };
        Some(DebugLink { name, crc })
    }

    #[must_use]
    pub fn supplement(&self) -> Option<Supplement<'a>> {
        if let Some(bytes) = self.named(".gnu_debugaltlink") {
            let (path, id) = text(bytes)?;
            return Some(Supplement { path, build_id: hex(id) });
        }
        let (path, build_id) = self.debug_sup(false)?;
        Some(Supplement { path, build_id })
    }

    /// By what another file's [`Image::supplement`] names this one, in hex.
    #[must_use]
    pub fn supplement_id(&self) -> Option<String> {
        self.debug_sup(true).map(|(_, id)| id).or_else(|| self.build_id.clone())
    }

    /// `.debug_sup` (DWARF 5, 7.3.6): a version of two bytes; whether this is the supplement itself; its name, empty in
    /// itself; length of the id; the id.
    fn debug_sup(&self, itself: bool) -> Option<(&'a str, String)> {
        let bytes = self.named(".debug_sup").filter(|s| s.get(2) == Some(&u8::from(itself)))?.get(3..)?;
        let (path, rest) = if itself { ("", bytes.strip_prefix(&[0])?) } else { text(bytes)? };
        let (length, id) = rest.split_first()?;
        Some((path, hex(id.get(..usize::from(*length))?)))
    }

    fn named(&self, name: &str) -> Option<&'a [u8]> {
        self.sections.iter().find(|s| s.name == name)?.bytes
    }

    /// Takes the symbols of its debug file where it has fewer: what is stripped keeps its sections, but not their
    /// numbers.
    pub fn take_symbols(&mut self, debug: &Image<'a>) {
        if self.symbols_from == SymbolsFrom::Symtab || debug.symbols_from != SymbolsFrom::Symtab {
            return;
        }
        let sections = self.sections_of(debug);
        self.symbols = debug.symbols.clone();
        self.symbols_from = SymbolsFrom::Symtab;
        for symbol in &mut self.symbols {
            if let Home::Section(section) = symbol.home {
                symbol.home = sections.get(section as usize).copied().flatten().map_or(Home::Broken, Home::Section);
            }
        }
    }

    /// For each section of another file of the same program, the one here.
    pub(crate) fn sections_of(&self, other: &Image<'_>) -> Vec<Option<u32>> {
        let mut seen = std::collections::HashMap::new();
        for (index, section) in (0u32..).zip(&self.sections).filter(|(_, s)| s.loaded) {
            let all: &mut Vec<u32> = seen.entry((section.name.as_ref(), section.address)).or_default();
            all.push(index);
        }
        // Several of one name are in the same order.
        seen.values_mut().for_each(|all| all.reverse());
        let mut there = Vec::with_capacity(other.sections.len());
        for section in &other.sections {
            let all = seen.get_mut(&(section.name.as_ref(), section.address)).filter(|_| section.loaded);
            there.push(all.and_then(Vec::pop));
        }
        there
    }
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (text, rest) = bytes.split_at_checked(bytes.iter().position(|b| *b == 0)?)?;
    Some((std::str::from_utf8(text).ok().filter(|t| !t.is_empty())?, rest.get(1..)?))
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
