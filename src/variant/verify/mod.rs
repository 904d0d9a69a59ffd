//! The proof, by a second ELF reader (`goblin`) that shares no code with the writer: patched objects, archives, and the
//! linked file.

mod linked;
mod object;
pub mod order;
pub mod places;
mod proof;

pub use linked::{Linked, RELRO_PADDING};
pub use object::{archive, patched};
pub use places::By;
pub use proof::{Proof, prove};

use std::ops::Range;

/// The first offset at which `a` and `b` differ outside `masks` (sorted by start); a length that differs counts.
#[must_use]
pub fn first_difference(a: &[u8], b: &[u8], masks: &[Range<u64>]) -> Option<usize> {
    let shorter = a.len().min(b.len());
    let mut at = 0;
    let end = Range { start: shorter as u64, end: shorter as u64 };
    for mask in masks.iter().chain([&end]) {
        let until = usize::try_from(mask.start).unwrap_or(shorter).min(shorter);
        if at < until {
            let (x, y) = (a.get(at..until)?, b.get(at..until)?);
            if x != y {
                return x.iter().zip(y).position(|(p, q)| p != q).map(|i| at + i);
            }
        }
        at = at.max(usize::try_from(mask.end).unwrap_or(shorter));
    }
    (a.len() != b.len()).then_some(shorter)
}

#[cfg(test)]
mod tests {
    use super::first_difference;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_difference_is_seen_unless_masked(
            len in 1usize..60, at in 0usize..60, masks in proptest::collection::vec((0u64..70, 0u64..9), 0..6),
        ) {
            let at = at % len;
            let mut masks: Vec<_> = masks.into_iter().map(|(s, n)| s..s + n).collect();
            masks.sort_by_key(|m| m.start);
            let mut other = vec![7u8; len];
            other[at] ^= 1;
            let hidden = masks.iter().any(|m| m.contains(&(at as u64)));
            prop_assert_eq!(first_difference(&vec![7u8; len], &other, &masks), (!hidden).then_some(at));
        }
    }
}
