//! Rule `split-access`: an instruction reaches over the end of a line. A locked one stops the bus for all CPUs (a split
//! lock; some kernels kill the program). *Actual*: it does so where the object lies now. *Latent*: nothing but luck keeps
//! it from doing so: the access is wider than the alignment that the object is sure to have (`set_bit` on a `u32`).

use std::collections::BTreeMap;

use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::heat::{Access, Kind};
use crate::objects::{Class, Object};
use crate::units::{Addr, Span};

/// Wider accesses copy, and do so by the line.
const WORD: u64 = 8;

pub(super) fn find(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) {
    for (index, object) in (0u32..).zip(&seen.lines.objects) {
        if matches!(object.class, Class::Thread | Class::NotLoaded | Class::Metadata(_)) {
            continue;
        }
        let mut worst: BTreeMap<(Severity, u64, u32), (&Access, bool)> = BTreeMap::new();
        for access in seen.heat.of(index).iter().filter(|a| a.width > 1) {
            if let Some((severity, actual)) = judge(seen, index, object, access) {
                worst.entry((severity, access.offset, access.width)).or_insert((access, actual));
            }
        }
        let Some(((severity, ..), (access, actual))) = worst.into_iter().next() else { continue };
        let Some(subject) = seen.subject(index) else { continue };
        let width = u64::from(access.width);
        let align = width.next_power_of_two();
        let phase = u64::from(subject.phase.0);
        let function = seen.heat.function(access.function).map_or("?", |f| f.name);
        let what = match (access.kind, actual) {
            (Kind::Atomic, true) => "an actual split lock",
            (Kind::Atomic, false) => "a latent split lock: well placed by luck",
            _ => "an actual split access",
        };
        let place = if access.indexed {
            format!("from byte {} on", access.offset)
        } else {
            format!("at byte {}", access.offset)
        };
        ranked.push(Ranked {
            index,
            weight: 70,
            finding: Finding {
                advice: format!(
                    "{what}: {function} makes an access of {width} bytes {place}; aligned({align}) ends it"
                ),
                cost_bytes: Some((align - phase % align) % align),
                accesses: seen
                    .uses(index, Span { start: Addr(object.span.start.0.saturating_add(access.offset)), size: width }),
                ..Finding::about("split-access", severity, Evidence::Decoded, subject)
            },
        });
    }
}

/// How bad, and whether it happens where the object lies now.
fn judge(seen: &Seen<'_, '_>, index: u32, object: &Object<'_>, access: &Access) -> Option<(Severity, bool)> {
    let (line, width) = (seen.lines.line, u64::from(access.width));
    let locked = access.kind == Kind::Atomic;
    let first = object.span.start.0.checked_add(access.offset)?;
    // An index that is not known: any place a whole number of accesses on. The pattern repeats after a line.
    let places = if access.indexed {
        (object.span.size.saturating_sub(access.offset) / width).clamp(1, line.bytes())
    } else {
        1
    };
    let crosses = |n: u64| Span { start: Addr(first.saturating_add(n * width)), size: width }.straddles(line);
    let actual = width <= line.bytes() && (0..places).any(crosses);
    if actual {
        let severity = if locked { Severity::High } else { Severity::Info };
        return (locked || (width <= WORD && !access.indexed)).then_some((severity, true));
    }
    seen.type_of(index)?;
    let offset = access.offset;
    let sure = seen.step(index, object).bytes().min(if offset == 0 { u64::MAX } else { 1 << offset.trailing_zeros() });
    let loose = width.is_power_of_two() && width <= line.bytes() && sure < width;
    (locked && loose).then_some((Severity::Low, false))
}
