//! What pushed the rest: the first changes upstream, by section and unit.
//!
//! In a section everything keeps its distance to what is before it, except where something grew, shrank, came, went or
//! changed places. At each such step the way that objects have moved becomes another one. An object that moved is
//! counted to one step: of those since objects last lay where they were, the largest; of those that change a phase, if
//! its own is another. So the counts add up to all that moved.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::moves::{Change, Move, Moves};
use crate::image::map::{Landing, Placed};
use crate::image::{Home, Image, SymbolKind};
use crate::layout::Lines;
use crate::objects::Object;
use crate::units::LineSize;

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
    let mut causes: Vec<Cause> = folded.into_iter().map(|(key, fold)| fold.cause(key)).collect();
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
    what: String,
    bytes: i64,
}

/// Which steps are told together.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    section: String,
    unit: Option<String>,
    /// Moved by themselves.
    strayed: bool,
    alone: Option<usize>,
}

/// The steps of one unit in one section.
#[derive(Default)]
struct Fold {
    /// Largest first, in the end.
    steps: BTreeMap<(bool, usize), Step>,
    objects: u64,
    data: u64,
}

impl Fold {
    fn cause(self, Key { section, unit, strayed, .. }: Key) -> Cause {
        let bytes = self.steps.values().map(|s| s.bytes);
        // Those that changed their places by themselves did not push each other.
        let bytes = if strayed { bytes.max_by_key(|b| b.unsigned_abs()).unwrap_or(0) } else { bytes.sum() };
        let mut steps: Vec<&Step> = self.steps.values().collect();
        steps.sort_by_key(|s| std::cmp::Reverse(s.bytes.unsigned_abs()));
        let mut what: Vec<&str> = Vec::new();
        for step in &steps {
            if !what.contains(&step.what.as_str()) {
                what.push(&step.what);
            }
        }
        let more = what.len().saturating_sub(2);
        what.truncate(2);
        let mut what = what.join("; ");
        if more > 0 {
            what += &format!("; {more} more");
        }
        Cause { unit, section, what, bytes, objects: self.objects, data: self.data }
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
        let mut steps: Vec<Step> = Vec::new();
        if self.start != 0 {
            let what = "the section begins elsewhere: what lies before it changed its size".to_string();
            steps.push(Step { unit: None, what, bytes: self.start });
        }
        // Since objects last lay where they were: the largest step, and the largest that changes a phase.
        let (mut largest, mut phase) = (None, None);
        let (mut before, mut delta) = (None, self.start);
        let mut next = 0;
        let turns = |bytes: i64| bytes.rem_euclid(line.bytes().cast_signed()) != 0;
        for (index, item) in self.items.iter().enumerate() {
            // What changed its place by itself pushes nothing else.
            let mut own = None;
            let step = if kept.contains(&index) {
                let by = item.moved() - delta;
                if by != 0 {
                    steps.push(self.step(before, index, by, units));
                }
                delta = item.moved();
                before = Some(index);
                if delta == 0 {
                    (largest, phase, next) = (None, None, steps.len());
                }
                for (at, new) in steps.iter().enumerate().skip(next) {
                    let larger = |old: &Option<usize>| {
                        let old = old.and_then(|o| steps.get(o)).map_or(0, |s: &Step| s.bytes.unsigned_abs());
                        new.bytes.unsigned_abs() > old
                    };
                    largest = if larger(&largest) { Some(at) } else { largest };
                    phase = if turns(new.bytes) && larger(&phase) { Some(at) } else { phase };
                }
                next = steps.len();
                phase.filter(|_| turns(delta)).or(largest)
            } else {
                let unit = units.0.any(item.from);
                let what = "at another place in the order of the link".to_string();
                own = Some(Step { unit, what, bytes: item.moved() });
                Some(index)
            };
            let key = step.filter(|_| item.counts).map(|at| (own.is_some(), at));
            let Some((at, step)) = key.and_then(|at| Some((at, own.as_ref().or(steps.get(at.1))?))) else { continue };
            // Steps of no known unit have nothing in common.
            let alone = step.unit.is_none().then_some(at.1).filter(|_| !at.0);
            let key = Key { section: name.to_string(), unit: step.unit.clone(), strayed: at.0, alone };
            let fold = folded.entry(key).or_default();
            fold.steps.entry(at).or_insert_with(|| step.clone());
            fold.objects += 1;
            fold.data += u64::from(item.is_data);
        }
    }

