//! The lines of one object, byte by byte: who lies on them.

use serde::Serialize;

use super::{Seen, section_name};
use crate::error::{Error, Result};
use crate::finding::Subject;
use crate::image::Home;
use crate::objects::demangled;
use crate::types::Contention;
use crate::units::{Addr, Span};

/// One line and what lies on it.
#[derive(Clone, Debug, Serialize)]
pub struct LineMap {
    pub section: String,
    /// Of the line's first byte.
    pub address: Addr,
    /// In address order.
    pub objects: Vec<OnLine>,
}

/// The part of an object that lies on a line.
#[derive(Clone, Debug, Serialize)]
pub struct OnLine {
    /// In bytes from the start of the line; `to` is one past the last.
    pub from: u64,
    pub to: u64,
    /// It is the one that was asked for.
    pub asked: bool,
    /// By its type, on this line.
    pub contended: Option<Contention>,
    #[serde(flatten)]
    pub object: Subject,
}

impl LineMap {
    pub(super) fn is_about(&self, subject: &Subject) -> bool {
        self.objects.iter().filter(|o| o.asked).any(|o| {
            let span = Span { start: o.object.address, size: o.object.size };
            subject.section == o.object.section && (span.start..Addr(span.end())).contains(&subject.address)
        })
    }
}

/// Lines that are drawn of one object, at its start and at its end: there it has neighbours.
const ENDS: u64 = 4;
/// Objects of one name that are drawn: statics of several files.
const NAMESAKES: usize = 16;

/// Of every object of this name, or that has it as an alias.
pub(super) fn maps(seen: &Seen<'_, '_>, name: &str) -> Result<Vec<LineMap>> {
    let mut found: Vec<u32> = Vec::new();
    for symbol in seen.image.symbols.iter().filter(|s| s.name == name || demangled(&s.name) == name) {
        let Home::Section(section) = symbol.home else { continue };
        let holds = |o: &crate::objects::Object<'_>| {
            o.section == section
                && o.span.start.0 <= symbol.value
                && symbol.value < o.span.end().max(o.span.start.0 + 1)
        };
        let at = seen.lines.objects.iter().position(|o| holds(o) && (o.name == name || o.span.start.0 == symbol.value));
        let at = at.or_else(|| seen.lines.objects.iter().position(holds)).and_then(|at| u32::try_from(at).ok());
        found.extend(at.filter(|at| !found.contains(at)));
    }
    if found.is_empty() {
        let near = seen.lines.objects.iter().map(|o| o.name).filter(|n| n.contains(name)).take(3);
        let near = near.collect::<Vec<_>>().join(", ");
        let error = Error::input(
            format!("looking for the object `{name}` in {}", seen.image.path),
            "no data object that has a size is called so",
        );
        return Err(if near.is_empty() { error } else { error.hint(near) });
    }
    Ok(found.into_iter().take(NAMESAKES).flat_map(|index| of_object(seen, index)).collect())
}

fn of_object(seen: &Seen<'_, '_>, index: u32) -> Vec<LineMap> {
    let Some(object) = seen.lines.object(index) else { return Vec::new() };
    let lines = object.span.lines(seen.lines.line);
    let (first, last) = (*lines.start(), *lines.end());
    // An object of a gigabyte has millions of lines between its ends.
    let shown: Vec<u64> = if last - first < 2 * ENDS {
        lines.collect()
    } else {
        (first..first + ENDS).chain(last - ENDS + 1..=last).collect()
    };
    shown.into_iter().map(|number| of_line(seen, index, object.section, number)).collect()
}

fn of_line(seen: &Seen<'_, '_>, asked: u32, section: u32, number: u64) -> LineMap {
    let size = seen.lines.line.bytes();
    let start = number.saturating_mul(size);
    let space = seen.lines.object(asked).map(|o| o.space);
    let on = |(_, o): &(u32, &crate::objects::Object<'_>)| {
        Some(o.space) == space && o.span.lines(seen.lines.line).contains(&number)
    };
    let objects = (0u32..).zip(&seen.lines.objects).filter(on).filter_map(|(index, object)| {
        Some(OnLine {
            from: object.span.start.0.saturating_sub(start),
            to: object.span.end().saturating_sub(start).min(size),
            asked: index == asked,
            contended: seen.contended_on(index, number),
            object: seen.subject(index)?,
        })
    });
    LineMap { section: section_name(seen.image, section), address: Addr(start), objects: objects.collect() }
}
