//! Rules: Lines, Types → Findings. `scan`, `check` and `--fail-on` are the same call.

mod about;
mod adjacent_lines;
mod baseline;
pub mod check;
mod contest;
mod fragile;
mod identity;
mod map;
mod measured;
mod misaligned;
mod names;
mod shared_elements;
mod shared_line;
mod shared_members;
mod shared_tail;
mod split_access;
mod straddle;
pub mod types;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::Result;
use crate::finding::{Evidence, Finding, Measured, Sensitivity, Severity, Share, Subject};
use crate::formats::Samples;
use crate::heat::{Heat, Naming, Profile};
use crate::image::{Facts, Image, Kind, TypesFrom};
use crate::layout::{Counts, Lines, sensitivity};
use crate::objects::{Class, Declared, Object, Objects, Space, contended_by_name, declared};
use crate::types::{Contention, Field, TypeId, TypeTable, Types, Weights};
use crate::units::{Addr, Align, LineSize, Span};

pub use about::{ABOUT, About, about};
pub use baseline::Baseline;
pub use identity::{Identity, Named, Written};
pub use map::LineMap;
pub use names::{Allow, Names};

/// The schema of [`Scan`].
pub const SCHEMA: &str = "straddle.scan/1";

/// Every rule, as users write it.
pub const NAMES: &[&str] = &[
    "adjacent-lines",
    "fragile",
    "misaligned",
    "shared-elements",
    "shared-line",
    "shared-tail",
    "split-access",
    "straddle",
    "true-sharing",
    "write-beside-read",
];

/// What `scan` found in one image: `straddle.scan/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Scan {
    pub schema: &'static str,
    pub problems: Vec<String>,
    /// Symbols and findings left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    pub image: Facts,
    pub totals: Totals,
    pub sections: Vec<SectionCounts>,
    /// Worst first; most fragile first where that is asked for.
    pub findings: Vec<Finding>,
    /// The lines of the objects that were asked for, byte by byte.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<LineMap>,
    /// What became of the samples of each profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// The whole image.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    #[serde(flatten)]
    pub counts: Counts,
    /// Objects by class; sums to `objects`.
    pub classes: BTreeMap<&'static str, u64>,
}

/// One section.
#[derive(Clone, Debug, Serialize)]
pub struct SectionCounts {
    pub name: String,
    /// Its index in the file: names may repeat.
    pub index: u32,
    #[serde(flatten)]
    pub counts: Counts,
}

/// What is asked of [`scan`]; by default what a user sees who says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Overrides the line of the image's machine.
    pub line: Option<LineSize>,
    /// Pairs of lines too.
    pub double_line: bool,
    /// Metadata and what is dead after start too.
    pub metadata: bool,
    /// The most fragile first, with those that lie well today.
    pub fragile: bool,
    /// Only what is named here, by object or type.
    pub hot: Option<&'a Names>,
    /// Only these objects, and what lies on their lines.
    pub object: Option<&'a str>,
    /// What is meant to be as it is.
    pub allow: &'a [Allow],
    /// Code is not decoded: faster, and blind to who uses what.
    pub no_heat: bool,
    pub profiles: &'a [Samples<'a>],
}

