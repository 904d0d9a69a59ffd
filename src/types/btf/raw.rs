//! The format itself: a header, a table of types and one of strings (`include/uapi/linux/btf.h`, up to Linux 7.2).

use super::{Skipped, skip};
use crate::error::{Error, Result};

/// One blob, split into its tables.
#[derive(Clone, Debug)]
pub(super) struct Raw<'a> {
    big_endian: bool,
    types: &'a [u8],
    pub(super) strings: &'a [u8],
    /// Where each type begins in `types`, by number, and where the last one ends.
    starts: Vec<u32>,
    pub(super) skipped: Skipped,
}

/// `struct btf_type`, and what follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    big_endian: bool,
    /// An offset into the strings.
    pub(super) name: u32,
    pub(super) kind: u8,
    pub(super) flag: bool,
    /// Bytes of the type, or the number of the type that it is made of.
    pub(super) size_or_type: u32,
    rest: &'a [u8],
}

/// `BTF_KIND_*`.
pub(super) mod kind {
    pub(crate) const INT: u8 = 1;
    pub(crate) const PTR: u8 = 2;
    pub(crate) const ARRAY: u8 = 3;
    pub(crate) const STRUCT: u8 = 4;
    pub(crate) const UNION: u8 = 5;
    pub(crate) const ENUM: u8 = 6;
    pub(crate) const FWD: u8 = 7;
    pub(crate) const TYPEDEF: u8 = 8;
    pub(crate) const VOLATILE: u8 = 9;
    pub(crate) const CONST: u8 = 10;
    pub(crate) const RESTRICT: u8 = 11;
    pub(crate) const FUNC: u8 = 12;
    pub(crate) const FUNC_PROTO: u8 = 13;
    pub(crate) const VAR: u8 = 14;
    pub(crate) const DATASEC: u8 = 15;
    pub(crate) const FLOAT: u8 = 16;
    pub(crate) const DECL_TAG: u8 = 17;
    pub(crate) const TYPE_TAG: u8 = 18;
    pub(crate) const ENUM64: u8 = 19;
}

/// `struct btf_type` has 12 bytes, and so has every member, section entry and 64-bit enumerator.
const RECORD: usize = 12;
/// Magic, version, flags, and offset and length of types and of strings; newer ones have the layout of kinds behind it.
const HEADER: usize = 24;

impl<'a> Raw<'a> {
    /// Never fails after the header: what is damaged or unknown ends the list of types, and is counted.
    pub(super) fn parse(bytes: &'a [u8], doing: &str) -> Result<Raw<'a>> {
        let wrong = |problem: &str| Error::input(doing, problem);
        let big_endian = match bytes.get(..2) {
            Some([0x9f, 0xeb]) => false,
            Some([0xeb, 0x9f]) => true,
            _ => return Err(wrong("this is no BTF: it does not begin with 0xeb9f")),
        };
        let short = || wrong("the BTF is cut short in its header");
        let word = |at| word(bytes, at, big_endian).ok_or_else(short);
        match bytes.get(2) {
            Some(1) => {}
            Some(version) => return Err(wrong(&format!("version {version} of BTF is not known here"))),
            None => return Err(short()),
        }
        let header = word(4)? as usize;
        if header < HEADER {
            return Err(wrong(&format!("the BTF's header says it has {header} bytes, fewer than {HEADER}")));
        }
        let tables = bytes.get(header..).ok_or_else(short)?;
        let table = |at: usize, of: &str| -> Result<&'a [u8]> {
            let (start, length) = (word(at)? as usize, word(at + 4)? as usize);
            let end = start.checked_add(length);
            let range = end.and_then(|end| tables.get(start..end));
            range.ok_or_else(|| {
                wrong(&format!("the BTF's {of} end {length} bytes after {start:#x}, past the end of their section"))
            })
        };
        let layouts = if header >= HEADER + 8 { table(HEADER, "layouts of kinds")? } else { &[] };
        let mut raw = Raw {
            big_endian,
            types: table(8, "types")?,
            strings: table(16, "strings")?,
            starts: vec![0],
            skipped: Skipped::new(),
        };
        raw.find(layouts);
        Ok(raw)
    }

    fn find(&mut self, layouts: &[u8]) {
        let mut at = 0;
        while at < self.types.len() {
            let Some(end) = self.end(at, layouts).filter(|end| *end <= self.types.len()) else {
                skip(&mut self.skipped, "BTF that is damaged, or newer than this reader, from some type on", 1);
                return;
            };
            // The length of the table is a word of the header, so that every offset fits one.
            self.starts.extend(u32::try_from(end));
            at = end;
        }
    }

    fn end(&self, at: usize, layouts: &[u8]) -> Option<usize> {
        let info = word(self.types, at + 4, self.big_endian)?;
        let (kind, count) = (kind_of(info), count_of(info));
        let (once, each) = match kind {
            kind::INT | kind::VAR | kind::DECL_TAG => (4, 0),
            kind::ARRAY => (12, 0),
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => (0, 12),
            kind::ENUM | kind::FUNC_PROTO => (0, 8),
            kind::PTR..=kind::TYPE_TAG => (0, 0),
            // `struct btf_layout`: so that a reader can pass what it does not know.
            _ => match layouts.get(usize::from(kind) * 4..)? {
                [once, each, ..] => (usize::from(*once), usize::from(*each)),
                _ => return None,
            },
        };
        at.checked_add(RECORD)?.checked_add(once)?.checked_add(count.checked_mul(each)?)
    }

    /// How many types it has.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// The types in their order.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'a>> {
        (0..self.count()).filter_map(|index| self.record(index))
    }

    pub(super) fn record(&self, index: u32) -> Option<Record<'a>> {
        let at = *self.starts.get(index as usize)? as usize;
        let end = *self.starts.get(index as usize + 1)? as usize;
        let (head, rest) = self.types.get(at..end)?.split_at_checked(RECORD)?;
        let info = word(head, 4, self.big_endian)?;
        Some(Record {
            big_endian: self.big_endian,
            name: word(head, 0, self.big_endian)?,
            kind: kind_of(info),
            flag: info >> 31 == 1,
            size_or_type: word(head, 8, self.big_endian)?,
            rest,
        })
    }
}

impl Record<'_> {
    /// A word of what follows the type.
    pub(super) fn word(&self, at: usize) -> Option<u32> {
        word(self.rest, at, self.big_endian)
    }

    /// What follows the type in threes of words: members (name, type, offset), or variables of a section (type, offset,
    /// size).
    pub(super) fn triples(&self) -> impl ExactSizeIterator<Item = [u32; 3]> {
        let big_endian = self.big_endian;
        self.rest.chunks_exact(RECORD).map(move |c| [0, 4, 8].map(|at| word(c, at, big_endian).unwrap_or_default()))
    }
}

/// Bits 24 to 30; before Linux 7.1 only to 28, and the others were 0.
fn kind_of(info: u32) -> u8 {
    (info >> 24) as u8 & 0x7f
}

/// Bits 0 to 23; before Linux 7.1 only to 15, and the others were 0.
fn count_of(info: u32) -> usize {
    (info & 0xff_ffff) as usize
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(if big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
}
