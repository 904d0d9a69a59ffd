//! What a profile of base says of patched: every access seen keeps its object and its offset, and is put where patched has
//! it. Nothing of patched was run.

use std::collections::BTreeSet;

use serde::Serialize;

use super::pair::Partners;
use crate::error::Result;
use crate::finding::Evidence;
use crate::formats::Samples;
use crate::heat::{Access, Heat, Naming, Profile};
use crate::image::Image;
use crate::layout::{Bins, Datum, Lines, Traffic, shifts};
use crate::objects::{Class, Kind, Object, Space};
use crate::types::Types;
use crate::units::{Addr, LineSize};

/// The sharing that patched's layout adds and removes for the accesses seen on base.
#[derive(Clone, Debug, Serialize)]
pub struct Rebinned {
    /// What became of the samples of each profile.
    pub profiles: Vec<Profile>,
    pub evidence: Evidence,
    /// Accesses that have a place in base.
    pub accesses: u64,
    /// Of these, accesses to objects that patched does not have.
    pub lost: u64,
    /// Accesses of which the element is not known: on no layout.
    pub indexed: u64,
    /// Pairs of a write and another CPU's access to other data of the same line.
    pub conflict_base: u64,
    pub conflict_patched: u64,
    /// The largest difference first.
    pub changes: Vec<Sharing>,
    /// By section of patched, where a shift changes anything; empty unless asked for.
    pub shifts: Vec<SectionShifts>,
}

/// Two data whose sharing differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// `object+0x8`, by base's names.
    pub data: [String; 2],
    /// Pairs of accesses that disturb each other; 0: they share no line.
    pub base: u64,
    pub patched: u64,
    /// The first line on which they meet, in each; `null` where they do not.
    pub base_line: Option<Addr>,
    pub patched_line: Option<Addr>,
}

/// A section of patched, moved along by so many bytes, everything else where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SectionShifts {
    pub section: String,
    /// The conflict of the whole image, by shift in bytes; the first is none.
    pub conflict: Vec<(u64, u64)>,
}

/// What is asked.
pub(super) struct Ask<'a> {
    pub(super) profiles: &'a [Samples<'a>],
    pub(super) shifts: bool,
    pub(super) line: LineSize,
    pub(super) types: Option<&'a Types<'a>>,
}

/// Steps of a shift in bytes: no section of data begins at less.
const STEP: u64 = 8;

/// # Errors
/// A profile that cannot be read to its end.
pub(super) fn rebinned(
    base: (&Image<'_>, &Lines<'_>),
    patched: (&Image<'_>, &Lines<'_>),
    partners: &Partners,
    ask: &Ask<'_>,
) -> Result<Rebinned> {
    let objects = &base.1.objects;
    let naming = Naming::of(base.0, objects, ask.types);
    let heat = Heat::profiled(base.0, objects, ask.profiles, Some(&naming))?;
    // Every CPU has a copy of its own of these.
    let shared = |o: &Object<'_>| o.class != Class::PerCpu && o.space != Space::Thread;
    let of = |evidence| {
        let own = move |a: &&Access| a.evidence == evidence && base.1.object(a.object).is_some_and(shared);
        Traffic::of(heat.accesses.iter().filter(own))
    };
    // Counts of different measures do not add up.
    let (evidence, traffic) = match of(Evidence::Measured) {
        measured if measured.count() > 0 => (Evidence::Measured, measured),
        _ => (Evidence::Sampled, of(Evidence::Sampled)),
    };
    let place_of = |lines: &Lines<'_>, index: u32| lines.object(index).map(|o| (o.space, o.span.start));
    let there = |index: u32| partners.get((Kind::Data, index));
    let before = traffic.on(|i| place_of(base.1, i), ask.line);
    let after = traffic.on(|i| place_of(patched.1, there(i)?), ask.line);
    let name = |(object, offset): Datum| {
        let name = base.1.object(object).map_or("?", |o| o.name);
        if offset == 0 { name.to_string() } else { format!("{name}+{offset:#x}") }
    };
    let line = |at: Option<(Space, u64)>| at.map(|(_, number)| Addr(number.saturating_mul(ask.line.bytes())));
    let changes = before.changes(&after).into_iter().map(|c| Sharing {
        data: [name(c.data.0), name(c.data.1)],
        base: c.before,
        patched: c.after,
        base_line: line(c.line_before),
        patched_line: line(c.line_after),
    });
    let section_of = |index: u32| patched.1.object(there(index)?).map(|o| o.section);
    let shifted = |section: u32| {
        let moves = |index: u32| section_of(index) == Some(section);
        let all = shifts(&traffic, |i| place_of(patched.1, there(i)?), moves, STEP, ask.line);
        let conflict: Vec<(u64, u64)> = all.iter().map(|(by, bins): &(u64, Bins)| (*by, bins.conflict())).collect();
        let differ = conflict.iter().any(|(_, c)| conflict.first().is_some_and(|(_, now)| now != c));
        let name = patched.0.section(section).map_or_else(String::new, |s| s.name.to_string());
        differ.then_some(SectionShifts { section: name, conflict })
    };
    let sections: BTreeSet<u32> = match ask.shifts {
        true => heat.accesses.iter().filter(|a| a.evidence == evidence).filter_map(|a| section_of(a.object)).collect(),
        false => BTreeSet::new(),
    };
    Ok(Rebinned {
        evidence,
        accesses: traffic.count(),
        lost: after.lost,
        indexed: traffic.indexed,
        conflict_base: before.conflict(),
        conflict_patched: after.conflict(),
        changes: changes.collect(),
        shifts: sections.into_iter().filter_map(shifted).collect(),
        profiles: heat.profiles,
    })
}
