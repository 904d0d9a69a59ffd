//! Another order of a struct's members that leaves fewer holes, such that a compiler lays it out just so. What its author
//! placed on purpose stays: up to the last pad, group or bit field nothing moves (to pack what is before a pad would only
//! widen the hole in front of it), and nothing crosses what is aligned to a line. The first member stays first (it may be a
//! base that is cast to), an array without length last.

/// One member, or some that keep their distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// In bytes; where it lies now.
    pub(super) offset: u64,
    pub(super) size: u64,
    /// In bytes; `offset` is a multiple of it.
    pub(super) align: u64,
    pub(super) fence: Fence,
}

/// Whether others may be placed on its other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    Open,
    /// Nothing crosses it, but it may come closer to what is before it.
    Slides,
    /// Stays at its offset, and so does all that is before it.
    Stays,
}

impl Block {
    /// The first offset from `at` on that suits it.
    fn from(&self, at: u64) -> u64 {
        at.checked_next_multiple_of(self.align.max(1)).unwrap_or(u64::MAX)
    }
}

/// New offsets of `blocks` (given by offset, without overlaps), in their order, and the size of the whole: `None` where
/// none is found that is smaller than `size`. `align` is the whole's.
pub(super) fn reorder(blocks: &[Block], size: u64, align: u64) -> Option<(Vec<u64>, u64)> {
    let mut offsets: Vec<u64> = blocks.iter().map(|b| b.offset).collect();
    let kept = blocks.iter().rposition(|b| b.fence == Fence::Stays).unwrap_or(0);
    let mut end = blocks.get(kept).map(|b| b.offset.saturating_add(b.size))?;
    let mut open: Vec<usize> = Vec::new();
    for (at, block) in blocks.iter().enumerate().skip(kept + 1) {
        if block.fence == Fence::Open {
            open.push(at);
            continue;
        }
        end = place(blocks, &std::mem::take(&mut open), end, &mut offsets);
        *offsets.get_mut(at)? = block.from(end);
        end = block.from(end).saturating_add(block.size);
    }
    end = place(blocks, &open, end, &mut offsets);
    let whole = end.checked_next_multiple_of(align.max(1))?;
    (whole < size).then_some((offsets, whole))
}

/// Places the blocks of one run behind `start`, in the better of two orders, and returns where they end.
fn place(blocks: &[Block], run: &[usize], start: u64, offsets: &mut [u64]) -> u64 {
    let kept = lay(blocks, run, start);
    let packed = lay(blocks, &packed(blocks, run, start), start);
    let (placed, end) = if packed.1 < kept.1 { packed } else { kept };
    for (at, offset) in placed {
        if let Some(slot) = offsets.get_mut(at) {
            *slot = offset;
        }
    }
    end
}

fn lay(blocks: &[Block], order: &[usize], start: u64) -> (Vec<(usize, u64)>, u64) {
    let mut end = start;
    let mut placed = Vec::with_capacity(order.len());
    for &at in order {
        let Some(block) = blocks.get(at) else { continue };
        let offset = block.from(end);
        placed.push((at, offset));
        end = offset.saturating_add(block.size);
    }
    (placed, end)
}

/// Always the one that leaves the smallest hole in front of it; among equals the one that needs the largest alignment,
/// then the first.
fn packed(blocks: &[Block], run: &[usize], start: u64) -> Vec<usize> {
    let mut left = run.to_vec();
    let (mut end, mut order) = (start, Vec::with_capacity(run.len()));
    while !left.is_empty() {
        let hole = |at: &usize| {
            blocks.get(*at).map_or((0, std::cmp::Reverse(0)), |b| (b.from(end) - end, std::cmp::Reverse(b.align)))
        };
        let Some(best) = (0..left.len()).min_by_key(|i| left.get(*i).map(hole)) else { break };
        let at = left.remove(best);
        if let Some(block) = blocks.get(at) {
            end = block.from(end).saturating_add(block.size);
        }
        order.push(at);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As a compiler lays them out: size, alignment and fence of each.
    fn laid_out(members: &[(u64, u64, Fence)]) -> (Vec<Block>, u64, u64) {
        let (mut end, mut whole) = (0u64, 1);
        let mut blocks = Vec::new();
        for &(size, align, fence) in members {
            let offset = end.next_multiple_of(align);
            blocks.push(Block { offset, size, align, fence });
            (end, whole) = (offset + size, whole.max(align));
        }
        (blocks, end.next_multiple_of(whole), whole)
    }

    #[test]
    fn holes_are_filled_and_the_first_stays_first() {
        use Fence::Open;
        let (blocks, size, align) = laid_out(&[(1, 1, Open), (8, 8, Open), (1, 1, Open), (8, 8, Open), (4, 4, Open)]);
        assert_eq!(size, 40);
        let (offsets, after) = reorder(&blocks, size, align).unwrap();
        assert_eq!((offsets, after), (vec![0, 8, 1, 16, 4], 24));
        let (blocks, size, align) = laid_out(&[(8, 8, Open), (4, 4, Open), (4, 4, Open)]);
        assert_eq!(reorder(&blocks, size, align), None, "nothing to gain");
    }

    #[test]
    fn nothing_crosses_a_pad() {
        use Fence::{Open, Stays};
        // The hole before the pad can be filled only by what is behind it.
        let (blocks, size, align) = laid_out(&[(8, 8, Open), (4, 4, Open), (56, 8, Stays), (4, 4, Open), (8, 8, Open)]);
        assert_eq!(reorder(&blocks, size, align), None);
    }

    fn fence() -> impl Strategy<Value = Fence> {
        prop_oneof![8 => Just(Fence::Open), 1 => Just(Fence::Slides), 1 => Just(Fence::Stays)]
    }

    proptest! {
        #[test]
        fn every_member_is_kept_aligned_and_on_its_side(
            members in prop::collection::vec((0u64..40, 0u32..7, fence()), 1..24),
        ) {
            // As types are: a size is a multiple of the alignment.
            let members: Vec<_> =
                members.iter().map(|&(n, e, f)| (n.next_multiple_of(1 << e).min(256), 1u64 << e, f)).collect();
            let (blocks, size, align) = laid_out(&members);
            let Some((offsets, after)) = reorder(&blocks, size, align) else { return Ok(()) };
            prop_assert!(after < size && after % align == 0);
            prop_assert_eq!(offsets.len(), blocks.len());
            prop_assert_eq!(offsets[0], 0);
            let mut spans: Vec<(u64, u64)> = offsets.iter().zip(&blocks).map(|(o, b)| (*o, o + b.size)).collect();
            spans.sort_unstable();
            prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "overlap: {:?}", spans);
            prop_assert!(spans.iter().all(|s| s.1 <= after));
            // In the new order, a compiler puts each member at the first place that suits it.
            let mut order: Vec<usize> = (0..blocks.len()).collect();
            order.sort_by_key(|at| (offsets[*at], offsets[*at] + blocks[*at].size, *at));
            let mut end = 0u64;
            for at in order {
                prop_assert_eq!(offsets[at], end.next_multiple_of(blocks[at].align));
                end = offsets[at] + blocks[at].size;
            }
            for (at, (block, offset)) in blocks.iter().zip(&offsets).enumerate() {
                prop_assert_eq!(offset % block.align, 0);
                if blocks[at..].iter().any(|b| b.fence == Fence::Stays) {
                    prop_assert_eq!(*offset, block.offset);
                }
                if block.fence != Fence::Open {
                    prop_assert!(offsets[..at].iter().all(|o| o <= offset) && offsets[at + 1..].iter().all(|o| o >= offset));
                }
            }
        }
    }
}