    /// What happened between the object before and this one.
    fn step(&self, before: Option<usize>, index: usize, bytes: i64, units: (&Units<'_>, &Units<'_>)) -> Step {
        let Some(here) = self.items.get(index) else { return Step { unit: None, what: String::new(), bytes } };
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
        let (unit, what) = match (resized, came, went) {
            (Some(item), _, _) => {
                let way = if item.grown > 0 { "grew" } else { "shrank" };
                (units.0.any(item.from), format!("{} {way} by {} bytes", item.name, item.grown.unsigned_abs()))
            }
            (_, Some(came), went) if went.as_ref().is_none_or(|went| came.bytes >= went.bytes) => {
                (units.1.any(came.at), came.words(("added", "came from elsewhere")))
            }
            (_, _, Some(went)) => (units.0.any(went.at), went.words(("removed", "went elsewhere"))),
            _ => {
                let unit = previous.map_or(here.from, |p| p.from);
                (units.0.any(unit), format!("what has no name before {}, or its alignment", here.name))
            }
        };
        Step { unit, what, bytes }
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
            bytes: list.iter().map(|a| a.size).sum(),
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

/// Whose an address is.
struct Units<'m> {
    /// Of a link map: start, end, and what was placed there.
    placed: Vec<(u64, u64, &'m Placed)>,
    /// Without one, local symbols by address: their source file. A global one between two of a file is of it too.
    files: Vec<(u64, &'m str)>,
}

impl<'m> Units<'m> {
    fn of(image: &'m Image<'_>, map: Option<&'m Landing>) -> Units<'m> {
        let mut placed: Vec<_> = map
            .iter()
            .flat_map(|m| &m.placed)
            .filter(|p| p.size > 0 && !p.file.is_empty())
            .map(|p| (p.address, p.address.saturating_add(p.size), p))
            .collect();
        placed.sort_by_key(|&(start, end, _)| (start, end));
        let mut files = Vec::new();
        let mut file: Option<&str> = None;
        for symbol in image.symbols.iter().filter(|_| map.is_none()) {
            match (symbol.kind, symbol.home, &file) {
                (SymbolKind::File, ..) => file = Some(symbol.name.as_ref()).filter(|n| !n.is_empty()),
                (SymbolKind::Data | SymbolKind::Function, Home::Section(_), Some(file)) if symbol.local => {
                    files.push((symbol.value, *file));
                }
                _ => {}
            }
        }
        files.sort();
        Units { placed, files }
    }

    fn any(&self, address: u64) -> Option<String> {
        if !self.placed.is_empty() {
            let at = self.placed.partition_point(|&(start, ..)| start <= address).checked_sub(1)?;
            let &(_, end, placed) = self.placed.get(at)?;
            return (address < end).then(|| label(placed));
        }
        let at = self.files.partition_point(|(start, _)| *start <= address);
        let before = at.checked_sub(1).and_then(|at| self.files.get(at));
        let (before, after) = (before?, self.files.get(at));
        (before.0 == address || after.is_some_and(|a| a.1 == before.1)).then(|| before.1.to_string())
    }

    /// By link maps: which input section between two places changed its size most.
    fn grown(units: (&Units<'_>, &Units<'_>), base: (u64, u64), patched: (u64, u64), bytes: i64) -> Option<Step> {
        let sizes = |units: &Units<'_>, (low, high): (u64, u64)| -> BTreeMap<(String, String, u32), i64> {
            let from = units.placed.partition_point(|&(_, end, _)| end <= low);
            let within = units.placed.iter().skip(from).take_while(|&&(start, ..)| start < high);
            within.map(|(_, _, p)| ((label(p), p.section.clone(), p.index), p.size.cast_signed())).collect()
        };
        if units.0.placed.is_empty() || units.1.placed.is_empty() {
            return None;
        }
        let (x, y) = (sizes(units.0, base), sizes(units.1, patched));
        let keys: BTreeSet<_> = x.keys().chain(y.keys()).collect();
        let by = |key: &(String, String, u32)| y.get(key).copied().unwrap_or(0) - x.get(key).copied().unwrap_or(0);
        let key = keys.into_iter().filter(|k| by(k) != 0).max_by_key(|k| by(k).unsigned_abs())?;
        let what = match (x.get(key), y.get(key)) {
            (None, Some(size)) => format!("its {} came ({size} bytes)", key.1),
            (Some(size), None) => format!("its {} went ({size} bytes)", key.1),
            _ => format!("its {} {:+} bytes", key.1, by(key)),
        };
        Some(Step { unit: Some(key.0.clone()), what, bytes })
    }
}

fn label(placed: &Placed) -> String {
    match &placed.member {
        Some(member) => format!("{}({member})", placed.file),
        None => placed.file.clone(),
    }
}
