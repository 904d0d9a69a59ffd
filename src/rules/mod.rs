//! Rules: Lines → Findings. `scan`, `check` and `--fail-on` are the same call.

mod shared_elements;
mod shared_line;
mod shared_tail;
mod straddle;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::finding::{Finding, Subject};
use crate::image::{Facts, Image, Kind, TypesFrom};
use crate::layout::{Counts, Lines};
use crate::objects::{Class, Declared, Object, Objects, declared};
use crate::types::{Field, TypeId, TypeTable, Types};
use crate::units::{Addr, Align, LineSize};

/// The schema of [`Scan`].
pub const SCHEMA: &str = "straddle.scan/1";

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
    /// Worst first.
    pub findings: Vec<Finding>,
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

/// Scans the data objects of an image. `types`: what its debug information declares, where it was read. `line` overrides
/// the line of its machine.
///
/// # Errors
/// When the image has no symbols.
pub fn scan(image: &Image<'_>, types: Option<&Types<'_>>, line: Option<LineSize>) -> Result<Scan> {
    image.need_symbols()?;
    let size = line.unwrap_or_else(|| image.line_size());
    let objects = Objects::data(image);
    let mut skipped: BTreeMap<String, u64> = objects.skipped.iter().map(|(k, v)| ((*k).to_string(), *v)).collect();
    let lines = Lines::of(objects, size);
    let (sections, counts) = lines.counts();
    let mut classes = BTreeMap::new();
    for object in &lines.objects {
        *classes.entry(object.class.name()).or_insert(0) += 1;
    }
    let seen = Seen::of(image, &lines, types, &mut skipped);
    let findings = findings(&seen, &mut skipped);
    let assumed = line.map_or_else(|| image.line_problem(), |_| None);
    let problems = assumed.into_iter().chain(loose_sections(image, sections.keys().copied(), size)).collect();
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
    })
}

/// A finding and how much it matters: more first. The weight orders a list; it claims nothing.
struct Ranked {
    weight: u32,
    finding: Finding,
}

/// Findings by type. Ten times what a kernel has; a damaged image can have thousands for each symbol.
const MOST_TYPED: usize = 20_000;

/// Whether there is room for more, counting the objects that are left out when there is not.
fn room(ranked: &[Ranked], skipped: &mut BTreeMap<String, u64>) -> bool {
    let room = ranked.len() < MOST_TYPED;
    if !room {
        *skipped.entry("objects whose type was not looked at: too many findings".to_string()).or_insert(0) += 1;
    }
    room
}

fn findings(seen: &Seen<'_, '_>, skipped: &mut BTreeMap<String, u64>) -> Vec<Finding> {
    let mut ranked = Vec::new();
    let arrays = shared_elements::find(seen, &mut ranked, skipped);
    let tails = shared_tail::find(seen, &mut ranked, skipped);
    straddle::find(seen, &arrays, &mut ranked, skipped);
    shared_line::find(seen, &tails, &mut ranked, skipped);
    ranked.sort_by(|a, b| {
        let key = |r: &Ranked| (r.finding.severity, std::cmp::Reverse(r.weight));
        key(a).cmp(&key(b)).then_with(|| a.finding.subject.address.cmp(&b.finding.subject.address))
    });
    ranked.into_iter().map(|r| r.finding).collect()
}

/// What rules look at: the lines of one image, and what is declared of the objects on them.
struct Seen<'s, 'i> {
    image: &'s Image<'s>,
    lines: &'s Lines<'i>,
    table: Option<&'s TypeTable<'s>>,
    /// By the index of the object; empty when no types were read.
    declared: Vec<Option<Declared<'s>>>,
}

impl<'s, 'i> Seen<'s, 'i> {
    fn of(
        image: &'s Image<'_>,
        lines: &'s Lines<'i>,
        types: Option<&'s Types<'_>>,
        skipped: &mut BTreeMap<String, u64>,
    ) -> Seen<'s, 'i> {
        let mut seen = Seen { image, lines, table: types.map(|t| &t.table), declared: Vec::new() };
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
        for (reason, count) in unusable {
            *skipped.entry(reason.to_string()).or_insert(0) += count;
        }
        seen
    }

    fn declared(&self, index: u32) -> Option<&Declared<'s>> {
        self.declared.get(index as usize)?.as_ref()
    }

    /// The type of an object, and the table that it is in.
    fn type_of(&self, index: u32) -> Option<(&'s TypeTable<'s>, TypeId)> {
        Some((self.table?, self.declared(index)?.type_id?))
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

/// Why an object of this class is not reported, if so.
fn silent(class: Class) -> Option<&'static str> {
    match class {
        Class::Metadata(_) => Some("straddling metadata"),
        Class::Init => Some("straddling, dead after start"),
        Class::NotLoaded => Some("straddling, not loaded"),
        Class::Thread => Some("straddling, thread-local: the phase is the thread's"),
        _ => None,
    }
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
