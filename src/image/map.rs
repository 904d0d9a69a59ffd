//! Link maps → [`Landing`]: where every input section fell, and in which order.
//!
//! Input: the text that `ld -Map` writes (GNU dialect; others come with their linkers). The format is nowhere
//! specified; it is what `ldlang.c` (`print_input_section`, `print_padding_statement`, `print_data_statement`) prints:
//!
//! ```text
//! .data           0x4040     0xa8            an output section, at the margin
//!  *(.data .data.*)                          a pattern of the linker script
//!  .data          0x4040      0x4 crt1.o     an input section, one space in
//!  .data.rel.local                           a name of 15 and more characters: the rest is on the next line
//!                 0x4048      0x8 libx.a(y.o)
//!                 0x4048          __dso_handle    a symbol
//!  *fill*         0x4050     0x30 90         bytes that align what follows
//! ```

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The name under which the map lists bytes that only align what follows.
pub const FILL: &str = "*fill*";

/// One input section in the linked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file as the map names it: an object, or the archive that holds `member`. Empty for what the linker
    /// itself wrote ([`FILL`], `QUAD` and other data statements of a script).
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
}

/// Where everything fell, in address order within each output section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
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
}

impl Landing {
    /// Reads a GNU link map. Fails when the text has no memory map, or puts nothing anywhere.
    pub fn parse(map: &str) -> Result<Landing> {
        let doing = "reading the link map";
        let mut lines = map.lines().skip_while(|l| l.trim_end() != "Linker script and memory map");
        if lines.next().is_none() {
            return Err(Error::input(doing, "it has no part \"Linker script and memory map\"")
                .hint("link with GNU ld (-fuse-ld=bfd); maps of other linkers are not read yet"));
        }
        let mut reader = Reader::default();
        for line in lines {
            if line.starts_with("OUTPUT(") {
                break;
            }
            reader.line(line);
        }
        reader.close_bracket();
        reader.landing.take_room();
        if reader.landing.placed.is_empty() {
            return Err(Error::input(doing, "it places no input section"));
        }
        Ok(reader.landing)
    }
}

impl Landing {
    /// A section whose strings were all merged into earlier ones is still listed with a size, yet takes no room: what
    /// comes next, be it fill, starts where it does. Its size becomes what it really occupies.
    fn take_room(&mut self) {
        let ends: BTreeMap<&str, u64> =
            self.outputs.iter().map(|o| (o.name.as_str(), o.address.saturating_add(o.size))).collect();
        let mut next: Option<(String, u64)> = None;
        for p in self.placed.iter_mut().rev() {
            let limit = match next.take() {
                Some((output, address)) if output == p.output => address,
                _ => ends.get(p.output.as_str()).copied().unwrap_or(u64::MAX),
            };
            p.size = p.size.min(limit.saturating_sub(p.address));
            next = Some((p.output.clone(), p.address));
        }
    }
}

