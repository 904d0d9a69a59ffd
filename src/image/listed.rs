//! Lists of symbols without sizes: a System.map, /proc/kallsyms, or the table inside a kernel.

use std::borrow::Cow;

use super::places::{self, BANNER, Memory};
use super::{Home, Image, Section, Sizes, Symbol, SymbolKind, SymbolsFrom};
use crate::error::{Error, Result};

/// One line of `nm`: where, what sort, which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    pub address: u64,
    /// As nm prints it: lower case is local.
    pub letter: u8,
    pub name: Cow<'a, str>,
}

/// A whole list, and where it comes from.
#[derive(Clone, Debug)]
pub struct List<'a> {
    pub symbols: Vec<Listed<'a>>,
    pub from: SymbolsFrom,
    /// Symbols of modules, which are no part of an image: left out.
    pub of_modules: u64,
}

impl<'a> List<'a> {
    /// Reads lines of `ADDRESS LETTER NAME`, with `[MODULE]` behind those of modules (System.map, /proc/kallsyms).
    /// `path` is for messages.
    ///
    /// # Errors
    /// The first line that is none; no symbol at all; only addresses of zero, which is what the kernel shows to those
    /// who may not know them.
    pub fn parse(text: &'a str, path: &str, from: SymbolsFrom) -> Result<List<'a>> {
        let doing = || format!("reading the symbols of {path}");
        let mut list = List { symbols: Vec::new(), from, of_modules: 0 };
        for (number, line) in (1u64..).zip(text.lines()) {
            let (symbol, module) = line_of(line).ok_or_else(|| {
                let shown: String = line.chars().take(100).collect();
                Error::input(doing(), format!("line {number} is not `ADDRESS LETTER NAME`: {shown}"))
            })?;
            if module { list.of_modules += 1 } else { list.symbols.push(symbol) }
        }
        if list.symbols.is_empty() {
            return Err(Error::input(doing(), "it names no symbol"));
        }
        if list.symbols.iter().all(|s| s.address == 0) {
            let problem =
                "every address is 0: the kernel hides them from those without CAP_SYSLOG (see kernel.kptr_restrict)";
            return Err(Error::machine(doing(), problem).hint("as root"));
        }
        Ok(list)
    }
}

fn line_of(line: &str) -> Option<(Listed<'_>, bool)> {
    let (address, rest) = line.split_once(' ')?;
    let (letter, rest) = rest.split_once(' ')?;
    let (name, module) = rest.split_once(['\t', ' ']).map_or((rest, None), |(name, rest)| (name, Some(rest.trim())));
    let address = (!address.starts_with('+')).then(|| u64::from_str_radix(address, 16).ok()).flatten()?;
    let module = match module {
        None => false,
        Some(module) if module.starts_with('[') && module.ends_with(']') => true,
        Some(_) => return None,
    };
    let [letter] = letter.as_bytes() else { return None };
    let ok = (letter.is_ascii_alphabetic() || matches!(letter, b'?' | b'-')) && !name.is_empty();
    ok.then_some((Listed { address, letter: *letter, name: name.into() }, module))
}

/// Gives the image the symbols of a list instead of its own. A size is the way to the next symbol or to the end of the
/// section, whichever comes first.
///
/// # Errors
/// The list is one of another image.
pub(super) fn attach<'a>(image: &mut Image<'a>, mut list: List<'a>) -> Result<()> {
    list.symbols.sort_by_key(|s| s.address);
    // A second list bounds them anew.
    if !image.bytes.starts_with(b"\x7fELF") {
        bound(image, &list)?;
    }
    check(image, &list)?;
    let homes = homes(image, &list.symbols);
    let mut symbols = Vec::with_capacity(list.symbols.len());
    let mut next: Option<(u64, u64)> = None;
    for (listed, home) in list.symbols.into_iter().zip(homes).rev() {
        let end = match next {
            Some((address, end)) if address == listed.address => end,
            Some((address, _)) => address,
            None => u64::MAX,
        };
        next = Some((listed.address, end));
        symbols.push(symbol(listed, home, end, &image.sections));
    }
    symbols.reverse();
    image.symbols = symbols;
    image.symbols_from = list.from;
    image.sizes = Sizes::UpTo;
    if list.of_modules > 0 {
        image.skipped.insert("symbol of a module", list.of_modules);
    }
    if !image.symbols.iter().any(|s| s.kind == SymbolKind::Data && matches!(s.home, Home::Section(_))) {
        let problem = "it lists no data, only functions: the kernel was built without CONFIG_KALLSYMS_ALL";
        image.problems.push(problem.to_string());
    }
    Ok(())
}

/// The same with the table that the image itself carries. Where it does not fit, that is a problem of the image, not an
/// error: it may be read without symbols.
pub(super) fn attach_own(image: &mut Image<'_>, symbols: Vec<Listed<'static>>) {
    if let Err(error) = attach(image, List { symbols, from: SymbolsFrom::Kallsyms, of_modules: 0 }) {
        image.problems.push(format!("kallsyms: {}", error.problem));
    }
}

