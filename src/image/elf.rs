//! ELF → [`Image`], by the `object` crate, for both classes and both byte orders.
//!
//! Every table is checked against the size of the file before anything is built from it, so that memory stays
//! proportional to what the file really holds.

use std::borrow::Cow;

use object::Endianness;
use object::elf;
use object::read::SectionIndex;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};

use super::kallsyms::{self, Places, Words};
use super::listed;
use super::{
    Class, Home, Image, Kind, Machine, Section, SectionKind, Segment, Sizes, Symbol, SymbolKind, SymbolsFrom, TlsBlock,
};
use crate::error::{Error, Result};
use crate::units::{Align, LineSize};

pub(super) fn parse<'a>(bytes: &'a [u8], path: &str) -> Result<Image<'a>> {
    let fail = |problem: String| Error::input(format!("reading {path}"), problem);
    if !bytes.starts_with(&elf::ELFMAG) {
        let guess = super::guess::guess(bytes);
        let error = fail(format!("not an ELF file but {}", guess.what));
        return Err(match guess.hint {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    match bytes.get(4).copied() {
        Some(1) => read::<elf::FileHeader32<Endianness>>(bytes, path),
        Some(2) => read::<elf::FileHeader64<Endianness>>(bytes, path),
        Some(class) => Err(fail(format!("ELF class {class} is neither 32-bit (1) nor 64-bit (2)"))),
        None => Err(fail("the ELF file is cut short: its header ends before byte 16".to_string())),
    }
}

fn read<'a, E: FileHeader<Endian = Endianness>>(bytes: &'a [u8], path: &str) -> Result<Image<'a>> {
    let fail = |problem: String| Error::input(format!("reading {path}"), problem);
    let odd = |e: object::read::Error| fail(format!("broken or cut-short ELF file: {}", lower(&e.to_string())));
    let header = E::parse(bytes).map_err(odd)?;
    let endian = header.endian().map_err(odd)?;
    let class = if header.is_class_64() { Class::Elf64 } else { Class::Elf32 };
    let machine = header.e_machine(endian).0;
    check_machine(machine, class, endian == Endianness::Big).map_err(fail)?;

    let (offset, size) = (header.e_shoff(endian).into(), u64::from(header.e_shentsize(endian)));
    let table_end = offset.saturating_add(size.saturating_mul(u64::from(header.e_shnum(endian))));
    if table_end > bytes.len() as u64 {
        return Err(cut_short(path, "the section table", table_end, bytes.len()));
    }
    let table = header.sections(endian, bytes).map_err(odd)?;
    if table.is_empty() {
        return Err(fail("the ELF file has no section table".into()).hint("name the file before it was stripped"));
    }
    let sections = read_sections::<E>(&table, endian, bytes, path)?;
    let (symbols, symbols_from) = read_symbols::<E>(&table, endian, bytes, path, sections.len())?;
    let segments = header.program_headers(endian, bytes).map_err(odd)?;
    let kind = kind_of(header.e_type(endian), &sections, segments, endian).map_err(fail)?;
    let tls = segments.iter().find(|s| s.p_type(endian) == elf::PT_TLS);
    let mut image = Image {
        path: path.to_string(),
        packed: None,
        machine: Machine(machine),
        class,
        big_endian: endian == Endianness::Big,
        kind,
        build_id: build_id::<E>(&table, endian, bytes),
        sections,
        symbols,
        symbols_from,
        sizes: Sizes::Exact,
        problems: Vec::new(),
        skipped: Default::default(),
        tls: tls.map(|s| TlsBlock { address: s.p_vaddr(endian).into(), size: s.p_memsz(endian).into() }),
        bytes,
    };
    if kind == Kind::Vmlinux && symbols_from != SymbolsFrom::Symtab {
        from_kallsyms(&mut image);
    }
    Ok(image)
}

/// The parts of the file that are loaded, as its program headers tell them; none of a relocatable file.
pub(super) fn segments(bytes: &[u8]) -> Vec<Segment> {
    match bytes.get(4).copied() {
        Some(1) => loads::<elf::FileHeader32<Endianness>>(bytes),
        Some(2) => loads::<elf::FileHeader64<Endianness>>(bytes),
        _ => None,
    }
    .unwrap_or_default()
}

