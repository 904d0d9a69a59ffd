//! Debug information of a file that is not linked yet: each reference from section to section is a relocation. Only the
//! handful that compilers and assemblers write into `.debug_*` is known here, one table a machine.

use std::borrow::Cow;
use std::collections::HashMap;

use object::{Object, ObjectSection, RelocationFlags, RelocationTarget, SectionIndex, elf};

use super::{Skipped, skip};
use crate::image::{Home, Image, Symbol, SymbolsFrom};

/// Which section an address in debug information counts from: where the address stands → index of the section.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) info: Stands,
    pub(super) addresses: Stands,
}

/// By offset into `.debug_info` or `.debug_addr`.
#[derive(Debug, Default)]
pub(super) struct Stands(Vec<(u64, u32)>);

impl Places {
    /// From the sections of one file to those of another; what has none there is no place.
    pub(super) fn renumber(&mut self, sections: &[Option<u32>]) {
        for stands in [&mut self.info, &mut self.addresses] {
            stands.0.retain_mut(|(_, section)| {
                let there = sections.get(*section as usize).copied().flatten();
                *section = there.unwrap_or(*section);
                there.is_some()
            });
        }
    }
}

impl Stands {
    pub(super) fn section(&self, offset: u64) -> Option<u32> {
        let at = self.0.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        self.0.get(at).map(|(_, section)| *section)
    }
}

/// What a relocation does to its field. S, A and P as in the ELF ABIs.
#[derive(Clone, Copy)]
enum How {
    /// S + A, or an offset into the thread-local template.
    Set,
    /// S + A - P.
    Relative,
    Add,
    Subtract,
    /// The low six bits of a byte (RISC-V: call frames and line tables).
    SetSix,
    SubtractSix,
    /// A number of seven bits a byte, kept at its length.
    SetLeb,
    SubtractLeb,
    Nothing,
}

pub(super) struct Relocation<'i, 'a> {
    image: &'i Image<'a>,
    /// Where a section of debug information begins among all of its name.
    bases: HashMap<SectionIndex, u64>,
    unknown: usize,
    outside: usize,
}

impl<'i, 'a> Relocation<'i, 'a> {
    pub(super) fn of(image: &'i Image<'a>, bases: HashMap<SectionIndex, u64>) -> Relocation<'i, 'a> {
        Relocation { image, bases, unknown: 0, outside: 0 }
    }

    /// Applies what is there for some sections that were put one after the other into `bytes`.
    pub(super) fn apply(
        &mut self,
        file: &object::File<'a>,
        bytes: &mut Cow<'a, [u8]>,
        from: &[(SectionIndex, u64)],
    ) -> Stands {
        let mut stands = Vec::new();
        for &(index, base) in from {
            let Ok(section) = file.section_by_index(index) else { continue };
            for (offset, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                let Some((how, width)) = known(self.image.machine.0, r_type.0) else {
                    self.unknown += 1;
                    continue;
                };
                let (value, section) = self.value(relocation.target());
                let addend = (!relocation.has_implicit_addend()).then(|| relocation.addend());
                let at = base.saturating_add(offset);
                let field = Field { at, width, big_endian: self.image.big_endian };
                if field.change(bytes.to_mut(), how, value, addend).is_none() {
                    self.outside += 1;
                } else if let (How::Set, Some(section)) = (how, section) {
                    stands.push((at, section));
                }
            }
        }
        stands.sort_unstable();
        stands.dedup_by_key(|(at, _)| *at);
        Stands(stands)
    }

    /// The value of a symbol, and the section that it counts from when that is part of the running image.
    fn value(&self, target: RelocationTarget) -> (u64, Option<u32>) {
        let symbol = match target {
            // The reserved entry 0 is not in the list.
            RelocationTarget::Symbol(index) if self.image.symbols_from == SymbolsFrom::Symtab => {
                index.0.checked_sub(1).and_then(|i| self.image.symbols.get(i))
            }
            _ => None,
        };
        match symbol {
            Some(&Symbol { home: Home::Section(section), value, .. }) => {
                let base = self.bases.get(&SectionIndex(section as usize)).copied().unwrap_or(0);
                let loaded = self.image.section(section).is_some_and(|s| s.loaded);
                (value.wrapping_add(base), loaded.then_some(section))
            }
            Some(&Symbol { home: Home::Absolute, value, .. }) => (value, None),
            // Placed by the linker: the variable has no place yet.
            _ => (0, None),
        }
    }

