//! GNU `ar` archives: which members there are, and a copy with some of them replaced.
//!
//! Layout (binutils `include/aout/ar.h`): an 8-byte magic, then for each member a 60-byte header of text fields
//! (name 16, date 12, owner 6, group 6, mode 8, size 10, end 2) and its content, padded to an even offset. `/` and
//! `/SYM64/` hold the symbol index, whose entries are offsets of headers; `//` holds names above 15 characters. A thin
//! archive has the headers without the contents: its members are files of their own, and are patched as such.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};

const MAGIC: usize = 8;
const HEADER: usize = 60;

/// A member that holds a file (indices and name tables are not listed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Where its header starts.
    pub header: usize,
    /// Its content in the archive; empty in a thin archive.
    pub content: Range<usize>,
}

/// Lists the members, in order. Fails on a damaged archive, and on BSD's (`#1/` names), which GNU ld does not link here.
pub fn members(bytes: &[u8]) -> Result<Vec<Member>> {
    let thin = bytes.starts_with(b"!<thin>\n");
    let mut names: &[u8] = &[];
    let mut found = Vec::new();
    for entry in Walk::new(bytes, thin) {
        let entry = entry?;
        match entry.field {
            b"/" | b"/SYM64/" => {}
            b"//" => names = bytes.get(entry.content.clone()).unwrap_or_default(),
            field => found.push(Member {
                name: decode(field, names).ok_or_else(|| damaged(entry.header, "its name cannot be read"))?,
                header: entry.header,
                content: entry.content,
            }),
        }
    }
    Ok(found)
}

/// A copy of a (not thin) archive in which the members whose headers start at the keys have new contents. Sizes and the
/// symbol index are rewritten; everything else, the order too, stays byte for byte.
pub fn rebuild(bytes: &[u8], replaced: &BTreeMap<usize, Vec<u8>>) -> Result<Vec<u8>> {
    let added: usize = replaced.values().map(Vec::len).sum();
    let mut out = Vec::with_capacity(bytes.len() + added);
    out.extend(bytes.get(..MAGIC).unwrap_or_default());
    let mut moved = BTreeMap::new();
    let mut index = None;
    for entry in Walk::new(bytes, false) {
        let entry = entry?;
        moved.insert(entry.header as u64, out.len() as u64);
        let old = bytes.get(entry.content.clone()).unwrap_or_default();
        let new = replaced.get(&entry.header).map_or(old, Vec::as_slice);
        let head = out.len();
        out.extend(bytes.get(entry.header..entry.header + HEADER).unwrap_or_default());
        if let Some(size) = out.get_mut(head + 48..head + 58) {
            let text = format!("{:<10}", new.len());
            if text.len() != 10 {
                return Err(damaged(entry.header, "the new member is too large"));
            }
            size.copy_from_slice(text.as_bytes());
        }
        match entry.field {
            b"/" => index = Some((out.len(), 4)),
            b"/SYM64/" => index = Some((out.len(), 8)),
            _ => {}
        }
        out.extend(new);
        if out.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    if let Some(missing) = replaced.keys().find(|k| !moved.contains_key(&(**k as u64))) {
        return Err(damaged(*missing, "no member starts there"));
    }
    if let Some((at, width)) = index {
        reindex(&mut out, at, width, &moved).ok_or_else(|| damaged(at, "its symbol index points outside"))?;
    }
    Ok(out)
}

/// Renews the offsets of the symbol index at `at`: a big-endian count, then that many offsets of headers.
fn reindex(out: &mut [u8], at: usize, width: usize, moved: &BTreeMap<u64, u64>) -> Option<()> {
    let number = |b: &[u8]| b.iter().fold(0u64, |n, &byte| (n << 8) | u64::from(byte));
    let count = usize::try_from(number(out.get(at..at + width)?)).ok()?;
    let end = count.checked_mul(width)?.checked_add(at + width)?;
    for slot in out.get_mut(at + width..end)?.chunks_exact_mut(width) {
        let new = moved.get(&number(slot))?.to_be_bytes();
        let new = new.get(8 - width..)?;
        slot.copy_from_slice(new);
    }
    Some(())
}

/// A raw entry: its trimmed name field, where it starts, where its content is.
struct Entry<'a> {
    field: &'a [u8],
    header: usize,
    content: Range<usize>,
}

