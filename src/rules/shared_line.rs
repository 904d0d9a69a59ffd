//! Rule `shared-line`: two or more writable objects on one line. When one CPU writes one of them, the others' users
//! miss. Symbols do not say who writes what, so at this tier it is a place to look, no more.

use std::collections::BTreeMap;

use super::{Ranked, subject};
use crate::finding::{Evidence, Finding, Severity};
use crate::image::Image;
use crate::layout::Lines;
use crate::objects::{Object, contended_by_name};
use crate::units::Align;

pub(super) fn find(
    image: &Image<'_>,
    lines: &Lines<'_>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    for shared in lines.shared() {
        let all = shared.objects.iter().filter_map(|&i| lines.object(i));
        // Per-CPU and thread-local lines are private copies, and what nobody writes can be shared freely.
        let mut writable: Vec<&Object<'_>> = all.filter(|o| o.class.writable()).collect();
        if writable.len() < 2 {
            *skipped.entry("shared lines without two writable objects".to_string()).or_insert(0) += 1;
            continue;
        }
        // The subject is the likeliest to be written: by name, then the smallest, then the first.
        writable.sort_by_key(|o| (!contended_by_name(o.name), o.span.size, o.span.start));
        let (severity, weight) = rank(&writable, lines);
        let Some((first, others)) = writable.split_first() else { continue };
        let line = lines.line.bytes();
        ranked.push(Ranked {
            weight,
            finding: Finding {
                rule: "shared-line",
                severity,
                evidence: Evidence::Static,
                subject: subject(image, lines, first),
                others: others.iter().map(|o| subject(image, lines, o)).collect(),
                readers: None,
                writers: None,
                advice: format!(
                    "if CPUs write {} while others use the rest: aligned({line}) on it and on what follows",
                    first.name
                ),
                cost_bytes: Some(isolation_cost(first, lines)),
            },
        });
    }
}

/// Two names that sound contended matter more than one; an object of one word, alone with one other, more than a
/// crowd of small flags.
fn rank(writable: &[&Object<'_>], lines: &Lines<'_>) -> (Severity, u32) {
    let named = writable.iter().filter(|o| contended_by_name(o.name)).count();
    let words = writable.iter().filter(|o| o.span.size <= lines.line.bytes() / 2).count();
    let pair = u32::from(writable.len() == 2);
    match named {
        0 => (Severity::Info, pair),
        1 => (Severity::Info, 10 + pair),
        _ => (Severity::Low, 20 + 2 * u32::try_from(named.min(words)).unwrap_or(0).min(4) + pair),
    }
}

/// The gap in front of it and the rest of its last line, where it lies now.
fn isolation_cost(object: &Object<'_>, lines: &Lines<'_>) -> u64 {
    let line = lines.line.bytes();
    let up = |bytes: u64| Align::new(line).map_or(bytes, |a| a.up(bytes));
    let phase = u64::from(lines.line.phase_of(object.span.start).0);
    (line - phase) % line + (up(object.span.size) - object.span.size)
}
