//! Rule `shared-line`: two or more writable objects on one line. When one CPU writes one of them, the others' users
//! miss. Symbols do not say who writes what, so at this tier it is a place to look, no more.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::layout::Lines;
use crate::objects::{Object, Space, contended_by_name};

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
        // Per-CPU and thread-local lines are private copies, and what nobody writes can be shared freely.
        let mut writable: Vec<(u32, &Object<'_>)> = all.filter(|(_, o)| o.class.writable()).collect();
        if writable.len() < 2 {
            *skipped.entry("shared lines without two writable objects".to_string()).or_insert(0) += 1;
            continue;
        }
        // The subject is the likeliest to be written: by name, then the smallest, then the first.
        writable.sort_by_key(|(_, o)| (!contended_by_name(o.name), o.span.size, o.span.start));
        let (severity, weight) = rank(&writable, lines);
        let Some(((index, first), others)) = writable.split_first() else { continue };
        let Some(subject) = seen.subject(*index) else { continue };
        let line = lines.line.bytes();
        let phase = u64::from(lines.line.phase_of(first.span.start).0);
        ranked.push(Ranked {
            weight,
            finding: Finding {
                rule: "shared-line",
                severity,
                evidence: Evidence::Static,
                subject,
                others: others.iter().filter_map(|(i, _)| seen.subject(*i)).collect(),
                readers: None,
                writers: None,
                advice: format!(
                    "if CPUs write {} while others use the rest: aligned({line}) on it and on what follows",
                    first.name
                ),
                // The gap in front of it and the rest of its last line, where it lies now.
                cost_bytes: Some((line - phase) % line + seen.rest_of_line(first.span.size)),
            },
        });
    }
}

/// Two names that sound contended matter more than one; an object of one word, alone with one other, more than a
/// crowd of small flags.
fn rank(writable: &[(u32, &Object<'_>)], lines: &Lines<'_>) -> (Severity, u32) {
    let named = writable.iter().filter(|(_, o)| contended_by_name(o.name)).count();
    let words = writable.iter().filter(|(_, o)| o.span.size <= lines.line.bytes() / 2).count();
    let pair = u32::from(writable.len() == 2);
    match named {
        0 => (Severity::Info, pair),
        1 => (Severity::Info, 10 + pair),
        _ => (Severity::Low, 20 + 2 * u32::try_from(named.min(words)).unwrap_or(0).min(4) + pair),
    }
}
