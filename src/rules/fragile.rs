//! Rule `fragile`, asked for by `--sort fragile`: a contended object that lies well today, and would not at some of the
//! places that an unrelated change upstream can give it.

use std::collections::BTreeSet;

use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::objects::contended_by_name;

/// What already has a finding lies badly today.
pub(super) fn find(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) {
    let told: BTreeSet<u32> = ranked.iter().map(|r| r.index).collect();
    for (index, object) in (0u32..).zip(&seen.lines.objects) {
        if !object.class.writable() || seen.lines.is_nested(index) || told.contains(&index) {
            continue;
        }
        let typed = !seen.pieces(index).is_empty();
        let named = seen.type_of(index).is_none() && contended_by_name(object.name);
        if !(typed || named) {
            continue;
        }
        let Some(sensitivity) = seen.sensitivity(index, object.span, &[]).filter(|s| s.either > 0) else { continue };
        let Some(subject) = seen.subject(index) else { continue };
        let line = seen.lines.line.bytes();
        let align = if sensitivity.meets > 0 { line } else { object.span.size.next_power_of_two().min(line) };
        let phase = u64::from(subject.phase.0);
        let evidence = if typed { Evidence::Typed } else { Evidence::Static };
        ranked.push(Ranked {
            index,
            weight: 1,
            finding: Finding {
                advice: format!(
                    "by luck: of {} places that a change upstream may give it, it straddles at {} and meets a contended \
                     neighbour at {}; aligned({align}) ends it",
                    sensitivity.of, sensitivity.straddles, sensitivity.meets
                ),
                cost_bytes: Some((align - phase % align) % align),
                ..Finding::about("fragile", Severity::Info, evidence, subject)
            },
        });
    }
}
