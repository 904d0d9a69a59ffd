//! What profiles saw on each line: rules `shared-line` and `write-beside-read`, by measured conflict (pairs of a write and
//! another CPU's access, to different data), and `true-sharing`: one datum that several CPUs write, which no layout mends.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Ranked, Seen, shared_members};
use crate::finding::{Evidence, Finding, Measured, Severity, Subject};
use crate::heat::Access;
use crate::layout::Touches;
use crate::objects::{Class, Object, Space};
use crate::types::{Field, Row, Rows};
use crate::units::{Addr, Span};

/// One datum of a line, and what touched it there.
struct Datum<'a> {
    index: u32,
    subject: Subject,
    touches: Touches,
    accesses: Vec<&'a Access>,
}

impl Datum<'_> {
    /// Several CPUs use it, and one writes: by who was seen, or by lines that another cache had modified.
    fn is_shared(&self) -> bool {
        self.touches.own_pairs() > 0 || (self.touches.writes() > 0 && self.accesses.iter().any(|a| a.hitm > 0))
    }
}

/// Samples that make a pair more than chance, on each side.
const SOME: u64 = 2;
/// Pairs below which a line is not called the worst.
const MANY: u64 = 100;

/// Returns the lines of which the profiles say more than code.
pub(super) fn find(seen: &Seen<'_, '_>, ranked: &mut Vec<Ranked>) -> BTreeSet<(Space, u64)> {
    let mut told = BTreeSet::new();
    let totals = totals(seen);
    let mut rows = HashMap::new();
    for ((space, number), accesses) in lines(seen) {
        // Samples of accesses, where there are some: what else is known is of another measure.
        let Some(evidence) = accesses.iter().map(|a| a.evidence).min() else { continue };
        let accesses = accesses.into_iter().filter(|a| a.evidence == evidence);
        let data = data(seen, accesses, &mut rows);
        let total = totals.get(&evidence).copied().unwrap_or(0);
        if let Some(found) = Contest::of(&data) {
            told.insert((space, number));
            ranked.push(found.finding(seen, evidence, total));
        } else if let Some(datum) = data.iter().filter(|d| d.is_shared()).max_by_key(|d| d.touches.own_pairs()) {
            ranked.push(true_sharing(seen, datum, evidence, &data));
            told.insert((space, number));
        } else if evidence <= Evidence::Sampled && data.len() > 1 && data.iter().all(|d| hitm(d.accesses.iter()) == 0) {
            told.insert((space, number));
            ranked.extend(quiet(seen, evidence, &data));
        }
    }
    told
}

/// Samples or weights that went to objects, by evidence.
pub(super) fn totals(seen: &Seen<'_, '_>) -> BTreeMap<Evidence, u64> {
    let mut totals = BTreeMap::new();
    for access in seen.heat.accesses.iter().filter(|a| a.evidence != Evidence::Decoded) {
        let sum: &mut u64 = totals.entry(access.evidence).or_insert(0);
        *sum = sum.saturating_add(access.count);
    }
    totals
}

/// What was seen on each line that all CPUs share.
fn lines<'s>(seen: &Seen<'s, '_>) -> BTreeMap<(Space, u64), Vec<&'s Access>> {
    let mut lines: BTreeMap<(Space, u64), Vec<&Access>> = BTreeMap::new();
    for access in seen.heat.accesses.iter().filter(|a| a.evidence != Evidence::Decoded) {
        let Some(object) = seen.lines.object(access.object).filter(|o| shared(o)) else { continue };
        // Which element it was is not known.
        if access.indexed && object.span.size > seen.lines.line.bytes() {
            continue;
        }
        let start = Addr(object.span.start.0.saturating_add(access.offset));
        let touched = Span { start, size: u64::from(access.width).min(seen.lines.line.bytes()) }.lines(seen.lines.line);
        for number in touched {
            lines.entry((object.space, number)).or_default().push(access);
        }
    }
    lines
}

fn shared(object: &Object<'_>) -> bool {
    !matches!(object.class, Class::PerCpu | Class::Thread | Class::NotLoaded)
}