    pub(super) fn finish(self, skipped: &mut Skipped) {
        skip(skipped, "relocations of debug information that are not known here", self.unknown);
        skip(skipped, "relocations of debug information outside their section", self.outside);
    }
}

struct Field {
    at: u64,
    /// In bytes.
    width: usize,
    big_endian: bool,
}

impl Field {
    /// `addend`: `None` is in the field itself. `None` when the field is not inside `bytes`.
    fn change(&self, bytes: &mut [u8], how: How, symbol: u64, addend: Option<i64>) -> Option<()> {
        let at = usize::try_from(self.at).ok()?;
        let rest = bytes.get_mut(at..)?;
        if let How::SetLeb | How::SubtractLeb = how {
            return leb(rest, |old| match how {
                How::SetLeb => symbol.wrapping_add_signed(addend.unwrap_or(0)),
                _ => old.wrapping_sub(symbol.wrapping_add_signed(addend.unwrap_or(0))),
            });
        }
        let field = rest.get_mut(..self.width)?;
        let old = self.read(field);
        let value = symbol.wrapping_add(addend.map_or(old, |a| a as u64));
        let new = match how {
            How::Set => value,
            How::Relative => value.wrapping_sub(self.at),
            How::Add => old.wrapping_add(value),
            How::Subtract => old.wrapping_sub(value),
            How::SetSix => (old & 0xc0) | (value & 0x3f),
            How::SubtractSix => (old & 0xc0) | (old.wrapping_sub(value) & 0x3f),
            How::Nothing | How::SetLeb | How::SubtractLeb => old,
        };
        self.write(field, new);
        Some(())
    }

    fn read(&self, field: &[u8]) -> u64 {
        let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        if self.big_endian { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) }
    }

    fn write(&self, field: &mut [u8], value: u64) {
        let last = field.len().saturating_sub(1);
        for (i, byte) in field.iter_mut().enumerate() {
            let place = if self.big_endian { last - i } else { i };
            *byte = value.checked_shr(8 * place as u32).unwrap_or(0) as u8;
        }
    }
}

/// Rewrites a ULEB128 number in as many bytes as it has.
fn leb(bytes: &mut [u8], new: impl Fn(u64) -> u64) -> Option<()> {
    let length = bytes.iter().take(10).position(|b| b & 0x80 == 0)? + 1;
    let number = bytes.get_mut(..length)?;
    let shift = |i: usize| 7 * i as u32;
    let old = (0..).zip(number.iter()).fold(0, |n, (i, b)| n | u64::from(b & 0x7f).checked_shl(shift(i)).unwrap_or(0));
    let value = new(old);
    for (i, byte) in number.iter_mut().enumerate() {
        *byte = (*byte & 0x80) | (value.checked_shr(shift(i)).unwrap_or(0) & 0x7f) as u8;
    }
    Some(())
}

