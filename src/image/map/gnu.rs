//! The listing of GNU ld and gold.
//!
//! ld (`print_input_section`, `print_padding_statement`, `print_data_statement` in binutils `ld/ldlang.c`):
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
//!
//! gold (`gold/mapfile.cc`) has the same lines without patterns and assignments, and `** NAME` for all that is its own:
//! ` ** fill`, ` ** merge strings`, ` ** common`.

use std::collections::BTreeMap;

use super::{Builder, Dialect, FILL, Landing, assigned, cut, hex};

/// `None` when the text has no head of this kind.
pub(super) fn parse(map: &str) -> Option<Landing> {
    let mut lines = map.lines();
    let dialect = lines.find_map(|l| match l.trim_end() {
        "Linker script and memory map" => Some(Dialect::Gnu),
        "Memory map" => Some(Dialect::Gold),
        _ => None,
    })?;
    let mut reader = Reader { builder: Builder::new(dialect), unplaced: false, pending: None };
    lines.take_while(|l| !l.starts_with("OUTPUT(")).for_each(|line| reader.line(line));
    let mut landing = reader.builder.finish();
    take_room(&mut landing);
    Some(landing)
}

/// A section whose strings were all merged into earlier ones is still listed with a size, yet takes no room: what
/// comes next, be it fill, starts where it does. Its size becomes what it really occupies.
fn take_room(landing: &mut Landing) {
    let ends: BTreeMap<&str, u64> =
        landing.outputs.iter().map(|o| (o.name.as_str(), o.address.saturating_add(o.size))).collect();
    let mut next: Option<(String, u64)> = None;
    for p in landing.placed.iter_mut().rev() {
        let limit = match next.take() {
            Some((output, address)) if output == p.output => address,
            _ => ends.get(p.output.as_str()).copied().unwrap_or(u64::MAX),
        };
        p.size = p.size.min(limit.saturating_sub(p.address));
        next = Some((p.output.clone(), p.address));
    }
}

struct Reader {
    builder: Builder,
    /// An output section whose address is on the next line.
    unplaced: bool,
    /// A long name whose address is on the next line.
    pending: Option<String>,
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
        if self.unplaced {
            self.builder.open(name);
        } else if let Some((address, size, _)) = numbers(rest) {
            self.builder.open(name);
            self.builder.extent(address, size, None);
        }
    }

    fn statement(&mut self, text: &str) {
        self.pending = None;
        self.unplaced = false;
        let (name, rest) = match text.strip_prefix("** ") {
            Some(own) => own.split_once(" 0x").map_or((text, ""), |(name, _)| text.split_at(name.len() + 3)),
            None => cut(text),
        };
        let name = name.trim_end();
        match numbers(rest) {
            Some((address, size, file)) => self.place(name, address, size, file),
            None if rest.is_empty() && (!name.starts_with('*') || name.starts_with("** ")) => {
                self.pending = Some(name.to_owned());
            }
            None => {}
        }
    }

    /// The second half of a wrapped line; otherwise a symbol, an assignment, or a script's `QUAD 0x0`.
    fn continuation(&mut self, text: &str) {
        let (pending, unplaced) = (self.pending.take(), std::mem::take(&mut self.unplaced));
        let (address, rest) = cut(text);
        // `[!provide]` stands in the address's place where nothing is assigned.
        if let (Some(_), Some(symbol)) = (hex(address), assigned(rest)) {
            self.builder.assign(symbol);
            return;
        }
        let Some((address, size, rest)) = numbers(text) else { return };
        match pending {
            None if unplaced => self.builder.extent(address, size, None),
            Some(name) => self.place(&name, address, size, rest),
            None => {
                let (kind, _) = cut(rest);
                if matches!(kind, "BYTE" | "SHORT" | "LONG" | "QUAD" | "SQUAD" | "ASCII" | "ASCIZ") {
                    self.place(kind, address, size, "");
                }
            }
        }
    }

    fn place(&mut self, name: &str, address: u64, size: u64, file: &str) {
        let (name, file) = match name.strip_prefix("** ") {
            Some("fill") if self.among_inputs() => (FILL, ""),
            Some(own) => (own, ""),
            // ld prints the bytes that it fills with where a file stands.
            None if name == FILL => (FILL, ""),
            None => (name, file),
        };
        self.builder.place(name, address, size, None, file);
    }

    /// Whether the output section has taken in an input section. Before that, what gold calls fill is content of its
    /// own: the text of `.interp`, the bytes of a note.
    fn among_inputs(&self) -> bool {
        let placed = self.builder.landing.placed.iter().rev();
        placed.take_while(|p| p.output == self.builder.output).any(|p| !p.file.is_empty())
    }
}

/// `0xADDRESS 0xSIZE rest`. The rest is a file name, spaces and all.
fn numbers(text: &str) -> Option<(u64, u64, &str)> {
    let (address, rest) = cut(text);
    let (size, rest) = cut(rest);
    Some((hex(address)?, hex(size)?, rest))
}

#[cfg(test)]
mod tests {
    use super::super::shown;
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
        let (got, outputs) = shown(&parse(MAP).unwrap());
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
        assert_eq!(outputs, [".note.gnu.property 0x338+0x20", ".eh_frame 0x20a0+0x130", ".data 0x4040+0xa8"]);
    }

    /// Lines of real maps (gold 1.16, gcc 12), cut down.
    const GOLD: &str = "\
Discarded input sections

 .note.GNU-stack
                0x0000000000000000        0x0 c2.o

Memory map

 ** file header
                0x0000000000000000       0x40

.interp         0x00000000000002a8       0x1c
 ** fill        0x00000000000002a8       0x1c

.note.gnu.build-id
                0x0000000000000308       0x24
 ** note header
                0x0000000000000308       0x10
 ** zero fill   0x0000000000000318       0x14

.text           0x0000000000000630      0x1a2
 .text          0x0000000000000652        0x2 crti.o
 ** fill        0x0000000000000654        0xc
 .text.dupa     0x0000000000000660        0xd ./libx.a(c1.o)
                0x0000000000000660                dupa

.rodata         0x00000000000007e0        0x4
 ** merge constants
                0x00000000000007e0        0x4

.bss            0x0000000000002080       0xe4
 .bss           0x0000000000002080        0x1 a copy (1).o
 ** common      0x00000000000020a0       0xc4
";

    #[test]
    fn golds_lines_are_read_and_its_own_pieces_are_its_own() {
        let landing = parse(GOLD).unwrap();
        let (got, outputs) = shown(&landing);
        assert_eq!(
            got,
            [
                " file header#0 0x0+0x40  -",
                ".interp fill#0 0x2a8+0x1c  -",
                ".note.gnu.build-id note header#0 0x308+0x10  -",
                ".note.gnu.build-id zero fill#0 0x318+0x14  -",
                ".text .text#0 0x652+0x2 crti.o -",
                ".text *fill*#0 0x654+0xc  -",
                ".text .text.dupa#0 0x660+0xd libx.a c1.o",
                ".rodata merge constants#0 0x7e0+0x4  -",
                ".bss .bss#0 0x2080+0x1 a copy (1).o -",
                ".bss common#0 0x20a0+0xc4  -",
            ]
        );
        assert_eq!(outputs.len(), 5);
        assert_eq!(landing.dialect, Dialect::Gold);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(gold: bool, cut in 0usize..GOLD.len(), noise in "[ -~\\n]{0,80}") {
            let map = if gold { GOLD } else { MAP };
            let _ = parse(&format!("{}{noise}", &map[..cut]));
        }
    }
}