/// What the lines above said.
#[derive(Default)]
struct Reader {
    landing: Landing,
    output: String,
    /// An output section whose address is on the next line.
    unplaced: bool,
    /// A long input section name whose address is on the next line.
    pending: Option<String>,
    /// The bracket of the current output section, if the script has assigned a symbol in it.
    bracket: Option<Bracket>,
    seen: BTreeMap<(String, Option<String>, String), u32>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let text = line.trim();
        match indent {
            _ if text.is_empty() => (self.pending, self.unplaced) = (None, false),
            0 => self.margin(text),
            1 => self.statement(text),
            _ => self.continuation(text),
        }
    }

    /// An output section. `LOAD file`, `START GROUP` and the like stand at the margin too: their second word is no
    /// number.
    fn margin(&mut self, text: &str) {
        self.pending = None;
        let (name, rest) = cut(text);
        self.unplaced = rest.is_empty();
        if self.unplaced || numbers(rest).is_some() {
            self.close_bracket();
        }
        if self.unplaced {
            self.output = name.to_owned();
        } else if let Some((address, size, _)) = numbers(rest) {
            self.output = name.to_owned();
            self.extent(address, size);
        }
    }

    fn extent(&mut self, address: u64, size: u64) {
        self.landing.outputs.push(Extent { name: self.output.clone(), address, size });
    }

    fn statement(&mut self, text: &str) {
        self.pending = None;
        self.unplaced = false;
        let (name, rest) = cut(text);
        match numbers(rest) {
            Some((address, size, file)) if name == FILL => self.place(FILL, address, size, file, true),
            Some((address, size, file)) => self.place(name, address, size, file, file.is_empty()),
            None if rest.is_empty() && !name.starts_with('*') => self.pending = Some(name.to_owned()),
            None => {}
        }
    }

    /// The second half of a wrapped line; otherwise a symbol, an assignment, or a script's `QUAD 0x0`.
    fn continuation(&mut self, text: &str) {
        let (pending, unplaced) = (self.pending.take(), std::mem::take(&mut self.unplaced));
        if let Some(symbol) = assigned(text) {
            self.assign(symbol);
            return;
        }
        let Some((address, size, rest)) = numbers(text) else { return };
        match pending {
            None if unplaced => self.extent(address, size),
            Some(name) => self.place(&name, address, size, rest, rest.is_empty()),
            None => {
                let (kind, _) = cut(rest);
                if matches!(kind, "BYTE" | "SHORT" | "LONG" | "QUAD" | "SQUAD" | "ASCII" | "ASCIZ") {
                    self.place(kind, address, size, "", true);
                }
            }
        }
    }

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

    fn place(&mut self, section: &str, address: u64, size: u64, file: &str, linkers_own: bool) {
        let (file, member) = if linkers_own { ("", None) } else { archive_member(file) };
        let key = (file.to_owned(), member.map(str::to_owned), section.to_owned());
        let count = self.seen.entry(key).or_default();
        let index = *count;
        *count += 1;
        self.landing.placed.push(Placed {
            file: file.to_owned(),
            member: member.map(str::to_owned),
            section: section.to_owned(),
            index,
            output: self.output.clone(),
            address,
            size,
        });
    }
}

/// `libx.a(y.o)` → (`libx.a`, `y.o`). A loose object may have parentheses in its name, but does not end with one.
fn archive_member(file: &str) -> (&str, Option<&str>) {
    match file.strip_suffix(')').and_then(|f| f.rsplit_once('(')) {
        Some((archive, member)) if !archive.is_empty() => (archive, Some(member)),
        _ => (file, None),
    }
}

/// The symbol of `0xADDRESS   symbol = expression`, also within `PROVIDE (…)` and the like; none of `. = …`, which moves
/// on, and of `[!provide]`, which assigns nothing.
fn assigned(text: &str) -> Option<&str> {
    let (address, rest) = cut(text);
    hex(address)?;
    let inner = ["PROVIDE_HIDDEN (", "PROVIDE (", "HIDDEN ("].iter().find_map(|p| rest.strip_prefix(p)).unwrap_or(rest);
    let (symbol, right) = cut(inner);
    (right.starts_with("= ") && symbol != "." && hex(symbol).is_none()).then_some(symbol)
}

/// `0xADDRESS 0xSIZE rest`. The rest is a file name, spaces and all.
fn numbers(text: &str) -> Option<(u64, u64, &str)> {
    let (address, rest) = cut(text);
    let (size, rest) = cut(rest);
    Some((hex(address)?, hex(size)?, rest))
}