/// What a type of relocation does, and to how many bytes.
fn known(machine: u16, r_type: u32) -> Option<(How, usize)> {
    use How::{Add, Nothing, Relative, Set, SetLeb, SetSix, Subtract, SubtractLeb, SubtractSix};
    let machine = elf::Machine(machine);
    Some(match (machine, r_type) {
        (_, 0) => (Nothing, 0),
        // R_X86_64_64 PC32 32 32S 16 PC16 8 DTPOFF64 DTPOFF32 PC64
        (elf::EM_X86_64, 1 | 17) => (Set, 8),
        (elf::EM_X86_64, 10 | 11 | 21) => (Set, 4),
        (elf::EM_X86_64, 12) => (Set, 2),
        (elf::EM_X86_64, 14) => (Set, 1),
        (elf::EM_X86_64, 2) => (Relative, 4),
        (elf::EM_X86_64, 24) => (Relative, 8),
        // R_386_32 PC32 TLS_LDO_32 16 8 TLS_DTPOFF32
        (elf::EM_386, 1 | 32 | 36) => (Set, 4),
        (elf::EM_386, 20) => (Set, 2),
        (elf::EM_386, 22) => (Set, 1),
        (elf::EM_386, 2) => (Relative, 4),
        // R_AARCH64_ABS64 ABS32 ABS16 PREL64 PREL32 TLS_DTPREL
        (elf::EM_AARCH64, 257 | 1029) => (Set, 8),
        (elf::EM_AARCH64, 258) => (Set, 4),
        (elf::EM_AARCH64, 259) => (Set, 2),
        (elf::EM_AARCH64, 260) => (Relative, 8),
        (elf::EM_AARCH64, 261) => (Relative, 4),
        // R_ARM_ABS32 REL32 TLS_DTPOFF32 TLS_LDO32 ABS16 ABS8
        (elf::EM_ARM, 2 | 18 | 106) => (Set, 4),
        (elf::EM_ARM, 5) => (Set, 2),
        (elf::EM_ARM, 8) => (Set, 1),
        (elf::EM_ARM, 3) => (Relative, 4),
        // R_RISCV_32 64 TLS_DTPREL32 TLS_DTPREL64 ADD* SUB* RELAX SUB6 SET* 32_PCREL *_ULEB128
        (elf::EM_RISCV, 1 | 8 | 56) => (Set, 4),
        (elf::EM_RISCV, 2 | 9) => (Set, 8),
        (elf::EM_RISCV, 33) => (Add, 1),
        (elf::EM_RISCV, 34) => (Add, 2),
        (elf::EM_RISCV, 35) => (Add, 4),
        (elf::EM_RISCV, 36) => (Add, 8),
        (elf::EM_RISCV, 37) => (Subtract, 1),
        (elf::EM_RISCV, 38) => (Subtract, 2),
        (elf::EM_RISCV, 39) => (Subtract, 4),
        (elf::EM_RISCV, 40) => (Subtract, 8),
        (elf::EM_RISCV, 51) => (Nothing, 0),
        (elf::EM_RISCV, 52) => (SubtractSix, 1),
        (elf::EM_RISCV, 53) => (SetSix, 1),
        (elf::EM_RISCV, 54) => (Set, 1),
        (elf::EM_RISCV, 55) => (Set, 2),
        (elf::EM_RISCV, 57) => (Relative, 4),
        (elf::EM_RISCV, 60) => (SetLeb, 0),
        (elf::EM_RISCV, 61) => (SubtractLeb, 0),
        // R_PPC64_ADDR32 ADDR64 REL32 REL64 DTPREL64
        (elf::EM_PPC64, 38 | 78) => (Set, 8),
        (elf::EM_PPC64, 1) => (Set, 4),
        (elf::EM_PPC64, 26) => (Relative, 4),
        (elf::EM_PPC64, 44) => (Relative, 8),
        // R_390_8 16 32 PC32 64 PC64 TLS_LDO32 TLS_LDO64
        (elf::EM_S390, 22 | 53) => (Set, 8),
        (elf::EM_S390, 4 | 52) => (Set, 4),
        (elf::EM_S390, 3) => (Set, 2),
        (elf::EM_S390, 1) => (Set, 1),
        (elf::EM_S390, 5) => (Relative, 4),
        (elf::EM_S390, 23) => (Relative, 8),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_either_byte_order() {
        let mut bytes = [0xff, 1, 0, 0, 0, 0xff];
        let field = |big_endian| Field { at: 1, width: 4, big_endian };
        field(false).change(&mut bytes, How::Set, 0x100, None).unwrap();
        assert_eq!(bytes, [0xff, 1, 1, 0, 0, 0xff]);
        field(true).change(&mut bytes, How::Set, 0x100, Some(-1)).unwrap();
        assert_eq!(bytes, [0xff, 0, 0, 0, 0xff, 0xff]);
        field(true).change(&mut bytes, How::Subtract, 0xfe, Some(0)).unwrap();
        assert_eq!(bytes, [0xff, 0, 0, 0, 1, 0xff]);
        field(true).change(&mut bytes, How::Relative, 0x11, Some(0)).unwrap();
        assert_eq!(bytes, [0xff, 0, 0, 0, 0x10, 0xff]);
        assert!(Field { at: 3, width: 4, big_endian: false }.change(&mut bytes, How::Set, 0, None).is_none());
        // 624485, as in the DWARF standard's example, kept at three bytes.
        let mut number = [0xe5, 0x8e, 0x26];
        leb(&mut number, |old| old - 624_485 + 5).unwrap();
        assert_eq!(number, [0x85, 0x80, 0]);
        assert!(leb(&mut [0x80; 4], |old| old).is_none());
    }
}
