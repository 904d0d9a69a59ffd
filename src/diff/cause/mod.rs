//! What pushed the rest: the first changes upstream, by section and unit.
//!
//! In a section everything keeps its distance to what is before it, except where something grew, shrank, came, went or
//! changed places. At each such step the way that objects have moved becomes another one. An object that moved is
//! counted to one step: of those since objects last lay where they were, the largest; of those that change a phase, if
//! its own is another. So the counts add up to all that moved.

mod units;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::moves::{Change, Move, Moves};
use crate::image::Image;
use crate::image::map::Landing;
use crate::layout::Lines;
use crate::objects::Object;
use crate::units::LineSize;

use units::Units;

/// A change upstream, and what it pushed: all of one unit in one section together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The object or source file; `null`: what lies before the section, or not known.
    pub unit: Option<String>,
    pub section: String,
    /// What happened, in words.
    pub what: String,
    /// How far it pushed what follows, in bytes.
    pub bytes: i64,
    /// Data objects and functions that did not change and that it moved.
    pub objects: u64,
    /// Of these, data.
    pub data: u64,
}

/// Link maps of both images.
pub type Maps<'m> = (&'m Landing, &'m Landing);

/// Causes by the number of objects, most first; and how many moved objects have none.
pub(super) fn causes(data: &Moves<'_, '_>, code: &Moves<'_, '_>, maps: Option<Maps<'_>>) -> (Vec<Cause>, u64) {
    let line = data.base.1.line;
    let units = (Units::of(data.base.0, maps.map(|m| m.0)), Units::of(data.patched.0, maps.map(|m| m.1)));
    let mut sections: BTreeMap<&str, Section<'_>> = BTreeMap::new();
    let mut rest = 0;
    for moves in [data, code] {
        let name = |image: &'_ Image<'_>, o: &Object<'_>| image.section(o.section).map(|s| s.name.to_string());
        let is_data = std::ptr::eq(moves, data);
        for (m, x, y) in moves.paired() {
            let section = moves.base.0.section(x.section).map_or("", |s| s.name.as_ref());
            if name(moves.base.0, x) != name(moves.patched.0, y) {
                rest += u64::from(counts(m));
                continue;
            }
            let known = sections.entry(section).or_insert_with(|| Section::of(data, x.section, y.section));
            known.items.push(Item {
                from: x.span.start.0,
                to: y.span.start.0,
                size: x.span.size,
                grown: y.span.size.wrapping_sub(x.span.size).cast_signed(),
                name: x.name,
                counts: counts(m),
                is_data,
            });
        }
        let (added, removed) = (&moves.pairs.added, &moves.pairs.removed);
        alone(moves.patched, added, &mut sections, |s| &mut s.added);
        alone(moves.base, removed, &mut sections, |s| &mut s.removed);
    }
    let mut folded: BTreeMap<Key, Fold> = BTreeMap::new();
    for (name, section) in &mut sections {
        section.fold(name, (&units.0, &units.1), line, &mut folded);
    }
    let mut causes: Vec<Cause> =
        folded.into_iter().filter(|(_, f)| f.objects > 0).map(|(key, fold)| fold.cause(key)).collect();
    causes.sort_by(|a, b| {
        b.objects.cmp(&a.objects).then_with(|| (&a.section, &a.unit, &a.what).cmp(&(&b.section, &b.unit, &b.what)))
    });
    (causes, rest)
}

/// Moved, as far as is known without a change of its own.
fn counts(m: &Move) -> bool {
    m.elsewhere && matches!(m.change, Change::Moved | Change::Undecided)
}

fn alone<'s, 'm>(
    (image, lines): (&'m Image<'_>, &'m Lines<'_>),
    list: &[u32],
    sections: &mut BTreeMap<&'s str, Section<'m>>,
    slot: impl for<'x> Fn(&'x mut Section<'m>) -> &'x mut Vec<Alone<'m>>,
) {
    for object in list.iter().filter_map(|i| lines.object(*i)) {
        let Some(section) = image.section(object.section).and_then(|s| sections.get_mut(s.name.as_ref())) else {
            continue;
        };
        slot(section).push(Alone {
            at: object.span.start.0,
            size: object.span.size,
            name: object.name,
            strayed: false,
        });
    }
}

/// One object that both have.
struct Item<'m> {
    from: u64,
    to: u64,
    size: u64,
    grown: i64,
    name: &'m str,
    counts: bool,
    is_data: bool,
}

impl Item<'_> {
    fn moved(&self) -> i64 {
        self.to.wrapping_sub(self.from).cast_signed()
    }
}

