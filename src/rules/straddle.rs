//! Rule `straddle`: an object that would fit a line lies on two. Every use of it may cost two misses instead of one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, silent};
use crate::finding::{Evidence, Finding, Severity};
use crate::objects::{Class, Object, contended_by_name};

/// `apart`: arrays whose elements should not share a line; to keep them on one would be the opposite advice.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    apart: &BTreeSet<u32>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    let line = seen.lines.line;
    for (index, object) in (0u32..).zip(&seen.lines.objects).filter(|(_, o)| o.span.straddles(line)) {
        let better = apart.contains(&index).then_some("straddling, but its elements are better on lines of their own");
        if let Some(reason) = silent(object.class).or(better) {
            *skipped.entry(reason.to_string()).or_insert(0) += 1;
            continue;
        }
        let Some(subject) = seen.subject(index) else { continue };
        let (severity, weight) = rank(object);
        let align = object.span.size.next_power_of_two();
        let phase = u64::from(line.phase_of(object.span.start).0);
        ranked.push(Ranked {
            weight,
            finding: Finding {
                rule: "straddle",
                severity,
                evidence: Evidence::Static,
                subject,
                others: Vec::new(),
                readers: None,
                writers: None,
                advice: format!("aligned({align}) keeps all {} bytes on one line", object.span.size),
                // The gap in front of it, where it lies now.
                cost_bytes: Some((align - phase % align) % align),
            },
        });
    }
}

fn rank(object: &Object<'_>) -> (Severity, u32) {
    let named = contended_by_name(object.name);
    match object.class {
        Class::ReadOnly | Class::ReadOnlyAfterInit => (Severity::Info, 0),
        _ if named => (Severity::Low, 40),
        Class::PerCpu => (Severity::Low, 20),
        _ => (Severity::Info, 20),
    }
}