fn data<'a, 's>(
    seen: &Seen<'s, '_>,
    accesses: impl Iterator<Item = &'a Access>,
    rows: &mut HashMap<u32, Rows<'s>>,
) -> Vec<Datum<'a>> {
    let mut data: BTreeMap<(u32, u64), Datum<'a>> = BTreeMap::new();
    for access in accesses {
        let Some(subject) = datum(seen, access, rows) else { continue };
        let found = data.entry((access.object, subject.address.0)).or_insert_with(|| Datum {
            index: access.object,
            subject,
            touches: Touches::default(),
            accesses: Vec::new(),
        });
        found.touches.add(access.cpu, access.thread, access.count, access.kind.writes());
        found.accesses.push(access);
    }
    overlapping(data.into_values().collect())
}

/// Bytes of which no type tells how they belong together: those that one access reached do.
fn overlapping(data: Vec<Datum<'_>>) -> Vec<Datum<'_>> {
    let mut out: Vec<Datum<'_>> = Vec::with_capacity(data.len());
    for datum in data {
        let inside = |last: &&mut Datum<'_>| {
            last.index == datum.index
                && datum.subject.address.0 < last.subject.address.0.saturating_add(last.subject.size)
        };
        match out.last_mut().filter(inside) {
            Some(last) => {
                datum.accesses.iter().for_each(|a| last.touches.add(a.cpu, a.thread, a.count, a.kind.writes()));
                last.accesses.extend(datum.accesses);
            }
            None => out.push(datum),
        }
    }
    out
}

/// The member, or element of an array, that an access is to; the object where it is one; the bytes where that is not
/// known.
fn datum<'s>(seen: &Seen<'s, '_>, access: &Access, rows: &mut HashMap<u32, Rows<'s>>) -> Option<Subject> {
    let object = seen.lines.object(access.object)?;
    let Some((table, id)) = seen.type_of(access.object) else { return bytes(seen, access) };
    let rows = rows.entry(access.object).or_insert_with(|| table.rows(id));
    let holds = |row: &&&Row<'s>| {
        let field = &row.field;
        field.size.is_some_and(|size| (field.offset..field.offset.saturating_add(size)).contains(&access.offset))
    };
    let whole = Field { path: Vec::new(), offset: 0, size: Some(object.span.size), align: None, type_id: id };
    let members = shared_members::members(rows, |row| shared_members::whole(table, row));
    let field = members.iter().rfind(holds).map_or(whole, |row| row.field.clone());
    let subject = seen.member(access.object, &field)?;
    let elements = table.elements(field.type_id, field.size).filter(|e| e.stride > 0);
    match elements {
        Some(elements) => {
            let number = access.offset.saturating_sub(field.offset) / elements.stride;
            let address = Addr(subject.address.0.saturating_add(number.saturating_mul(elements.stride)));
            Some(Subject {
                name: format!("{}[{number}]", subject.name),
                address,
                size: elements.stride,
                phase: seen.lines.line.phase_of(address),
                type_name: Some(table.name(elements.of)),
                ..subject
            })
        }
        None if field.path.is_empty() && object.span.size > seen.lines.line.bytes() => bytes(seen, access),
        None => Some(subject),
    }
}

/// Of an object of one word that word.
fn bytes(seen: &Seen<'_, '_>, access: &Access) -> Option<Subject> {
    let subject = seen.subject(access.object)?;
    if subject.size <= WORD {
        return Some(subject);
    }
    let address = Addr(subject.address.0.saturating_add(access.offset));
    let rest = subject.size.saturating_sub(access.offset);
    Some(Subject {
        name: format!("{}+{:#x}", subject.name, access.offset),
        address,
        size: u64::from(access.width).clamp(1, rest.max(1)),
        phase: seen.lines.line.phase_of(address),
        type_name: None,
        ..subject
    })
}

const WORD: u64 = 8;

/// A datum that is written, and those that other CPUs use on its line (or that they write while it is read).
struct Contest<'d, 'a> {
    written: &'d Datum<'a>,
    /// With the pairs, most first.
    others: Vec<(&'d Datum<'a>, u64)>,
    /// Of all data on the line.
    apart: u64,
    own: u64,
    samples: u64,
}

