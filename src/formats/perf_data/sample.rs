//! The body of a sample: fields that the event asked for, in the order of perf_event.h.

use super::{Bytes, Record};
use crate::formats::{Does, Place, Sample, Stands};

/// `PERF_SAMPLE_…`
mod field {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const BRANCH_STACK: u64 = 1 << 11;
    pub(super) const REGS_USER: u64 = 1 << 12;
    pub(super) const STACK_USER: u64 = 1 << 13;
    pub(super) const WEIGHT: u64 = 1 << 14;
    pub(super) const DATA_SRC: u64 = 1 << 15;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
    pub(super) const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// How the samples of one event are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    fields: u64,
    read_format: u64,
    branches: u64,
    user_registers: u32,
    /// What is behind records that are no samples.
    trailed: bool,
    /// Its address is that of an access.
    memory: bool,
}

/// Bytes of the oldest attribute that is known, up to the flags.
pub(super) const LEAST: usize = 48;

const SAMPLE_ID_ALL: u64 = 1 << 18;
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;

impl Layout {
    pub(super) fn of(attribute: Bytes<'_>) -> Option<Layout> {
        let kind = attribute.u32(0)?;
        Some(Layout {
            fields: attribute.u64(24)?,
            read_format: attribute.u64(32)?,
            branches: attribute.u64(72).unwrap_or(0),
            user_registers: attribute.u64(80).unwrap_or(0).count_ones(),
            trailed: attribute.u64(40)? & SAMPLE_ID_ALL != 0,
            // A page fault has an address too.
            memory: kind != SOFTWARE && kind != TRACEPOINT,
        })
    }

    pub(super) fn has_identifier(&self) -> bool {
        self.has(field::IDENTIFIER)
    }

    fn has(&self, field: u64) -> bool {
        self.fields & field != 0
    }

    /// Whether what is read of them is at the same places.
    pub(super) fn same(&self, other: &Layout) -> bool {
        Layout { memory: other.memory, ..*self } == *other
    }

    /// Of the event, where samples of all events have it at the same place.
    pub(super) fn id(&self, body: Bytes<'_>) -> Option<u64> {
        if self.has_identifier() {
            return body.u64(0);
        }
        let before = [field::IP, field::TID, field::TIME, field::ADDR];
        let at = before.iter().filter(|f| self.has(**f)).count() * 8;
        body.u64(at).filter(|_| self.has(field::ID))
    }

    /// What stands behind a record that is no sample: thread, time, id, stream, CPU, identifier.
    pub(super) fn time_behind(&self, body: Bytes<'_>) -> Option<u64> {
        let behind = [field::ID, field::STREAM_ID, field::CPU, field::IDENTIFIER];
        let size = (1 + behind.iter().filter(|f| self.has(**f)).count()) * 8;
        let at = body.all.len().checked_sub(size)?;
        (self.trailed && self.has(field::TIME)).then(|| body.u64(at)).flatten()
    }

