//! Pairs → what became of each object.

use std::collections::BTreeSet;

use serde::Serialize;

use super::content::{Compare, Sameness};
use super::pair::{Pairs, pair};
use super::{Changed, DataCounts, FunctionCounts, Spot};
use crate::image::Image;
use crate::layout::Lines;
use crate::objects::{Key, Object};

/// What became of one object; the first that holds, in this order: resized, content, undecided, moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Same,
    /// The same bytes somewhere else.
    Moved,
    Resized,
    ContentChanged,
    /// Of equal size; whether it changed is not known.
    Undecided,
    Added,
    Removed,
}

/// One object that both images have.
pub(super) struct Move {
    pub a: u32,
    pub b: u32,
    pub change: Change,
    /// It moved or may have, and its phase is another.
    pub rephased: bool,
    /// … other objects are on its lines.
    pub new_neighbours: bool,
    /// … it straddles a line and did not before.
    pub newly_straddling: bool,
    pub no_longer_straddling: bool,
}

/// All objects of one kind in both images.
pub(super) struct Moves<'r, 'i, 'a> {
    pub base: (&'r Image<'a>, &'r Lines<'i>),
    pub patched: (&'r Image<'a>, &'r Lines<'i>),
    pub moves: Vec<Move>,
    pairs: Pairs,
}

pub(super) fn compare<'r, 'i, 'a>(
    a_image: &'i Image<'a>,
    a: &'r Lines<'i>,
    b_image: &'i Image<'a>,
    b: &'r Lines<'i>,
    content: &Compare<'_, '_, '_>,
) -> Moves<'r, 'i, 'a>
where
    'i: 'r,
{
    let pairs = pair(a_image, a, b_image, b);
    let mut moves = Vec::with_capacity(pairs.both.len());
    for &(i, j) in &pairs.both {
        if let (Some(x), Some(y)) = (a.object(i), b.object(j)) {
            moves.push(one((a_image, a, i, x), (b_image, b, j, y), content));
        }
    }
    Moves { base: (a_image, a), patched: (b_image, b), moves, pairs }
}

type Side<'r, 'i, 'a> = (&'i Image<'a>, &'r Lines<'i>, u32, &'r Object<'i>);

fn one(a: Side<'_, '_, '_>, b: Side<'_, '_, '_>, content: &Compare<'_, '_, '_>) -> Move {
    let ((_, a_lines, i, x), (_, b_lines, j, y)) = (a, b);
    let section = |side: &Side<'_, '_, '_>| side.0.section(side.3.section).map(|s| s.name.to_string());
    let stayed = x.span.start == y.span.start && section(&a) == section(&b);
    let change = match () {
        () if x.span.size != y.span.size => Change::Resized,
        () => match content.objects(x, y) {
            Sameness::Different => Change::ContentChanged,
            Sameness::Undecided => Change::Undecided,
            Sameness::Equal if stayed => Change::Same,
            Sameness::Equal => Change::Moved,
        },
    };
    let moved = change == Change::Moved || (change == Change::Undecided && !stayed);
    let (line, before, after) = (a_lines.line, x.span.straddles(a_lines.line), y.span.straddles(b_lines.line));
    Move {
        a: i,
        b: j,
        change,
        rephased: moved && line.phase_of(x.span.start) != line.phase_of(y.span.start),
        new_neighbours: moved && mates(&a) != mates(&b),
        newly_straddling: moved && after && !before,
        no_longer_straddling: moved && before && !after,
    }
}

fn mates<'i>(side: &Side<'_, 'i, '_>) -> BTreeSet<Key<'i>> {
    let &(image, lines, index, _) = side;
    lines.mates(index).filter_map(|i| Some(Key::of(lines.object(i)?, image))).collect()
}

impl Moves<'_, '_, '_> {
    pub(super) fn count(&self, what: impl Fn(&Move) -> bool) -> u64 {
        self.moves.iter().filter(|m| what(m)).count() as u64
    }

    pub(super) fn data_counts(&self) -> DataCounts {
        let of = |change| self.count(|m| m.change == change);
        DataCounts {
            same: of(Change::Same),
            moved: of(Change::Moved),
            resized: of(Change::Resized),
            content_changed: of(Change::ContentChanged),
            undecided: of(Change::Undecided),
            added: self.pairs.added.len() as u64,
            removed: self.pairs.removed.len() as u64,
            rephased: self.count(|m| m.rephased),
            new_neighbours: self.count(|m| m.new_neighbours),
            newly_straddling: self.count(|m| m.newly_straddling),
            no_longer_straddling: self.count(|m| m.no_longer_straddling),
        }
    }

    pub(super) fn function_counts(&self) -> FunctionCounts {
        let of = |change| self.count(|m| m.change == change);
        FunctionCounts {
            same: of(Change::Same),
            moved: of(Change::Moved),
            rephased: self.count(|m| m.rephased),
            changed: of(Change::Resized) + of(Change::ContentChanged),
            undecided: of(Change::Undecided),
            added: self.pairs.added.len() as u64,
            removed: self.pairs.removed.len() as u64,
        }
    }

    /// The objects that are not the same and that `wanted` wants, in base's order, then the added ones.
    pub(super) fn changed(&self, wanted: impl Fn(Change) -> bool) -> Vec<Changed> {
        let ((a_image, a), (b_image, b)) = (self.base, self.patched);
        let spot = |lines: &Lines<'_>, o: &Object<'_>| Spot {
            address: o.span.start,
            size: o.span.size,
            phase: lines.line.phase_of(o.span.start),
        };
        let row = |change, x: Option<&Object<'_>>, y: Option<&Object<'_>>| {
            let (object, image) = x.map(|x| (x, a_image)).or(y.map(|y| (y, b_image)))?;
            Some(Changed {
                name: object.name.to_string(),
                section: image.section(object.section).map_or_else(String::new, |s| s.name.to_string()),
                change,
                base: x.map(|x| spot(a, x)),
                patched: y.map(|y| spot(b, y)),
            })
        };
        let mut rows: Vec<(u32, Changed)> = Vec::new();
        for m in self.moves.iter().filter(|m| m.change != Change::Same && wanted(m.change)) {
            rows.extend(row(m.change, a.object(m.a), b.object(m.b)).map(|r| (m.a, r)));
        }
        if wanted(Change::Removed) {
            rows.extend(self.pairs.removed.iter().filter_map(|&i| Some((i, row(Change::Removed, a.object(i), None)?))));
        }
        rows.sort_by_key(|(at, _)| *at);
        let mut rows: Vec<Changed> = rows.into_iter().map(|(_, row)| row).collect();
        if wanted(Change::Added) {
            rows.extend(self.pairs.added.iter().filter_map(|&j| row(Change::Added, None, b.object(j))));
        }
        rows
    }
}
