//! Which bytes of a loaded section hold an address that the linker or loader filled in, and whose.
//!
//! They are kept in objects, in `--emit-relocs` links (every Debian vmlinux) and, for the loader, in position-independent
//! files. Debug sections have by far the most of them and are never read.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile, FileHeader, SectionHeader};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, Relocation, RelocationFlags, RelocationKind,
    RelocationTarget, elf,
};

use super::{Class, Home, Image, Machine, Section, SectionKind, SymbolKind, SymbolsFrom};

/// One field that holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub address: u64,
    /// In bytes.
    pub width: u64,
    pub target: Target<'a>,
    /// It leads to the target's entry in the global offset table, not to the target.
    pub got: bool,
}

/// What a field refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An address in a section of this image.
    Address { section: u32, address: u64 },
    /// A symbol by name, plus an addend.
    Symbol { name: &'a str, addend: i64 },
    /// The relocation does not say by itself (its addend is the field's content).
    Unknown,
}

/// All fields of loaded sections, by section and address.
#[derive(Debug, Default)]
pub struct Relocations<'a> {
    fields: BTreeMap<u32, Vec<Field<'a>>>,
    /// Code is covered, not only what the loader patches.
    pub in_code: bool,
}

impl<'a> Relocations<'a> {
    /// The fields that start in `start..end` of a section, in address order.
    #[must_use]
    pub fn within(&self, section: u32, start: u64, end: u64) -> &[Field<'a>] {
        let Some(fields) = self.fields.get(&section) else { return &[] };
        let from = fields.partition_point(|f| f.address < start);
        let to = fields.partition_point(|f| f.address < end);
        fields.get(from..to).unwrap_or_default()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// A table that cannot be read gives no fields: the comparison then says "undecided", never "equal".
pub(super) fn read<'a>(image: &Image<'a>, of_code: bool) -> Relocations<'a> {
    let mut relocations = match image.class {
        Class::Elf32 => of::<elf::FileHeader32<Endianness>>(image, of_code),
        Class::Elf64 => of::<elf::FileHeader64<Endianness>>(image, of_code),
    }
    .unwrap_or_default();
    for fields in relocations.fields.values_mut() {
        fields.sort_unstable_by_key(|f| (f.address, f.width));
        fields.dedup_by_key(|f| f.address);
    }
    relocations
}

fn of<'a, E: FileHeader<Endian = Endianness>>(image: &Image<'a>, of_code: bool) -> Option<Relocations<'a>> {
    let file = ElfFile::<E>::parse(image.bytes()).ok()?;
    let mut out = Relocations::default();
    kept(image, &file, of_code, &mut out);
    loader(image, &file, &mut out);
    packed(image, &file, &mut out);
    Some(out)
}

/// What the assembler wrote and the linker kept.
fn kept<'a, E: FileHeader<Endian = Endianness>>(
    image: &Image<'a>,
    file: &ElfFile<'a, E>,
    of_code: bool,
    out: &mut Relocations<'a>,
) {
    for section in file.sections() {
        let index = section.index().0 as u32;
        let wanted = |s: &&Section<'_>| s.loaded && (s.executable || !of_code);
        let Some(home) = image.section(index).filter(wanted) else { continue };
        for (address, relocation) in section.relocations() {
            if relocation.kind() == RelocationKind::None {
                continue;
            }
            out.in_code |= home.executable;
            let width = u64::from(relocation.size()).div_ceil(8);
            let relative = matches!(relocation.kind(), RelocationKind::Relative | RelocationKind::PltRelative);
            let target = match relocation.target() {
                _ if relocation.has_implicit_addend() => Target::Unknown,
                RelocationTarget::Symbol(i) => symbol_target(image, i.0, relocation.addend(), relative),
                _ => Target::Unknown,
            };
            let width = if width == 0 { 4 } else { width };
            let got = through_got(image.machine, &relocation);
            out.fields.entry(index).or_default().push(Field { address, width, target, got });
        }
    }
}

fn through_got(machine: Machine, relocation: &Relocation) -> bool {
    let aarch64 = |r_type| (307..=313).contains(&r_type);
    match relocation.flags() {
        RelocationFlags::Elf { r_type } if machine.0 == elf::EM_AARCH64.0 => aarch64(r_type.0),
        _ => matches!(relocation.kind(), RelocationKind::Got | RelocationKind::GotRelative),
    }
}

