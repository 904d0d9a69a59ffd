//! Rule `shared-elements`: an array whose elements threads write, several elements to a line. To align the start of the
//! array moves it off its neighbours' lines; the elements still share theirs (valkey's counters of I/O threads, 2024
//! and 2026). Plain integers are not reported: nothing says that several threads write them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, room};
use crate::finding::{Evidence, Finding, Severity};
use crate::layout::most_on_a_line;
use crate::types::{Contention, Elements, Field, TypeId, TypeTable};
use crate::units::{Addr, Align};

/// Returns the objects that are such an array as a whole, by index.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) -> BTreeSet<u32> {
    let mut told = BTreeSet::new();
    for (index, object, table, id) in seen.typed() {
        if !room(ranked, skipped) {
            continue;
        }
        let whole = Field { path: Vec::new(), offset: 0, size: Some(object.span.size), align: None, type_id: id };
        let members = table.levels(id).into_iter().flatten();
        for field in std::iter::once(whole).chain(members) {
            let Some((elements, how, direct)) = written(table, field.type_id, field.size) else { continue };
            let start = Addr(object.span.start.0.saturating_add(field.offset));
            let on_line = most_on_a_line(seen.lines.line, start, elements.count, elements.stride);
            if on_line < 2 {
                continue;
            }
            let Some(subject) = seen.member(index, &field) else { continue };
            let line = seen.lines.line.bytes();
            let apart = Align::new(line).map_or(line, |a| a.up(elements.stride));
            let gap = (line - u64::from(subject.phase.0)) % line;
            let cost = elements.count.saturating_mul(apart - elements.stride).saturating_add(gap);
            let (severity, weight) = rank(how, direct, elements.count);
            let Elements { count, stride, .. } = elements;
            if field.path.is_empty() {
                told.insert(index);
            }
            ranked.push(Ranked {
                weight,
                finding: Finding {
                    rule: "shared-elements",
                    severity,
                    evidence: Evidence::Typed,
                    subject,
                    others: Vec::new(),
                    readers: None,
                    writers: None,
                    advice: format!(
                        "{count} elements of {stride} bytes, {on_line} on one line; an aligned start does not \
                         separate them: if threads write their own, one line each (aligned({line}) on the element) \
                         costs {cost} bytes"
                    ),
                    cost_bytes: Some(cost),
                },
            });
        }
    }
    told
}

/// An array whose elements several threads may write, why, and whether the elements are atomics or locks themselves
/// (not structs that hold one).
fn written(table: &TypeTable<'_>, id: TypeId, whole: Option<u64>) -> Option<(Elements, Contention, bool)> {
    let elements = table.elements(id, whole).filter(|e| e.count > 1 && e.stride > 0)?;
    // `volatile int a[4]` is an array of volatile elements, in every compiler's words.
    let how = table.contention(elements.of)?;
    Some((elements, how, table.contended_whole(elements.of)))
}

/// More elements than threads: a table of locks by hash, where sharing is a matter of chance.
const TABLE: u64 = 1024;

fn rank(how: Contention, direct: bool, count: u64) -> (Severity, u32) {
    match how {
        _ if count > TABLE => (Severity::Info, 30),
        Contention::Volatile => (Severity::Low, 50),
        Contention::Atomic | Contention::Lock if direct => (Severity::Medium, 50),
        Contention::Atomic | Contention::Lock => (Severity::Low, 55),
    }
}