impl<'d, 'a> Contest<'d, 'a> {
    fn of(data: &'d [Datum<'a>]) -> Option<Contest<'d, 'a>> {
        let mut apart = 0u64;
        let mut of_each = vec![0u64; data.len()];
        for (i, a) in data.iter().enumerate() {
            for (j, b) in data.iter().enumerate().skip(i + 1) {
                let pairs = a.touches.pairs(&b.touches);
                apart = apart.saturating_add(pairs);
                for at in [i, j] {
                    of_each.get_mut(at).into_iter().for_each(|sum| *sum = sum.saturating_add(pairs));
                }
            }
        }
        let key = |(at, d): &(usize, &Datum<'_>)| {
            (d.touches.writes().min(of_each.get(*at).copied().unwrap_or(0)), std::cmp::Reverse(d.subject.address))
        };
        let (_, written) = data.iter().enumerate().filter(|(_, d)| d.touches.writes() > 0).max_by_key(key)?;
        let others = data.iter().filter(|d| !std::ptr::eq(*d, written));
        let mut others: Vec<_> =
            others.map(|d| (d, written.touches.pairs(&d.touches))).filter(|(_, n)| *n > 0).collect();
        others.sort_by_key(|(d, pairs)| (std::cmp::Reverse(*pairs), d.subject.address));
        let own = data.iter().map(|d| d.touches.own_pairs()).fold(0, u64::saturating_add);
        let samples = data.iter().map(|d| d.touches.count()).fold(0, u64::saturating_add);
        (!others.is_empty()).then_some(Contest { written, others, apart, own, samples })
    }

    fn severity(&self, evidence: Evidence, total: u64) -> Severity {
        let others = self.others.iter().map(|(d, _)| d.touches.count()).fold(0, u64::saturating_add);
        let chance = self.written.touches.writes() < SOME || others < SOME;
        let hot = self.samples.saturating_mul(100) >= total && self.apart >= MANY;
        match evidence {
            _ if chance => Severity::Low,
            Evidence::Measured if hot => Severity::High,
            Evidence::Measured | Evidence::Sampled => Severity::Medium,
            _ => Severity::Low,
        }
    }

    fn finding(&self, seen: &Seen<'_, '_>, evidence: Evidence, total: u64) -> Ranked {
        let written = self.written;
        let quiet = |d: &Datum<'_>| d.touches.writes() == 0;
        let rule = if self.others.iter().any(|(d, _)| quiet(d)) { "write-beside-read" } else { "shared-line" };
        let names: Vec<&str> = self.others.iter().take(2).map(|(d, _)| d.subject.name.as_str()).collect();
        let more = if self.others.len() > 2 { " and more" } else { "" };
        let beside = self.others.iter().map(|(d, _)| d.touches.count()).fold(0, u64::saturating_add);
        let line = seen.lines.line.bytes();
        let inside = self.others.iter().all(|(d, _)| d.index == written.index);
        let cure = if inside {
            format!("{} at least {line} bytes away from it", names.first().copied().unwrap_or_default())
        } else {
            format!("aligned({line}) on {} and on what follows", written.subject.name)
        };
        let hitm = hitm(written.accesses.iter().chain(self.others.iter().flat_map(|(d, _)| &d.accesses)));
        let found = if hitm > 0 { format!("; {hitm} found the line modified in another cache") } else { String::new() };
        let advice = format!(
            "{}: {} {} of writes{} ({}); on its line {}{more}: {beside} of others{found}: {cure}",
            written.subject.name,
            written.touches.writes(),
            unit(evidence),
            by_cpus(&written.touches),
            functions(seen, written.accesses.iter().filter(|a| a.kind.writes())),
            names.join(", "),
        );
        let before = (line - u64::from(written.subject.phase.0)) % line;
        let told = std::iter::once(written).chain(self.others.iter().take(3).map(|(d, _)| *d));
        let finding = Finding {
            others: self.others.iter().map(|(d, _)| d.subject.clone()).collect(),
            advice,
            cost_bytes: (!inside).then(|| before + seen.rest_of_line(written.subject.size)),
            accesses: told.flat_map(|d| seen.uses(d.index, span(&d.subject))).collect(),
            measured: Some(Measured {
                samples: self.samples,
                cpus: cpus(
                    written
                        .touches
                        .cpus()
                        .0
                        .max(self.others.iter().map(|(d, _)| d.touches.cpus().0).max().unwrap_or(0)),
                ),
                conflict: Some(self.apart),
                true_sharing: self.own,
                hitm,
            }),
            ..Finding::about(rule, self.severity(evidence, total), evidence, written.subject.clone())
        };
        Ranked { index: written.index, weight: 0, finding }
    }
}