/// Makes the sections that the labels of the list bound, for an image that has no table of them.
fn bound(image: &mut Image<'_>, list: &List<'_>) -> Result<()> {
    let memory = memory(image, list);
    if memory.is_none() && !image.bytes.is_empty() {
        return Err(other(image, "its header does not lead to where they place the entry"));
    }
    let (sections, missing) = places::sections(&list.symbols, memory);
    if sections.len() <= 1 {
        let doing = format!("telling the sections of {}", image.path);
        return Err(Error::input(
            doing,
            "the list has none of the labels that bound them (_stext, _sdata, __bss_start, …)",
        ));
    }
    let problem = "it has no section table: sections are told by labels (_sdata, _edata, __bss_start, …); what lies \
                   between them has none, and what each file or special section added is not known";
    image.problems.push(problem.to_string());
    if !missing.is_empty() {
        image.problems.push(format!("labels of these sections are missing: {}", missing.join(", ")));
    }
    if let Some(notes) = sections.iter().find(|s| s.name == ".notes").and_then(|s| s.bytes) {
        image.take_notes(notes);
    }
    image.sections = sections;
    Ok(())
}

/// In which section each symbol of a sorted list lies.
fn homes(image: &Image<'_>, symbols: &[Listed<'_>]) -> Vec<Home> {
    let mut sections: Vec<(u32, &Section<'_>)> =
        (0u32..).zip(&image.sections).filter(|(_, s)| s.loaded && s.size > 0 && !s.tls).collect();
    // Where they overlap, the smaller one knows better.
    sections.sort_by_key(|(_, s)| s.size);
    let inside = |s: &Section<'_>, address: u64| address >= s.address && address - s.address < s.size;
    let mut last: Option<(u64, Home)> = None;
    let find = |listed: &Listed<'_>| match last {
        Some((address, home)) if address == listed.address => home,
        _ => {
            let found = sections.iter().find(|(_, s)| inside(s, listed.address));
            let home = found.map_or(Home::Broken, |(index, _)| Home::Section(*index));
            last = Some((listed.address, home));
            home
        }
    };
    let homes: Vec<Home> = symbols.iter().map(find).collect();
    homes
        .into_iter()
        .zip(symbols)
        // A number that is no address; but per-CPU addresses, which count from 0, have this letter too.
        .map(
            |(home, s)| {
                if home == Home::Broken && s.letter.eq_ignore_ascii_case(&b'a') { Home::Absolute } else { home }
            },
        )
        .collect()
}

fn symbol<'a>(listed: Listed<'a>, home: Home, next: u64, sections: &[Section<'_>]) -> Symbol<'a> {
    let section = match home {
        Home::Section(index) => sections.get(index as usize),
        _ => None,
    };
    let end = section.map_or(0, |s| s.address.saturating_add(s.size)).min(next);
    let code = section.is_some_and(|s| s.executable);
    let kind = match listed.letter {
        _ if is_label(&listed.name) => SymbolKind::Untyped,
        b'T' | b't' | b'i' => SymbolKind::Function,
        b'W' | b'w' if code => SymbolKind::Function,
        b'A' | b'a' | b'W' | b'w' | b'V' | b'v' | b'u' if section.is_some() => SymbolKind::Data,
        b'D' | b'd' | b'B' | b'b' | b'R' | b'r' | b'G' | b'g' | b'S' | b's' => SymbolKind::Data,
        _ => SymbolKind::Untyped,
    };
    Symbol {
        kind,
        home,
        value: listed.address,
        size: end.saturating_sub(listed.address),
        local: listed.letter.is_ascii_lowercase(),
        name: listed.name,
    }
}

/// Names that the linker script gives to places (include/asm-generic/vmlinux.lds.h, arch/*/kernel/vmlinux.lds.S): a
/// symbol table has no type for them, and a list does not say.
fn is_label(name: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    starts(&["__start_", "__stop_", "__end_"]) || LABELS.contains(&name)
}

const LABELS: &[&str] = &[
    "_text",
    "_stext",
    "_etext",
    "_sinittext",
    "_einittext",
    "_sdata",
    "_edata",
    "_end",
    "__bss_start",
    "__bss_stop",
    "__init_begin",
    "__init_end",
    "__per_cpu_start",
    "__per_cpu_end",
    "__per_cpu_load",
    "__brk_base",
    "__brk_limit",
    "__nosave_begin",
    "__nosave_end",
    "__inittext_begin",
    "__inittext_end",
    "__initdata_begin",
    "__initdata_end",
];

/// The banner is at the same place in the list and in the image, or the two do not belong together.
fn check(image: &Image<'_>, list: &List<'_>) -> Result<()> {
    let Some(banner) = list.symbols.iter().find(|s| s.name == "linux_banner") else { return Ok(()) };
    let content = match memory(image, list) {
        Some(memory) => memory.part(banner.address, BANNER.len() as u64),
        None if image.bytes.is_empty() => return Ok(()),
        None => (0u32..)
            .zip(&image.sections)
            .filter(|(_, s)| s.loaded)
            .find_map(|(index, _)| image.content(index, banner.address, BANNER.len() as u64)),
    };
    if content == Some(BANNER) {
        return Ok(());
    }
    Err(other(image, &format!("there is no banner at {:#x}, where they place it", banner.address)))
}

fn other(image: &Image<'_>, why: &str) -> Error {
    let problem = format!("they are of another kernel: {why}");
    Error::input(format!("matching symbols with {}", image.path), problem)
}

/// The bytes of an image that has no section table.
fn memory<'a>(image: &Image<'a>, list: &List<'_>) -> Option<Memory<'a>> {
    let bare = !image.bytes.is_empty() && !image.bytes.starts_with(b"\x7fELF");
    let start = bare.then(|| places::start(image.bytes, list.symbols.iter().map(|s| (s.name.as_ref(), s.address))));
    Some(Memory { start: start.flatten()?, bytes: image.bytes })
}
