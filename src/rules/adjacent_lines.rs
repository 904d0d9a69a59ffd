//! Rule `adjacent-lines`, asked for by `--double-cl`: two contended objects on the two lines of one pair (2N and 2N+1,
//! never 2N+1 and 2N+2). They share no line; where a prefetcher fetches pairs, each one's users fetch the other's line
//! too. Some machines do so, some do not, and firmware may switch it off: never more than a hint.

use std::collections::BTreeMap;

use super::{Ranked, Seen};
use crate::finding::{Evidence, Finding, Severity};
use crate::objects::{Space, contended_by_name};

pub(super) const ADVICE: &str = "only where a prefetcher fetches pairs of lines (x86's adjacent-line prefetcher)";

pub(super) fn find(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) {
    let line = seen.lines.line;
    // Contended objects by line, each once a line.
    let mut on: BTreeMap<(Space, u64), Vec<u32>> = BTreeMap::new();
    for (index, object) in (0u32..).zip(&seen.lines.objects).filter(|(_, o)| o.class.writable()) {
        if seen.lines.is_nested(index) {
            continue;
        }
        let mut add = |number| {
            let list = on.entry((object.space, number)).or_default();
            if list.last() != Some(&index) {
                list.push(index);
            }
        };
        for piece in seen.pieces(index) {
            let lines = piece.span.lines(line);
            // A long array has its ends beside others, not its middle.
            add(*lines.start());
            add(*lines.end());
        }
        if seen.type_of(index).is_none() && contended_by_name(object.name) {
            let lines = object.span.lines(line);
            add(*lines.start());
            add(*lines.end());
        }
    }
    for ((space, number), first) in on.iter().filter(|((_, number), _)| number % 2 == 0) {
        let Some(second) = on.get(&(*space, number + 1)) else { continue };
        // What is on both lines is no pair of two.
        let only =
            |list: &[u32], other: &[u32]| list.iter().filter(|i| !other.contains(i)).copied().collect::<Vec<u32>>();
        let (first, second) = (only(first, second), only(second, first));
        let (Some(&index), false) = (first.first(), second.is_empty()) else { continue };
        let Some(subject) = seen.subject(index) else { continue };
        let others: Vec<u32> = first.iter().skip(1).chain(&second).copied().collect();
        let typed = first.iter().chain(&second).all(|i| seen.type_of(*i).is_some());
        let (evidence, weight) = if typed { (Evidence::Typed, 8) } else { (Evidence::Static, 4) };
        let pair = 2 * line.bytes();
        ranked.push(Ranked {
            index,
            weight,
            finding: Finding {
                others: others.into_iter().filter_map(|i| seen.subject(i)).collect(),
                advice: format!("{ADVICE}: aligned({pair}) on {} and on what follows", subject.name),
                cost_bytes: Some(pair.saturating_sub(subject.size % pair) % pair),
                ..Finding::about("adjacent-lines", Severity::Info, evidence, subject)
            },
        });
    }
}
