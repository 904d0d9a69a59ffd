//! Rule `shared-line`: two or more writable objects on one line. When one CPU writes one of them, the others' users
//! miss. Code says who writes which; where it does not, types say which are locks or atomics; where they are not known
//! it is a place to look, no more. Where another is only read while the program runs, the rule is `write-beside-read`.

use std::collections::{BTreeMap, BTreeSet};

use super::contest::{self, Piece};
use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::image::Sizes;
use crate::objects::{Object, Space, contended_by_name, pad_by_name};
use crate::types::Contention;

/// An object on a line, and what is contended in its bytes there.
struct On<'s, 'i> {
    index: u32,
    object: &'s Object<'i>,
    how: Option<Contention>,
}

/// `told`: lines that another rule has said more about.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    told: &BTreeSet<(Space, u64)>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    let lines = seen.lines;
    for shared in lines.shared().into_iter().filter(|l| !told.contains(&(l.space, l.number))) {
        let all = shared.objects.iter().filter_map(|&i| Some((i, lines.object(i)?)));
        // Whether one reaches a line behind its first is not known where its size is not.
        let sure =
            |o: &Object<'_>| seen.image.sizes == Sizes::Exact || lines.line.line_of(o.span.start) == shared.number;
        let all = all.filter(|(_, o)| sure(o));
        // Per-CPU and thread-local lines are private copies, and what nobody writes can be shared freely.
        let all = all.filter(|(_, o)| o.class.writable() && !pad_by_name(o.name));
        let on = |(index, object)| On { index, object, how: seen.contended_on(index, shared.number) };
        let mut writable: Vec<On<'_, '_>> = all.map(on).collect();
        if writable.len() < 2 {
            *skipped.entry("shared lines without two writable objects".to_string()).or_insert(0) += 1;
            continue;
        }
        if let Some(decided) = decoded(seen, &writable, shared.number) {
            ranked.push(decided);
            continue;
        }
        // The subject is the likeliest to be written: by type, by name, then the smallest, then the first.
        let key = |o: &On<'_, '_>| {
            (std::cmp::Reverse(o.how), !contended_by_name(o.object.name), o.object.span.size, o.object.span.start)
        };
        writable.sort_by_key(key);
        let (severity, evidence, weight) = rank(seen, &writable);
        let Some((first, others)) = writable.split_first() else { continue };
        let Some(subject) = seen.subject(first.index) else { continue };
        let line = lines.line.bytes();
        let phase = u64::from(lines.line.phase_of(first.object.span.start).0);
        let name = first.object.name;
        let advice = match others.first().filter(|o| first.how.is_some() && o.how.is_some()) {
            Some(other) => format!(
                "{name} and {} are both contended: aligned({line}) on each, and on what follows",
                other.object.name
            ),
            None => {
                format!("if CPUs write {name} while others use the rest: aligned({line}) on it and on what follows")
            }
        };
        ranked.push(Ranked {
            index: first.index,
            weight,
            finding: Finding {
                others: others.iter().filter_map(|o| seen.subject(o.index)).collect(),
                advice,
                // The gap in front of it and the rest of its last line, where it lies now.
                cost_bytes: Some((line - phase) % line + seen.rest_of_line(first.object.span.size)),
                ..Finding::about("shared-line", severity, evidence, subject)
            },
        });
    }
}

/// What code says of a line. `None` where it does not touch two of its objects.
fn decoded(seen: &Seen<'_, '_>, on: &[On<'_, '_>], number: u64) -> Option<Ranked> {
    let piece = |o: &On<'_, '_>| Piece::of(seen, o.index, seen.subject(o.index)?, (o.how, number));
    let pieces: Vec<Piece> = on.iter().filter_map(piece).collect();
    if let Some(contest) = contest::worst(&pieces) {
        let written = contest.written;
        let line = seen.lines.line.bytes();
        let rule = if contest.read_mostly() { "write-beside-read" } else { "shared-line" };
        let before = (line - u64::from(written.subject.phase.0)) % line;
        let advice = format!("{}: aligned({line}) on {} and on what follows", contest.told(seen), written.subject.name);
        let told = std::iter::once(written).chain(contest.others.iter().take(3).map(|(o, _)| *o));
        let finding = Finding {
            others: contest.all_others(),
            advice,
            cost_bytes: Some(before + seen.rest_of_line(written.subject.size)),
            accesses: told.flat_map(|p| seen.uses(p.index, p.span)).collect(),
            ..Finding::about(rule, contest.severity(), Evidence::Decoded, written.subject.clone())
        };
        return Some(Ranked { index: written.index, weight: contest.weight(), finding });
    }
    let touched: Vec<&Piece> = pieces.iter().filter(|p| p.users.touch()).collect();
    let (first, others) = touched.split_first().filter(|(_, others)| !others.is_empty())?;
    let written = touched.iter().any(|p| !p.users.writers.is_empty());
    let why = if written { "the same functions use them" } else { "no function writes one of them after start" };
    let finding = Finding {
        others: others.iter().map(|o| o.subject.clone()).collect(),
        advice: format!("nothing to do as far as code tells: {why}"),
        ..Finding::about("shared-line", Severity::Info, Evidence::Decoded, first.subject.clone())
    };
    Some(Ranked { index: first.index, weight: 0, finding })
}

/// Two that are contended by type matter most, then one beside what another file declares: beside its own file's it
/// may be the lock of what it guards. By names alone, two that sound contended matter more than one, and an object of
/// one word, alone with one other, more than a crowd of small flags.
fn rank(seen: &Seen<'_, '_>, writable: &[On<'_, '_>]) -> (Severity, Evidence, u32) {
    let named = writable.iter().filter(|o| contended_by_name(o.object.name)).count();
    let words = writable.iter().filter(|o| o.object.span.size <= seen.lines.line.bytes() / 2).count();
    let small = 2 * u32::try_from(named.min(words)).unwrap_or(0).min(4);
    let pair = u32::from(writable.len() == 2);
    let strong = writable.iter().filter(|o| o.how > Some(Contention::Volatile)).count();
    let contended = writable.iter().filter(|o| o.how.is_some()).count();
    let file = |o: &On<'_, '_>| seen.subject(o.index).and_then(|s| s.file);
    let one_file =
        || writable.first().and_then(file).is_some_and(|f| writable.iter().all(|o| file(o).as_ref() == Some(&f)));
    match (strong, contended, named) {
        (2.., ..) => (Severity::Medium, Evidence::Typed, 40 + small + pair),
        (1, 2.., _) => (Severity::Low, Evidence::Typed, 50 + small + pair),
        (0, 2.., _) => (Severity::Low, Evidence::Typed, 30 + small + pair),
        (1, ..) if !one_file() => (Severity::Low, Evidence::Typed, 35 + small + pair),
        (_, 1, _) => (Severity::Info, Evidence::Typed, 15 + pair),
        (.., 0) => (Severity::Info, Evidence::Static, pair),
        (.., 1) => (Severity::Info, Evidence::Static, 10 + pair),
        _ => (Severity::Low, Evidence::Static, 20 + small + pair),
    }
}
