//! The addresses: before the number of names, or, since 6.5, behind the tokens; absolute, or offsets from a base.

use super::Words;
use super::names::Names;
use super::tokens::Tokens;

/// What the image knows of its own addresses.
pub(in crate::image) trait Places {
    /// Of the byte at this offset into the searched bytes; `None`: not known without the table.
    fn address(&self, offset: usize) -> Option<u64>;

    /// What the loader puts into the pointer at this offset, where the file has 0 and a relocation instead: the base of
    /// the addresses that `named` has counted from 0.
    fn relocated<'n>(&self, offset: usize, named: impl Iterator<Item = (&'n str, u64)>) -> Option<u64>;

    /// Whether a kernel whose first label is at `base` can have `_text` or `_stext` here.
    fn begins(&self, base: u64, anchor: u64) -> bool;
}

/// Every layout in which the numbers lie in order and the kernel's beginning where the image has it. More than one that
/// disagree would be a guess.
pub(super) fn of(
    words: &Words<'_>,
    tokens: &Tokens<'_>,
    names: &Names,
    places: &impl Places,
) -> Result<Vec<u64>, String> {
    let narrow = words.up(4 * names.len());
    let wide = words.pointer * names.len();
    let behind = words.up(tokens.end);
    let front = |size: usize| names.start.checked_sub(size);
    let mut all: Vec<Vec<u64>> = Vec::new();
    for (offsets, base) in
        [front(words.pointer + narrow).zip(front(words.pointer)), Some((behind, behind.saturating_add(narrow)))]
            .into_iter()
            .flatten()
    {
        let Some(written) = words.get(base, words.pointer) else { continue };
        for from_zero in relative(words, offsets, names.len()) {
            let base = match written {
                0 => places.relocated(base, names.names().zip(from_zero.addresses(0))),
                written => Some(written),
            };
            all.extend(base.map(|base| from_zero.addresses(base).collect()));
        }
    }
    let own = [front(narrow), Some(behind)].into_iter().flatten();
    all.extend(own.filter_map(|at| from_themselves(words, at, names.len(), places)));
    let absolute = [front(wide), Some(behind)].into_iter().flatten();
    all.extend(
        absolute.filter_map(|at| (0..names.len()).map(|i| words.get(at + i * words.pointer, words.pointer)).collect()),
    );

    all.retain(|list| list.is_sorted() && anchored(names, list, places));
    all.dedup();
    match all.len() {
        1 => all.pop().ok_or_else(String::new),
        0 => Err(format!("kallsyms: {} names, but no addresses of theirs in a layout known here", names.len())),
        _ => Err("kallsyms: its addresses can be read in more than one way".into()),
    }
}

/// Offsets from the lowest address that is none of a CPU's own.
struct Offsets {
    list: Vec<u32>,
    /// Per-CPU addresses, which count from 0, are the positive ones, and the rest count down from -1.
    signed: bool,
}

impl Offsets {
    fn addresses(&self, base: u64) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(move |&n| match n.cast_signed() {
            0.. if self.signed => u64::from(n),
            negative if self.signed => base.wrapping_add(u64::from(negative.unsigned_abs()) - 1),
            _ => base.wrapping_add(u64::from(n)),
        })
    }
}

/// The ways in which the first one that counts from the base is at the base.
fn relative(words: &Words<'_>, at: usize, count: usize) -> Vec<Offsets> {
    let list = (0..count).map(|i| words.get(at + 4 * i, 4).and_then(|n| u32::try_from(n).ok()));
    let Some(list) = list.collect::<Option<Vec<u32>>>() else { return Vec::new() };
    let unsigned = list.first() == Some(&0);
    let signed = list.iter().map(|n| n.cast_signed()).find(|n| *n < 0) == Some(-1);
    let ways = [unsigned.then_some(false), signed.then_some(true)].into_iter().flatten();
    ways.map(|signed| Offsets { list: list.clone(), signed }).collect()
}

/// Each offset counts from where it is written.
fn from_themselves(words: &Words<'_>, at: usize, count: usize, places: &impl Places) -> Option<Vec<u64>> {
    let address = |i: usize| {
        let offset = u32::try_from(words.get(at + 4 * i, 4)?).ok()?.cast_signed();
        Some(places.address(at + 4 * i)?.wrapping_add_signed(i64::from(offset)))
    };
    (0..count).map(address).collect()
}

/// A kernel's table names its beginning, and nothing that is no per-CPU address lies before it.
fn anchored(names: &Names, list: &[u64], places: &impl Places) -> bool {
    let anchors = names.names().zip(list).filter(|(name, _)| matches!(*name, "_text" | "_stext"));
    let mut anchors = anchors.map(|(_, address)| *address).peekable();
    let Some(&base) = anchors.peek() else { return false };
    anchors.all(|anchor| places.begins(base, anchor))
}
