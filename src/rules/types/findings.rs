//! What the rules say of one type.

use std::cmp::Reverse;

use super::Place;
use super::members::{MOST_MET, Mark, apart, path, pieces, span_of};
use crate::finding::{Alternative, Evidence, Finding, Severity, Share, Subject};
use crate::layout::{adjoining, meeting, sensitivity};
use crate::rules::adjacent_lines::ADVICE;
use crate::rules::shared_elements::Sharing;
use crate::rules::{shared_tail, straddle};
use crate::types::{Contention, Field, Row};
use crate::units::{Addr, Span};

/// Worst first; of a damaged type no more than these.
const MOST: usize = 4096;

pub(super) fn find(place: &Place<'_, '_>, marks: &[Mark]) -> Vec<Finding> {
    let mut found: Vec<(u32, Finding)> = Vec::new();
    let pieces = pieces(marks);
    sharing(place, marks, &pieces, &mut found);
    elements(place, marks, &mut found);
    tails(place, &mut found);
    straddles(place, marks, &mut found);
    found.sort_by_key(|(weight, f)| (f.severity, Reverse(*weight), f.subject.address));
    found.truncate(MOST);
    found.into_iter().map(|(_, finding)| finding).collect()
}

fn subject(place: &Place<'_, '_>, field: &Field<'_>) -> Subject {
    let name = std::iter::once(place.name).chain(field.path.iter().copied()).collect::<Vec<_>>().join(".");
    let span = place.span(field.offset, field.size.unwrap_or(0));
    Subject {
        name,
        section: String::new(),
        address: Addr(field.offset),
        size: span.size,
        phase: place.line.phase_of(span.start),
        type_name: Some(place.table.name(field.type_id)),
        file: place.file.map(str::to_string),
        line: place.file.and_then(|_| place.table.declared_line(place.id, &field.path).or(place.declared)),
    }
}

/// Why another member on a contended one's line matters, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Both,
    /// Outside the struct that the contended one stands in: who uses the one need not know the other.
    Embedded,
    /// Of the same struct, or held by it: it may be what the lock guards.
    Beside,
}

/// Rules `shared-line` and `adjacent-lines`: one finding a contended member.
fn sharing(place: &Place<'_, '_>, marks: &[Mark], pieces: &[usize], found: &mut Vec<(u32, Finding)>) {
    let mut told: Vec<usize> = Vec::new();
    for &piece in pieces {
        let (own, line) = (span_of(place, piece), place.line.bytes());
        let window = if place.double_line { 2 * line } else { line };
        let close = |span: Span| {
            span.start.0 < own.end().saturating_add(window) && own.start.0 < span.end().saturating_add(window)
        };
        let mut met: Vec<(Why, usize, Share)> = Vec::new();
        let mut paired: Vec<(usize, Share)> = Vec::new();
        for (at, (row, mark)) in place.rows.list.iter().zip(marks).enumerate() {
            let other = span_of(place, at);
            if !(mark.leaf(row) || mark.piece.is_some()) || !close(other) || !apart(place.rows, marks, (piece, at)) {
                continue;
            }
            // A pair of contended members is told once.
            let why = match mark.piece {
                Some(_) if at < piece => continue,
                Some(_) => Why::Both,
                None if holder(place, piece).is_none_or(|holder| place.rows.within(at, holder)) => Why::Beside,
                None => Why::Embedded,
            };
            let share = meeting(own, other, place.step, place.line);
            if share.at > 0 {
                met.push((why, at, share));
            } else if place.double_line {
                let share = adjoining(own, other, place.step, place.line);
                paired.extend((share.at > 0).then_some((at, share)));
            }
        }
        met.sort_by_key(|(why, at, _)| (*why, *at));
        met.truncate(MOST_MET);
        paired.truncate(MOST_MET);
        // What stands among another's contended others needs no finding for what is merely beside it.
        let said = told.contains(&piece) && met.first().is_none_or(|(why, ..)| *why == Why::Beside);
        if !met.is_empty() && !said {
            told.extend(met.iter().filter(|(why, ..)| *why == Why::Both).map(|(_, at, _)| *at));
            found.extend(shared(place, marks, piece, &met));
        }
        if !paired.is_empty() {
            found.extend(adjacent(place, piece, &paired));
        }
    }
}