struct Walk<'a> {
    bytes: &'a [u8],
    thin: bool,
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], thin: bool) -> Walk<'a> {
        Walk { bytes, thin, at: MAGIC }
    }

    fn entry(&mut self) -> Result<Entry<'a>> {
        let header = self.at;
        let head = self.bytes.get(header..header + HEADER).ok_or_else(|| damaged(header, "a header is cut off"))?;
        if head.get(58..60) != Some(b"`\n") {
            return Err(damaged(header, "a header does not end as it must"));
        }
        let field = head.get(..16).unwrap_or_default().trim_ascii_end();
        if field.starts_with(b"#1/") {
            return Err(damaged(header, "it is a BSD archive, whose long names are not read"));
        }
        let size: usize = std::str::from_utf8(head.get(48..58).unwrap_or_default())
            .ok()
            .and_then(|s| s.trim_ascii().parse().ok())
            .ok_or_else(|| damaged(header, "a size is not a number"))?;
        let special = matches!(field, b"/" | b"//" | b"/SYM64/");
        let start = header + HEADER;
        let end = if self.thin && !special { start } else { start.saturating_add(size) };
        if end > self.bytes.len() {
            return Err(damaged(header, "a member ends past the end of the file"));
        }
        self.at = end + end % 2;
        Ok(Entry { field, header, content: start..end })
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Result<Entry<'a>>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// `main.o/` → `main.o`; `/4255` → the name at 4255 of the table, where thin archives end names with `/` and a line
/// break. GNU `ar` has been seen to write `/4255          /`: what follows the digits is ignored.
fn decode(field: &[u8], names: &[u8]) -> Option<String> {
    let raw = match field.strip_prefix(b"/") {
        Some(digits) => {
            let digits: Vec<u8> = digits.iter().copied().take_while(u8::is_ascii_digit).collect();
            let at: usize = std::str::from_utf8(&digits).ok()?.parse().ok()?;
            names.get(at..)?.split(|&b| b == b'\n').next()?
        }
        None => field,
    };
    Some(String::from_utf8_lossy(raw.strip_suffix(b"/").unwrap_or(raw)).into_owned())
}

fn damaged(at: usize, why: &str) -> Error {
    Error::input(format!("reading an archive at offset {at}"), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(name: &str, size: usize) -> String {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644)
    }

    /// Two members, one with a long name, and an index of three symbols that point to the two.
    fn sample() -> Vec<u8> {
        let names = "a_member_with_a_long_name.o/\n";
        let index_size = 4 + 3 * 4 + "one\0two\0six\0".len();
        let first = MAGIC + HEADER + index_size + HEADER + names.len() + 1;
        let second = first + HEADER + 4;
        let mut out = b"!<arch>\n".to_vec();
        out.extend(header("/", index_size).bytes());
        for n in [3, first, first, second] {
            out.extend((n as u32).to_be_bytes());
        }
        out.extend(b"one\0two\0six\0");
        out.extend(header("//", names.len()).bytes());
        out.extend(names.bytes());
        out.push(b'\n');
        out.extend(header("/0", 3).bytes());
        out.extend(b"AAA\n");
        out.extend(header("b.o/", 2).bytes());
        out.extend(b"BB");
        out
    }

    #[test]
    fn a_replaced_member_moves_the_others_and_the_index_follows() {
        let old = sample();
        let listed = members(&old).unwrap();
        assert_eq!(listed.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["a_member_with_a_long_name.o", "b.o"]);
        let new = rebuild(&old, &BTreeMap::from([(listed[0].header, b"seven77".to_vec())])).unwrap();
        let after = members(&new).unwrap();
        assert_eq!(&new[after[0].content.clone()], b"seven77");
        assert_eq!(&new[after[1].content.clone()], b"BB");
        assert_eq!(after[1].header, listed[1].header + 4);
        let archive = goblin::archive::Archive::parse(&new).unwrap();
        assert_eq!(archive.member_of_symbol("two"), Some("a_member_with_a_long_name.o"));
        assert_eq!(archive.member_of_symbol("six"), Some("b.o"));
        assert_eq!(rebuild(&old, &BTreeMap::new()).unwrap(), old);
    }

    #[test]
    fn odd_names_of_thin_archives_are_read() {
        let mut thin = b"!<thin>\n".to_vec();
        thin.extend(header("//", 10).bytes());
        thin.extend(b"sub/a.o/\n\n");
        thin.extend(header("/0          /", 4096).bytes());
        let listed = members(&thin).unwrap();
        assert_eq!(listed[0].name, "sub/a.o");
        assert!(listed[0].content.is_empty());
    }

    proptest! {
        #[test]
        fn damaged_archives_never_panic(at in 0usize..230, byte: u8, keep in 0usize..230) {
            let mut bytes = sample();
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(keep);
            let listed = members(&bytes).unwrap_or_default();
            let all = listed.iter().map(|m| (m.header, vec![1; 9])).collect();
            let _ = rebuild(&bytes, &all);
        }
    }
}