    pub(super) fn read<'a>(&self, record: &Record<'a>, event: &str) -> Result<Sample<'a>, &'static str> {
        match record.misc & CPU_MODE {
            GUEST_KERNEL | GUEST_USER => return Err("samples of a guest"),
            _ => {}
        }
        self.fields(record, event).ok_or("samples that are cut short")
    }

    fn fields<'a>(&self, record: &Record<'a>, event: &str) -> Option<Sample<'a>> {
        let mut rest = Rest { body: record.body, at: 0 };
        let mut word = |field: u64| if self.has(field) { rest.word().map(Some) } else { Some(None) };
        word(field::IDENTIFIER)?;
        let code = word(field::IP)?;
        let identity = if self.has(field::TID) { Some((rest.half()?, rest.half()?)) } else { None };
        let mut word = |field: u64| if self.has(field) { rest.word().map(Some) } else { Some(None) };
        let time = word(field::TIME)?;
        let address = word(field::ADDR)?.filter(|address| *address != 0);
        word(field::ID)?;
        word(field::STREAM_ID)?;
        let cpu = if self.has(field::CPU) { Some((rest.half()?, rest.half()?).0) } else { None };
        let (mut weight, mut source) = (0, None);
        // What lies between is only passed when something behind it is wanted.
        if self.has(field::WEIGHT | field::WEIGHT_STRUCT | field::DATA_SRC) {
            self.pass(&mut rest)?;
            if self.has(field::WEIGHT | field::WEIGHT_STRUCT) {
                let word = rest.word()?;
                weight = if self.has(field::WEIGHT) { word } else { word & u64::from(u32::MAX) };
            }
            source = if self.has(field::DATA_SRC) { Some(rest.word()?) } else { None };
        }
        let of_source = source.map(Source);
        let memory = match of_source {
            Some(source) => source.is_access() || (address.is_some() && self.memory),
            None => self.memory && address.is_some(),
        };
        let does = of_source.and_then(Source::does).or_else(|| memory.then(|| super::super::of_event(event)).flatten());
        Some(Sample {
            does,
            code: code.map(Place::Address),
            data: address.filter(|_| memory).map(Place::Address),
            cpu,
            process: identity.map(|(process, _)| process).filter(|p| *p != u32::MAX),
            thread: identity.map(|(_, thread)| thread).filter(|t| *t != u32::MAX),
            time,
            cycles: weight,
            hitm: u64::from(of_source.is_some_and(Source::hitm)),
            ..Sample::at(record.at as u64, if memory { Stands::Access } else { Stands::Code })
        })
    }

    /// From the period up to the stack of a program.
    fn pass(&self, rest: &mut Rest<'_>) -> Option<()> {
        if self.has(field::PERIOD) {
            rest.word()?;
        }
        if self.has(field::READ) {
            self.pass_counts(rest)?;
        }
        if self.has(field::CALLCHAIN) {
            rest.words(1)?;
        }
        if self.has(field::RAW) {
            let size = rest.half()?;
            rest.skip(u64::from(size))?;
        }
        if self.has(field::BRANCH_STACK) {
            let count = rest.word()?;
            let index = u64::from(self.branches & BRANCH_INDEX != 0) * 8;
            let each = if self.branches & BRANCH_COUNTERS != 0 { 32 } else { 24 };
            rest.skip(count.checked_mul(each)?.checked_add(index)?)?;
        }
        if self.has(field::REGS_USER) && rest.word()? != 0 {
            rest.skip(u64::from(self.user_registers) * 8)?;
        }
        if self.has(field::STACK_USER) {
            let size = rest.word()?;
            if size > 0 {
                rest.skip(size.checked_add(8)?)?;
            }
        }
        Some(())
    }

    /// `PERF_FORMAT_…`: times, ids, groups and what was lost.
    fn pass_counts(&self, rest: &mut Rest<'_>) -> Option<()> {
        let bit = |n: u32| self.read_format >> n & 1;
        let times = bit(0) + bit(1);
        let each = 1 + bit(2) + bit(4);
        let group = bit(3) == 1;
        let values = if group { rest.word()? } else { 1 };
        rest.skip(times.checked_add(values.checked_mul(each)?)?.checked_mul(8)?)
    }
}

/// `PERF_RECORD_MISC_CPUMODE_MASK` and two of its values.
const CPU_MODE: u16 = 7;
const GUEST_KERNEL: u16 = 4;
const GUEST_USER: u16 = 5;
/// `PERF_SAMPLE_BRANCH_HW_INDEX`, `PERF_SAMPLE_BRANCH_COUNTERS`.
const BRANCH_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// A body, and how far it was read.
struct Rest<'a> {
    body: Bytes<'a>,
    at: usize,
}

impl Rest<'_> {
    fn word(&mut self) -> Option<u64> {
        let word = self.body.u64(self.at)?;
        self.at += 8;
        Some(word)
    }

    fn half(&mut self) -> Option<u32> {
        let half = self.body.u32(self.at)?;
        self.at += 4;
        Some(half)
    }

    /// So many words for each of a number that stands in front of them.
    fn words(&mut self, each: u64) -> Option<()> {
        let count = self.word()?;
        self.skip(count.checked_mul(each)?.checked_mul(8)?)
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(bytes).ok()?).filter(|at| *at <= self.body.all.len())?;
        Some(())
    }
}

/// `union perf_mem_data_src`.
#[derive(Clone, Copy)]
struct Source(u64);

impl Source {
    const LOAD: u64 = 2;
    const STORE: u64 = 4;

    fn is_access(self) -> bool {
        self.0 & (Source::LOAD | Source::STORE) != 0
    }

    fn does(self) -> Option<Does> {
        let (reads, writes) = (self.0 & Source::LOAD != 0, self.0 & Source::STORE != 0);
        let locked = self.0 >> 24 & 2 != 0;
        // A locked instruction is told as the load that it begins with.
        self.is_access().then_some(Does { reads, writes: writes || locked, locked })
    }

    fn hitm(self) -> bool {
        self.0 >> 19 & 16 != 0
    }
}
