//! The names, compressed, with a marker at every 256th, and their number in front.

use super::Words;
use super::tokens::Tokens;
use crate::image::listed::Listed;

pub(super) struct Names {
    list: Vec<(u8, String)>,
    /// Where the number of symbols is written.
    pub start: usize,
}

/// Ten times what a large kernel has.
const MOST_NAMES: usize = 1 << 22;

/// `KSYM_NAME_LEN` is 512 today.
const LONGEST_NAME: usize = 1024;

/// A name's length takes one or two bytes, and each other byte is a piece.
const LONGEST_ENTRY: usize = 2 + LONGEST_NAME;

/// Names are walked for this many candidates at most.
const MOST_WALKS: usize = 64;

/// Markers count from the first name.
struct Markers {
    start: usize,
    list: Vec<u64>,
    /// What the table of sequence numbers between markers and tokens implies (6.2 and 6.3 have it there).
    names: Option<usize>,
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(_, name)| name.as_str())
    }

    pub(super) fn list(self, addresses: &[u64]) -> Vec<Listed<'static>> {
        let named = self.list.into_iter().zip(addresses);
        named.map(|((letter, name), &address)| Listed { address, letter, name: name.into() }).collect()
    }
}

/// The names that end before the tokens.
pub(super) fn before(words: &Words<'_>, tokens: &Tokens<'_>) -> Result<Names, String> {
    let mut search = Search { walks: 0, wrong: None };
    let found = search.among(words, tokens, adjacent(words, tokens.start));
    // Slower, and only kernels of two releases need it.
    let found = found.or_else(|| search.among(words, tokens, apart(words, tokens.start)));
    found.ok_or_else(|| search.wrong.unwrap_or_else(|| "kallsyms: tokens without names in front of them".into()))
}

struct Search {
    walks: usize,
    wrong: Option<String>,
}

impl Search {
    fn among(&mut self, words: &Words<'_>, tokens: &Tokens<'_>, candidates: Vec<Markers>) -> Option<Names> {
        for markers in candidates {
            let last = markers.list.last().and_then(|last| usize::try_from(*last).ok());
            let Some(newest) = last.and_then(|last| markers.start.checked_sub(last)) else { continue };
            let oldest = newest.saturating_sub(256 * LONGEST_ENTRY).max(words.pointer);
            let places = oldest.next_multiple_of(words.pointer)..=(newest & !(words.pointer - 1));
            for first in places.rev().step_by(words.pointer) {
                let Some((start, count)) = number(words, first, &markers) else { continue };
                self.walks += 1;
                if self.walks > MOST_WALKS {
                    self.wrong = Some("kallsyms: too many places look like its names".into());
                    return None;
                }
                match walk(words, tokens, first, count, &markers) {
                    Ok(list) => return Some(Names { list, start }),
                    Err(problem) => self.wrong = Some(problem),
                }
            }
        }
        None
    }
}

/// What may be the markers: rising numbers from 0 that end where the tokens begin. They were as wide as a pointer before
/// 4.20.
fn adjacent(words: &Words<'_>, tokens: usize) -> Vec<Markers> {
    let mut found = Vec::new();
    for width in if words.pointer == 4 { vec![4] } else { vec![4, 8] } {
        for pad in (0..words.pointer).step_by(width) {
            let Some(end) = tokens.checked_sub(pad).filter(|end| words.zeros(*end, tokens)) else { continue };
            found.extend(rising(words, end, width, None).map(|(start, list)| Markers { start, list, names: None }));
        }
    }
    found
}

/// The same before a table of three bytes a name. Its length is only implied, so every length is tried; nearly all fail
/// at the first word.
fn apart(words: &Words<'_>, tokens: usize) -> Vec<Markers> {
    let mut found = Vec::new();
    for names in 1..=MOST_NAMES {
        let Some(sequence) = tokens.checked_sub(words.up(3 * names)) else { break };
        let count = names.div_ceil(256);
        let Some(start) = sequence.checked_sub(words.up(4 * count)) else { break };
        if !words.zeros(start + 4 * count, sequence) || !words.zeros(sequence + 3 * names, tokens) {
            continue;
        }
        let list = rising(words, start + 4 * count, 4, Some(count));
        found.extend(list.map(|(start, list)| Markers { start, list, names: Some(names) }));
        if found.len() > MOST_WALKS {
            break;
        }
    }
    found
}