fn loads<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<Vec<Segment>> {
    let header = E::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, bytes).ok()?.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let segment = |s: &E::ProgramHeader| Segment {
        offset: s.p_offset(endian).into(),
        file_size: s.p_filesz(endian).into(),
        address: s.p_vaddr(endian).into(),
        size: s.p_memsz(endian).into(),
        executable: s.p_flags(endian).0 & elf::PF_X.0 != 0,
    };
    Some(all.map(segment).collect())
}

/// What a stripped kernel still tells of itself. Where it cannot be read, the image keeps what it has.
fn from_kallsyms(image: &mut Image<'_>) {
    let tables = image.sections.iter().filter(|s| s.loaded && !s.executable && s.kind == SectionKind::Bits);
    let mut problem = None;
    for section in tables {
        let words = Words {
            bytes: section.bytes.unwrap_or_default(),
            big_endian: image.big_endian,
            pointer: if image.class == Class::Elf64 { 8 } else { 4 },
        };
        match kallsyms::find(words, &InSection { image, section, words }) {
            Ok(Some(symbols)) => {
                return listed::attach_own(image, symbols);
            }
            Ok(None) => {}
            Err(wrong) => problem = Some(wrong),
        }
    }
    image.problems.push(problem.unwrap_or_else(|| "it carries no kallsyms".into()));
}

/// A section that holds the table.
struct InSection<'i, 'a> {
    image: &'i Image<'a>,
    section: &'i Section<'a>,
    words: Words<'a>,
}

impl Places for InSection<'_, '_> {
    fn address(&self, offset: usize) -> Option<u64> {
        self.section.address.checked_add(offset as u64)
    }

    /// By the loader's table of a position-independent kernel (`.rela.dyn`).
    fn relocated<'n>(&self, offset: usize, _: impl Iterator<Item = (&'n str, u64)>) -> Option<u64> {
        let place = self.address(offset)?;
        let tables = self.image.sections.iter().filter(|s| s.loaded && s.kind == SectionKind::Table);
        tables.filter_map(|s| s.bytes).find_map(|bytes| {
            let words = Words { bytes, ..self.words };
            let record = |at: usize| (words.get(at, 8)? == place).then(|| words.get(at + 16, 8)).flatten();
            (0..bytes.len()).step_by(24).find_map(record)
        })
    }

    fn begins(&self, base: u64, anchor: u64) -> bool {
        let inside = |s: &&Section<'_>| anchor >= s.address && anchor - s.address < s.size;
        anchor >= base && self.image.sections.iter().filter(|s| s.loaded && s.executable).any(|s| inside(&s))
    }
}

fn lower(text: &str) -> String {
    text.replace("ELF ", "").to_lowercase()
}

fn cut_short(path: &str, what: &str, end: u64, len: usize) -> Error {
    let problem = format!("the ELF file is cut short: {what} ends at {end:#x}, the file at {len:#x}");
    Error::input(format!("reading {path}"), problem).hint("copy or build it again")
}

fn read_sections<'a, E: FileHeader<Endian = Endianness>>(
    table: &SectionTable<'a, E, &'a [u8]>,
    endian: Endianness,
    bytes: &'a [u8],
    path: &str,
) -> Result<Vec<Section<'a>>> {
    let mut sections = Vec::with_capacity(table.len());
    for header in table.iter() {
        let name = table.section_name(endian, header).unwrap_or(b"?");
        let (name, sh_type) = (String::from_utf8_lossy(name), header.sh_type(endian));
        let kind = match sh_type {
            elf::SHT_NULL => SectionKind::Null,
            elf::SHT_NOBITS => SectionKind::NoBits,
            elf::SHT_NOTE => SectionKind::Note,
            elf::SHT_SYMTAB | elf::SHT_DYNSYM | elf::SHT_STRTAB | elf::SHT_RELA | elf::SHT_REL => SectionKind::Table,
            _ => SectionKind::Bits,
        };
        let content = match kind {
            SectionKind::Null | SectionKind::NoBits => None,
            _ => Some(header.data(endian, bytes).map_err(|_| {
                let end = header.sh_offset(endian).into().saturating_add(header.sh_size(endian).into());
                cut_short(path, &format!("section {name}"), end, bytes.len())
            })?),
        };
        let flags = header.sh_flags(endian).0;
        let has = |flag: elf::SectionFlags| flags & flag.0 != 0;
        sections.push(Section {
            kind,
            address: header.sh_addr(endian).into(),
            size: header.sh_size(endian).into(),
            align: Align::new(header.sh_addralign(endian).into()).unwrap_or(Align::ONE),
            loaded: has(elf::SHF_ALLOC),
            writable: has(elf::SHF_WRITE),
            executable: has(elf::SHF_EXECINSTR),
            tls: has(elf::SHF_TLS),
            bytes: content,
            name,
        });
    }
    Ok(sections)
}