/// The named struct that a member stands in.
fn holder(place: &Place<'_, '_>, at: usize) -> Option<usize> {
    place.rows.list.get(at)?.parent
}

fn shared(place: &Place<'_, '_>, marks: &[Mark], piece: usize, met: &[(Why, usize, Share)]) -> Option<(u32, Finding)> {
    let (why, first, share) =
        met.iter().copied().max_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp_exact(b.2)).then(b.1.cmp(&a.1)))?;
    let how = |at: usize| marks.get(at).and_then(|m| m.piece);
    let weak = |at: usize| how(at) == Some(Contention::Volatile);
    let always = share.at == share.of;
    let (severity, weight) = match why {
        Why::Both if weak(piece) || weak(first) => (Severity::Low, 30),
        Why::Both if always => (Severity::Medium, 50),
        Why::Both => (Severity::Low, 50),
        Why::Embedded if weak(piece) => (Severity::Info, 10),
        Why::Embedded => (Severity::Low, 40),
        Why::Beside => (Severity::Info, 5),
    };
    let row = place.rows.list.get(piece)?;
    let other = path(place, first);
    let line = place.line.bytes();
    let at = if always { String::new() } else { format!(" at {} of {} bases", share.at, share.of) };
    let word = match why {
        Why::Both => "are both contended, and on one line",
        Why::Embedded => "is outside its struct, and on its line",
        Why::Beside => "is on its line",
    };
    let advice = match why {
        Why::Both => format!(
            "{} and {other} {word}{at}: {line} bytes between them, or one of them first on a line",
            path(place, piece)
        ),
        _ => format!(
            "{other} {word}{at}: move it {line} bytes away if it is read while {} is written",
            path(place, piece)
        ),
    };
    let alternatives = alternatives(place, piece, first);
    let others: Vec<usize> = met.iter().map(|(_, at, _)| *at).collect();
    let spans: Vec<Span> = others.iter().map(|at| span_of(place, *at)).collect();
    let finding = Finding {
        others: others.iter().filter_map(|at| Some(subject(place, &place.rows.list.get(*at)?.field))).collect(),
        advice,
        cost_bytes: alternatives.iter().map(|a| a.cost_bytes).min(),
        alternatives,
        sensitivity: Some(sensitivity(span_of(place, piece), &spans, place.step, place.line)),
        ..Finding::about("shared-line", severity, Evidence::Typed, subject(place, &row.field))
    };
    Some((weight, finding))
}

/// What it costs to align the later one of two members to a line, by the size of one object.
fn alternatives(place: &Place<'_, '_>, a: usize, b: usize) -> Vec<Alternative> {
    let Some(size) = place.table.size(place.id) else { return Vec::new() };
    let line = place.line.bytes();
    let offset = |at: usize| place.rows.list.get(at).map_or(0, |row| row.field.offset);
    let later = if offset(a) >= offset(b) { a } else { b };
    let up = |bytes: u64| bytes.checked_next_multiple_of(line).unwrap_or(bytes);
    let gap = up(offset(later)) - offset(later);
    // An object of the type is aligned to a line then, and as long as some lines.
    let after = up(size.saturating_add(gap));
    vec![Alternative {
        advice: format!("aligned({line}) on {}", path(place, later)),
        size: after,
        lines: after / line,
        cost_bytes: after.saturating_sub(size),
    }]
}

fn adjacent(place: &Place<'_, '_>, piece: usize, paired: &[(usize, Share)]) -> Option<(u32, Finding)> {
    let row = place.rows.list.get(piece)?;
    let (first, share) = paired.iter().copied().max_by(|a, b| a.1.cmp_exact(b.1).then(b.0.cmp(&a.0)))?;
    let at = if share.at == share.of { String::new() } else { format!(", at {} of {} bases", share.at, share.of) };
    let others = paired.iter().filter_map(|(at, _)| Some(subject(place, &place.rows.list.get(*at)?.field)));
    let pair = 2 * place.line.bytes();
    let finding = Finding {
        others: others.collect(),
        advice: format!("{ADVICE}{at}: {pair} bytes between {} and {}", path(place, piece), path(place, first)),
        ..Finding::about("adjacent-lines", Severity::Info, Evidence::Typed, subject(place, &row.field))
    };
    Some((4, finding))
}

