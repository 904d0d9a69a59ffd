//! One relocatable object, parsed once: its sections, which bytes relocations will change, which symbols it defines.

use std::ops::Range;

use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, SectionTable, Sym, SymbolTable};

use super::masks;
use crate::error::{Error, Result};

/// A relocatable object as far as layout is concerned.
#[derive(Clone, Debug)]
pub struct Object {
    pub machine: u16,
    pub wide: bool,
    pub sections: Vec<Section>,
    /// `STT_FILE` symbols: a compiler writes one, `ld -r` keeps all that it was given.
    pub sources: usize,
}

/// A section header, with what points into it. The index into [`Object::sections`] is the ELF section index.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub offset: u64,
    pub size: u64,
    pub align: u64,
    pub entry_size: u64,
    /// Byte ranges that a linker fills in, in order; sections that are not loaded have none.
    pub masks: Vec<Range<u64>>,
    /// What it defines, section symbols aside.
    pub symbols: Vec<Symbol>,
}

/// A symbol that an object defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// Offset into its section.
    pub value: u64,
    /// A strong, global definition: the linked file must have it here or (stripped) not at all.
    pub strong: bool,
}

impl Section {
    #[must_use]
    pub fn allocated(&self) -> bool {
        self.flags & elf::SHF_ALLOC.0 != 0
    }

    #[must_use]
    pub fn executable(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR.0 != 0
    }

    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.kind != elf::SHT_NOBITS.0
    }

    /// Whether the linker takes it in as it is: neither merged entry by entry, nor unwind tables, nor a note.
    #[must_use]
    pub fn taken_whole(&self) -> bool {
        let merged = self.flags & (elf::SHF_MERGE.0 | elf::SHF_STRINGS.0) != 0;
        !merged && self.kind != elf::SHT_NOTE.0 && !self.name.starts_with(".eh_frame")
    }
}

/// What the first bytes of an input say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Relocatable,
    Archive,
    ThinArchive,
    /// LLVM bitcode.
    Bitcode,
    /// A shared object, a linker script: nothing here to move.
    Other,
}

/// Looks at the first bytes only.
#[must_use]
pub fn kind(bytes: &[u8]) -> Kind {
    match bytes {
        [0x7f, b'E', b'L', b'F', _, order, ..] => match (bytes.get(16..18), order) {
            (Some([1, 0]), 1) | (Some([0, 1]), 2) => Kind::Relocatable,
            _ => Kind::Other,
        },
        [b'B', b'C', 0xc0, 0xde, ..] => Kind::Bitcode,
        _ if bytes.starts_with(b"!<arch>\n") => Kind::Archive,
        _ if bytes.starts_with(b"!<thin>\n") => Kind::ThinArchive,
        _ => Kind::Other,
    }
}

/// Parses a relocatable object. `name` is for the error: `libx.a(y.o)`.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Object> {
    let wide = bytes.get(4) == Some(&2);
    let parsed = if wide {
        parse_class::<elf::FileHeader64<Endianness>>(bytes, true)
    } else {
        parse_class::<elf::FileHeader32<Endianness>>(bytes, false)
    };
    parsed.map_err(|e| Error::input(format!("reading {name}"), e.to_string().to_lowercase()))
}

fn parse_class<E: FileHeader<Endian = Endianness>>(bytes: &[u8], wide: bool) -> object::read::Result<Object> {
    let header = E::parse(bytes)?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian).0;
    let table = header.sections(endian, bytes)?;
    let mut sections = Vec::with_capacity(table.len());
    for head in table.iter() {
        head.data(endian, bytes)?; // content within the file
        sections.push(Section {
            name: String::from_utf8_lossy(table.section_name(endian, head)?).into_owned(),
            kind: head.sh_type(endian).0,
            flags: head.sh_flags(endian).0,
            offset: head.sh_offset(endian).into(),
            size: head.sh_size(endian).into(),
            align: head.sh_addralign(endian).into().max(1),
            entry_size: head.sh_entsize(endian).into(),
            ..Section::default()
        });
    }
    let symbols = table.symbols(endian, bytes, elf::SHT_SYMTAB)?;
    let sources = define::<E>(endian, &symbols, &mut sections)?;
    mask::<E>(endian, bytes, machine, &table, &mut sections)?;
    Ok(Object { machine, wide, sections, sources })
}

/// Hands each symbol to its section; counts the source files.
fn define<E: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    symbols: &SymbolTable<'_, E>,
    sections: &mut [Section],
) -> object::read::Result<usize> {
    let mut sources = 0;
    for (index, symbol) in symbols.enumerate() {
        let kind = symbol.st_type();
        if kind == elf::STT_FILE {
            sources += 1;
        }
        // An IFUNC's address may become that of its PLT entry; the linker owns it.
        if !matches!(kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC | elf::STT_TLS) {
            continue;
        }
        let Some(home) = symbols.symbol_section(endian, symbol, index)? else { continue };
        let Some(section) = sections.get_mut(home.0).filter(|s| s.allocated()) else { continue };
        let name = symbols.symbol_name(endian, symbol)?;
        // `.L` names are dropped by `ld -X`, mapping symbols (`$x`) carry no address that anyone uses.
        if name.is_empty() || name.starts_with(b".L") || name.starts_with(b"$") {
            continue;
        }
        section.symbols.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            value: symbol.st_value(endian).into(),
            strong: symbol.st_bind() == elf::STB_GLOBAL,
        });
    }
    Ok(sources)
}

/// Collects, for each loaded section, the bytes that its relocations cover.
fn mask<E: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    bytes: &[u8],
    machine: u16,
    table: &SectionTable<'_, E>,
    sections: &mut [Section],
) -> object::read::Result<()> {
    for head in table.iter() {
        let Some(section) = sections.get_mut(head.sh_info(endian) as usize).filter(|s| s.allocated()) else { continue };
        let mut add = |at: u64, kind: u32| {
            let end = at.saturating_add(masks::width(machine, kind));
            if end > at {
                section.masks.push(at..end);
            }
        };
        if let Some((relas, _)) = head.rela(endian, bytes)? {
            relas.iter().for_each(|r| add(r.r_offset(endian).into(), r.r_type(endian, false).0));
        }
        if let Some((rels, _)) = head.rel(endian, bytes)? {
            rels.iter().for_each(|r| add(r.r_offset(endian).into(), r.r_type(endian).0));
        }
    }
    sections.iter_mut().for_each(|s| s.masks.sort_unstable_by_key(|m| (m.start, m.end)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_what_an_input_is() {
        let mut elf = vec![0u8; 20];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[16] = 1;
        assert_eq!(kind(&elf), Kind::Relocatable);
        elf[16] = 3;
        assert_eq!(kind(&elf), Kind::Other);
        assert_eq!(kind(b"BC\xc0\xde...."), Kind::Bitcode);
        assert_eq!(kind(b"!<thin>\n"), Kind::ThinArchive);
        assert_eq!(kind(b"/* GNU ld script */"), Kind::Other);
        assert!(parse("x.o", b"\x7fELF\x02\x01").unwrap_err().to_string().starts_with("reading x.o: "));
    }
}
