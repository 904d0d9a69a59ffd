//! `perf.data`, as `perf record` writes it: to a file, or to a pipe. Records are read where they lie, in the order of the
//! file; nothing is sorted, because a mapping knows its time. The layout is that of the kernel's perf_event.h and of perf's
//! own perf.data-file-format.txt. A file that is cut short or damaged is read up to there.

mod sample;

use std::collections::HashMap;

use super::{Map, Maps, Owner, Sink, Told};
use crate::error::{Error, Result};
use crate::open;
use sample::Layout;

/// A file that was looked at: where its records are, and how its samples are laid out.
#[derive(Debug)]
pub(super) struct PerfData<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    /// Where records begin and end.
    records: std::ops::Range<usize>,
    events: Vec<Event>,
    /// By the id that samples carry.
    by_id: HashMap<u64, usize>,
    problems: Vec<String>,
    /// What `bytes` are mapped from.
    file: Option<&'a open::Bytes>,
}

/// What is read before memory is let go, in bytes.
const STEP: usize = 1 << 25;

/// One event that was recorded.
#[derive(Clone, Debug)]
struct Event {
    layout: Layout,
    name: String,
}

/// `PERF_RECORD_…`
mod kind {
    pub(super) const MMAP: u32 = 1;
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const MMAP2: u32 = 10;
    pub(super) const LOST_SAMPLES: u32 = 13;
    pub(super) const ATTR: u32 = 64;
    pub(super) const AUX_INFO: u32 = 70;
    pub(super) const AUX_DATA: u32 = 71;
    pub(super) const COMPRESSED: [u32; 2] = [81, 83];
}

const BUILD_IDS: usize = 2;
const EVENT_NAMES: usize = 12;
/// `PERF_AUXTRACE_ARM_SPE`.
const ARM_SPE: u32 = 4;

pub(super) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

/// Numbers of a file, at their places.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    all: &'a [u8],
    big_endian: bool,
}

