//! Who disturbs whom on a line: something that functions write, beside what other functions use without it. Decoded from
//! code, so that a function stands for whoever runs it: on how many CPUs is not known. What the same functions use
//! together belongs together (a lock and what it guards), and what many write is contended wherever it lies: to move it
//! helps its neighbours only.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Seen;
use crate::finding::{Evidence, Severity, Subject, Use};
use crate::heat::{Access, Kind, Users};
use crate::types::Contention;
use crate::units::{Addr, Span};

/// Something on a line.
pub(super) struct Piece {
    pub(super) subject: Subject,
    pub(super) index: u32,
    /// Its bytes on the line.
    pub(super) span: Span,
    pub(super) users: Users,
    pub(super) how: Option<Contention>,
}

/// What is written, and what is used by functions that do not use it.
pub(super) struct Contest<'p> {
    pub(super) written: &'p Piece,
    pub(super) writers: BTreeSet<u32>,
    /// By how many functions use them apart, most first.
    pub(super) others: Vec<(&'p Piece, BTreeSet<u32>)>,
    /// Locks and atomics that no code names: reached through pointers, by whom is not known.
    pub(super) unseen: Vec<&'p Piece>,
    pub(super) atomic: bool,
}

impl Piece {
    /// `number`: of the line; only what an object has there counts. Which element an unknown index means is not known,
    /// so that of what is larger than a line it says nothing.
    pub(super) fn of(
        seen: &Seen<'_, '_>,
        index: u32,
        subject: Subject,
        (how, number): (Option<Contention>, u64),
    ) -> Option<Piece> {
        let (start, line) = (seen.lines.object(index)?.span.start.0, seen.lines.line.bytes());
        let from = subject.address.0.max(number.saturating_mul(line));
        let to = subject.address.0.saturating_add(subject.size).min(number.saturating_add(1).saturating_mul(line));
        let bytes = from.checked_sub(start)?..to.checked_sub(start)?;
        let users = seen.heat.users(index, bytes, subject.size <= line);
        let span = Span { start: Addr(from), size: to.saturating_sub(from) };
        Some(Piece { subject, index, span, users, how })
    }

    fn strong(&self) -> bool {
        self.how > Some(Contention::Volatile)
    }

    /// Whoever takes the address of a lock or an atomic does so to write it.
    fn writers(&self) -> BTreeSet<u32> {
        if self.strong() {
            self.users.writers.union(&self.users.takers).copied().collect()
        } else {
            self.users.writers.clone()
        }
    }

    fn apart(&self, other: &Piece) -> BTreeSet<u32> {
        let uses = if other.strong() {
            other.users.of_content().union(&other.users.takers).copied().collect()
        } else {
            other.users.of_content()
        };
        uses.into_iter().filter(|f| !self.users.has(*f)).collect()
    }

    /// Read while the program runs, and written only at its start or not at all.
    pub(super) fn read_mostly(&self) -> bool {
        !self.users.readers.is_empty() && self.writers().is_empty() && !self.strong()
    }
}

/// The worst of all that may disturb: readers × writers, what is atomic before what is not.
pub(super) fn worst(pieces: &[Piece]) -> Option<Contest<'_>> {
    let unseen = |p: &&Piece| p.strong() && !p.users.touch() && p.users.takers.is_empty();
    let unseen: Vec<&Piece> = pieces.iter().filter(unseen).collect();
    let contests = pieces.iter().filter_map(|written| {
        let writers = written.writers();
        let atomic = written.strong() || !written.users.atomics.is_empty();
        let others = pieces.iter().filter(|o| !std::ptr::eq(*o, written));
        let mut others: Vec<_> = others.map(|o| (o, written.apart(o))).filter(|(_, apart)| !apart.is_empty()).collect();
        others.sort_by_key(|(o, apart)| (Reverse(apart.len()), o.subject.address));
        let known = !writers.is_empty() && !others.is_empty();
        known.then(|| Contest { written, writers, others, unseen: unseen.clone(), atomic })
    });
    contests.max_by_key(|c| (c.atomic, c.score(), Reverse(c.written.subject.address)))
}

