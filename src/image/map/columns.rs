//! The columns of lld and mold.
//!
//! lld (`ELF/MapFile.cpp`), in hex but for the alignment, with fill bytes of a script and its assignments as lines:
//!
//! ```text
//!              VMA              LMA     Size Align Out     In      Symbol
//!             3b00             3b00       4c    32 .data
//!             3b20             3b20       2c    32         ./libx.a(c1.o):(.data)
//!             3b20             3b20       28     1                 arr
//!             3b4c             3b4c        0     1         __tab_end = .
//! ```
//!
//! mold (`elf/mapfile.cc`) has no LMA, and decimal sizes; what it makes itself has no line below its output section:
//!
//! ```text
//!                VMA       Size Align Out     In      Symbol
//!             0x3aa0         76    32 .data
//!             0x3aa0          4     1         /usr/lib/x86_64-linux-gnu/Scrt1.o:(.data)
//!             0x3aa0          0     0                 data_start
//! ```
//!
//! Neither lists fill: it is what lies between two pieces.

use super::{Builder, Dialect, FILL, Landing, assigned, cut};

/// How far in an input section stands, and its symbols.
const IN: usize = 8;

/// `None` when the text has no head of this kind.
pub(super) fn parse(map: &str) -> Option<Landing> {
    let mut lines = map.lines();
    let head: Vec<&str> = lines.next()?.split_whitespace().collect();
    let dialect = match head.as_slice() {
        ["VMA", "LMA", "Size", "Align", "Out", "In", "Symbol"] => Dialect::Lld,
        ["VMA", "Size", "Align", "Out", "In", "Symbol"] => Dialect::Mold,
        _ => return None,
    };
    let mut reader = Reader { builder: Builder::new(dialect), current: None };
    lines.filter_map(|line| row(line, dialect)).for_each(|row| reader.row(&row));
    reader.close();
    Some(reader.builder.finish())
}

struct Row<'a> {
    address: u64,
    size: u64,
    align: u64,
    /// Spaces before the text, from the column `Out` on.
    indent: usize,
    text: &'a str,
}

fn row(line: &str, dialect: Dialect) -> Option<Row<'_>> {
    let (address, rest) = cut(line);
    let (address, rest) = match dialect {
        Dialect::Lld => (u64::from_str_radix(address, 16).ok()?, cut(rest).1),
        _ => (u64::from_str_radix(address.strip_prefix("0x").unwrap_or(address), 16).ok()?, rest),
    };
    let (size, rest) = cut(rest);
    let size = u64::from_str_radix(size, if dialect == Dialect::Lld { 16 } else { 10 }).ok()?;
    let (align, rest) = rest.trim_start().split_once(' ')?;
    let text = rest.trim_start_matches(' ');
    Some(Row { address, size, align: align.parse().ok()?, indent: rest.len() - text.len(), text })
}

struct Reader {
    builder: Builder,
    current: Option<Current>,
}

/// The output section that is being filled.
struct Current {
    address: u64,
    size: u64,
    align: u64,
    /// Where its last piece ended.
    at: u64,
    empty: bool,
}

impl Reader {
    fn row(&mut self, row: &Row) {
        match row.indent {
            // Between output sections a script assigns, or moves on.
            0 if assigned(row.text).is_some() || row.text.starts_with(". = ") => {}
            0 => self.output(row),
            IN => self.piece(row),
            _ => {}
        }
    }

    fn output(&mut self, row: &Row) {
        self.close();
        self.builder.open(row.text);
        self.builder.extent(row.address, row.size, Some(row.align.max(1)));
        self.current =
            Some(Current { address: row.address, size: row.size, align: row.align, at: row.address, empty: true });
    }

    fn piece(&mut self, row: &Row) {
        if self.current.is_none() {
            return;
        }
        if let Some(symbol) = assigned(row.text) {
            self.builder.assign(symbol);
            return;
        }
        if row.text.starts_with(". = ") || row.text.starts_with(". += ") {
            return;
        }
        self.fill(row.address);
        let align = Some(row.align.max(1));
        match file_section(row.text) {
            Some(("<internal>", section)) => self.builder.place(section, row.address, row.size, align, ""),
            Some((file, section)) => self.builder.place(section, row.address, row.size, align, file),
            // `QUAD ( 0x5 )`
            None => self.builder.place(cut(row.text).0, row.address, row.size, Some(1), ""),
        }
        if let Some(current) = &mut self.current {
            current.at = current.at.max(row.address.saturating_add(row.size));
            current.empty = false;
        }
    }

    /// What lies between the last piece and `until`.
    fn fill(&mut self, until: u64) {
        let Some(Current { at, empty: false, .. }) = self.current else { return };
        if let Some(size @ 1..) = until.checked_sub(at) {
            self.builder.place(FILL, at, size, None, "");
        }
    }

    /// Ends the output section: with fill, or where nothing was listed, as one piece of the linker's own.
    fn close(&mut self) {
        match self.current {
            Some(Current { address, size, align, empty: true, .. }) if size > 0 => {
                let name = self.builder.output.clone();
                self.builder.place(&name, address, size, Some(align.max(1)), "");
            }
            Some(Current { address, size, .. }) => self.fill(address.saturating_add(size)),
            None => {}
        }
        self.current = None;
    }
}

