//! An arm64 kernel as its boot loader gets it: the memory image itself, behind a header of 64 bytes, without a section
//! table (the kernel's Documentation/arch/arm64/booting.rst).

use object::elf;

use super::kallsyms::{self, Places, Words};
use super::listed;
use super::places::{self, PAGE};
use super::{Class, Image, Kind, Machine, Sizes, SymbolsFrom};

pub(super) fn is_image(bytes: &[u8]) -> bool {
    bytes.get(0x38..0x3c) == Some(b"ARMd")
}

/// Symbols come from the table inside; where it cannot be read, from a list of the user's.
pub(super) fn parse<'a>(bytes: &'a [u8], path: &str) -> Image<'a> {
    // The header is little-endian whatever the kernel is.
    let little = Words { bytes, big_endian: false, pointer: 8 };
    let big_endian = little.get(0x18, 8).is_some_and(|flags| flags & 1 != 0);
    let size = little.get(0x10, 8).filter(|size| *size != 0).unwrap_or(bytes.len() as u64);
    let words = Words { big_endian, ..little };
    let mut image = Image {
        path: path.to_string(),
        packed: None,
        machine: Machine(elf::EM_AARCH64.0),
        class: Class::Elf64,
        big_endian,
        kind: Kind::Vmlinux,
        build_id: None,
        sections: Vec::new(),
        symbols: Vec::new(),
        symbols_from: SymbolsFrom::None,
        sizes: Sizes::Exact,
        problems: Vec::new(),
        skipped: Default::default(),
        tls: None,
        bytes,
    };
    match kallsyms::find(words, &Memory { words, size }) {
        Ok(Some(symbols)) => {
            listed::attach_own(&mut image, symbols);
        }
        Ok(None) => image.problems.push("it carries no kallsyms".into()),
        Err(problem) => image.problems.push(problem),
    }
    image
}

/// The address of the first byte is only known from what the kernel says of itself.
struct Memory<'a> {
    words: Words<'a>,
    /// In memory, in bytes.
    size: u64,
}

impl Places for Memory<'_> {
    fn address(&self, _: usize) -> Option<u64> {
        None
    }

    /// A position-independent kernel relocates itself, by records that lie in it. Theirs is the distance between the
    /// pointer and what it holds, which the list tells too.
    fn relocated<'n>(&self, offset: usize, named: impl Iterator<Item = (&'n str, u64)>) -> Option<u64> {
        let relative = u64::from(elf::R_AARCH64_RELATIVE.0);
        let distance = places::start(self.words.bytes, named)?.wrapping_add(offset as u64);
        let record = |at: usize| {
            let word = |i: usize| self.words.get(at + 8 * i, 8);
            let (place, base) = (word(0)?, word(2)?);
            (word(1)? == relative && place.wrapping_sub(base) == distance && base.is_multiple_of(PAGE)).then_some(base)
        };
        let mut bases = (0..self.words.bytes.len()).step_by(8).filter_map(record);
        let base = bases.next()?;
        bases.all(|other| other == base).then_some(base)
    }

    fn begins(&self, base: u64, anchor: u64) -> bool {
        base.is_multiple_of(PAGE) && anchor.checked_sub(base).is_some_and(|offset| offset < self.size)
    }
}
