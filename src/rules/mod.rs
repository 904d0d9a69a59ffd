//! Rules: Lines → Findings. `scan`, `check` and `--fail-on` are the same call.

mod shared_line;
mod straddle;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::finding::{Finding, Subject};
use crate::image::{Facts, Image};
use crate::layout::{Counts, Lines};
use crate::objects::{Class, Object, Objects};
use crate::units::LineSize;

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

/// Scans the data objects of an image. `line` overrides the line of its machine.
///
/// # Errors
/// When the image has no symbols.
pub fn scan(image: &Image<'_>, line: Option<LineSize>) -> Result<Scan> {
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
    let ranked = findings(image, &lines, &mut skipped);
    let mut problems = if line.is_some() { Vec::new() } else { image.problems.clone() };
    problems.extend(loose_sections(image, sections.keys().copied(), size));
    Ok(Scan {
        schema: SCHEMA,
        problems,
        skipped,
        image: Facts::of(image, size),
        totals: Totals { counts, classes },
        sections: sections
            .into_iter()
            .map(|(index, counts)| SectionCounts { name: section_name(image, index), index, counts })
            .collect(),
        findings: ranked,
    })
}

/// A finding and how much it matters: more first. Only names, sizes and classes are known at this tier, so the weight
/// orders a list; it claims nothing.
struct Ranked {
    weight: u32,
    finding: Finding,
}

fn findings(image: &Image<'_>, lines: &Lines<'_>, skipped: &mut BTreeMap<String, u64>) -> Vec<Finding> {
    let mut ranked = Vec::new();
    straddle::find(image, lines, &mut ranked, skipped);
    shared_line::find(image, lines, &mut ranked, skipped);
    ranked.sort_by(|a, b| {
        let key = |r: &Ranked| (r.finding.severity, std::cmp::Reverse(r.weight));
        key(a).cmp(&key(b)).then_with(|| a.finding.subject.address.cmp(&b.finding.subject.address))
    });
    ranked.into_iter().map(|r| r.finding).collect()
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

fn subject(image: &Image<'_>, lines: &Lines<'_>, object: &Object<'_>) -> Subject {
    Subject {
        name: object.name.to_string(),
        section: section_name(image, object.section),
        address: object.span.start,
        size: object.span.size,
        phase: lines.line.phase_of(object.span.start),
        type_name: None,
        file: object.unit.map(str::to_string),
        line: None,
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
    (loose > 0).then(|| {
        format!(
            "not linked yet: addresses are offsets into sections, and {loose} of them may land on another phase \
             (aligned to less than a line)"
        )
    })
}