impl<'a> Bytes<'a> {
    fn part(self, at: usize, size: usize) -> Option<&'a [u8]> {
        self.all.get(at..at.checked_add(size)?)
    }

    fn u64(self, at: usize) -> Option<u64> {
        let bytes = self.part(at, 8)?.try_into().ok()?;
        Some(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn u32(self, at: usize) -> Option<u32> {
        let bytes = self.part(at, 4)?.try_into().ok()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u16(self, at: usize) -> Option<u16> {
        let bytes = self.part(at, 2)?.try_into().ok()?;
        Some(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// A section of the file: two words, its offset and size.
    fn section(self, at: usize) -> Option<Bytes<'a>> {
        let (offset, size) =
            (usize::try_from(self.u64(at)?).ok()?, usize::try_from(self.u64(at.checked_add(8)?)?).ok()?);
        Some(Bytes { all: self.part(offset, size)?, ..self })
    }

    /// Up to the first zero byte.
    fn text(self, at: usize) -> Option<&'a str> {
        let rest = self.all.get(at..)?;
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        std::str::from_utf8(rest.get(..end)?).ok()
    }
}

/// One record.
struct Record<'a> {
    at: usize,
    kind: u32,
    misc: u16,
    /// Behind its header.
    body: Bytes<'a>,
}

/// Bytes of the header of a file, of a pipe, and of a record.
const HEADER: u64 = 104;
const PIPE_HEADER: u64 = 16;
const RECORD_HEADER: usize = 8;

impl<'a> PerfData<'a> {
    /// `file`: what `bytes` are mapped from, whose memory is let go behind what was read.
    pub(super) fn open(bytes: &'a [u8], file: Option<&'a open::Bytes>, path: &str) -> Result<(PerfData<'a>, Maps<'a>)> {
        let doing = || format!("reading the profile {path}");
        let odd = |what: &str| Error::input(doing(), format!("a damaged perf.data: {what}"));
        let big_endian = bytes.starts_with(b"2");
        let all = Bytes { all: bytes, big_endian };
        let size = all.u64(8).ok_or_else(|| odd("its header is cut short"))?;
        let mut data = PerfData {
            bytes,
            big_endian,
            records: 0..0,
            events: Vec::new(),
            by_id: HashMap::new(),
            problems: Vec::new(),
            file,
        };
        let mut build_ids = HashMap::new();
        if size == PIPE_HEADER {
            data.records = usize::try_from(PIPE_HEADER).unwrap_or(0)..bytes.len();
            data.events_of_pipe();
        } else {
            if size < HEADER {
                return Err(odd("its header has another size"));
            }
            build_ids = data.sections(all).ok_or_else(|| odd("its sections lie behind its end"))?;
        }
        let Some(first) = data.events.first() else { return Err(odd("it describes no event")) };
        let differ = data.events.iter().any(|e| !e.layout.same(&first.layout));
        if differ && !data.events.iter().all(|e| e.layout.has_identifier()) {
            let problem = "its events differ, and its samples do not tell which is theirs";
            return Err(Error::input(doing(), problem).hint("text of `perf script`"));
        }
        let maps = data.maps(&build_ids, &doing())?;
        Ok((data, maps))
    }

    fn numbers(&self) -> Bytes<'a> {
        Bytes { all: self.bytes, big_endian: self.big_endian }
    }

    /// Reads the sections of a file; build ids by the name of their file.
    fn sections(&mut self, file: Bytes<'a>) -> Option<HashMap<&'a str, &'a [u8]>> {
        let each = usize::try_from(file.u64(16)?).ok()?;
        let attributes = file.section(24)?;
        let start = usize::try_from(file.u64(40)?).ok()?;
        let size = usize::try_from(file.u64(48)?).ok()?;
        let whole = start.checked_add(size).filter(|end| *end <= file.all.len() && size > 0);
        if whole.is_none() {
            let why = if size == 0 { "was not finished" } else { "is cut short" };
            self.problems.push(format!("the recording {why}: read up to its end"));
        }
        self.records = start.min(file.all.len())..whole.unwrap_or(file.all.len());
        let attribute = each.checked_sub(16).filter(|size| *size >= sample::LEAST)?;
        for at in (0..attributes.all.len()).step_by(each.max(1)) {
            let Some(one) = attributes.part(at, attribute) else { break };
            let ids = file.section_at(attributes, at + attribute).unwrap_or(Bytes { all: &[], ..file });
            self.add_event(Bytes { all: one, ..file }, ids);
        }
        let mut build_ids = HashMap::new();
        if let Some(end) = whole {
            let names = self.feature(file, end, EVENT_NAMES);
            let _ = names.and_then(|names| self.name_events(names));
            build_ids = self.feature(file, end, BUILD_IDS).map(build_ids_of).unwrap_or_default();
        }
        Some(build_ids)
    }

    /// What is described behind the records, by its number: a table has one section for each that is there.
    fn feature(&self, file: Bytes<'a>, table: usize, number: usize) -> Option<Bytes<'a>> {
        let has = |n: usize| file.u64(72 + n / 64 * 8).is_some_and(|word| word >> (n % 64) & 1 == 1);
        let before = (0..number).filter(|n| has(*n)).count();
        has(number).then(|| file.section(table.checked_add(before * 16)?)).flatten()
    }

    fn add_event(&mut self, attribute: Bytes<'_>, ids: Bytes<'_>) {
        let Some(layout) = Layout::of(attribute) else { return };
        let number = self.events.len();
        self.events.push(Event { layout, name: String::new() });
        let ids = (0..ids.all.len() / 8).filter_map(|n| ids.u64(n * 8));
        self.by_id.extend(ids.map(|id| (id, number)));
    }

    /// `nr, size of an attribute, (attribute, ids, name, id…)…`
    fn name_events(&mut self, names: Bytes<'_>) -> Option<()> {
        let (count, size) = (names.u32(0)?, usize::try_from(names.u32(4)?).ok()?);
        let mut at = 8usize;
        for number in 0..usize::try_from(count).ok()? {
            at = at.checked_add(size)?;
            let ids = usize::try_from(names.u32(at)?).ok()?;
            let length = usize::try_from(names.u32(at + 4)?).ok()?;
            let name = names.text(at + 8)?;
            self.events.get_mut(number)?.name = name.to_string();
            at = at.checked_add(8)?.checked_add(length)?.checked_add(ids.checked_mul(8)?)?;
        }
        Some(())
    }

    fn events_of_pipe(&mut self) {
        let mut found = Vec::new();
        self.records(&mut |record| {
            if record.kind == kind::ATTR {
                found.push(record.body);
            }
            true
        });
        for body in found {
            let size = body.u32(4).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
            let (Some(one), Some(ids)) = (body.all.get(..size), body.all.get(size..)) else { continue };
            self.add_event(Bytes { all: one, ..body }, Bytes { all: ids, ..body });
        }
    }

    /// Every record, as long as `take` wants more; returns where the file is damaged, if it is.
    fn records(&self, take: &mut dyn FnMut(Record<'a>) -> bool) -> Option<usize> {
        let file = self.numbers();
        let (mut at, mut kept) = (self.records.start, self.records.start);
        while at < self.records.end {
            let header = (|| Some((file.u32(at)?, file.u16(at + 4)?, usize::from(file.u16(at + 6)?))))();
            let Some((kind, misc, size)) = header.filter(|(.., size)| *size >= RECORD_HEADER) else { return Some(at) };
            let Some(end) = at.checked_add(size).filter(|end| *end <= self.records.end) else { return Some(at) };
            let Some(body) = file.part(at + RECORD_HEADER, size - RECORD_HEADER) else { return Some(at) };
            let body = Bytes { all: body, ..file };
            // What a trace unit wrote follows the record that tells its size.
            let trace =
                if kind == kind::AUX_DATA { body.u64(0).and_then(|n| usize::try_from(n).ok()) } else { Some(0) };
            if !take(Record { at, kind, misc, body }) {
                return None;
            }
            let Some(next) = trace.and_then(|trace| end.checked_add(trace)) else { return Some(at) };
            at = next;
            if let Some(file) = self.file.filter(|_| at.saturating_sub(kept) >= STEP) {
                file.forget(kept..at);
                kept = at;
            }
        }
        None
    }

    fn maps(&mut self, build_ids: &HashMap<&'a str, &'a [u8]>, doing: &str) -> Result<Maps<'a>> {
        let mut maps = Maps::default();
        let mut refused = None;
        let damaged = self.records(&mut |record| {
            match record.kind {
                kind::MMAP | kind::MMAP2 => {
                    if let Some((owner, map)) = self.mapping(&record, build_ids) {
                        maps.add(owner, map);
                    }
                }
                kind::COMM if record.misc & EXEC != 0 => {
                    let process = record.body.u32(0).unwrap_or(u32::MAX);
                    maps.program(process, self.time(&record));
                }
                kind::FORK => {
                    if let (Some(child), Some(parent)) = (record.body.u32(0), record.body.u32(4)) {
                        maps.made(child, parent, record.body.u64(16).unwrap_or(0));
                    }
                }
                kind::AUX_INFO if record.body.u32(0) == Some(ARM_SPE) => refused = Some(SPE),
                _ if kind::COMPRESSED.contains(&record.kind) => refused = Some(PACKED),
                _ => {}
            }
            refused.is_none()
        });
        if let Some((problem, hint)) = refused {
            return Err(Error::input(doing, problem).hint(hint));
        }
        if let Some(at) = damaged {
            self.problems.push(format!("damaged at byte {at}: what comes after it was not read"));
        }
        maps.sort();
        Ok(maps)
    }

    fn mapping(&self, record: &Record<'a>, build_ids: &HashMap<&'a str, &'a [u8]>) -> Option<(Owner, Map<'a>)> {
        let body = record.body;
        let (start, length, offset) = (body.u64(8)?, body.u64(16)?, body.u64(24)?);
        let (executable, own_id, file) = if record.kind == kind::MMAP {
            (record.misc & DATA == 0, None, body.text(32)?)
        } else {
            let told = record.misc & BUILD_ID != 0;
            let size = usize::from(*body.all.get(32)?).min(20);
            let id = told.then(|| body.part(36, size)).flatten();
            (body.u32(56)? & PROT_EXEC != 0, id, body.text(64)?)
        };
        // A kernel is called by the symbol that tells its slide, elsewhere without.
        let plain = file.find(']').and_then(|at| file.get(..=at)).unwrap_or(file);
        let build_id = own_id.or_else(|| build_ids.get(file).or_else(|| build_ids.get(plain)).copied());
        let process = body.u32(0)?;
        let owner = if process == u32::MAX { Owner::Kernel } else { Owner::Process(process) };
        let map = Map {
            start,
            end: start.checked_add(length)?,
            offset,
            executable: Some(executable),
            file,
            build_id: build_id.filter(|id| !id.is_empty()),
            time: self.time(record),
            number: 0,
        };
        Some((owner, map))
    }

    /// Of a record that is no sample; 0 where it has none. Where events differ, its last word tells whose it is.
    fn time(&self, record: &Record<'_>) -> u64 {
        let last = record.body.all.len().checked_sub(8).and_then(|at| record.body.u64(at));
        let own = last.and_then(|id| self.events.get(*self.by_id.get(&id)?)).filter(|e| e.layout.has_identifier());
        own.or(self.events.first()).and_then(|e| e.layout.time_behind(record.body)).unwrap_or(0)
    }

    pub(super) fn read(&self, sink: Sink<'_, 'a>, told: &mut Told) {
        told.problems.extend(self.problems.iter().cloned());
        self.records(&mut |record| {
            match record.kind {
                kind::SAMPLE => match self.event_of(&record) {
                    Some(event) => match event.layout.read(&record, &event.name) {
                        Ok(sample) => sink(sample),
                        Err(reason) => told.skip(reason, 1),
                    },
                    None => told.skip("samples of an event that is not described", 1),
                },
                kind::LOST => told.skip("samples that the kernel lost", record.body.u64(8).unwrap_or(0)),
                kind::LOST_SAMPLES => told.skip("samples that the kernel lost", record.body.u64(0).unwrap_or(0)),
                kind::AUX_DATA => told.skip("parts of a trace (decode it with perf script)", 1),
                _ => {}
            }
            true
        });
    }

    fn event_of(&self, record: &Record<'_>) -> Option<&Event> {
        let first = self.events.first()?;
        if self.events.len() == 1 {
            return Some(first);
        }
        let id = first.layout.id(record.body);
        match id {
            Some(id) => self.by_id.get(&id).and_then(|at| self.events.get(*at)),
            None => Some(first),
        }
    }
}

impl<'a> Bytes<'a> {
    /// A section that another part of the file tells of.
    fn section_at(self, part: Bytes<'_>, at: usize) -> Option<Bytes<'a>> {
        let offset = usize::try_from(part.u64(at)?).ok()?;
        let size = usize::try_from(part.u64(at.checked_add(8)?)?).ok()?;
        Some(Bytes { all: self.part(offset, size)?, ..self })
    }
}

const SPE: (&str, &str) = (
    "it holds a trace of Arm SPE, which only perf can decode",
    "`perf script -F comm,pid,tid,cpu,time,event,addr,data_src,weight,ip,sym,symoff,dso --show-mmap-events`, and its text",
);
const PACKED: (&str, &str) = ("its records are compressed", "`perf inject -i IT -o PLAIN`, or text of `perf script`");

/// `PERF_RECORD_MISC_…`
const DATA: u16 = 1 << 13;
const EXEC: u16 = 1 << 13;
const BUILD_ID: u16 = 1 << 14;
const PROT_EXEC: u32 = 4;

/// `(header, pid, id[20], size and pad, name)…`
fn build_ids_of(section: Bytes<'_>) -> HashMap<&str, &[u8]> {
    let mut found = HashMap::new();
    let mut at = 0usize;
    while let Some(size) = section.u16(at + 6).map(usize::from).filter(|size| *size > 36) {
        let Some(one) = section.part(at, size).map(|all| Bytes { all, ..section }) else { break };
        let told = one.u16(4).is_some_and(|misc| misc & 1 << 15 != 0);
        let length = one.all.get(32).filter(|_| told).map_or(20, |n| usize::from(*n).min(20));
        if let (Some(id), Some(name)) = (one.part(12, length), one.text(36)) {
            // Before the size was told, a shorter one was filled with zeros.
            let used = if told { length } else { id.iter().rposition(|b| *b != 0).map_or(0, |at| (at + 4) & !3) };
            found.insert(name, id.get(..used).unwrap_or(id));
        }
        at += size;
    }
    found
}