fn read_symbols<'a, E: FileHeader<Endian = Endianness>>(
    table: &SectionTable<'a, E, &'a [u8]>,
    endian: Endianness,
    bytes: &'a [u8],
    path: &str,
    sections: usize,
) -> Result<(Vec<Symbol<'a>>, SymbolsFrom)> {
    for (sh_type, from) in [(elf::SHT_SYMTAB, SymbolsFrom::Symtab), (elf::SHT_DYNSYM, SymbolsFrom::Dynsym)] {
        let symbols = table.symbols(endian, bytes, sh_type).map_err(|e| {
            Error::input(format!("reading the symbols of {path}"), format!("broken table: {}", lower(&e.to_string())))
        })?;
        // Entry 0 is reserved, so a table of one is empty.
        if symbols.len() > 1 {
            let list = symbols.enumerate().skip(1).map(|(i, s)| symbol::<E>(&symbols, endian, i, s, sections));
            return Ok((list.collect(), from));
        }
    }
    Ok((Vec::new(), SymbolsFrom::None))
}

fn symbol<'a, E: FileHeader<Endian = Endianness>>(
    table: &SymbolTable<'a, E, &'a [u8]>,
    endian: Endianness,
    index: object::SymbolIndex,
    entry: &'a E::Sym,
    sections: usize,
) -> Symbol<'a> {
    let kind = match entry.st_type() {
        elf::STT_OBJECT | elf::STT_COMMON => SymbolKind::Data,
        elf::STT_TLS => SymbolKind::Tls,
        elf::STT_FUNC | elf::STT_GNU_IFUNC => SymbolKind::Function,
        elf::STT_FILE => SymbolKind::File,
        elf::STT_SECTION => SymbolKind::Section,
        elf::STT_NOTYPE => SymbolKind::Untyped,
        _ => SymbolKind::Other,
    };
    let home = match entry.st_shndx(endian) {
        elf::SHN_UNDEF => Home::Undefined,
        elf::SHN_ABS => Home::Absolute,
        elf::SHN_COMMON => Home::Common,
        _ => match table.symbol_section(endian, entry, index) {
            Ok(Some(SectionIndex(i))) if i < sections => Home::Section(i as u32),
            _ => Home::Broken,
        },
    };
    Symbol {
        name: String::from_utf8_lossy(table.symbol_name(endian, entry).unwrap_or(b"?")),
        kind,
        home,
        value: entry.st_value(endian).into(),
        size: entry.st_size(endian).into(),
        local: entry.is_local(),
    }
}

fn kind_of<P: ProgramHeader<Endian = Endianness>>(
    e_type: elf::FileType,
    sections: &[Section<'_>],
    segments: &[P],
    endian: Endianness,
) -> Result<Kind, String> {
    let has = |name: &str| sections.iter().any(|s| s.name == name);
    let linked = |kind| {
        let kernel = has(".init.text") && (has("__ksymtab") || has("__param") || has(".data..percpu"));
        Ok(if kernel { Kind::Vmlinux } else { kind })
    };
    match e_type {
        elf::ET_REL if has(".gnu.linkonce.this_module") => Ok(Kind::Module),
        elf::ET_REL => Ok(Kind::Object),
        elf::ET_EXEC => linked(Kind::Executable),
        elf::ET_DYN if segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP) => linked(Kind::Pie),
        elf::ET_DYN => linked(Kind::Shared),
        elf::ET_CORE => Err("a core dump, not a program".into()),
        other => Err(format!("ELF type {} is not a program, library or object", other.0)),
    }
}

/// The note that names the build. A kernel keeps it in `.notes` among others.
fn build_id<'a, E: FileHeader<Endian = Endianness>>(
    table: &SectionTable<'a, E, &'a [u8]>,
    endian: Endianness,
    bytes: &'a [u8],
) -> Option<String> {
    table.iter().find_map(|header| build_id_in(header.notes(endian, bytes).ok()??, endian))
}