/// Rule `shared-elements`, of members that are arrays.
fn elements(place: &Place<'_, '_>, marks: &[Mark], found: &mut Vec<(u32, Finding)>) {
    let whole = place.table.size(place.id).unwrap_or(0);
    for (row, mark) in place.rows.list.iter().zip(marks).filter(|(_, mark)| !mark.inside && !mark.pad) {
        let start = place.span(row.field.offset, 0).start;
        let sharing = Sharing::of(place.table, row.field.type_id, row.field.size, start, place.line);
        let Some(sharing) = sharing.filter(|_| mark.group.is_none()) else { continue };
        let finding = sharing.finding(place.table, subject(place, &row.field), whole, place.line);
        found.push((sharing.rank().1, finding));
    }
}

/// Rule `shared-tail`.
fn tails(place: &Place<'_, '_>, found: &mut Vec<(u32, Finding)>) {
    if !place.known() {
        return;
    }
    for level in place.table.levels(place.id) {
        for field in &level {
            let others = shared_tail::on_tail(place.line, Addr(place.at), field, &level, place.table);
            let others: Vec<Subject> = others.into_iter().map(|f| subject(place, f)).collect();
            if !others.is_empty() {
                found.push((60, shared_tail::finding(place.line, Severity::Low, subject(place, field), others)));
            }
        }
    }
}

/// Rule `straddle`: where all objects have one phase, members on two lines, the outermost of each; where they do not,
/// only atomics that are on two lines at some, which their alignment should rule out.
fn straddles(place: &Place<'_, '_>, marks: &[Mark], found: &mut Vec<(u32, Finding)>) {
    let mut told: Vec<usize> = Vec::new();
    for (at, (row, mark)) in place.rows.list.iter().zip(marks).enumerate() {
        let span = span_of(place, at);
        let split = mark.piece.is_some_and(|how| straddle::splits(span.size, how));
        let here = if place.known() { span.straddles(place.line) } else { split };
        if !here || mark.pad || mark.overlaps || told.iter().any(|outer| place.rows.within(at, *outer)) {
            continue;
        }
        let places = sensitivity(span, &[], place.step, place.line);
        if places.straddles == 0 {
            continue;
        }
        // What holds a lock on two lines is told by the lock.
        let inner = |inside: usize| {
            place.rows.within(inside, at) && inside != at && span_of(place, inside).straddles(place.line)
        };
        if place.known()
            && row.opened
            && mark.piece.is_none()
            && (at + 1..marks.len()).take_while(|i| place.rows.within(*i, at)).any(inner)
        {
            continue;
        }
        told.push(at);
        let (severity, weight) = match mark.piece {
            Some(_) if split && places.straddles == places.of => (Severity::High, 50),
            Some(_) if split => (Severity::Medium, 45),
            Some(_) => (Severity::Low, 45),
            None => (Severity::Info, 2),
        };
        found.push((weight, straddling(place, row, span, split, severity)));
    }
}

fn straddling(place: &Place<'_, '_>, row: &Row<'_>, span: Span, split: bool, severity: Severity) -> Finding {
    let align = span.size.next_power_of_two();
    let places = sensitivity(span, &[], place.step, place.line);
    let at = if place.known() { String::new() } else { format!(" at {} of {} bases", places.straddles, places.of) };
    let why = if split { "; a locked access to both lines at once is a split lock" } else { "" };
    Finding {
        advice: format!("on two lines{at}: aligned({align}) keeps all {} bytes on one{why}", span.size),
        cost_bytes: row.field.offset.checked_next_multiple_of(align).map(|up| up - row.field.offset),
        sensitivity: Some(places),
        ..Finding::about("straddle", severity, Evidence::Typed, subject(place, &row.field))
    }
}