/// Scans the data objects of an image, and decodes its code to see who uses them. `types`: what its debug information
/// declares, where it was read.
///
/// # Errors
/// When the image has no symbols, or none of the name that is asked for.
pub fn scan(image: &Image<'_>, types: Option<&Types<'_>>, ask: &Ask<'_>) -> Result<Scan> {
    image.need_symbols()?;
    let line = ask.line;
    let size = line.unwrap_or_else(|| image.line_size());
    let objects = Objects::data(image);
    let left_out = objects.skipped.iter().chain(&image.skipped);
    let mut skipped: BTreeMap<String, u64> = left_out.map(|(k, v)| ((*k).to_string(), *v)).collect();
    let lines = Lines::of(objects, size);
    let (sections, counts) = lines.counts();
    let mut classes = BTreeMap::new();
    for object in &lines.objects {
        *classes.entry(object.class.name()).or_insert(0) += 1;
    }
    let heat = if !ask.profiles.is_empty() {
        let naming = Naming::of(image, &lines.objects, types);
        Heat::profiled(image, &lines.objects, ask.profiles, Some(&naming))?
    } else if ask.no_heat {
        Heat::default()
    } else {
        Heat::decoded(image, &lines.objects)
    };
    skipped.extend(heat.skipped.iter().map(|(k, v)| ((*k).to_string(), *v)));
    let seen = Seen::of(image, &lines, (types, &heat), &mut skipped);
    let mut findings = findings(&seen, ask, &mut skipped);
    let assumed = line.map_or_else(|| image.line_problem(), |_| None);
    let loose = loose_sections(image, sections.keys().copied(), size);
    let mut problems: Vec<String> = image.problems.iter().cloned().chain(assumed).chain(loose).collect();
    if let Some(hot) = ask.hot {
        problems.extend(keep_hot(&seen, hot, &mut findings, &mut skipped));
    }
    let maps = ask.object.map(|name| map::maps(&seen, name)).transpose()?.unwrap_or_default();
    if let Some(name) = ask.object {
        let about = |s: &Subject| maps.iter().any(|m| m.is_about(s)) || s.name == name;
        findings.retain(|f| about(&f.subject) || f.others.iter().any(about));
    }
    let types_from = types.filter(|t| !t.table.is_empty()).and_then(|t| t.from);
    Ok(Scan {
        schema: SCHEMA,
        problems,
        skipped,
        image: Facts { types_from, ..Facts::of(image, size) },
        totals: Totals { counts, classes },
        sections: sections
            .into_iter()
            .map(|(index, counts)| SectionCounts { name: section_name(image, index), index, counts })
            .collect(),
        findings,
        maps,
        profiles: heat.profiles.clone(),
    })
}

/// A finding and how much it matters: more first. The weight orders a list; it claims nothing.
struct Ranked {
    /// The object that it is about, or about a member of.
    index: u32,
    weight: u32,
    finding: Finding,
}

/// Findings by type. Ten times what a kernel has; a damaged image can have thousands for each symbol.
const MOST_TYPED: usize = 20_000;

/// Members and steps, for an image; more for each object. A kernel's 40,000 objects have a quarter of a million members.
const MOST_MEMBERS: usize = 1 << 21;

/// Whether there is room for more, counting the objects that are left out when there is not.
fn room(ranked: &[Ranked], skipped: &mut BTreeMap<String, u64>) -> bool {
    let room = ranked.len() < MOST_TYPED;
    if !room {
        *skipped.entry("objects whose type was not looked at: too many findings".to_string()).or_insert(0) += 1;
    }
    room
}

fn findings(seen: &Seen<'_, '_>, ask: &Ask<'_>, skipped: &mut BTreeMap<String, u64>) -> Vec<Finding> {
    let mut ranked = Vec::new();
    let arrays = shared_elements::find(seen, &mut ranked, skipped);
    let tails = shared_tail::find(seen, &mut ranked, skipped);
    let measured = measured::find(seen, &mut ranked);
    straddle::find(seen, (&arrays, ask.metadata), &mut ranked, skipped);
    let told = tails.union(&measured).copied().collect();
    shared_line::find(seen, &told, &mut ranked, skipped);
    shared_members::find(seen, &measured, &mut ranked, skipped);
    split_access::find(seen, &mut ranked);
    misaligned::find(seen, &mut ranked);
    if ask.double_line {
        adjacent_lines::find(seen, &mut ranked);
    }
    if ask.fragile {
        fragile::find(seen, &mut ranked);
    }
    let before = ranked.len();
    ranked.retain(|r| {
        let type_name = seen.type_of(r.index).map(|(table, id)| table.name(id));
        !names::allowed(ask.allow, &r.finding, type_name.as_deref())
    });
    if before > ranked.len() {
        skipped.insert(ALLOWED.to_string(), (before - ranked.len()) as u64);
    }
    for r in &mut ranked {
        let span = Span { start: r.finding.subject.address, size: r.finding.subject.size };
        r.finding.sensitivity = seen.sensitivity(r.index, span, &r.finding.others);
        seen.decoded(r, span);
    }
    ranked.sort_by(|a, b| {
        let key = |r: &Ranked| {
            // What a profile saw and is worth a look comes first.
            let seen = r.finding.measured.filter(|_| r.finding.severity < Severity::Info).map(Measured::weight);
            let (severity, evidence) = (r.finding.severity, r.finding.evidence);
            (seen.is_none(), severity, evidence, std::cmp::Reverse(seen), std::cmp::Reverse(r.weight))
        };
        let share = |r: &Ranked| r.finding.sensitivity.map_or(Share { at: 0, of: 1 }, Sensitivity::share);
        let fragile = if ask.fragile { share(b).cmp_exact(share(a)) } else { std::cmp::Ordering::Equal };
        let place = |r: &Ranked| r.finding.subject.address;
        fragile.then_with(|| key(a).cmp(&key(b))).then_with(|| place(a).cmp(&place(b)))
    });
    ranked.into_iter().map(|r| r.finding).collect()
}

