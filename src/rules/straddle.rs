//! Rule `straddle`: an object that would fit a line lies on two. Every use of it may cost two misses instead of one.

use std::collections::BTreeMap;

use super::{Ranked, silent, subject};
use crate::finding::{Evidence, Finding, Severity};
use crate::image::Image;
use crate::layout::Lines;
use crate::objects::{Class, Object, contended_by_name};

pub(super) fn find(
    image: &Image<'_>,
    lines: &Lines<'_>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) {
    for object in lines.objects.iter().filter(|o| o.span.straddles(lines.line)) {
        if let Some(reason) = silent(object.class) {
            *skipped.entry(reason.to_string()).or_insert(0) += 1;
            continue;
        }
        let (severity, weight) = rank(object);
        let align = object.span.size.next_power_of_two();
        let phase = u64::from(lines.line.phase_of(object.span.start).0);
        ranked.push(Ranked {
            weight,
            finding: Finding {
                rule: "straddle",
                severity,
                evidence: Evidence::Static,
                subject: subject(image, lines, object),
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
