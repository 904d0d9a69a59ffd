//! Rule `misaligned`: an object whose declaration asks for an alignment that its address does not have (a linker script
//! or an assembler overruled it). By itself no sharing: whether lines are shared is the other rules' affair.

use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::units::Align;

pub(super) fn find(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) {
    for (index, object, table, id) in seen.typed() {
        let asked = table.asked_align(seen.declared(index).and_then(|d| d.variable.align), id);
        let Some(asked) = asked.and_then(Align::new) else { continue };
        let address = object.span.start.0;
        // In a file that is not linked, addresses count from a section that itself is aligned.
        let rest = address % asked.bytes();
        if rest == 0 {
            continue;
        }
        let Some(subject) = seen.subject(index) else { continue };
        ranked.push(Ranked {
            index,
            weight: 5,
            finding: Finding {
                advice: format!(
                    "declared aligned({0}), yet {rest} bytes past a multiple of {0}: see how it was linked",
                    asked.bytes()
                ),
                cost_bytes: Some(asked.bytes() - rest),
                ..Finding::about("misaligned", Severity::Info, Evidence::Typed, subject)
            },
        });
    }
}