const ALLOWED: &str = "findings that straddle.toml allows";

/// Leaves the findings that are about what a user named, and says what no object and no type is called.
fn keep_hot(
    seen: &Seen<'_, '_>,
    hot: &Names,
    findings: &mut Vec<Finding>,
    skipped: &mut BTreeMap<String, u64>,
) -> Option<String> {
    let object = |s: &Subject| {
        // A member counts to its object.
        let whole = s.name.split_once('.').map_or(s.name.as_str(), |(whole, _)| whole);
        hot.matches(&s.name) || hot.matches(whole) || s.type_name.as_deref().is_some_and(|t| hot.matches(t))
    };
    let before = findings.len();
    findings.retain(|f| object(&f.subject) || f.others.iter().any(object));
    if before > findings.len() {
        skipped.insert("findings about nothing that --hot names".to_string(), (before - findings.len()) as u64);
    }
    let types: BTreeSet<TypeId> =
        (0u32..).zip(&seen.lines.objects).filter_map(|(i, _)| Some(seen.type_of(i)?.1)).collect();
    let types: Vec<String> = types.into_iter().filter_map(|id| Some(seen.table?.name(id))).collect();
    let known = |pattern: &&String| {
        seen.lines.objects.iter().any(|o| names::means(pattern, o.name))
            || types.iter().any(|t| names::means(pattern, t))
    };
    let unknown: Vec<&str> = hot.0.iter().filter(|p| !known(p)).map(String::as_str).take(8).collect();
    (!unknown.is_empty()).then(|| format!("no data object and no type of one is called {}", unknown.join(", ")))
}

/// What rules look at: the lines of one image, and what is declared of the objects on them.
struct Seen<'s, 'i> {
    image: &'s Image<'s>,
    lines: &'s Lines<'i>,
    heat: &'s Heat<'s>,
    table: Option<&'s TypeTable<'s>>,
    /// By the index of the object; empty when no types were read.
    declared: Vec<Option<Declared<'s>>>,
    /// By the index of the object; empty when no types were read.
    pieces: Vec<Vec<Piece>>,
}

/// Something contended in an object.
struct Piece {
    span: Span,
    how: Contention,
}

impl<'s, 'i> Seen<'s, 'i> {
    fn of(
        image: &'s Image<'_>,
        lines: &'s Lines<'i>,
        (types, heat): (Option<&'s Types<'_>>, &'s Heat<'_>),
        skipped: &mut BTreeMap<String, u64>,
    ) -> Seen<'s, 'i> {
        let table = types.map(|t| &t.table);
        let mut seen = Seen { image, lines, heat, table, declared: Vec::new(), pieces: Vec::new() };
        let mut unusable = BTreeMap::new();
        if let Some(types) = types {
            (seen.declared, unusable) = declared(&lines.objects, image, types);
            unusable.extend(&types.skipped);
            if types.from == Some(TypesFrom::Btf) {
                let untold =
                    lines.objects.iter().zip(&seen.declared).filter(|(o, d)| o.class.writable() && d.is_none());
                unusable.insert(
                    "objects whose type BTF does not tell: few of its variables are named",
                    untold.count() as u64,
                );
            }
        }
        seen.lighten(&mut unusable);
        seen.pieces =
            (0u32..).zip(&lines.objects).take(seen.declared.len()).map(|(i, o)| seen.find_pieces(i, o)).collect();
        for (reason, count) in unusable {
            *skipped.entry(reason.to_string()).or_insert(0) += count;
        }
        seen
    }

    /// Leaves types unread once they have many times the members of a kernel's: in a damaged file, every symbol could have
    /// thousands.
    fn lighten(&mut self, unusable: &mut BTreeMap<&'static str, u64>) {
        let Some(table) = self.table else { return };
        let mut weights = Weights::new(table);
        let mut left = MOST_MEMBERS.saturating_add(self.declared.len().saturating_mul(32));
        let mut lost = 0;
        for declared in self.declared.iter_mut().flatten() {
            let Some(id) = declared.type_id else { continue };
            // Once nothing is left, no more are weighed.
            left = if left == 0 { 0 } else { left.saturating_sub(weights.of(id)) };
            if left == 0 {
                declared.type_id = None;
                lost += 1;
            }
        }
        if lost > 0 {
            unusable.insert("objects whose type was not looked at: together they have too many members", lost);
        }
    }

