//! A linked file as the second reader sees it: output sections, symbols with their places, contents.

use std::collections::BTreeMap;
use std::ops::Range;

use goblin::elf::{Elf, program_header, section_header, sym};

use crate::image::map::Landing;

const ALLOC: u64 = section_header::SHF_ALLOC as u64;

/// One output section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
}

/// One entry of the symbol table; the order of the fields is the order that symbols are sorted in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    pub name: String,
    pub info: u8,
    pub size: u64,
    /// Index of its output section, or a special index.
    pub section: usize,
    /// Virtual, for TLS symbols too.
    pub address: u64,
}

/// What the checks need of a linked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub machine: u16,
    pub wide: bool,
    pub outputs: Vec<Output>,
    /// Sorted; without `STT_FILE`, for which the linker takes the name of the input, wherever a copy of it lies.
    pub symbols: Vec<Symbol>,
    /// What is relocated and then read-only (`PT_GNU_RELRO`).
    pub relro: Option<Range<u64>>,
}

/// An output section of lld and mold that reaches to the end of the page that the relocated read-only part ends in.
pub const RELRO_PADDING: &str = ".relro_padding";

/// `SHT_RELR`: packed relative relocations.
const SHT_RELR: u32 = 19;

impl Output {
    /// Whether its size depends on the addresses of others.
    #[must_use]
    pub fn elastic(&self) -> bool {
        self.kind == SHT_RELR || self.kind == section_header::SHT_NOBITS && self.name == RELRO_PADDING
    }
}

impl Linked {
    /// Reads section headers and `.symtab`; the error is the second reader's.
    pub fn parse(bytes: &[u8]) -> Result<Linked, String> {
        let elf = Elf::parse(bytes).map_err(|e| e.to_string())?;
        let outputs: Vec<Output> = elf
            .section_headers
            .iter()
            .map(|s| Output {
                name: elf.shdr_strtab.get_at(s.sh_name).unwrap_or_default().to_owned(),
                kind: s.sh_type,
                flags: s.sh_flags,
                address: s.sh_addr,
                offset: s.sh_offset,
                size: s.sh_size,
            })
            .collect();
        let tls = elf.program_headers.iter().find(|p| p.p_type == program_header::PT_TLS).map_or(0, |p| p.p_vaddr);
        let mut symbols: Vec<Symbol> = elf
            .syms
            .iter()
            .filter(|s| sym::st_type(s.st_info) != sym::STT_FILE)
            .map(|s| Symbol {
                name: elf.strtab.get_at(s.st_name).unwrap_or_default().to_owned(),
                info: s.st_info,
                size: s.st_size,
                section: s.st_shndx,
                address: if sym::st_type(s.st_info) == sym::STT_TLS {
                    s.st_value.wrapping_add(tls)
                } else {
                    s.st_value
                },
            })
            .collect();
        symbols.sort_unstable();
        let relro = elf.program_headers.iter().find(|p| p.p_type == program_header::PT_GNU_RELRO);
        let relro = relro.map(|p| p.p_vaddr..p.p_vaddr.saturating_add(p.p_memsz));
        Ok(Linked { machine: elf.header.e_machine, wide: elf.is_64, outputs, symbols, relro })
    }

    /// Whether an output section of that name is loaded.
    #[must_use]
    pub fn loads(&self, name: &str) -> bool {
        self.output(name).is_some()
    }

    /// Whether that output section holds what a program writes or executes.
    #[must_use]
    pub fn writable_or_code(&self, name: &str) -> bool {
        let either = u64::from(section_header::SHF_WRITE | section_header::SHF_EXECINSTR);
        self.output(name).is_some_and(|o| o.flags & either != 0)
    }

    /// Whether a program writes to that output section after it was started: it is writable, and not sealed by then.
    #[must_use]
    pub fn written(&self, name: &str) -> bool {
        let sealed = name.starts_with(".data.rel.ro") || name.starts_with(".got");
        !sealed && self.output(name).is_some_and(|o| o.flags & u64::from(section_header::SHF_WRITE) != 0)
    }

    /// The loaded output section of that name.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|o| o.flags & ALLOC != 0 && o.name == name)
    }

    /// The map must give every loaded output section the address and size that its header has.
    pub fn agrees_with(&self, landing: &Landing) -> Result<(), String> {
        // A linker may make two output sections of one name.
        let mut by_name: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for o in &landing.outputs {
            by_name.entry(&o.name).or_default().push((o.address, o.size));
        }
        for o in self.outputs.iter().filter(|o| o.flags & ALLOC != 0) {
            let all = by_name.get(o.name.as_str()).ok_or_else(|| format!("{} is not in the map", o.name))?;
            if let (Some((address, size)), false) = (all.first(), all.contains(&(o.address, o.size))) {
                return Err(format!(
                    "{} lies at {:#x} with {:#x} bytes, the map says {address:#x} and {size:#x}",
                    o.name, o.address, o.size
                ));
            }
        }
        Ok(())
    }

    /// The output section that a symbol is in, by name; the special index of one that is in none.
    pub fn home(&self, symbol: &Symbol) -> Result<&str, usize> {
        self.outputs.get(symbol.section).map(|o| o.name.as_str()).ok_or(symbol.section)
    }

    /// Whether no output section has bytes on both sides of an address.
    #[must_use]
    pub fn between(&self, address: u64) -> bool {
        let mut loaded = self.outputs.iter().filter(|o| o.flags & ALLOC != 0 && o.name != ".tbss");
        !loaded.any(|o| o.address < address && address - o.address < o.size)
    }

    /// Every definition of that name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        let from = self.symbols.partition_point(|s| s.name.as_str() < name);
        self.symbols.iter().skip(from).take_while(move |s| s.name == name).filter(|s| s.section != 0)
    }

    /// Whether a symbol of that name is defined.
    #[must_use]
    pub fn defines(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// Whether a symbol of that name is defined at `address`.
    #[must_use]
    pub fn has_at(&self, name: &str, address: u64) -> bool {
        self.named(name).any(|s| s.address == address)
    }

    /// The bytes at an address in an output section; `None` where the file has none (`.bss`) or they leave the section.
    #[must_use]
    pub fn content<'a>(&self, bytes: &'a [u8], output: &str, address: u64, size: u64) -> Option<&'a [u8]> {
        let holds = |o: &&Output| o.address <= address && address - o.address <= o.size;
        let output = self.outputs.iter().filter(|o| o.flags & ALLOC != 0 && o.name == output).find(holds)?;
        let into = address - output.address;
        if output.kind == section_header::SHT_NOBITS || into.checked_add(size)? > output.size {
            return None;
        }
        let from = usize::try_from(output.offset.checked_add(into)?).ok()?;
        bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?)
    }
}