/// One object that only one has.
struct Alone<'m> {
    at: u64,
    size: u64,
    name: &'m str,
    /// The other image has it, too, elsewhere in the section.
    strayed: bool,
}

struct Section<'m> {
    /// How far its start moved.
    start: i64,
    items: Vec<Item<'m>>,
    /// In patched's order; with what came from elsewhere in the section.
    added: Vec<Alone<'m>>,
    /// In base's order; with what went elsewhere in the section.
    removed: Vec<Alone<'m>>,
}

/// Something that happened between two objects.
#[derive(Clone)]
struct Step {
    unit: Option<String>,
    /// Of a step of no known unit, what it has in common with another: who went here and came there.
    tag: String,
    what: String,
    bytes: i64,
}

/// Which steps are told together: of one unit in one section.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    section: String,
    unit: Option<String>,
    /// Moved by themselves.
    strayed: bool,
    tag: String,
}

impl Key {
    fn of(section: &str, step: &Step, strayed: bool) -> Key {
        let tag = if step.unit.is_some() { String::new() } else { step.tag.clone() };
        Key { section: section.to_string(), unit: step.unit.clone(), strayed, tag }
    }
}

/// Steps of one unit that are looked at for its words.
const MOST_TOLD: usize = 64;

/// What one unit pushes in one section.
#[derive(Default)]
struct Fold {
    /// In words, by how many bytes.
    steps: Vec<(u64, String)>,
    bytes: i64,
    objects: u64,
    data: u64,
}

impl Fold {
    fn cause(mut self, key: Key) -> Cause {
        self.steps.sort_by_key(|step| std::cmp::Reverse(step.0));
        let mut what: Vec<String> = Vec::new();
        for (_, step) in self.steps.into_iter().take(MOST_TOLD) {
            if !what.contains(&step) {
                what.push(step);
            }
        }
        let more = what.len().saturating_sub(2);
        what.truncate(2);
        let mut what = what.join("; ");
        if more > 0 {
            what += &format!("; {more} more");
        }
        let Key { unit, section, .. } = key;
        Cause { unit, section, what, bytes: self.bytes, objects: self.objects, data: self.data }
    }
}

/// How far each unit upstream has pushed, since objects last lay where they were.
#[derive(Default)]
struct Pushed {
    by: HashMap<Key, (i64, usize)>,
    /// By bytes, then the first of them: all, and those that change a phase.
    all: BTreeSet<(u64, std::cmp::Reverse<usize>, Key)>,
    turning: BTreeSet<(u64, std::cmp::Reverse<usize>, Key)>,
}

impl Pushed {
    fn add(&mut self, key: Key, bytes: i64, turns: impl Fn(i64) -> bool) {
        let next = self.by.len();
        let entry = self.by.entry(key.clone()).or_insert((0, next));
        let rank = |(bytes, first): (i64, usize)| (bytes.unsigned_abs(), std::cmp::Reverse(first), key.clone());
        self.all.remove(&rank(*entry));
        self.turning.remove(&rank(*entry));
        entry.0 = entry.0.wrapping_add(bytes);
        if entry.0 != 0 {
            self.all.insert(rank(*entry));
        }
        if turns(entry.0) {
            self.turning.insert(rank(*entry));
        }
    }

    /// Which pushes furthest, and how far.
    fn furthest(&self, turns: bool) -> Option<(&Key, i64)> {
        let turning = self.turning.last().filter(|_| turns);
        let (_, _, key) = turning.or(self.all.last())?;
        Some((key, self.by.get(key)?.0))
    }
}