    fn find_pieces(&self, index: u32, object: &Object<'_>) -> Vec<Piece> {
        let Some((table, id)) = self.type_of(index) else { return Vec::new() };
        let inside = table.contended(id).into_iter().filter(|(offset, ..)| *offset < object.span.size);
        let piece = |(offset, size, how): (u64, u64, _)| Piece {
            span: Span {
                start: Addr(object.span.start.0.saturating_add(offset)),
                size: size.min(object.span.size - offset),
            },
            how,
        };
        inside.map(piece).collect()
    }

    fn declared(&self, index: u32) -> Option<&Declared<'s>> {
        self.declared.get(index as usize)?.as_ref()
    }

    /// The type of an object, and the table that it is in.
    fn type_of(&self, index: u32) -> Option<(&'s TypeTable<'s>, TypeId)> {
        Some((self.table?, self.declared(index)?.type_id?))
    }

    /// What is contended in an object by its type, where it lies. Nothing where its type is not known.
    fn pieces(&self, index: u32) -> &[Piece] {
        self.pieces.get(index as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Who uses what a finding is about, and that they were seen to.
    fn decoded(&self, ranked: &mut Ranked, span: Span) {
        let Some(object) = self.lines.object(ranked.index) else { return };
        let Some(start) = span.start.0.checked_sub(object.span.start.0) else { return };
        let bytes = start..start.saturating_add(span.size);
        let users = self.heat.users(ranked.index, bytes.clone(), true);
        let finding = &mut ranked.finding;
        if finding.measured.is_none()
            && let Some((measured, evidence)) = measured::seen_of(self, ranked.index, &bytes)
        {
            finding.measured = Some(measured);
            // Of what lies on a line with others, one that is used says nothing.
            if finding.others.is_empty() {
                finding.evidence = finding.evidence.min(evidence);
            }
        }
        if !users.touch() {
            return;
        }
        let count = |set: &BTreeSet<u32>| u32::try_from(set.len()).ok();
        (finding.readers, finding.writers) = (count(&users.readers), count(&users.writers));
        if finding.accesses.is_empty() {
            finding.accesses = self.uses(ranked.index, span);
        }
        // Of what lies on a line with others, one that is used says nothing.
        if finding.others.is_empty() {
            finding.evidence = finding.evidence.min(Evidence::Decoded);
        }
    }

    /// What is contended in an object's bytes on one line.
    fn contended_on(&self, index: u32, number: u64) -> Option<Contention> {
        let on = |p: &&Piece| p.span.lines(self.lines.line).contains(&number);
        self.pieces(index).iter().filter(on).map(|p| p.how).max()
    }

    /// Over all shifts of what is upstream in its section, the share at which a span of an object straddles or meets
    /// another object that is contended, or one of `others`. `None` for what every thread has at a place of its own.
    fn sensitivity(&self, index: u32, span: Span, others: &[Subject]) -> Option<Sensitivity> {
        let object = self.lines.object(index).filter(|o| o.space != Space::Thread)?;
        let mut contended =
            if object.class == Class::PerCpu { Vec::new() } else { self.contended_near(index, object, span) };
        contended.extend(others.iter().map(|o| Span { start: o.address, size: o.size }));
        Some(sensitivity(span, &contended, self.step(index, object), self.lines.line))
    }

    /// In what steps an object moves: what its declaration or type needs; a word where it is not known, or less where its
    /// place or size shows it. Never more than its section, in which it lies.
    fn step(&self, index: u32, object: &Object<'_>) -> Align {
        let scalar = natural_scalar(self.image);
        let typed = self.type_of(index).map(|(table, id)| {
            let asked = self.declared(index).and_then(|d| d.variable.align).unwrap_or(1);
            table.natural_align(id, scalar).max(asked)
        });
        let shown = object.span.start.0 | object.span.size | self.image.class.pointer_size();
        let bytes = typed.unwrap_or(1 << shown.trailing_zeros());
        let section = self.image.section(object.section).map_or(Align::ONE, |s| s.align);
        Align::new(bytes).unwrap_or_default().min(section)
    }

    /// What is contended in the objects of a section that may come to lie on a line with some bytes. Behind them, what is
    /// aligned to a line cannot.
    fn contended_near(&self, index: u32, object: &Object<'_>, span: Span) -> Vec<Span> {
        let line = self.lines.line.bytes();
        let (low, high) = (span.start.0.saturating_sub(line), span.end().saturating_add(line));
        let near = |i: &u32| {
            self.lines
                .object(*i)
                .is_some_and(|o| o.space == object.space && o.span.end() > low && o.span.start.0 < high)
        };
        let mut found = Vec::new();
        for i in self.lines.near(index, near).filter(|i| *i != index) {
            let Some(other) = self.lines.object(i).filter(|o| o.class.writable() && o.section == object.section) else {
                continue;
            };
            if other.span.start > span.start && self.step(i, other).bytes() >= line {
                continue;
            }
            match self.type_of(i) {
                Some(_) => found.extend(self.pieces(i).iter().map(|p| p.span)),
                None if contended_by_name(other.name) => found.push(other.span),
                None => {}
            }
        }
        found
    }

    /// Objects that CPUs may write while running, with their types. A part with its own name has the whole's.
    fn typed(&self) -> impl Iterator<Item = (u32, &'s Object<'i>, &'s TypeTable<'s>, TypeId)> {
        let all = (0u32..).zip(&self.lines.objects).filter(|(_, object)| object.class.writable());
        let all = all.filter(|(index, _)| !self.lines.is_nested(*index));
        all.filter_map(|(index, object)| {
            let (table, id) = self.type_of(index)?;
            Some((index, object, table, id))
        })
    }

    fn subject(&self, index: u32) -> Option<Subject> {
        let object = self.lines.object(index)?;
        let known = self.declared(index);
        let type_id = known.and_then(|d| d.type_id);
        let file = known.and_then(|d| Some(d.variable.file?.to_string()));
        Some(Subject {
            name: object.name.to_string(),
            section: section_name(self.image, object.section),
            address: object.span.start,
            size: object.span.size,
            phase: self.lines.line.phase_of(object.span.start),
            type_name: type_id.and_then(|id| Some(self.table?.name(id))),
            file: file.or_else(|| object.unit.map(str::to_string)),
            line: known.and_then(|d| d.variable.line),
        })
    }

    /// A member of an object. Its file and line are those of the object: where its type is declared is not read. `None`
    /// where a damaged type places it outside.
    fn member(&self, index: u32, field: &Field<'_>) -> Option<Subject> {
        let whole = self.subject(index)?;
        let end = field.offset.checked_add(field.size.unwrap_or(0))?;
        if end > whole.size {
            return None;
        }
        let address = Addr(whole.address.0.saturating_add(field.offset));
        Some(Subject {
            name: std::iter::once(whole.name.as_str()).chain(field.path.iter().copied()).collect::<Vec<_>>().join("."),
            address,
            size: field.size.unwrap_or(0),
            phase: self.lines.line.phase_of(address),
            type_name: self.table.map(|t| t.name(field.type_id)),
            ..whole
        })
    }

    /// The rest of the last line after `end`, in bytes.
    fn rest_of_line(&self, end: u64) -> u64 {
        Align::new(self.lines.line.bytes()).map_or(0, |line| line.up(end).saturating_sub(end))
    }
}

/// Why an object of this class is not reported, if so. `all`: unless it has no place in the running image.
fn silent(class: Class, all: bool) -> Option<&'static str> {
    match class {
        Class::Metadata(_) | Class::Init if all => None,
        Class::Metadata(_) => Some("straddling metadata"),
        Class::Init => Some("straddling, dead after start"),
        Class::NotLoaded => Some("straddling, not loaded"),
        Class::Thread => Some("straddling, thread-local: the phase is the thread's"),
        _ => None,
    }
}

/// What a scalar needs at most: i386 aligns none to more than four bytes in a struct.
fn natural_scalar(image: &Image<'_>) -> u64 {
    if image.machine.name() == "i386" { 4 } else { 16 }
}

fn section_name(image: &Image<'_>, index: u32) -> String {
    image.section(index).map_or_else(String::new, |s| s.name.to_string())
}

/// In a relocatable file a section lands on any multiple of its alignment: below a line's, phases are not final.
fn loose_sections(image: &Image<'_>, used: impl Iterator<Item = u32>, line: LineSize) -> Option<String> {
    if !image.kind.relocatable() {
        return None;
    }
    let loose = used.filter_map(|i| image.section(i)).filter(|s| s.loaded && s.align.bytes() < line.bytes()).count();
    let when = match image.kind {
        Kind::Module => "placed when it is loaded",
        _ => "not linked yet",
    };
    (loose > 0).then(|| {
        format!(
            "{when}: addresses are offsets into sections, and {loose} of them may land on another phase \
             (aligned to less than a line)"
        )
    })
}
