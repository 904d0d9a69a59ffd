//! Rule `straddle`: an object that would fit a line lies on two. Every use of it may cost two misses instead of one. An
//! atomic that does so itself is worse: a locked access to it stops the bus (a split lock).

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, silent};
use crate::finding::{Evidence, Finding, Severity};
use crate::image::Sizes;
use crate::objects::{Class, Object, contended_by_name};
use crate::types::Contention;

/// `apart`: arrays whose elements should not share a line; to keep them on one would be the opposite advice. `all`:
/// metadata and what is dead after start too.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    (apart, all): (&BTreeSet<u32>, bool),
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    let line = seen.lines.line;
    for (index, object) in (0u32..).zip(&seen.lines.objects).filter(|(_, o)| o.span.straddles(line)) {
        let better = apart.contains(&index).then_some("straddling, but its elements are better on lines of their own");
        if let Some(reason) = silent(object.class, all).or(better) {
            *skipped.entry(reason.to_string()).or_insert(0) += 1;
            continue;
        }
        let Some(subject) = seen.subject(index) else { continue };
        let (severity, evidence, weight) = rank(seen, index, object);
        let align = object.span.size.next_power_of_two();
        let phase = u64::from(line.phase_of(object.span.start).0);
        let split =
            if severity == Severity::High { "; a locked access to both lines at once is a split lock" } else { "" };
        ranked.push(Ranked {
            index,
            weight,
            finding: Finding {
                advice: match seen.image.sizes {
                    Sizes::Exact => format!("aligned({align}) keeps all {} bytes on one line{split}", object.span.size),
                    Sizes::UpTo => format!(
                        "if it is larger than the {} bytes to the line's end: aligned({align}) keeps it on one line{split}",
                        line.bytes() - phase
                    ),
                },
                // The gap in front of it, where it lies now.
                cost_bytes: Some((align - phase % align) % align),
                ..Finding::about("straddle", severity, evidence, subject)
            },
        });
    }
}

fn rank(seen: &Seen<'_, '_>, index: u32, object: &Object<'_>) -> (Severity, Evidence, u32) {
    let pieces = if object.class.writable() || object.class == Class::PerCpu { seen.pieces(index) } else { &[] };
    if pieces.iter().any(|piece| splits(piece.span.size, piece.how) && piece.span.straddles(seen.lines.line)) {
        return (Severity::High, Evidence::Typed, 40);
    }
    let contended = pieces.iter().any(|piece| piece.how > Contention::Volatile);
    match object.class {
        Class::ReadOnly | Class::ReadOnlyAfterInit => (Severity::Info, Evidence::Static, 0),
        _ if silent(object.class, false).is_some() => (Severity::Info, Evidence::Static, 0),
        _ if contended => (Severity::Low, Evidence::Typed, 45),
        _ if contended_by_name(object.name) => (Severity::Low, Evidence::Static, 40),
        Class::PerCpu => (Severity::Low, Evidence::Static, 20),
        _ => (Severity::Info, Evidence::Static, 20),
    }
}

/// One access reaches all of it: an atomic of at most two words.
pub(super) fn splits(size: u64, how: Contention) -> bool {
    how == Contention::Atomic && size <= 16
}