/// The numbers before `end`, back to the 0 that they begin with.
fn rising(words: &Words<'_>, end: usize, width: usize, count: Option<usize>) -> Option<(usize, Vec<u64>)> {
    if let Some(count) = count
        && words.get(end.checked_sub(count * width)?, width)? != 0
    {
        return None;
    }
    let mut list = Vec::new();
    let mut at = end;
    loop {
        at = at.checked_sub(width)?;
        let value = words.get(at, width)?;
        if list.last().is_some_and(|after| value >= *after) {
            return None;
        }
        list.push(value);
        if value == 0 {
            break;
        }
        if count.is_some_and(|count| list.len() >= count) {
            return None;
        }
    }
    list.reverse();
    (at.is_multiple_of(words.pointer) && count.is_none_or(|count| count == list.len())).then_some((at, list))
}

/// The number of names in front of the first one, if it is one that these markers allow.
fn number(words: &Words<'_>, first: usize, markers: &Markers) -> Option<(usize, usize)> {
    let start = first.checked_sub(words.pointer)?;
    // Four bytes since 4.20, padded to a pointer; as wide as one before.
    let narrow = words.get(start, 4).filter(|_| words.zeros(start + 4, first));
    let count = [narrow, words.get(start, words.pointer)].into_iter().flatten().filter_map(|n| usize::try_from(n).ok());
    let fits = |n: &usize| {
        *n <= MOST_NAMES && n.div_ceil(256) == markers.list.len() && markers.names.is_none_or(|names| names == *n)
    };
    Some((start, count.filter(|n| *n > 0).find(fits)?))
}

/// Decodes all names, and holds every marker against them.
fn walk(
    words: &Words<'_>,
    tokens: &Tokens<'_>,
    first: usize,
    count: usize,
    markers: &Markers,
) -> Result<Vec<(u8, String)>, String> {
    let bytes = words.bytes.get(first..markers.start).unwrap_or_default();
    let mut list = Vec::new();
    let mut at = 0;
    for i in 0..count {
        if i % 256 == 0 && markers.list.get(i / 256) != Some(&(at as u64)) {
            return Err(format!("kallsyms: the marker of name {i} of {count} does not agree with the names"));
        }
        let (codes, end) = entry(bytes, at).ok_or_else(|| format!("kallsyms: name {i} of {count} is cut short"))?;
        let name = decode(codes, tokens).ok_or_else(|| format!("kallsyms: name {i} of {count} decodes to nonsense"))?;
        at = end;
        list.push(name);
    }
    if words.up(first + at) != markers.start || !words.zeros(first + at, markers.start) {
        return Err(format!("kallsyms: its {count} names do not end where the markers begin"));
    }
    Ok(list)
}

/// The codes of one name, and where it ends. Lengths of 128 and more take two bytes (since 6.1; before, no name was that
/// long).
fn entry(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let low = *bytes.get(at)?;
    let (length, from) = match low {
        0x80.. => (usize::from(low & 0x7f) | usize::from(*bytes.get(at + 1)?) << 7, at + 2),
        _ => (usize::from(low), at + 1),
    };
    let end = from + length;
    bytes.get(from..end).filter(|codes| !codes.is_empty()).map(|codes| (codes, end))
}

/// A type letter and a name of visible letters.
fn decode(codes: &[u8], tokens: &Tokens<'_>) -> Option<(u8, String)> {
    let mut text = String::new();
    for code in codes {
        let piece = tokens.piece(*code);
        if piece.is_empty() || text.len() + piece.len() > LONGEST_NAME {
            return None;
        }
        text.push_str(piece);
    }
    let letter = *text.as_bytes().first()?;
    let name = text.get(1..).filter(|name| !name.is_empty())?;
    (letter.is_ascii_alphabetic() || letter == b'?').then(|| (letter, name.to_string()))
}
