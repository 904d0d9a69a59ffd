//! Pairs → what became of each object.

use std::collections::BTreeSet;

use rayon::prelude::*;
use serde::Serialize;

use super::content::{Compare, Found, Sameness};
use super::names::{Names, Ref};
use super::pair::{Pair, Pairs, Told};
use super::{Changed, DataCounts, Spot};
use crate::code::Loop;
use crate::image::Image;
use crate::layout::Lines;
use crate::objects::{Kind, Object, stem};

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
    pub told: Told,
    pub change: Change,
    /// It lies elsewhere.
    pub elsewhere: bool,
    /// It moved or may have, and its phase is another.
    pub rephased: bool,
    /// … other objects are on its lines.
    pub new_neighbours: bool,
    /// … it straddles a line and did not before.
    pub newly_straddling: bool,
    pub no_longer_straddling: bool,
    /// Of a function that did not change.
    pub loops: Vec<Loop>,
    /// References whose content could not be compared.
    pub untold: u32,
}

/// All objects of one kind in both images.
pub(super) struct Moves<'r, 'i> {
    pub base: (&'r Image<'i>, &'r Lines<'i>),
    pub patched: (&'r Image<'i>, &'r Lines<'i>),
    pub moves: Vec<Move>,
    pub pairs: Pairs,
}

/// `content`: `None` compares names, places and sizes only.
pub(super) fn compare<'r, 'i>(
    kind: Kind,
    (a, b): (&'r Names<'r, 'i>, &'r Names<'r, 'i>),
    pairs: Pairs,
    content: &Compare<'r, 'i>,
    whole: bool,
) -> Moves<'r, 'i> {
    let lines = |names: &'r Names<'r, 'i>| if kind == Kind::Data { names.data } else { names.code };
    let (base, patched) = ((a.reader.image, lines(a)), (b.reader.image, lines(b)));
    let one = |pair: &Pair| one(kind, base, patched, pair, whole.then_some(content), content);
    // Results keep the order of the pairs, whatever thread they come from.
    let mut moves: Vec<Move> = pairs.both.par_chunks(256).flat_map_iter(|c| c.iter().filter_map(one)).collect();
    moves.sort_by_key(|m| m.a);
    Moves { base, patched, moves, pairs }
}

type Side<'r, 'i> = (&'r Image<'i>, &'r Lines<'i>);

fn one<'i>(
    kind: Kind,
    a: Side<'_, 'i>,
    b: Side<'_, 'i>,
    pair: &Pair,
    content: Option<&Compare<'_, 'i>>,
    who: &Compare<'_, 'i>,
) -> Option<Move> {
    let (x, y) = (a.1.object(pair.a)?, b.1.object(pair.b)?);
    let section = |image: &Image<'_>, o: &Object<'_>| image.section(o.section).map(|s| s.name.to_string());
    let stayed = x.span.start == y.span.start && section(a.0, x) == section(b.0, y);
    let mut found = Found { sameness: Sameness::Equal, untold: 0 };
    let mut loops = Vec::new();
    if let (Some(content), true) = (content, x.span.size == y.span.size) {
        let (compared, body) = content.objects((pair.a, x), (pair.b, y));
        found = compared;
        loops = body.map(|b| b.loops).filter(|_| found.sameness == Sameness::Equal).unwrap_or_default();
    }
    let change = match found.sameness {
        _ if x.span.size != y.span.size => Change::Resized,
        Sameness::Different => Change::ContentChanged,
        Sameness::Undecided => Change::Undecided,
        Sameness::Equal if stayed => Change::Same,
        Sameness::Equal => Change::Moved,
    };
    let moved = change == Change::Moved || (change == Change::Undecided && !stayed);
    let (line, before, after) = (a.1.line, x.span.straddles(a.1.line), y.span.straddles(b.1.line));
    Some(Move {
        a: pair.a,
        b: pair.b,
        told: pair.told,
        change,
        elsewhere: !stayed,
        rephased: moved && line.phase_of(x.span.start) != line.phase_of(y.span.start),
        new_neighbours: moved && kind == Kind::Data && has_new_mates(a.1, b.1, pair, who),
        newly_straddling: moved && after && !before,
        no_longer_straddling: moved && before && !after,
        loops,
        untold: found.untold,
    })
}

/// Whether others are on its lines than before, some more or some fewer.
fn has_new_mates(a: &Lines<'_>, b: &Lines<'_>, pair: &Pair, who: &Compare<'_, '_>) -> bool {
    let before: Vec<Option<u32>> = a.mates(pair.a).map(|i| who.partners.get(Ref::from((Kind::Data, i)))).collect();
    let known: BTreeSet<u32> = before.iter().copied().flatten().collect();
    let after: BTreeSet<u32> = b.mates(pair.b).collect();
    known.len() != before.len() || known != after
}

impl Moves<'_, '_> {
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
            renamed: self.count(|m| matches!(m.told, Told::Content | Told::Neighbours)),
        }
    }

    /// Both sides of a pair.
    pub(super) fn paired(&self) -> impl Iterator<Item = (&Move, &Object<'_>, &Object<'_>)> {
        self.moves.iter().filter_map(|m| Some((m, self.base.1.object(m.a)?, self.patched.1.object(m.b)?)))
    }

    /// The objects that are not the same and that `wanted` wants, in base's order, then the added ones.
    pub(super) fn changed(&self, wanted: impl Fn(&Move) -> bool) -> Vec<Changed> {
        let ((a_image, a), (b_image, b)) = (self.base, self.patched);
        let section = |image: &Image<'_>, o: &Object<'_>| {
            image.section(o.section).map_or_else(String::new, |s| s.name.to_string())
        };
        let alone = |change, image: &Image<'_>, lines: &Lines<'_>, index: u32| {
            let object = lines.object(index)?;
            let spot = Some(spot(lines, object));
            let (base, patched) = if change == Change::Removed { (spot, None) } else { (None, spot) };
            let (name, section) = (object.name.to_string(), section(image, object));
            Some(Changed { name, section, change, told: None, renamed: None, moved_to: None, base, patched })
        };
        let mut rows: Vec<(u32, Changed)> = Vec::new();
        for (m, x, y) in self.paired().filter(|(m, ..)| wanted(m)) {
            let (from, to) = (section(a_image, x), section(b_image, y));
            rows.push((
                m.a,
                Changed {
                    name: x.name.to_string(),
                    moved_to: Some(to).filter(|to| *to != from),
                    section: from,
                    change: m.change,
                    told: Some(m.told),
                    renamed: Some(y.name.to_string()).filter(|name| stem(name) != stem(x.name)),
                    base: Some(spot(a, x)),
                    patched: Some(spot(b, y)),
                },
            ));
        }
        let removed = self.pairs.removed.iter();
        rows.extend(removed.filter_map(|&i| Some((i, alone(Change::Removed, a_image, a, i)?))));
        rows.sort_by_key(|(at, _)| *at);
        let mut rows: Vec<Changed> = rows.into_iter().map(|(_, row)| row).collect();
        rows.extend(self.pairs.added.iter().filter_map(|&j| alone(Change::Added, b_image, b, j)));
        rows
    }
}

fn spot(lines: &Lines<'_>, o: &Object<'_>) -> Spot {
    Spot { address: o.span.start, size: o.span.size, phase: lines.line.phase_of(o.span.start) }
}