/// `./libx.a(c1.o):(.data)` → (`./libx.a(c1.o)`, `.data`). File names and section names may hold anything; `:(.` is where
/// a section name begins that is none of a C identifier.
fn file_section(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_suffix(')')?;
    let at = text.find(":(.").or_else(|| text.rfind(":("))?;
    Some((text.get(..at)?, text.get(at + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::super::{Bracket, shown};
    use super::*;
    use proptest::prelude::*;

    /// Lines of real maps (lld 14, gcc 12), cut down.
    const LLD: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
             2e0              2e0       1c     1 .interp
             2e0              2e0       1c     1         <internal>:(.interp)
             638              638       54     8 .eh_frame
             638              638       2c     1         c2.o:(.eh_frame+0x18)
             668              668       20     1         c2.o:(.eh_frame+0x44)
           9f978            9f978      688     1 . = ALIGN ( 4096 )
           a0000            a0000       d0    32 .data
           a0000            a0000        0     1         __tab_start = .
           a0000            a0000        8     8         we:(ird (1).o:(tab)
           a0000            a0000        8     1                 t1
           a0008            a0008        0     1         PROVIDE ( __tab_end = . )
           a0010            a0010        8     8         ./my lib/libx.a(c 1.o):(.data.a:(b))
           a0010            a0010        8     1                 operator()(int, char:(*)[3])
           a0018            a0018        8     1         QUAD ( 0x5 )
           a0020            a0020       60     1         . = ALIGN ( 128 )
           a0080            a0080       28     1         c2.o:(.data)
           ab488            ab488        0     1 outer = .
               0                0       42     1 .comment
               0                0       42     1         <internal>:(.comment)
";

    /// Lines of real maps (mold 1.10, gcc 12), cut down.
    const MOLD: &str = "               VMA       Size Align Out     In      Symbol
                 0         64     8 EHDR
             0x2e0         28     1 .interp
            0x3aa0         84    32 .data
            0x3aa0          4     1         /usr/lib/x86_64-linux-gnu/Scrt1.o:(.data)
            0x3aa0          0     0                 data_start
            0x3ac0         44    32         libx.a(c1.o):(.data)
            0x3ac0          0     0                 std::map<int, char>::operator()(int)
            0x3af4          0     8 .tm_clone_table
            0x3b00        224    32 .common
            0x3b00        160    32         c2.o:(.common)
                 0       2432     8 SHDR
";

    #[test]
    fn llds_lines_are_read_and_fill_is_what_lies_between() {
        let landing = parse(LLD).unwrap();
        let (got, outputs) = shown(&landing);
        assert_eq!(
            got,
            [
                ".interp .interp#0 0x2e0+0x1c  -",
                ".eh_frame .eh_frame+0x18#0 0x638+0x2c c2.o -",
                ".eh_frame *fill*#0 0x664+0x4  -",
                ".eh_frame .eh_frame+0x44#0 0x668+0x20 c2.o -",
                ".eh_frame *fill*#1 0x688+0x4  -",
                ".data tab#0 0xa0000+0x8 we:(ird (1).o -",
                ".data *fill*#2 0xa0008+0x8  -",
                ".data .data.a:(b)#0 0xa0010+0x8 my lib/libx.a c 1.o",
                ".data QUAD#0 0xa0018+0x8  -",
                ".data *fill*#3 0xa0020+0x60  -",
                ".data .data#0 0xa0080+0x28 c2.o -",
                ".data *fill*#4 0xa00a8+0x28  -",
                ".comment .comment#0 0x0+0x42  -",
            ]
        );
        assert_eq!(outputs, [".interp 0x2e0+0x1c", ".eh_frame 0x638+0x54", ".data 0xa0000+0xd0", ".comment 0x0+0x42"]);
        let bracket =
            Bracket { output: ".data".into(), from: "__tab_start".into(), to: "__tab_end".into(), placed: 5..6 };
        assert_eq!(landing.brackets, [bracket]);
        assert_eq!(landing.placed[7].align, Some(8));
    }

    #[test]
    fn molds_lines_are_read_and_what_has_none_below_is_its_own() {
        let landing = parse(MOLD).unwrap();
        let (got, outputs) = shown(&landing);
        assert_eq!(
            got,
            [
                "EHDR EHDR#0 0x0+0x40  -",
                ".interp .interp#0 0x2e0+0x1c  -",
                ".data .data#0 0x3aa0+0x4 /usr/lib/x86_64-linux-gnu/Scrt1.o -",
                ".data *fill*#0 0x3aa4+0x1c  -",
                ".data .data#0 0x3ac0+0x2c libx.a c1.o",
                ".data *fill*#1 0x3aec+0x8  -",
                ".common .common#0 0x3b00+0xa0 c2.o -",
                ".common *fill*#2 0x3ba0+0x40  -",
                "SHDR SHDR#0 0x0+0x980  -",
            ]
        );
        assert_eq!(outputs.len(), 6);
        assert_eq!(landing.dialect, Dialect::Mold);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(mold: bool, cut in 0usize..MOLD.len(), noise in "[ -~\\n]{0,80}") {
            let map = if mold { MOLD } else { LLD };
            let _ = parse(&format!("{}{noise}", &map[..cut]));
        }
    }
}
