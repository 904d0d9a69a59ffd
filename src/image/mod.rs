//! From bytes to an [`Image`]: sections, symbols, machine, build id. Nothing is copied: names and contents borrow
//! the mapped file, and only the tables that are asked for are touched.

mod arm64;
mod elf;
mod guess;
mod kallsyms;
mod links;
mod listed;
pub mod map;
mod packed;
mod places;
mod reloc;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::units::{Align, LineSize};

pub use links::{DebugLink, Supplement};
pub use listed::{List, Listed};
pub use packed::{LARGEST, Unpacked, unpack};
pub use reloc::{Field, Relocations, Target};

/// A program, library, object file, kernel or kernel module, as its file describes it.
#[derive(Debug)]
pub struct Image<'a> {
    /// As the user named it; for messages only.
    pub path: String,
    /// What it was unpacked from, as [`Unpacked::packed`] says it.
    pub packed: Option<String>,
    pub machine: Machine,
    pub class: Class,
    pub big_endian: bool,
    pub kind: Kind,
    /// In hex.
    pub build_id: Option<String>,
    /// By index, as in the file; the first is the empty section that ELF reserves.
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol<'a>>,
    pub symbols_from: SymbolsFrom,
    pub sizes: Sizes,
    /// What could not be read as it should be; for the reports.
    pub problems: Vec<String>,
    /// Symbols left out before they were placed, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// The thread-local template: symbols of it count from its start.
    pub tls: Option<TlsBlock>,
    bytes: &'a [u8],
}

/// Where and how large the thread-local template is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsBlock {
    pub address: u64,
    pub size: u64,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// In the file.
    pub offset: u64,
    pub file_size: u64,
    /// In memory; `size` is `file_size` and what begins as zeros.
    pub address: u64,
    pub size: u64,
    pub executable: bool,
}

/// `EI_CLASS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    #[serde(rename = "elf32")]
    Elf32,
    #[serde(rename = "elf64")]
    Elf64,
}

impl Class {
    /// In bytes.
    #[must_use]
    pub fn pointer_size(self) -> u64 {
        match self {
            Class::Elf32 => 4,
            Class::Elf64 => 8,
        }
    }
}

/// What sort of image it is; decides whether addresses are final and whether kernel conventions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Linked at fixed addresses.
    Executable,
    /// Position-independent executable.
    Pie,
    Shared,
    /// `.o`: every section starts at 0, final addresses are the linker's choice.
    Object,
    /// `.ko`: an object that the kernel places.
    Module,
    Vmlinux,
}

impl Kind {
    /// Addresses are offsets into sections, each section a space of its own.
    #[must_use]
    pub fn relocatable(self) -> bool {
        matches!(self, Kind::Object | Kind::Module)
    }

    /// The kernel's naming conventions hold.
    #[must_use]
    pub fn kernel(self) -> bool {
        matches!(self, Kind::Module | Kind::Vmlinux)
    }
}

/// Where the symbols come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymbolsFrom {
    /// `.symtab`.
    Symtab,
    /// `.dynsym`: stripped, only what is exported or imported is named.
    Dynsym,
    /// The table that a kernel carries for its own messages.
    Kallsyms,
    /// A System.map that the user named.
    SystemMap,
    /// What the running kernel tells.
    ProcKallsyms,
    None,
}

/// What the size of a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// As its compiler wrote it.
    Exact,
    /// The way to the next symbol: it is no larger, but may be smaller.
    UpTo,
}

/// The tier of type information that a report stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TypesFrom {
    /// Every variable, with the file and line of its declaration, and what alignment the source asks for.
    Dwarf,
    /// Every type, but few variables (older kernels: those of one section), no lines and no alignment.
    Btf,
}

/// `e_machine`, by name where its cache line is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(pub u16);

impl Machine {
    /// By the name that Rust has for it ([`std::env::consts::ARCH`]).
    #[must_use]
    pub fn named(arch: &str) -> Option<Machine> {
        elf::machine_named(arch).map(Machine)
    }

    /// The name as in `uname -m`, or `machine N`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        elf::machine_name(self.0)
    }

    /// The cache line of this machine (never of the analysing host); `None` for a machine that is not known here.
    #[must_use]
    pub fn line_size(self) -> Option<LineSize> {
        elf::line_size(self.0)
    }
}

/// One section header, and the bytes it describes.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    pub name: Cow<'a, str>,
    pub kind: SectionKind,
    pub address: u64,
    /// In bytes, in memory.
    pub size: u64,
    pub align: Align,
    /// Part of the running image.
    pub loaded: bool,
    /// Flagged writable. Never infer "is written" from it: a kernel's `.rodata` carries it.
    pub writable: bool,
    pub executable: bool,
    pub tls: bool,
    /// The content; `None` for `.bss` and its kind.
    pub bytes: Option<&'a [u8]>,
}

/// The sections that are told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    Null,
    /// Takes no space in the file.
    NoBits,
    Note,
    /// Program content.
    Bits,
    /// Symbol, string and relocation tables and the like.
    Table,
}

/// One entry of the symbol table.
#[derive(Clone, Debug)]
pub struct Symbol<'a> {
    pub name: Cow<'a, str>,
    pub kind: SymbolKind,
    pub home: Home,
    pub value: u64,
    /// In bytes; 0 is unknown or none.
    pub size: u64,
    pub local: bool,
}

/// `st_type`, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// `STT_OBJECT` and `STT_COMMON`.
    Data,
    Tls,
    /// `STT_FUNC` and `STT_GNU_IFUNC`.
    Function,
    File,
    Section,
    Untyped,
    Other,
}

