//! Types in both images: who grew, which members lie on other lines, which came to share one and which no longer do.
//!
//! Lines are counted from the start of an object that begins on one. That two share a line, or that one lies on two, is
//! neither good nor bad by itself (a lock whose word and owner are apart can be the faster one): both states are told.

mod compare;
mod meet;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use rayon::prelude::*;
use serde::Serialize;

use crate::types::{Definition, Rows, Types};
use crate::units::LineSize;

pub use compare::{MemberMove, MemberSpot, Step};
pub use meet::Meeting;

/// How many types there are; `same + changed + removed` is all of base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeCounts {
    pub same: u64,
    pub changed: u64,
    pub added: u64,
    pub removed: u64,
    /// Members on other lines than before, of all changed types.
    pub members_moved_line: u64,
    /// Pairs of members, one or both contended, that share a line and did not before.
    pub came_together: u64,
    /// … that no longer share one.
    pub separated: u64,
}

/// A type that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeChange {
    pub name: String,
    /// The source file of one of several types of this name.
    pub unit: Option<String>,
    /// In bytes; `null`: unknown.
    pub base_size: Option<u64>,
    pub patched_size: Option<u64>,
    pub added: Vec<MemberSpot>,
    pub removed: Vec<MemberSpot>,
    /// On other lines than before; with members of embedded types.
    pub moved_line: Vec<MemberMove>,
    /// What pushed the members behind it, first one first.
    pub steps: Vec<Step>,
    /// Pairs that share a line and did not before; both contended first.
    pub came_together: Vec<Meeting>,
    pub separated: Vec<Meeting>,
    /// The same members in another order.
    pub reordered: bool,
}

/// What became of the types of two images.
#[derive(Debug, Default)]
pub(super) struct TypeDiff {
    pub counts: TypeCounts,
    /// Most telling first.
    pub changed: Vec<TypeChange>,
    /// The orders of members differ as a shuffle would have it.
    pub randomised: bool,
}

/// One definition, flattened.
pub(super) struct Flat<'t, 'd> {
    types: &'t Types<'d>,
    definition: &'t Definition<'d>,
    rows: Rows<'d>,
    shape: u64,
}

impl<'t, 'd> Flat<'t, 'd> {
    fn of(types: &'t Types<'d>, definition: &'t Definition<'d>) -> Flat<'t, 'd> {
        let rows = types.table.rows(definition.type_id);
        let mut hasher = DefaultHasher::new();
        types.table.size(definition.type_id).hash(&mut hasher);
        for row in &rows.list {
            let bits = row.bits.map(|b| (b.first, b.count));
            (&row.field.path, row.field.offset, row.field.size, bits).hash(&mut hasher);
        }
        Flat { types, definition, rows, shape: hasher.finish() }
    }

    fn size(&self) -> Option<u64> {
        self.types.table.size(self.definition.type_id)
    }
}

pub(super) fn compare(base: &Types<'_>, patched: &Types<'_>, line: LineSize) -> TypeDiff {
    let mut names: BTreeMap<&str, (Vec<&Definition<'_>>, Vec<&Definition<'_>>)> = BTreeMap::new();
    base.definitions.iter().for_each(|d| names.entry(&d.name).or_default().0.push(d));
    patched.definitions.iter().for_each(|d| names.entry(&d.name).or_default().1.push(d));
    let groups: Vec<_> = names.into_values().collect();
    let one = |(a, b): &(Vec<&Definition<'_>>, Vec<&Definition<'_>>)| {
        let (mut x, mut y): (Vec<_>, Vec<_>) =
            (a.iter().map(|d| Flat::of(base, d)).collect(), b.iter().map(|d| Flat::of(patched, d)).collect());
        once(&mut x);
        once(&mut y);
        let mut same = 0;
        take(&mut x, &mut y, |flat| flat.shape, |_, _| same += 1);
        let mut changes = Vec::new();
        let several = x.len() + y.len() > 2;
        let mut change = |p: &Flat<'_, '_>, q: &Flat<'_, '_>| changes.push(compare::change(p, q, several, line));
        take(&mut x, &mut y, |flat| flat.definition.unit, &mut change);
        take(&mut x, &mut y, |_| (), &mut change);
        (same, changes, x.len() as u64, y.len() as u64)
    };
    let results: Vec<_> = groups.par_chunks(64).flat_map_iter(|chunk| chunk.iter().map(one)).collect();
    let mut diff = TypeDiff::default();
    for (same, changes, removed, added) in results {
        diff.counts.same += same;
        diff.counts.removed += removed;
        diff.counts.added += added;
        diff.changed.extend(changes);
    }
    diff.counts.changed = diff.changed.len() as u64;
    for change in &diff.changed {
        diff.counts.members_moved_line += change.moved_line.len() as u64;
        diff.counts.came_together += change.came_together.len() as u64;
        diff.counts.separated += change.separated.len() as u64;
    }
    diff.randomised = randomised(&diff.changed);
    diff.changed.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| (&a.name, &a.unit).cmp(&(&b.name, &b.unit))));
    diff
}

/// Leaves the first of equal ones: every unit may have its copy.
fn once(flats: &mut Vec<Flat<'_, '_>>) {
    let mut seen = BTreeSet::new();
    flats.retain(|flat| seen.insert(flat.shape));
}

/// Pairs equal keys in order, and takes them out of both lists.
fn take<'t, 'd, K: Eq + Hash>(
    x: &mut Vec<Flat<'t, 'd>>,
    y: &mut Vec<Flat<'t, 'd>>,
    key: impl Fn(&Flat<'t, 'd>) -> K,
    mut found: impl FnMut(&Flat<'_, '_>, &Flat<'_, '_>),
) {
    let mut waiting: HashMap<K, VecDeque<usize>> = HashMap::new();
    y.iter().enumerate().for_each(|(at, q)| waiting.entry(key(q)).or_default().push_back(at));
    let mut taken = BTreeSet::new();
    x.retain(|p| {
        let at = waiting.get_mut(&key(p)).and_then(VecDeque::pop_front);
        let Some((at, q)) = at.and_then(|at| Some((at, y.get(at)?))) else { return true };
        found(p, q);
        taken.insert(at);
        false
    });
    let mut at = 0..;
    y.retain(|_| at.next().is_none_or(|at| !taken.contains(&at)));
}

/// What puts contended members on one line, or off one, comes first; then what moves most.
fn weight(change: &TypeChange) -> (usize, usize, usize) {
    let both = |m: &&Meeting| m.both_contended;
    let meetings = change.came_together.iter().chain(&change.separated);
    (meetings.clone().filter(both).count(), meetings.count(), change.moved_line.len())
}

/// A compiler that shuffles members shuffles many types; an edit reorders one or two.
fn randomised(changed: &[TypeChange]) -> bool {
    const SEVERAL: usize = 3;
    let reordered = changed.iter().filter(|c| c.reordered).count();
    reordered >= SEVERAL && 2 * reordered >= changed.len()
}