fn symbol_target<'a>(image: &Image<'a>, index: usize, addend: i64, relative: bool) -> Target<'a> {
    // The reserved entry 0 is not in the list.
    let symbol = index.checked_sub(1).filter(|_| image.symbols_from == SymbolsFrom::Symtab);
    let Some(symbol) = symbol.and_then(|i| image.symbols.get(i)) else { return Target::Unknown };
    match (symbol.kind, symbol.home) {
        (SymbolKind::Section, Home::Section(section)) => {
            // x86 counts a relative reference from the end of its four-byte field.
            let end = if relative && matches!(image.machine.0, 3 | 62) { 4 } else { 0 };
            Target::Address { section, address: symbol.value.wrapping_add_signed(addend).wrapping_add(end) }
        }
        _ => match symbol.name {
            std::borrow::Cow::Borrowed(name) => Target::Symbol { name, addend },
            std::borrow::Cow::Owned(_) => Target::Unknown,
        },
    }
}

/// What the loader patches in a position-independent file.
fn loader<'a, E: FileHeader<Endian = Endianness>>(image: &Image<'a>, file: &ElfFile<'a, E>, out: &mut Relocations<'a>) {
    let Some(relocations) = file.dynamic_relocations() else { return };
    let (homes, names) = (Homes::of(image), file.dynamic_symbol_table());
    for (address, relocation) in relocations {
        let target = match relocation.target() {
            _ if relocation.has_implicit_addend() => Target::Unknown,
            RelocationTarget::Symbol(i) => {
                let name = names.as_ref().and_then(|t| t.symbol_by_index(i).ok()?.name().ok());
                name.map_or(Target::Unknown, |name| Target::Symbol { name, addend: relocation.addend() })
            }
            _ => homes.target(relocation.addend() as u64),
        };
        homes.push(out, address, target);
    }
}

/// Packed relative relocations (`SHT_RELR`): places only; the address is in the field itself.
fn packed<'a, E: FileHeader<Endian = Endianness>>(image: &Image<'a>, file: &ElfFile<'a, E>, out: &mut Relocations<'a>) {
    let homes = Homes::of(image);
    // One word can name 63 places. No more places exist than four-byte words in the file, whatever a table claims.
    let mut left = image.bytes().len() / 4;
    for section in file.elf_section_table().iter() {
        let Ok(Some(places)) = section.relr(file.endian(), image.bytes()) else { continue };
        for place in places {
            if left == 0 {
                return;
            }
            left -= 1;
            let address: u64 = place.into();
            let target = homes.word(address).map_or(Target::Unknown, |value| homes.target(value));
            homes.push(out, address, target);
        }
    }
}

/// Loaded sections with content, by address.
struct Homes<'i, 'a> {
    image: &'i Image<'a>,
    by_address: Vec<(u64, u64, u32)>,
}

impl<'i, 'a> Homes<'i, 'a> {
    fn of(image: &'i Image<'a>) -> Homes<'i, 'a> {
        let mut by_address: Vec<_> = (0u32..)
            .zip(&image.sections)
            .filter(|(_, s)| s.loaded && s.size > 0 && !(s.tls && s.kind == SectionKind::NoBits))
            .map(|(i, s)| (s.address, s.address.saturating_add(s.size), i))
            .collect();
        by_address.sort_unstable();
        Homes { image, by_address }
    }

    fn find(&self, address: u64) -> Option<u32> {
        let at = self.by_address.partition_point(|&(start, _, _)| start <= address).checked_sub(1)?;
        let &(_, end, section) = self.by_address.get(at)?;
        (address < end).then_some(section)
    }

    fn target(&self, address: u64) -> Target<'a> {
        self.find(address).map_or(Target::Unknown, |section| Target::Address { section, address })
    }

    fn push(&self, out: &mut Relocations<'a>, address: u64, target: Target<'a>) {
        if let Some(section) = self.find(address) {
            let width = self.image.class.pointer_size();
            out.fields.entry(section).or_default().push(Field { address, width, target, got: false });
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let width = self.image.class.pointer_size();
        let bytes = self.image.content(self.find(address)?, address, width)?;
        let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        Some(if self.image.big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) })
    }
}
