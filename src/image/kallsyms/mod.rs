//! The symbol table that a kernel carries for its own messages, written by the kernel's scripts/kallsyms.c.
//!
//! Nothing points at it, and the order and width of its parts changed several times, so it is searched, and a candidate
//! counts only if everything agrees: the index of tokens with the tokens, the markers with the names, the number of
//! symbols with both, the addresses with their own order and with the image. What does not agree is said, not repaired.

mod addresses;
mod names;
mod tokens;

pub(super) use addresses::Places;

use super::listed::Listed;

/// How the image's machine writes words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub bytes: &'a [u8],
    pub big_endian: bool,
    /// Of a pointer, in bytes: 4 or 8. Every part of the table is aligned to it.
    pub pointer: usize,
}

impl Words<'_> {
    /// `width` bytes as a number, 2, 4 or 8.
    pub fn get(&self, at: usize, width: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(width)?)?;
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) })
    }

    fn up(&self, at: usize) -> usize {
        at.saturating_add(self.pointer - 1) & !(self.pointer - 1)
    }

    fn zeros(&self, from: usize, to: usize) -> bool {
        self.bytes.get(from..to).is_some_and(|pad| pad.iter().all(|b| *b == 0))
    }
}

/// Tokens that look right and lead nowhere. A kernel has one table; damaged files must not cost hours.
const MOST_CANDIDATES: usize = 16;

/// The symbols of the table in these bytes, in its order, which is that of their addresses. `None`: there is no table.
///
/// # Errors
/// There is something like a table, and what in it does not agree.
pub(super) fn find(words: Words<'_>, places: &impl Places) -> Result<Option<Vec<Listed<'static>>>, String> {
    let mut wrong = None;
    for tokens in tokens::candidates(&words).take(MOST_CANDIDATES) {
        match names::before(&words, &tokens) {
            Ok(names) => match addresses::of(&words, &tokens, &names, places) {
                Ok(addresses) => return Ok(Some(names.list(&addresses))),
                Err(problem) => wrong = Some(problem),
            },
            Err(problem) => wrong = wrong.or(Some(problem)),
        }
    }
    wrong.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests;
