//! Rule `shared-elements`: an array whose elements threads write, several elements to a line. To align the start of the
//! array moves it off its neighbours' lines; the elements still share theirs (valkey's counters of I/O threads, 2024
//! and 2026). Plain integers are not reported: nothing says that several threads write them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ranked, Seen, room};
use crate::finding::{Alternative, Evidence, Finding, Severity, Subject};
use crate::layout::most_on_a_line;
use crate::types::{Contention, Elements, Field, Kind, Member, TypeId, TypeTable};
use crate::units::{Addr, LineSize};

/// Returns the objects that are such an array as a whole, by index.
pub(super) fn find(
    seen: &Seen<'_, '_>,
    ranked: &mut Vec<Ranked>,
    skipped: &mut BTreeMap<String, u64>,
) -> BTreeSet<u32> {
    let (mut told, line) = (BTreeSet::new(), seen.lines.line);
    for (index, object, table, id) in seen.typed() {
        if !room(ranked, skipped) {
            continue;
        }
        let whole = Field { path: Vec::new(), offset: 0, size: Some(object.span.size), align: None, type_id: id };
        let members = table.levels(id).into_iter().flatten();
        for field in std::iter::once(whole).chain(members) {
            let start = Addr(object.span.start.0.saturating_add(field.offset));
            let Some(sharing) = Sharing::of(table, field.type_id, field.size, start, line) else { continue };
            let Some(subject) = seen.member(index, &field) else { continue };
            if field.path.is_empty() {
                told.insert(index);
            }
            let finding = sharing.finding(table, subject, object.span.size, line);
            ranked.push(Ranked { index, weight: sharing.rank().1, finding });
        }
    }
    told
}

/// An array that several threads may write, with several elements on one of its lines.
pub(super) struct Sharing {
    pub(super) elements: Elements,
    /// On the fullest line.
    pub(super) on_line: u64,
    how: Contention,
    /// The elements are atomics or locks themselves, not structs that hold one.
    direct: bool,
}

impl Sharing {
    /// `whole` is the size of the array, where its type does not say.
    pub(super) fn of(
        table: &TypeTable<'_>,
        id: TypeId,
        whole: Option<u64>,
        start: Addr,
        line: LineSize,
    ) -> Option<Sharing> {
        let elements = table.elements(id, whole).filter(|e| e.count > 1 && e.stride > 0)?;
        // `volatile int a[4]` is an array of volatile elements, in every compiler's words.
        let how = table.contention(elements.of)?;
        let on_line = most_on_a_line(line, start, elements.count, elements.stride);
        let direct = table.contended_piece(elements.of).is_some();
        (on_line > 1).then_some(Sharing { elements, on_line, how, direct })
    }

    /// `whole`: the size of the object that holds the array.
    pub(super) fn finding(&self, table: &TypeTable<'_>, subject: Subject, whole: u64, line: LineSize) -> Finding {
        let Elements { count, stride, .. } = self.elements;
        let (bytes, on_line) = (line.bytes(), self.on_line);
        let gap = (bytes - u64::from(subject.phase.0)) % bytes;
        let strides = self.strides(table, bytes);
        let cost = |apart: u64| count.saturating_mul(apart.saturating_sub(stride)).saturating_add(gap);
        let price = strides.first().map(|(_, apart)| cost(*apart));
        // The struct that holds it ends on a line's boundary then.
        let alternatives = strides.into_iter().map(|(advice, apart)| {
            let size = count.saturating_mul(apart).saturating_add(whole.saturating_sub(count.saturating_mul(stride)));
            let size = size.checked_next_multiple_of(bytes).unwrap_or(size);
            Alternative { advice, size, lines: size / bytes, cost_bytes: size.saturating_sub(whole) }
        });
        Finding {
            advice: format!(
                "{count} elements of {stride} bytes, {on_line} on one line; an aligned start does not separate them: if \
                 threads write their own, one line each (aligned({bytes}) on the element) costs {} bytes",
                price.unwrap_or_default()
            ),
            cost_bytes: price,
            alternatives: alternatives.collect(),
            ..Finding::about("shared-elements", self.rank().0, Evidence::Typed, subject)
        }
    }

    /// What may be aligned, and how far apart the elements are then: the element, or a member of it, which separates
    /// what is contended in an element from the rest too.
    fn strides(&self, table: &TypeTable<'_>, line: u64) -> Vec<(String, u64)> {
        let up = |bytes: u64| bytes.checked_next_multiple_of(line).unwrap_or(bytes);
        let mut out = vec![(format!("aligned({line}) on the element"), up(self.elements.stride))];
        let Some(Kind::Struct(members)) = table.bare(self.elements.of).map(|t| &t.kind) else { return out };
        let contended = |m: &Member<'_>| table.contention(m.type_id).is_some();
        let boundary = members.windows(2).find_map(|pair| match pair {
            [before, after] if contended(before) != contended(after) && after.offset > 0 => Some(after),
            _ => None,
        });
        if let Some((name, offset)) = boundary.and_then(|m| Some((m.name?, m.offset))) {
            let moved = up(offset) - offset;
            out.push((
                format!("aligned({line}) on {name} in the element"),
                up(self.elements.stride.saturating_add(moved)),
            ));
        }
        out
    }

    pub(super) fn rank(&self) -> (Severity, u32) {
        rank(self.how, self.direct, self.elements.count)
    }
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