impl Contest<'_> {
    /// All that use one of the others apart.
    fn apart(&self) -> BTreeSet<u32> {
        self.others.iter().flat_map(|(_, apart)| apart).copied().collect()
    }

    fn score(&self) -> u32 {
        u32::try_from(self.writers.len().saturating_mul(self.apart().len())).unwrap_or(u32::MAX)
    }

    pub(super) fn read_mostly(&self) -> bool {
        self.others.iter().any(|(o, _)| o.read_mostly())
    }

    /// One writer, or one function that is disturbed, may be one thread.
    pub(super) fn severity(&self) -> Severity {
        let several = self.writers.len() > 1 && self.apart().len() > 1;
        match (self.atomic, several) {
            (true, true) => Severity::Medium,
            (true, false) | (false, true) => Severity::Low,
            (false, false) => Severity::Info,
        }
    }

    /// All on the line that it is about.
    pub(super) fn all_others(&self) -> Vec<Subject> {
        let known = self.others.iter().map(|(o, _)| *o);
        known.chain(self.unseen.iter().copied()).map(|o| o.subject.clone()).collect()
    }

    /// Above what types alone tell.
    pub(super) fn weight(&self) -> u32 {
        100u32.saturating_add(self.score())
    }

    /// `3 functions update x atomically (f, g, …); 5 others use y (h, …)`.
    pub(super) fn told(&self, seen: &Seen<'_, '_>) -> String {
        let name = &self.written.subject.name;
        let does = match () {
            () if !self.written.users.atomics.is_empty() => "update it atomically",
            () if !self.written.users.writers.is_empty() => "write it",
            () => "take its address",
        };
        let apart = self.apart();
        let others: Vec<&str> = self.others.iter().take(2).map(|(o, _)| o.subject.name.as_str()).collect();
        let more = if self.others.len() > 2 { " and more" } else { "" };
        let unseen = self.unseen.first().map_or_else(String::new, |u| {
            format!("; {} is a lock or an atomic that is reached through pointers only", u.subject.name)
        });
        format!(
            "{name}: {} {does} ({}); {} without it: {} ({}){unseen}",
            functions(self.writers.len()),
            seen.names(&self.writers),
            others.join(", ") + more,
            functions(apart.len()),
            seen.names(&apart)
        )
    }
}

fn functions(count: usize) -> String {
    if count == 1 { "1 function".to_string() } else { format!("{count} functions") }
}

/// Functions that are named for one object.
const NAMED: usize = 2;
/// Accesses that are told of one object.
const TOLD: usize = 3;

impl Seen<'_, '_> {
    fn names(&self, functions: &BTreeSet<u32>) -> String {
        let names = functions.iter().filter_map(|f| Some(self.heat.function(*f)?.name));
        let mut names: Vec<&str> = names.take(NAMED).collect();
        if functions.len() > names.len() {
            names.push("…");
        }
        names.join(", ")
    }

    /// The strongest accesses to some bytes of an object, of different functions: those that were seen to happen first.
    pub(super) fn uses(&self, index: u32, span: Span) -> Vec<Use> {
        let Some(object) = self.lines.object(index) else { return Vec::new() };
        let Some(start) = span.start.0.checked_sub(object.span.start.0) else { return Vec::new() };
        let bytes = start..start.saturating_add(span.size);
        let of: Vec<&Access> =
            self.heat.of(index).iter().filter(|a| a.reaches(&bytes) && a.kind != Kind::Address).collect();
        // Those that differ in who made them only lie beside each other.
        let mut all: Vec<&[&Access]> = of.chunk_by(|a, b| a.is_same_as(b)).collect();
        let count = |same: &[&Access]| same.iter().map(|a| a.count).fold(0, u64::saturating_add);
        all.sort_by_key(|same| {
            same.first().map(|a| {
                let often = if a.evidence == Evidence::Decoded { 0 } else { count(same) };
                let cold = self.heat.function(a.function).is_some_and(|f| f.cold);
                (a.evidence, cold, Reverse(a.kind), Reverse(often), a.function)
            })
        });
        let mut named = BTreeSet::new();
        all.retain(|same| same.first().is_some_and(|a| named.insert(a.function)));
        let name = |f: u32| self.heat.function(f).map_or_else(String::new, |f| f.name.to_string());
        let told = all.into_iter().take(TOLD).filter_map(|same| {
            let a = same.first()?;
            let cpus: BTreeSet<u32> = same.iter().filter_map(|a| a.cpu).collect();
            Some(Use {
                object: object.name.to_string(),
                offset: a.offset,
                width: a.width,
                kind: a.kind.name(),
                function: name(a.function),
                through: a.through.map(name),
                evidence: a.evidence,
                count: count(same),
                cpus: u32::try_from(cpus.len()).ok().filter(|n| *n > 0),
            })
        });
        told.collect()
    }
}
