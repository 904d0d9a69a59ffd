//! Who in base is who in patched.
//!
//! By identity key first. Inside a group of one key (a kernel's two thousand `__func__`) by size and content, then by
//! size, then by order: pairing by order alone turns one inserted string into a thousand false size changes. What is left
//! is looked for under its own name in other sections and units, then by what it holds, then by who stands around it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use super::content::body;
use super::names::{Names, Ref};
use crate::layout::Lines;
use crate::objects::{Key, Kind, Object};

/// What told that two are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Name, section and unit.
    Name,
    /// Its name, though its section or unit is another.
    NameElsewhere,
    /// What it holds, addresses aside: it was renamed.
    Content,
    /// Those before and after it, and its size: it was renamed.
    Neighbours,
}

/// One in base and one in patched, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub a: u32,
    pub b: u32,
    pub told: Told,
}

/// All of one kind.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub both: Vec<Pair>,
    pub removed: Vec<u32>,
    pub added: Vec<u32>,
}

/// Who became who, of both kinds.
#[derive(Debug, Default)]
pub(super) struct Partners {
    data: HashMap<u32, u32>,
    code: HashMap<u32, u32>,
}

impl Partners {
    pub(super) fn of(data: &Pairs, code: &Pairs) -> Partners {
        let map = |pairs: &Pairs| pairs.both.iter().map(|p| (p.a, p.b)).collect();
        Partners { data: map(data), code: map(code) }
    }

    pub(super) fn get(&self, (kind, index): Ref) -> Option<u32> {
        if kind == Kind::Data { self.data.get(&index).copied() } else { self.code.get(&index).copied() }
    }

    pub(super) fn are(&self, x: Ref, y: Ref) -> bool {
        x.0 == y.0 && self.get(x) == Some(y.1)
    }
}

/// One image's objects of one kind, and what reads them.
#[derive(Clone, Copy)]
pub(super) struct Side<'s, 'r, 'i> {
    pub names: &'s Names<'r, 'i>,
    pub lines: &'s Lines<'i>,
}

impl<'i> Side<'_, '_, 'i> {
    fn object(&self, index: u32) -> Option<&Object<'i>> {
        self.lines.object(index)
    }

    fn key(&self, object: &Object<'i>) -> Key<'i> {
        Key::of(object, self.names.reader.image)
    }

    /// Of its bytes, addresses masked; `None` where it has none.
    fn content(&self, index: u32, object: &Object<'_>) -> Option<u64> {
        let body = body(self.names, (index, object))?;
        Some(hash((&body.bytes, body.links.len())))
    }
}

/// `whole`: contents may be read, not only names.
pub(super) fn pair(a: Side<'_, '_, '_>, b: Side<'_, '_, '_>, whole: bool) -> Pairs {
    let mut pairs = Pairs::default();
    let mut left: (Vec<u32>, Vec<u32>) = Default::default();
    let mut groups: BTreeMap<Key<'_>, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    for index in by_order(a.lines) {
        if let Some(object) = a.object(index) {
            groups.entry(a.key(object)).or_default().0.push(index);
        }
    }
    for index in by_order(b.lines) {
        if let Some(object) = b.object(index) {
            groups.entry(b.key(object)).or_default().1.push(index);
        }
    }
    for (_, (mut of_a, mut of_b)) in groups {
        if (of_a.len(), of_b.len()) != (1, 1) && !of_a.is_empty() && !of_b.is_empty() {
            // The whole name still tells `f` from `f.constprop.0`; numbers are compared last, as an order.
            let name = |o: &Object<'_>| o.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
            let full = |side: Side<'_, '_, '_>, (i, o): (u32, &Object<'_>)| {
                hash((o.span.size, name(o), whole.then(|| side.content(i, o)).flatten()))
            };
            let part = |_: Side<'_, '_, '_>, (_, o): (u32, &Object<'_>)| hash((o.span.size, name(o)));
            let size = |_: Side<'_, '_, '_>, (_, o): (u32, &Object<'_>)| o.span.size;
            match_by((a, &mut of_a), (b, &mut of_b), &mut pairs, full);
            match_by((a, &mut of_a), (b, &mut of_b), &mut pairs, part);
            match_by((a, &mut of_a), (b, &mut of_b), &mut pairs, size);
        }
        match_by((a, &mut of_a), (b, &mut of_b), &mut pairs, |_, _| 0);
        left.0.extend(of_a);
        left.1.extend(of_b);
    }
    let name = |same_unit: bool| {
        move |_: Side<'_, '_, '_>, (_, o): (u32, &Object<'_>)| Some(hash((o.unit.filter(|_| same_unit), o.name)))
    };
    unmistakable(a, b, (&mut left, &mut pairs, Told::NameElsewhere), name(true));
    unmistakable(a, b, (&mut left, &mut pairs, Told::NameElsewhere), name(false));
    if whole {
        for same_unit in [true, false] {
            unmistakable(a, b, (&mut left, &mut pairs, Told::Content), |side, (i, o)| {
                let content = telling(side, (i, o))?;
                Some(hash((o.unit.filter(|_| same_unit), o.span.size, content)))
            });
        }
    }
    between(a, b, &mut left, &mut pairs);
    (pairs.removed, pairs.added) = left;
    pairs
}

