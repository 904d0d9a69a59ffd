//! Who in base is who in patched.
//!
//! By identity key first. Inside a group of one key (a kernel's two thousand `__func__`) by size and content, then by
//! size, then by order: pairing by order alone turns one inserted string into a thousand false size changes.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::image::Image;
use crate::layout::Lines;
use crate::objects::{Key, Kind, Object};

/// Indices into the two lists.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub both: Vec<(u32, u32)>,
    pub removed: Vec<u32>,
    pub added: Vec<u32>,
}

pub(super) fn pair(a_image: &Image<'_>, a: &Lines<'_>, b_image: &Image<'_>, b: &Lines<'_>) -> Pairs {
    let mut pairs = Pairs::default();
    let mut left: (Vec<u32>, Vec<u32>) = Default::default();
    let mut groups: BTreeMap<Key<'_>, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    for index in by_order(a) {
        if let Some(object) = a.object(index) {
            groups.entry(Key::of(object, a_image)).or_default().0.push(index);
        }
    }
    for index in by_order(b) {
        if let Some(object) = b.object(index) {
            groups.entry(Key::of(object, b_image)).or_default().1.push(index);
        }
    }
    for (_, (mut of_a, mut of_b)) in groups {
        if (of_a.len(), of_b.len()) != (1, 1) && !of_a.is_empty() && !of_b.is_empty() {
            // The whole name still tells `f` from `f.constprop.0`; numbers are compared last, as an order.
            let name = |o: &Object<'_>| o.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
            let full = |image: &Image<'_>, o: &Object<'_>| hash((o.span.size, name(o), o.content(image)));
            match_by(
                &mut of_a,
                &mut of_b,
                &mut pairs,
                |i| Some(full(a_image, a.object(i)?)),
                |i| Some(full(b_image, b.object(i)?)),
            );
            let part = |o: &Object<'_>| hash((o.span.size, name(o)));
            match_by(&mut of_a, &mut of_b, &mut pairs, |i| Some(part(a.object(i)?)), |i| Some(part(b.object(i)?)));
            let size = |o: &Object<'_>| o.span.size;
            match_by(&mut of_a, &mut of_b, &mut pairs, |i| Some(size(a.object(i)?)), |i| Some(size(b.object(i)?)));
        }
        match_by(&mut of_a, &mut of_b, &mut pairs, |_| Some(0), |_| Some(0));
        left.0.extend(of_a);
        left.1.extend(of_b);
    }
    unmistakable(a, b, &mut left, &mut pairs, true);
    unmistakable(a, b, &mut left, &mut pairs, false);
    pairs.removed = left.0;
    pairs.added = left.1;
    pairs
}

/// An object that got or lost an initialiser changes its section, and one whose source file was renamed its unit; it
/// stays itself if only one on each side has its name.
fn unmistakable(a: &Lines<'_>, b: &Lines<'_>, left: &mut (Vec<u32>, Vec<u32>), pairs: &mut Pairs, same_unit: bool) {
    type Name<'i> = (Kind, Option<&'i str>, &'i str);
    let mut names: HashMap<Name<'_>, [Vec<u32>; 2]> = HashMap::new();
    for (side, list, lines) in [(0usize, &left.0, a), (1, &left.1, b)] {
        for &index in list {
            if let Some(o) = lines.object(index)
                && let Some(slot) =
                    names.entry((o.kind, o.unit.filter(|_| same_unit), o.name)).or_default().get_mut(side)
            {
                slot.push(index);
            }
        }
    }
    let mut found: Vec<(u32, u32)> = names
        .into_values()
        .filter_map(|[x, y]| match (x.as_slice(), y.as_slice()) {
            ([x], [y]) => Some((*x, *y)),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    let (gone, come): (std::collections::HashSet<u32>, std::collections::HashSet<u32>) = found.iter().copied().unzip();
    left.0.retain(|i| !gone.contains(i));
    left.1.retain(|i| !come.contains(i));
    pairs.both.extend(found);
}

/// Pairs equal keys in order, and leaves the rest where it was.
fn match_by(
    of_a: &mut Vec<u32>,
    of_b: &mut Vec<u32>,
    pairs: &mut Pairs,
    key_a: impl Fn(u32) -> Option<u64>,
    key_b: impl Fn(u32) -> Option<u64>,
) {
    let mut waiting: HashMap<u64, std::collections::VecDeque<u32>> = HashMap::new();
    for &index in of_b.iter() {
        if let Some(key) = key_b(index) {
            waiting.entry(key).or_default().push_back(index);
        }
    }
    let mut taken = std::collections::HashSet::new();
    of_a.retain(|&index| {
        let Some(other) = key_a(index).and_then(|k| waiting.get_mut(&k)?.pop_front()) else { return true };
        taken.insert(other);
        pairs.both.push((index, other));
        false
    });
    of_b.retain(|index| !taken.contains(index));
}

/// The order of the link, which an address order loses where sections differ.
fn by_order(lines: &Lines<'_>) -> Vec<u32> {
    let mut list: Vec<u32> = (0u32..).zip(&lines.objects).map(|(i, _)| i).collect();
    list.sort_unstable_by_key(|&i| lines.object(i).map(|o| o.order));
    list
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
