//! The 256 pieces that names are made of, and the index into them.

use super::Words;

pub(super) struct Tokens<'a> {
    pieces: Vec<&'a str>,
    /// Where the pieces begin.
    pub start: usize,
    /// One past the index.
    pub end: usize,
}

const INDEX: usize = 256 * 2;

/// No piece is longer: they come into being by pairing, as long as that saves bytes.
const LONGEST: usize = 512;

impl<'a> Tokens<'a> {
    pub(super) fn piece(&self, code: u8) -> &'a str {
        self.pieces.get(usize::from(code)).copied().unwrap_or_default()
    }
}

/// Every place where an index fits the pieces before it.
pub(super) fn candidates<'a>(words: &'a Words<'a>) -> impl Iterator<Item = Tokens<'a>> {
    let last = words.bytes.len().saturating_sub(INDEX - 1);
    (0..last).step_by(words.pointer).filter_map(|at| candidate(words, at))
}

fn candidate<'a>(words: &Words<'a>, at: usize) -> Option<Tokens<'a>> {
    // Most places fail here.
    if words.get(at, 2)? != 0 || words.get(at + 2, 2)? == 0 {
        return None;
    }
    let mut index = [0usize; 256];
    let mut before = None;
    for (i, slot) in index.iter_mut().enumerate() {
        let value = usize::try_from(words.get(at + 2 * i, 2)?).ok()?;
        if before.is_some_and(|b| value <= b) {
            return None;
        }
        *slot = value;
        before = Some(value);
    }
    // The last piece's own length is not in the index, and padding may follow it: a few starts are possible.
    let newest = (at.checked_sub(before? + 1)?) & !(words.pointer - 1);
    let oldest = newest.saturating_sub(LONGEST);
    (oldest..=newest).rev().step_by(words.pointer).find_map(|start| {
        let pieces = pieces(words, start, &index, at)?;
        Some(Tokens { pieces, start, end: at + INDEX })
    })
}

/// The pieces from `start` on, if each is text and ends where the next begins, and the last where the index is.
fn pieces<'a>(words: &Words<'a>, start: usize, index: &[usize; 256], at: usize) -> Option<Vec<&'a str>> {
    let bytes = words.bytes.get(start..at)?;
    let mut pieces = Vec::with_capacity(256);
    for (i, from) in index.iter().enumerate() {
        let rest = bytes.get(*from..)?;
        let length = match index.get(i + 1) {
            Some(next) => next.checked_sub(from + 1)?,
            None => rest.iter().position(|b| *b == 0)?,
        };
        let (piece, end) = rest.split_at_checked(length)?;
        // A code that no name needs has no piece.
        if end.first() != Some(&0) || !piece.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        pieces.push(std::str::from_utf8(piece).ok()?);
        if i == 255 && (words.up(start + from + length + 1) != at || !end.iter().all(|b| *b == 0)) {
            return None;
        }
    }
    Some(pieces)
}