/// What `value` is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Index into [`Image::sections`].
    Section(u32),
    Undefined,
    Absolute,
    /// Allocated by the linker; `value` is an alignment.
    Common,
    /// An index past the section table, or an address outside every section.
    Broken,
}

impl<'a> Image<'a> {
    /// Reads an ELF file of either class and byte order, or an arm64 kernel's `Image`. A kernel without a symbol table
    /// is asked for its kallsyms. What is compressed must be unpacked before ([`unpack`]). `path` is for messages.
    ///
    /// # Errors
    /// One line when the bytes are neither (and what they look like instead), are cut short, or name a class that
    /// their machine does not have. A file without symbols is read: who needs them asks [`Image::need_symbols`].
    pub fn parse(bytes: &'a [u8], path: &str) -> Result<Image<'a>> {
        if arm64::is_image(bytes) { Ok(arm64::parse(bytes, path)) } else { elf::parse(bytes, path) }
    }

    /// A kernel of which there is no file, only what it tells of itself: `path` names it in messages. Its sections are
    /// those that its own labels bound; they have no content.
    ///
    /// # Errors
    /// The list does not bound the kernel's code and data.
    pub fn without_file(list: List<'a>, machine: Machine, path: &str) -> Result<Image<'a>> {
        let wide = list.symbols.iter().any(|s| u32::try_from(s.address).is_err());
        let class = if wide { Class::Elf64 } else { Class::Elf32 };
        let mut image = Image::bare(path, machine, class, cfg!(target_endian = "big"), &[]);
        image.take(list)?;
        Ok(image)
    }

    /// A kernel of which nothing is known yet but its bytes.
    fn bare(path: &str, machine: Machine, class: Class, big_endian: bool, bytes: &'a [u8]) -> Image<'a> {
        Image {
            path: path.to_string(),
            packed: None,
            machine,
            class,
            big_endian,
            kind: Kind::Vmlinux,
            build_id: None,
            sections: Vec::new(),
            symbols: Vec::new(),
            symbols_from: SymbolsFrom::None,
            sizes: Sizes::Exact,
            problems: Vec::new(),
            skipped: BTreeMap::new(),
            tls: None,
            bytes,
        }
    }

    /// Takes the symbols of a list, unless the file has better ones of its own.
    ///
    /// # Errors
    /// The list is one of another kernel, or bounds nothing where there is no section table.
    pub fn take(&mut self, list: List<'a>) -> Result<()> {
        if self.symbols_from == SymbolsFrom::Symtab {
            self.problems.push("the list of symbols was not needed: .symtab names them with their sizes".into());
            return Ok(());
        }
        listed::attach(self, list)
    }

    /// From the notes of a kernel, where it is not in a section of its own: `/sys/kernel/notes`.
    pub fn take_notes(&mut self, notes: &[u8]) {
        self.build_id = elf::build_id_of(notes, self.big_endian).or(self.build_id.take());
    }

    /// Fails, with what to try, when no symbol here names a place.
    pub fn need_symbols(&self) -> Result<()> {
        elf::need_symbols(self)
    }

    /// The fields that the linker or the loader fills in, in loaded sections. Empty when none were kept.
    #[must_use]
    pub fn relocations(&self) -> Relocations<'a> {
        reloc::read(self, false)
    }

    /// Those of code, and what the loader fills in: of a kernel, a third of all.
    #[must_use]
    pub fn code_relocations(&self) -> Relocations<'a> {
        reloc::read(self, true)
    }

    /// The parts that are loaded. None of a relocatable file, and of what has no file.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        elf::segments(self.bytes)
    }

    #[must_use]
    pub fn section(&self, index: u32) -> Option<&Section<'a>> {
        self.sections.get(index as usize)
    }

    /// `size` bytes at `address` of a section; `None` where the section has none (`.bss`) or does not hold them.
    #[must_use]
    pub fn content(&self, section: u32, address: u64, size: u64) -> Option<&'a [u8]> {
        let section = self.section(section)?;
        let start = usize::try_from(address.checked_sub(section.address)?).ok()?;
        section.bytes?.get(start..start.checked_add(usize::try_from(size).ok()?)?)
    }

    /// The line of this image's machine; 64 bytes where it is unknown, which [`Image::line_problem`] then says.
    #[must_use]
    pub fn line_size(&self) -> LineSize {
        self.machine.line_size().unwrap_or(LineSize::B64)
    }

    /// What to tell the user when [`Image::line_size`] is an assumption.
    #[must_use]
    pub fn line_problem(&self) -> Option<String> {
        let name = self.machine.name();
        let assumed = self.line_size().bytes();
        self.machine.line_size().is_none().then(|| {
            format!("the cache line of {name} is not known here: {assumed} bytes assumed (--line says otherwise)")
        })
    }

    /// Of its file, in bytes.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// What a report says of an image: `image{}` of `straddle.scan/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    pub path: String,
    /// What it was unpacked from: `bzImage, xz`; `null`: nothing.
    pub packed: Option<String>,
    pub kind: Kind,
    pub machine: String,
    pub class: Class,
    pub build_id: Option<String>,
    /// In bytes.
    pub line_size: u64,
    pub symbols_from: SymbolsFrom,
    pub sizes: Sizes,
    /// `null`: no types were read, names only.
    pub types_from: Option<TypesFrom>,
}

impl Facts {
    #[must_use]
    pub fn of(image: &Image<'_>, line: LineSize) -> Facts {
        Facts {
            path: image.path.clone(),
            packed: image.packed.clone(),
            kind: image.kind,
            machine: image.machine.name().into_owned(),
            class: image.class,
            build_id: image.build_id.clone(),
            line_size: line.bytes(),
            symbols_from: image.symbols_from,
            sizes: image.sizes,
            types_from: None,
        }
    }
}