impl<'m> Section<'m> {
    fn of(moves: &Moves<'_, '_>, base: u32, patched: u32) -> Section<'m> {
        let start = |image: &Image<'_>, index: u32| image.section(index).map_or(0, |s| s.address);
        let start = start(moves.patched.0, patched).wrapping_sub(start(moves.base.0, base)).cast_signed();
        Section { start, items: Vec::new(), added: Vec::new(), removed: Vec::new() }
    }

    fn fold(&mut self, name: &str, units: (&Units<'_>, &Units<'_>), line: LineSize, folded: &mut BTreeMap<Key, Fold>) {
        self.items.sort_by_key(|i| (i.from, i.to));
        let kept: BTreeSet<usize> = in_order(&self.items).into_iter().collect();
        for (_, item) in self.items.iter().enumerate().filter(|(index, _)| !kept.contains(index)) {
            let alone = |at, size| Alone { at, size, name: item.name, strayed: true };
            self.removed.push(alone(item.from, item.size));
            self.added.push(alone(item.to, item.size.wrapping_add_signed(item.grown)));
        }
        self.added.sort_by_key(|a| a.at);
        self.removed.sort_by_key(|a| a.at);
        let turns = |bytes: i64| bytes.rem_euclid(line.bytes().cast_signed()) != 0;
        let mut pushed = Pushed::default();
        let mut happen = |step: &Step, strayed: bool| {
            let key = Key::of(name, step, strayed);
            let fold = folded.entry(key.clone()).or_default();
            fold.steps.push((step.bytes.unsigned_abs(), step.what.clone()));
            (key, step.bytes)
        };
        let mut counted: Vec<(Key, i64, bool)> = Vec::new();
        if self.start != 0 {
            let what = "the section begins elsewhere: what lies before it changed its size".to_string();
            let (key, bytes) = happen(&Step { unit: None, tag: "section".into(), what, bytes: self.start }, false);
            pushed.add(key, bytes, turns);
        }
        let (mut before, mut delta) = (None, self.start);
        for (index, item) in self.items.iter().enumerate() {
            if !kept.contains(&index) {
                // What changed its place by itself pushes nothing else.
                let what = "at another place in the order of the link".to_string();
                let step = Step { unit: units.0.any(item.from), tag: String::new(), what, bytes: item.moved() };
                let (key, bytes) = happen(&step, true);
                counted.extend(item.counts.then_some((key, bytes, item.is_data)));
                continue;
            }
            let by = item.moved().wrapping_sub(delta);
            delta = item.moved();
            if by != 0 {
                let (key, bytes) = happen(&self.step(before, index, by, units), false);
                pushed.add(key, bytes, turns);
            }
            before = Some(index);
            if delta == 0 {
                pushed = Pushed::default();
            }
            if let Some((key, bytes)) = pushed.furthest(turns(delta)).filter(|_| item.counts) {
                counted.push((key.clone(), bytes, item.is_data));
            }
        }
        for (key, bytes, is_data) in counted {
            let fold = folded.entry(key).or_default();
            // Of those that moved by themselves, which did not push each other, the furthest.
            fold.bytes = if fold.bytes.unsigned_abs() > bytes.unsigned_abs() { fold.bytes } else { bytes };
            fold.objects += 1;
            fold.data += u64::from(is_data);
        }
    }

    /// What happened between the object before and this one.
    fn step(&self, before: Option<usize>, index: usize, bytes: i64, units: (&Units<'_>, &Units<'_>)) -> Step {
        let Some(here) = self.items.get(index) else {
            return Step { unit: None, tag: String::new(), what: String::new(), bytes };
        };
        let previous = before.and_then(|b| self.items.get(b));
        let (low, low_to) = previous.map_or((0, 0), |p| (p.from, p.to));
        if let Some(step) = Units::grown(units, (low, here.from), (low_to, here.to), bytes) {
            return step;
        }
        let between = |list: &'_ [Alone<'m>], low: u64, high: u64| {
            let (from, to) = (list.partition_point(|a| a.at < low), list.partition_point(|a| a.at < high));
            Came::of(list.get(from..to).unwrap_or_default())
        };
        let (came, went) = (between(&self.added, low_to, here.to), between(&self.removed, low, here.from));
        let resized = self.items.get(before.unwrap_or(index)..index).unwrap_or_default();
        let resized = resized.iter().filter(|i| i.grown != 0).max_by_key(|i| i.grown.unsigned_abs());
        let mut tag = format!("{}", here.from);
        // Of what happened there, what comes nearest to the step.
        let off = |by: i64| by.wrapping_sub(bytes).unsigned_abs();
        let signed = |came: &Came| came.bytes.cast_signed();
        let by = [resized.map(|r| r.grown), came.as_ref().map(signed), went.as_ref().map(|w| signed(w).wrapping_neg())];
        let nearest = by.into_iter().flatten().map(off).min();
        let is = |by: Option<i64>| by.is_some() && by.map(off) == nearest;
        let (unit, what) = match (resized, came, went) {
            (Some(item), ..) if is(by[0]) => {
                let way = if item.grown > 0 { "grew" } else { "shrank" };
                (units.0.any(item.from), format!("{} {way} by {} bytes", item.name, item.grown.unsigned_abs()))
            }
            (_, Some(came), _) if is(by[1]) => {
                tag.clone_from(&came.name);
                (units.1.any(came.at), came.words(("added", "came from elsewhere")))
            }
            (_, _, Some(went)) => {
                tag.clone_from(&went.name);
                (units.0.any(went.at), went.words(("removed", "went elsewhere")))
            }
            _ => {
                let unit = previous.map_or(here.from, |p| p.from);
                (units.0.any(unit), format!("what has no name before {}, or its alignment", here.name))
            }
        };
        Step { unit, tag, what, bytes }
    }
}