fn true_sharing(seen: &Seen<'_, '_>, datum: &Datum<'_>, evidence: Evidence, data: &[Datum<'_>]) -> Ranked {
    let (all, writing) = datum.touches.cpus();
    let advice = format!(
        "not a matter of layout: one datum that {} ({}), wherever it lies; the code shares it",
        if all > 0 { format!("{writing} CPUs write and {all} use") } else { "several CPUs use and write".to_string() },
        functions(seen, datum.accesses.iter())
    );
    let finding = Finding {
        advice,
        accesses: seen.uses(datum.index, span(&datum.subject)),
        measured: Some(Measured {
            samples: datum.touches.count(),
            cpus: cpus(all),
            conflict: Some(0),
            true_sharing: data.iter().map(|d| d.touches.own_pairs()).fold(0, u64::saturating_add),
            hitm: hitm(datum.accesses.iter()),
        }),
        ..Finding::about("true-sharing", Severity::Info, evidence, datum.subject.clone())
    };
    Ranked { index: datum.index, weight: 0, finding }
}

/// Several data, and nobody disturbs another.
fn quiet(seen: &Seen<'_, '_>, evidence: Evidence, data: &[Datum<'_>]) -> Option<Ranked> {
    let (first, others) = data.split_first()?;
    // Elements of one array belong together.
    let array = |d: &Datum<'_>| d.subject.name.rsplit_once('[').map(|(array, _)| array.to_string());
    if others.iter().all(|d| d.index == first.index && array(d).is_some() && array(d) == array(first)) {
        return None;
    }
    let why = match data.iter().any(|d| d.touches.writes() > 0) {
        true => "one CPU or thread uses all of it while another writes nothing",
        false => "nobody was seen to write on this line",
    };
    let samples = data.iter().map(|d| d.touches.count()).fold(0, u64::saturating_add);
    let finding = Finding {
        others: others.iter().map(|d| d.subject.clone()).collect(),
        advice: format!("nothing to do as far as the profile tells: {why}"),
        accesses: seen.uses(first.index, span(&first.subject)),
        measured: Some(Measured {
            samples,
            cpus: cpus(data.iter().map(|d| d.touches.cpus().0).max().unwrap_or(0)),
            conflict: Some(0),
            true_sharing: 0,
            hitm: hitm(data.iter().flat_map(|d| &d.accesses)),
        }),
        ..Finding::about("shared-line", Severity::Info, evidence, first.subject.clone())
    };
    Some(Ranked { index: first.index, weight: 0, finding })
}

fn span(subject: &Subject) -> Span {
    Span { start: subject.address, size: subject.size }
}

fn hitm<'a>(accesses: impl Iterator<Item = &'a &'a Access>) -> u64 {
    accesses.map(|a| a.hitm).fold(0, u64::saturating_add)
}

fn cpus(count: usize) -> Option<u32> {
    u32::try_from(count).ok().filter(|n| *n > 0)
}

fn unit(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Measured => "samples",
        Evidence::Sampled => "samples near code",
        _ => "words",
    }
}

fn by_cpus(touches: &Touches) -> String {
    match touches.cpus().1 {
        0 => String::new(),
        1 => " by one CPU".to_string(),
        n => format!(" by {n} CPUs"),
    }
}

/// Functions that are named.
const NAMED: usize = 2;

fn functions<'a>(seen: &Seen<'_, '_>, accesses: impl Iterator<Item = &'a &'a Access>) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for access in accesses {
        let name =
            seen.heat.function(access.function).map_or("code that is not of this image, or not known", |f| f.name);
        *counts.entry(name).or_insert(0) += access.count;
    }
    let mut names: Vec<(&str, u64)> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let more = if names.len() > NAMED { ", …" } else { "" };
    names.iter().take(NAMED).map(|(name, _)| *name).collect::<Vec<_>>().join(", ") + more
}

/// What a finding about some bytes of an object gains from profiles: how often they were touched.
pub(super) fn seen_of(seen: &Seen<'_, '_>, index: u32, bytes: &std::ops::Range<u64>) -> Option<(Measured, Evidence)> {
    let reaches = |a: &&Access| a.evidence != Evidence::Decoded && a.reaches(bytes);
    let of: Vec<&Access> = seen.heat.of(index).iter().filter(reaches).collect();
    let evidence = of.iter().map(|a| a.evidence).min()?;
    let mut touches = Touches::default();
    let strongest: Vec<&Access> = of.into_iter().filter(|a| a.evidence == evidence).collect();
    strongest.iter().for_each(|a| touches.add(a.cpu, a.thread, a.count, a.kind.writes()));
    let measured = Measured {
        samples: touches.count(),
        cpus: cpus(touches.cpus().0),
        conflict: None,
        true_sharing: 0,
        hitm: hitm(strongest.iter()),
    };
    Some((measured, evidence))
}