/// What an object holds, if that is enough to know it by: a handful of zeros is not.
fn telling(side: Side<'_, '_, '_>, object: (u32, &Object<'_>)) -> Option<u64> {
    const ENOUGH: usize = 4;
    let body = body(side.names, object)?;
    let told = body.bytes.iter().filter(|b| **b != 0).count() + body.links.len() * ENOUGH;
    (told >= ENOUGH).then(|| hash((&body.bytes, body.links.len())))
}

/// Pairs what only one on each side has. An object that got or lost an initialiser changes its section, and one whose
/// source file was renamed its unit.
fn unmistakable<'i>(
    a: Side<'_, '_, 'i>,
    b: Side<'_, '_, 'i>,
    (left, pairs, told): (&mut (Vec<u32>, Vec<u32>), &mut Pairs, Told),
    key: impl Fn(Side<'_, '_, 'i>, (u32, &Object<'i>)) -> Option<u64>,
) {
    if left.0.is_empty() || left.1.is_empty() {
        return;
    }
    let mut found: HashMap<u64, [Vec<u32>; 2]> = HashMap::new();
    for (number, list, side) in [(0usize, &left.0, a), (1, &left.1, b)] {
        for &index in list {
            let Some(key) = side.object(index).and_then(|o| key(side, (index, o))) else { continue };
            if let Some(slot) = found.entry(key).or_default().get_mut(number) {
                slot.push(index);
            }
        }
    }
    let single = |lists: [Vec<u32>; 2]| match lists.each_ref().map(Vec::as_slice) {
        [&[a], &[b]] => Some(Pair { a, b, told }),
        _ => None,
    };
    take(found.into_values().filter_map(single).collect(), left, pairs);
}

fn take(mut found: Vec<Pair>, left: &mut (Vec<u32>, Vec<u32>), pairs: &mut Pairs) {
    found.sort_unstable_by_key(|p| (p.a, p.b));
    let (gone, come): (HashSet<u32>, HashSet<u32>) = found.iter().map(|p| (p.a, p.b)).unzip();
    left.0.retain(|i| !gone.contains(i));
    left.1.retain(|i| !come.contains(i));
    pairs.both.extend(found);
}

/// A lone one between two that are side by side in both images, of one size and section. What is zero at start has no
/// content to know it by.
fn between(a: Side<'_, '_, '_>, b: Side<'_, '_, '_>, left: &mut (Vec<u32>, Vec<u32>), pairs: &mut Pairs) {
    let partner: HashMap<u32, u32> = pairs.both.iter().map(|p| (p.a, p.b)).collect();
    let waiting: HashSet<u32> = left.1.iter().copied().collect();
    let unit = |side: Side<'_, '_, '_>, index: u32| {
        let o = side.object(index)?;
        let key = side.key(o);
        Some((key.section.to_string(), key.unit.map(str::to_string), o.span.size))
    };
    let found = left.0.iter().filter_map(|&x| {
        let (before, after) = (*partner.get(&x.checked_sub(1)?)?, *partner.get(&x.checked_add(1)?)?);
        let y = before.checked_add(1).filter(|y| y.checked_add(1) == Some(after) && waiting.contains(y))?;
        (unit(a, x)? == unit(b, y)?).then_some(Pair { a: x, b: y, told: Told::Neighbours })
    });
    take(found.collect(), left, pairs);
}

type List<'s, 'r, 'i, 'l> = (Side<'s, 'r, 'i>, &'l mut Vec<u32>);

/// Pairs equal keys in order, and leaves the rest where it was.
fn match_by<'i>(
    (a, of_a): List<'_, '_, 'i, '_>,
    (b, of_b): List<'_, '_, 'i, '_>,
    pairs: &mut Pairs,
    key: impl Fn(Side<'_, '_, 'i>, (u32, &Object<'i>)) -> u64,
) {
    if of_a.is_empty() || of_b.is_empty() {
        return;
    }
    let mut waiting: HashMap<u64, VecDeque<u32>> = HashMap::new();
    for &index in of_b.iter() {
        if let Some(object) = b.object(index) {
            waiting.entry(key(b, (index, object))).or_default().push_back(index);
        }
    }
    let mut taken = HashSet::new();
    of_a.retain(|&index| {
        let other = a.object(index).and_then(|o| waiting.get_mut(&key(a, (index, o)))?.pop_front());
        let Some(other) = other else { return true };
        taken.insert(other);
        pairs.both.push(Pair { a: index, b: other, told: Told::Name });
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