/// What only one image has at a place.
struct Came {
    at: u64,
    bytes: u64,
    name: String,
    others: usize,
    strayed: bool,
}

impl Came {
    fn of(list: &[Alone<'_>]) -> Option<Came> {
        let largest = list.iter().max_by_key(|a| a.size)?;
        Some(Came {
            at: largest.at,
            bytes: list.iter().fold(0, |sum, a| sum.saturating_add(a.size)),
            name: largest.name.to_string(),
            others: list.len() - 1,
            strayed: largest.strayed,
        })
    }

    fn words(&self, (alone, strayed): (&str, &str)) -> String {
        let more = if self.others > 0 { format!(" and {} more", self.others) } else { String::new() };
        let how = if self.strayed { strayed } else { alone };
        format!("{}{more} {how} ({} bytes)", self.name, self.bytes)
    }
}

/// The longest run of objects that follow each other in both images, by index.
fn in_order(items: &[Item<'_>]) -> Vec<usize> {
    let mut ends: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = vec![None; items.len()];
    let to = |at: usize| items.get(at).map_or(0, |i| i.to);
    for (index, item) in items.iter().enumerate() {
        let at = ends.partition_point(|&end| to(end) <= item.to);
        if let Some(slot) = previous.get_mut(index) {
            *slot = at.checked_sub(1).and_then(|at| ends.get(at)).copied();
        }
        match ends.get_mut(at) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let back = |at: &usize| previous.get(*at).copied().flatten();
    let mut run: Vec<usize> = std::iter::successors(ends.last().copied(), back).collect();
    run.reverse();
    run
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(to: &[u64]) -> Vec<Item<'static>> {
        let item = |(from, to): (u64, &u64)| Item {
            from,
            to: *to,
            size: 1,
            grown: 0,
            name: "x",
            counts: from != *to,
            is_data: true,
        };
        (0..).zip(to).map(item).collect()
    }

    fn section(to: &[u64]) -> Section<'static> {
        Section { start: 0, items: items(to), added: Vec::new(), removed: Vec::new() }
    }

    proptest! {
        /// Against the obvious way: for each, the longest run that ends there.
        #[test]
        fn the_longest_run_in_order_is_found(to in prop::collection::vec(0u64..40, 0..40)) {
            let run = in_order(&items(&to));
            prop_assert!(run.windows(2).all(|w| w[0] < w[1] && to[w[0]] <= to[w[1]]));
            let mut longest: Vec<usize> = Vec::new();
            for (index, own) in to.iter().enumerate() {
                let before = (0..index).filter(|i| to[*i] <= *own).map(|i| longest[i]).max().unwrap_or(0);
                longest.push(before + 1);
            }
            prop_assert_eq!(run.len(), longest.into_iter().max().unwrap_or(0));
        }

        /// Whatever moved is counted once.
        #[test]
        fn every_object_that_moved_has_one_cause(to in prop::collection::vec(0u64..60, 0..40)) {
            let mut folded = BTreeMap::new();
            let none = Units::none();
            section(&to).fold(".data", (&none, &none), LineSize::B64, &mut folded);
            let counted: u64 = folded.values().map(|f| f.objects).sum();
            prop_assert_eq!(counted, (0..).zip(&to).filter(|(from, to)| from != *to).count() as u64);
        }
    }

    /// What two steps of one unit undo pushes nothing behind them.
    #[test]
    fn steps_that_cancel_are_no_cause() {
        let mut pushed = Pushed::default();
        let key =
            |unit: &str| Key { section: String::new(), unit: Some(unit.into()), strayed: false, tag: String::new() };
        let turns = |bytes: i64| bytes % 64 != 0;
        pushed.add(key("a"), 8, turns);
        pushed.add(key("b"), 2000, turns);
        pushed.add(key("c"), 4096, turns);
        assert_eq!(pushed.furthest(false), Some((&key("c"), 4096)));
        assert_eq!(pushed.furthest(true), Some((&key("b"), 2000)), "whole lines change no phase");
        pushed.add(key("b"), -2000, turns);
        assert_eq!(pushed.furthest(true), Some((&key("a"), 8)));
    }
}
