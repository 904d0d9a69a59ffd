//! Rule `shared-tail`: a lock or an atomic that the source aligns to a line, and whose last line others use all the
//! same. Aligning a start keeps others off the line in front; only its size, or the alignment of what follows, keeps
//! them off the tail (RocksDB's mutex, 2022).

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, room};
use crate::finding::{Evidence, Finding, Severity, Subject};
use crate::objects::{Space, pad_by_name};
use crate::types::{Field, TypeTable};
use crate::units::{Addr, LineSize, Span};

/// Returns the lines on which two objects were found, by space and number.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) -> BTreeSet<(Space, u64)> {
    let told = between_objects(seen, ranked);
    for (index, object, table, id) in seen.typed() {
        if !room(ranked, skipped) {
            continue;
        }
        let mut reported: Vec<Vec<&str>> = Vec::new();
        for level in table.levels(id) {
            for field in &level {
                let inside = reported.iter().any(|path| field.path.starts_with(path));
                let others =
                    if inside { Vec::new() } else { on_tail(seen.lines.line, object.span.start, field, &level, table) };
                if others.is_empty() {
                    continue;
                }
                reported.push(field.path.clone());
                let named = |field| seen.member(index, field);
                let others: Vec<Subject> = others.into_iter().filter_map(named).collect();
                let Some(subject) = named(field).filter(|_| !others.is_empty()) else { continue };
                // What follows a lock in a struct is often what it guards, and then its holder writes both.
                let finding = finding(seen.lines.line, Severity::Low, subject, others);
                ranked.push(Ranked { index, weight: 60, finding });
            }
        }
    }
    told
}

fn between_objects(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) -> BTreeSet<(Space, u64)> {
    let (lines, mut told) = (seen.lines, BTreeSet::new());
    for shared in lines.shared() {
        // In address order: only the first one can have a tail here.
        let Some((&index, rest)) = shared.objects.split_first() else { continue };
        let Some(object) = lines.object(index).filter(|o| o.class.writable()) else { continue };
        let Some((table, id)) = seen.type_of(index) else { continue };
        let align = table.asked_align(seen.declared(index).and_then(|d| d.variable.align), id);
        let tail = tail(object.span, lines.line.bytes());
        if !aligned(lines.line, align, object.span.start) || table.contended_in(id, tail..u64::MAX).is_none() {
            continue;
        }
        let writable = |i: &&u32| lines.object(**i).is_some_and(|o| o.class.writable() && !pad_by_name(o.name));
        let others: Vec<Subject> = rest.iter().filter(writable).filter_map(|&i| seen.subject(i)).collect();
        let Some(subject) = seen.subject(index).filter(|_| !others.is_empty()) else { continue };
        told.insert((shared.space, shared.number));
        let finding = finding(lines.line, Severity::Medium, subject, others);
        ranked.push(Ranked { index, weight: 60, finding });
    }
    told
}

/// The members beside `field` that begin on its last line, when the source aligns it and it ends inside a line.
pub(super) fn on_tail<'f, 'd>(
    line: LineSize,
    start: Addr,
    field: &Field<'d>,
    level: &'f [Field<'d>],
    table: &TypeTable<'_>,
) -> Vec<&'f Field<'d>> {
    let span = |f: &Field<'_>| Span { start: Addr(start.0.saturating_add(f.offset)), size: f.size.unwrap_or(0) };
    let own = span(field);
    if own.size == 0 || !aligned(line, field.align, own.start) || own.end() % line.bytes() == 0 {
        return Vec::new();
    }
    let on_it = |f: &&Field<'_>| {
        let other = span(f).start;
        let pad = f.path.last().is_some_and(|name| pad_by_name(name));
        !pad && other.0 >= own.end() && line.line_of(other) == line.line_of(Addr(own.end()))
    };
    let others: Vec<&Field<'_>> = level.iter().filter(on_it).collect();
    let contended =
        !others.is_empty() && table.contended_in(field.type_id, tail(own, line.bytes())..u64::MAX).is_some();
    if contended { others } else { Vec::new() }
}

/// The source asks for whole lines, and got one.
fn aligned(line: LineSize, asked: Option<u64>, start: Addr) -> bool {
    asked.is_some_and(|a| a >= line.bytes()) && line.phase_of(start).0 == 0
}

/// How far from its start the last line of an aligned object begins.
fn tail(span: Span, line: u64) -> u64 {
    span.size.saturating_sub(1) / line * line
}

/// Of an object or a member that begins a line.
pub(super) fn finding(line: LineSize, severity: Severity, subject: Subject, others: Vec<Subject>) -> Finding {
    let next = others.first().map_or("what follows", |o| o.name.as_str());
    let line = line.bytes();
    Finding {
        advice: format!(
            "tail line still shared with {next}: aligning the start of {} does not keep others off its tail; \
             aligned({line}) on {next} too",
            subject.name
        ),
        cost_bytes: Some((line - subject.size % line) % line),
        others,
        ..Finding::about("shared-tail", severity, Evidence::Typed, subject)
    }
}