/// The same, from the bytes of notes alone.
pub(super) fn build_id_of(notes: &[u8], big_endian: bool) -> Option<String> {
    let endian = if big_endian { Endianness::Big } else { Endianness::Little };
    build_id_in(NoteIterator::<elf::FileHeader64<Endianness>>::new(endian, 4, notes).ok()?, endian)
}

fn build_id_in<E: FileHeader<Endian = Endianness>>(
    mut notes: NoteIterator<'_, E>,
    endian: Endianness,
) -> Option<String> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian).0 == elf::NT_GNU_BUILD_ID.0 {
            return Some(note.desc().iter().map(|b| format!("{b:02x}")).collect());
        }
    }
    None
}

pub(super) fn need_symbols(image: &Image<'_>) -> Result<()> {
    let doing = format!("reading the symbols of {}", image.path);
    if image.symbols.iter().any(|s| s.name == "__gnu_lto_slim") {
        let error = Error::input(doing, "an LTO object: nothing in it is laid out yet");
        return Err(error.hint("name the linked file, or compile with -ffat-lto-objects"));
    }
    let placed = |s: &Symbol<'_>| matches!(s.home, Home::Section(_)) && s.kind != SymbolKind::Section;
    if image.symbols.iter().any(placed) {
        return Ok(());
    }
    let problem = match image.problems.last() {
        Some(problem) => format!("it has no symbols (stripped), and {problem}"),
        None => "it has no symbols (stripped)".to_string(),
    };
    let hint = match &image.build_id {
        _ if image.kind == Kind::Vmlinux => "--system-map FILE, with the System.map of this very build".to_string(),
        Some(id) => format!("name the unstripped file, or its debug file with build id {id}"),
        None => "name the file before it was stripped".to_string(),
    };
    Err(Error::input(doing, problem).hint(hint))
}

/// A machine has the classes and byte orders it has; another combination is a damaged or invented header.
fn check_machine(machine: u16, class: Class, big_endian: bool) -> Result<(), String> {
    let wrong = match elf::Machine(machine) {
        elf::EM_386 => class == Class::Elf64 || big_endian,
        elf::EM_X86_64 => big_endian,
        elf::EM_PPC64 | elf::EM_ALPHA | elf::EM_SPARCV9 | elf::EM_IA_64 => class == Class::Elf32,
        elf::EM_ARM | elf::EM_PPC => class == Class::Elf64,
        elf::EM_S390 => !big_endian,
        _ => false,
    };
    if !wrong {
        return Ok(());
    }
    let bits = if class == Class::Elf64 { 64 } else { 32 };
    let order = if big_endian { "big" } else { "little" };
    Err(format!("{} has no {bits}-bit {order}-endian ELF: the header is damaged", machine_name(machine)))
}

pub(super) fn machine_name(machine: u16) -> Cow<'static, str> {
    Cow::Borrowed(match elf::Machine(machine) {
        elf::EM_386 => "i386",
        elf::EM_X86_64 => "x86_64",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "arm",
        elf::EM_PPC => "ppc",
        elf::EM_PPC64 => "ppc64",
        elf::EM_S390 => "s390x",
        elf::EM_RISCV => "riscv",
        elf::EM_LOONGARCH => "loongarch",
        elf::EM_MIPS => "mips",
        elf::EM_SPARCV9 => "sparc64",
        _ => return Cow::Owned(format!("machine {machine}")),
    })
}

pub(super) fn machine_named(arch: &str) -> Option<u16> {
    let machine = match arch {
        "x86" => elf::EM_386,
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        "arm" => elf::EM_ARM,
        "powerpc64" => elf::EM_PPC64,
        "s390x" => elf::EM_S390,
        "riscv32" | "riscv64" => elf::EM_RISCV,
        "loongarch64" => elf::EM_LOONGARCH,
        _ => return None,
    };
    Some(machine.0)
}

/// Kernel `L1_CACHE_BYTES` of each architecture. Apple's arm64 has 128; an ELF file does not say whose it is.
pub(super) fn line_size(machine: u16) -> Option<LineSize> {
    Some(match elf::Machine(machine) {
        elf::EM_386 | elf::EM_X86_64 | elf::EM_AARCH64 | elf::EM_ARM | elf::EM_RISCV | elf::EM_LOONGARCH => {
            LineSize::B64
        }
        elf::EM_PPC64 => LineSize::B128,
        elf::EM_S390 => LineSize::B256,
        _ => return None,
    })
}
