//! Rule `shared-tail`: a lock or an atomic that the source aligns to a line, and whose last line others use all the
//! same. Aligning a start keeps others off the line in front; only its size, or the alignment of what follows, keeps
//! them off the tail (RocksDB's mutex, 2022).

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, room};
use crate::finding::{Evidence, Finding, Severity, Subject};
use crate::objects::Space;
use crate::types::{Field, TypeTable};
use crate::units::{Addr, Span};

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
                let others = if inside { Vec::new() } else { on_tail(seen, object.span.start, field, &level, table) };
                if others.is_empty() {
                    continue;
                }
                reported.push(field.path.clone());
                let named = |field| seen.member(index, field);
                let others: Vec<Subject> = others.into_iter().filter_map(named).collect();
                let Some(subject) = named(field).filter(|_| !others.is_empty()) else { continue };
                // What follows a lock in a struct is often what it guards, and then its holder writes both.
                let finding = finding(seen, Severity::Low, subject, others);
                ranked.push(Ranked { weight: 60, finding });
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
        if !aligned(seen, align, object.span.start) || !table.contended_from(id, tail) {
            continue;
        }
        let writable = |i: &&u32| lines.object(**i).is_some_and(|o| o.class.writable());
        let others: Vec<Subject> = rest.iter().filter(writable).filter_map(|&i| seen.subject(i)).collect();
        let Some(subject) = seen.subject(index).filter(|_| !others.is_empty()) else { continue };
        told.insert((shared.space, shared.number));
        ranked.push(Ranked { weight: 60, finding: finding(seen, Severity::Medium, subject, others) });
    }
    told
}

/// The members beside `field` that begin on its last line, when the source aligns it and it ends inside a line.
fn on_tail<'f, 'd>(
    seen: &Seen<'_, '_>,
    start: Addr,
    field: &Field<'d>,
    level: &'f [Field<'d>],
    table: &TypeTable<'_>,
) -> Vec<&'f Field<'d>> {
    let line = seen.lines.line;
    let span = |f: &Field<'_>| Span { start: Addr(start.0.saturating_add(f.offset)), size: f.size.unwrap_or(0) };
    let own = span(field);
    if own.size == 0 || !aligned(seen, field.align, own.start) || own.end() % line.bytes() == 0 {
        return Vec::new();
    }
    let on_it = |f: &&Field<'_>| {
        let other = span(f).start;
        other.0 >= own.end() && line.line_of(other) == line.line_of(Addr(own.end()))
    };
    let others: Vec<&Field<'_>> = level.iter().filter(on_it).collect();
    let contended = !others.is_empty() && table.contended_from(field.type_id, tail(own, line.bytes()));
    if contended { others } else { Vec::new() }
}

/// The source asks for whole lines, and got one.
fn aligned(seen: &Seen<'_, '_>, asked: Option<u64>, start: Addr) -> bool {
    asked.is_some_and(|a| a >= seen.lines.line.bytes()) && seen.lines.line.phase_of(start).0 == 0
}

/// How far from its start the last line of an aligned object begins.
fn tail(span: Span, line: u64) -> u64 {
    span.size.saturating_sub(1) / line * line
}

fn finding(seen: &Seen<'_, '_>, severity: Severity, subject: Subject, others: Vec<Subject>) -> Finding {
    let line = seen.lines.line.bytes();
    let next = others.first().map_or("what follows", |o| o.name.as_str());
    let rest = seen.rest_of_line(subject.size);
    Finding {
        rule: "shared-tail",
        severity,
        evidence: Evidence::Typed,
        advice: format!(
            "tail line still shared with {next}: aligning the start of {} does not keep others off its tail; \
             aligned({line}) on {next} too",
            subject.name
        ),
        subject,
        others,
        readers: None,
        writers: None,
        cost_bytes: Some(rest),
    }
}
