//! Link maps → [`Landing`]: where every input section fell, and in which order.
//!
//! Input: the text that a linker's `-Map` writes. No format is specified anywhere; there are two kinds, in two spellings
//! each, told apart by their head: the listing of GNU ld and gold ([`gnu`]), the columns of lld and mold ([`columns`]).

use std::collections::BTreeMap;

use crate::error::{Error, Result};

mod columns;
mod gnu;

/// The name of a piece that only aligns what follows.
pub const FILL: &str = "*fill*";

/// One input section in the linked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file as the map names it ([`plain`]): an object, or the archive that holds `member`. Empty for what the linker
    /// itself wrote ([`FILL`], merged strings, `QUAD` and other data statements of a script).
    pub file: String,
    pub member: Option<String>,
    /// The input section's name: `.data.rel.local`.
    pub section: String,
    /// Which of the sections of that name in that file and member, from 0, in the map's order.
    pub index: u32,
    /// The output section that took it in: `.data`.
    pub output: String,
    pub address: u64,
    /// The bytes that it occupies in the linked file (merged strings shrink, to nothing too).
    pub size: u64,
    /// What the linker aligned it to, where the map says so.
    pub align: Option<u64>,
}

/// Who wrote the map: linkers lay out what they place by different rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Gnu,
    Gold,
    Lld,
    Mold,
}

/// Where everything fell, in address order within each output section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    pub dialect: Dialect,
    pub placed: Vec<Placed>,
    /// Output sections that have an address, loaded or not.
    pub outputs: Vec<Extent>,
    /// What a linker script brackets with symbols of its own inside an output section.
    pub brackets: Vec<Bracket>,
}

/// From the first to the last symbol that the script assigns between the input sections of one output section. Somebody
/// may walk what stands between them as an array, so nothing may be added there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub output: String,
    /// The first and the last symbol.
    pub from: String,
    pub to: String,
    /// Indices into [`Landing::placed`].
    pub placed: std::ops::Range<usize>,
}

/// An output section as the map gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub name: String,
    pub address: u64,
    pub size: u64,
    /// What the linker aligned it to, where the map says so.
    pub align: Option<u64>,
}

impl Landing {
    /// Reads a link map of any dialect. Fails when the text is none, or puts nothing anywhere.
    pub fn parse(map: &str) -> Result<Landing> {
        let doing = "reading the link map";
        let landing = gnu::parse(map).or_else(|| columns::parse(map)).ok_or_else(|| {
            Error::input(doing, "it is none of ld's, gold's, lld's or mold's")
                .hint("link with one of these (-fuse-ld=)")
        })?;
        if landing.placed.is_empty() {
            return Err(Error::input(doing, "it places no input section"));
        }
        Ok(landing)
    }
}

/// What the lines above said, in any dialect.
#[derive(Default)]
struct Builder {
    landing: Landing,
    output: String,
    /// The bracket of the current output section, if the script has assigned a symbol in it.
    bracket: Option<Bracket>,
    seen: BTreeMap<(String, Option<String>, String), u32>,
}

impl Builder {
    fn new(dialect: Dialect) -> Builder {
        Builder { landing: Landing { dialect, ..Landing::default() }, ..Builder::default() }
    }

    /// A new output section; its address may come later ([`Builder::extent`]).
    fn open(&mut self, name: &str) {
        self.close_bracket();
        name.clone_into(&mut self.output);
    }

    fn extent(&mut self, address: u64, size: u64, align: Option<u64>) {
        self.landing.outputs.push(Extent { name: self.output.clone(), address, size, align });
    }

    /// A symbol that the script assigns here.
    fn assign(&mut self, symbol: &str) {
        let here = self.landing.placed.len();
        let open = self.bracket.get_or_insert_with(|| Bracket {
            output: self.output.clone(),
            from: symbol.to_owned(),
            to: String::new(),
            placed: here..here,
        });
        symbol.clone_into(&mut open.to);
        open.placed.end = here;
    }

    /// A bracket counts when there is something in it. What the script assigns after an output section stands in the map
    /// as if it were in it: that widens a bracket at most, and what is kept in vain does no harm.
    fn close_bracket(&mut self) {
        self.landing.brackets.extend(self.bracket.take().filter(|b| !b.placed.is_empty()));
    }

    /// An input section of `file`, or with an empty name what the linker made itself.
    fn place(&mut self, section: &str, address: u64, size: u64, align: Option<u64>, file: &str) {
        let (file, member) = archive_member(file);
        let file = plain(file);
        let key = (file.clone(), member.map(str::to_owned), section.to_owned());
        let count = self.seen.entry(key).or_default();
        let index = *count;
        *count += 1;
        self.landing.placed.push(Placed {
            file,
            member: member.map(str::to_owned),
            section: section.to_owned(),
            index,
            output: self.output.clone(),
            address,
            size,
            align,
        });
    }

    fn finish(mut self) -> Landing {
        self.close_bracket();
        self.landing
    }
}

/// A file's name without `./` and double slashes: lld keeps them in the map, and not in its dependency file.
#[must_use]
pub fn plain(file: &str) -> String {
    let root = if file.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = file.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("{root}{}", parts.join("/"))
}

/// `libx.a(y.o)` → (`libx.a`, `y.o`). A loose object may have parentheses in its name, but does not end with one.
fn archive_member(file: &str) -> (&str, Option<&str>) {
    match file.strip_suffix(')').and_then(|f| f.rsplit_once('(')) {
        Some((archive, member)) if !archive.is_empty() => (archive, Some(member)),
        _ => (file, None),
    }
}

/// The symbol of `symbol = expression`, also within `PROVIDE (…)` and the like; none of `. = …`, which moves on.
fn assigned(text: &str) -> Option<&str> {
    let wrapped = |w: &str| text.strip_prefix(w)?.trim_start().strip_prefix('(').map(str::trim_start);
    let inner = ["PROVIDE_HIDDEN", "PROVIDE", "HIDDEN"].iter().find_map(|w| wrapped(w)).unwrap_or(text);
    let (symbol, right) = cut(inner);
    (right.starts_with("= ") && symbol != "." && hex(symbol).is_none()).then_some(symbol)
}

/// The first word, and what follows the blanks after it.
fn cut(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// What a test looks at.
#[cfg(test)]
fn shown(landing: &Landing) -> (Vec<String>, Vec<String>) {
    let piece = |p: &Placed| {
        let member = p.member.as_deref().unwrap_or("-");
        format!("{} {}#{} {:#x}+{:#x} {} {member}", p.output, p.section, p.index, p.address, p.size, p.file)
    };
    let output = |o: &Extent| format!("{} {:#x}+{:#x}", o.name, o.address, o.size);
    (landing.placed.iter().map(piece).collect(), landing.outputs.iter().map(output).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_map_is_one_clear_line() {
        let empty = ["Linker script and memory map\n\nLOAD a.o\n", "  VMA  Size Align Out     In      Symbol\n"];
        for text in ["", "VMA LMA\n", "Memory map\n\n"].iter().chain(&empty) {
            assert!(Landing::parse(text).unwrap_err().to_string().starts_with("reading the link map: "), "{text}");
        }
    }

    #[test]
    fn names_of_files_are_plain() {
        for (name, expected) in [("./a.o", "a.o"), ("x/.//y.o", "x/y.o"), ("/u//./z.a", "/u/z.a"), ("../a.o", "../a.o")]
        {
            assert_eq!(plain(name), expected);
        }
    }
}