/// The first word, and what follows the blanks after it.
fn cut(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines of real maps (ld 2.40, gcc 12), cut down.
    const MAP: &str = "\
Archive member included to satisfy reference by file (symbol)

libf.a(a.o)                   b.o (nm)

Discarded input sections

 .note.GNU-stack
                0x0000000000000000        0x0 main.o
 .text.unused   0x0000000000000000       0x10 main.o

Memory Configuration

Name             Origin             Length             Attributes
*default*        0x0000000000000000 0xffffffffffffffff

Linker script and memory map

LOAD /usr/lib/x86_64-linux-gnu/Scrt1.o
START GROUP
LOAD /lib/x86_64-linux-gnu/libc.so.6
END GROUP
                [!provide]                        PROVIDE (__executable_start = SEGMENT_START (\"text-segment\", 0x0))
                0x0000000000000318                . = (SEGMENT_START (\"text-segment\", 0x0) + SIZEOF_HEADERS)

.hash
 *(.hash)

.note.gnu.property
                0x0000000000000338       0x20
 *(.note.gnu.property)

.eh_frame       0x00000000000020a0      0x130
 *(.eh_frame)
 .eh_frame      0x00000000000020a0       0x30 /usr/lib/x86_64-linux-gnu/Scrt1.o
                                         0x2c (size before relaxing)
 .eh_frame      0x00000000000020d0       0x40 /usr/lib/x86_64-linux-gnu/Scrt1.o
                0x0000000000003dd0                . = DATA_SEGMENT_ALIGN (CONSTANT (MAXPAGESIZE), CONSTANT (COMMONPAGESIZE))

.data           0x0000000000004040       0xa8 load address 0x0000000000001040
 *(.data .data.* .gnu.linkonce.d.*)
 .data          0x0000000000004040        0x4 /usr/lib/x86_64-linux-gnu/Scrt1.o
                0x0000000000004040                data_start
 *fill*         0x0000000000004044        0x4 9090
 .data.rel.local
                0x0000000000004048        0x8 my lib/libf.a(a.o)
                0x0000000000004048                __dso_handle
                0x0000000000004050        0x8 QUAD 0x0
 .rodata.str1.8
                0x0000000000004058       0x24 copy (1).o
 mytable        0x0000000000004058        0x4 copy (1).o
 COMMON         0x0000000000004060        0x4 libf.a(a.o)
                0x0000000000004060                shared_common
 *(COMMON)
OUTPUT(demo elf64-x86-64)

.late           0x1 0x1
 .late          0x1 0x1 late.o
";

    #[test]
    fn real_lines_are_read_and_everything_else_is_passed_over() {
        let landing = Landing::parse(MAP).unwrap();
        let got: Vec<String> = landing
            .placed
            .iter()
            .map(|p| {
                let member = p.member.as_deref().unwrap_or("-");
                format!("{} {}#{} {:#x}+{:#x} {} {member}", p.output, p.section, p.index, p.address, p.size, p.file)
            })
            .collect();
        assert_eq!(
            got,
            [
                ".eh_frame .eh_frame#0 0x20a0+0x30 /usr/lib/x86_64-linux-gnu/Scrt1.o -",
                ".eh_frame .eh_frame#1 0x20d0+0x40 /usr/lib/x86_64-linux-gnu/Scrt1.o -",
                ".data .data#0 0x4040+0x4 /usr/lib/x86_64-linux-gnu/Scrt1.o -",
                ".data *fill*#0 0x4044+0x4  -",
                ".data .data.rel.local#0 0x4048+0x8 my lib/libf.a a.o",
                ".data QUAD#0 0x4050+0x8  -",
                ".data .rodata.str1.8#0 0x4058+0x0 copy (1).o -",
                ".data mytable#0 0x4058+0x4 copy (1).o -",
                ".data COMMON#0 0x4060+0x4 libf.a a.o",
            ]
        );
        let outputs: Vec<String> =
            landing.outputs.iter().map(|o| format!("{} {:#x}+{:#x}", o.name, o.address, o.size)).collect();
        assert_eq!(outputs, [".note.gnu.property 0x338+0x20", ".eh_frame 0x20a0+0x130", ".data 0x4040+0xa8"]);
    }

    #[test]
    fn what_is_no_map_is_one_clear_line() {
        for text in ["", "VMA LMA Size Align Out In Symbol\n", "Linker script and memory map\n\nLOAD a.o\n"] {
            assert!(Landing::parse(text).unwrap_err().to_string().starts_with("reading the link map: "));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(cut in 0usize..MAP.len(), noise in "[ -~\\n]{0,80}") {
            let _ = Landing::parse(&format!("{}{noise}", &MAP[..cut]));
        }
    }
}
