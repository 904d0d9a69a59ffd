//! A small writer of perf.data: what a machine with counters would record.

use std::io::Write;

pub const IP: u64 = 1;
pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const ADDR: u64 = 1 << 3;
pub const READ: u64 = 1 << 4;
pub const CALLCHAIN: u64 = 1 << 5;
pub const ID: u64 = 1 << 6;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const RAW: u64 = 1 << 10;
pub const BRANCH_STACK: u64 = 1 << 11;
pub const REGS_USER: u64 = 1 << 12;
pub const STACK_USER: u64 = 1 << 13;
pub const WEIGHT: u64 = 1 << 14;
pub const DATA_SRC: u64 = 1 << 15;
pub const IDENTIFIER: u64 = 1 << 16;
pub const WEIGHT_STRUCT: u64 = 1 << 24;

/// What `perf mem` asks for.
pub const MEMORY: u64 = IDENTIFIER | IP | TID | TIME | ADDR | CPU | PERIOD | WEIGHT | DATA_SRC;

/// Levels and snoops of a data source: a hit in the last level whose line another cache had modified; one in the first.
pub const HITM: u64 = 2 | (0x2 | 0x40) << 5 | 16 << 19;
pub const LOAD: u64 = 2 | (0x2 | 0x8) << 5 | 2 << 19;
pub const STORE: u64 = 4 | (0x2 | 0x8) << 5;
pub const LOCKED: u64 = 2 << 24;

#[derive(Clone, Default)]
pub struct Words {
    pub bytes: Vec<u8>,
    big: bool,
}

impl Words {
    fn new(big: bool) -> Words {
        Words { bytes: Vec::new(), big }
    }

    fn put(&mut self, little: &[u8]) -> &mut Words {
        let all: Vec<u8> = if self.big { little.iter().rev().copied().collect() } else { little.to_vec() };
        self.bytes.extend(all);
        self
    }

    pub fn u64(&mut self, v: u64) -> &mut Words {
        self.put(&v.to_le_bytes())
    }

    pub fn u32(&mut self, v: u32) -> &mut Words {
        self.put(&v.to_le_bytes())
    }

    fn u16(&mut self, v: u16) -> &mut Words {
        self.put(&v.to_le_bytes())
    }

    /// With zeros up to a multiple of `to`, one at least.
    fn text(&mut self, text: &str, to: usize) -> &mut Words {
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0);
        }
        self
    }
}

#[derive(Clone)]
pub struct Event {
    pub name: &'static str,
    pub kind: u32,
    pub fields: u64,
}

#[derive(Clone, Copy)]
pub struct Access {
    pub event: usize,
    pub ip: u64,
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub addr: u64,
    pub cpu: u32,
    pub weight: u64,
    pub source: u64,
}

#[derive(Clone)]
pub struct Recording {
    events: Vec<Event>,
    records: Words,
    build_ids: Words,
    big: bool,
}

/// Of the attribute that perf 6.1 writes.
const ATTRIBUTE: u32 = 128;
const HEADER: usize = 104;
const REGISTERS: u64 = 0b101;

impl Recording {
    pub fn new(events: Vec<Event>, big: bool) -> Recording {
        Recording { events, records: Words::new(big), build_ids: Words::new(big), big }
    }

    /// `perf mem record`.
    pub fn memory() -> Recording {
        let event = |name| Event { name, kind: 4, fields: MEMORY };
        Recording::new(vec![event("cpu/mem-loads,ldlat=30/P"), event("cpu/mem-stores/P")], false)
    }

    fn record(&mut self, kind: u32, misc: u16, body: &Words) {
        let size = u16::try_from(8 + body.bytes.len()).unwrap();
        self.records.u32(kind).u16(misc).u16(size);
        self.records.bytes.extend(&body.bytes);
    }

    fn trailer(&self, body: &mut Words, pid: u32, time: u64) {
        let fields = self.events[0].fields;
        body.u32(pid).u32(pid);
        if fields & TIME != 0 {
            body.u64(time);
        }
        for field in [ID, CPU, IDENTIFIER] {
            if fields & field != 0 {
                body.u64(u64::from(field != CPU));
            }
        }
    }

    /// Of the kernel where `pid` is -1.
    pub fn map(&mut self, pid: u32, (start, length, offset): (u64, u64, u64), executable: bool, file: &str, time: u64) {
        let mut body = Words::new(self.big);
        body.u32(pid).u32(if pid == u32::MAX { 0 } else { pid }).u64(start).u64(length).u64(offset).text(file, 8);
        self.trailer(&mut body, pid, time);
        let mode = if pid == u32::MAX { 1 } else { 2 };
        self.record(1, mode | if executable { 0 } else { 1 << 13 }, &body);
    }

    pub fn map2(&mut self, pid: u32, (start, length, offset): (u64, u64, u64), id: Option<&[u8]>, file: &str) {
        let mut body = Words::new(self.big);
        body.u32(pid).u32(pid).u64(start).u64(length).u64(offset);
        match id {
            Some(id) => {
                body.bytes.extend([u8::try_from(id.len()).unwrap(), 0, 0, 0]);
                body.bytes.extend(id);
                body.bytes.extend(vec![0; 20 - id.len()]);
            }
            None => body.bytes.extend([0; 24]),
        }
        body.u32(5).u32(2).text(file, 8);
        self.trailer(&mut body, pid, 1);
        self.record(10, 2 | if id.is_some() { 1 << 14 } else { 0 }, &body);
    }

    pub fn fork(&mut self, child: u32, parent: u32, time: u64) {
        let mut body = Words::new(self.big);
        body.u32(child).u32(parent).u32(child).u32(parent).u64(time);
        self.trailer(&mut body, parent, time);
        self.record(7, 0, &body);
    }

    pub fn comm(&mut self, pid: u32, name: &str, exec: bool, time: u64) {
        let mut body = Words::new(self.big);
        body.u32(pid).u32(pid).text(name, 8);
        self.trailer(&mut body, pid, time);
        self.record(3, if exec { 1 << 13 } else { 0 }, &body);
    }

    /// A sample with all the fields that its event asks for; those that nobody reads hold something all the same.
    pub fn sample(&mut self, a: Access) {
        let fields = self.events[a.event].fields;
        let id = a.event as u64 + 1;
        let mut body = Words::new(self.big);
        let has = |field| fields & field != 0;
        if has(IDENTIFIER) {
            body.u64(id);
        }
        body.u64(a.ip).u32(a.pid).u32(a.tid);
        if has(TIME) {
            body.u64(a.time);
        }
        if has(ADDR) {
            body.u64(a.addr);
        }
        if has(ID) {
            body.u64(id);
        }
        if has(CPU) {
            body.u32(a.cpu).u32(0);
        }
        if has(PERIOD) {
            body.u64(1000);
        }
        if has(READ) {
            // A count that grows: perf passes what did not.
            body.u64(a.time).u64(id);
        }
        if has(CALLCHAIN) {
            body.u64(3).u64((-512i64).cast_unsigned()).u64(a.ip).u64(a.ip + 100);
        }
        if has(RAW) {
            body.u32(12).u32(1).u64(9);
        }
        if has(BRANCH_STACK) {
            body.u64(2);
            for n in 0..6 {
                body.u64(n);
            }
        }
        if has(REGS_USER) {
            body.u64(2).u64(3).u64(4);
        }
        if has(STACK_USER) {
            body.u64(16).u64(1).u64(2).u64(16);
        }
        if has(WEIGHT) {
            body.u64(a.weight);
        }
        if has(WEIGHT_STRUCT) {
            body.u64(a.weight | 7 << 32 | 9 << 48);
        }
        if has(DATA_SRC) {
            body.u64(a.source);
        }
        self.record(9, if a.ip >> 63 == 1 { 1 } else { 2 }, &body);
    }

    pub fn raw(&mut self, kind: u32, words: &[u64]) {
        let mut body = Words::new(self.big);
        for word in words {
            body.u64(*word);
        }
        self.record(kind, 0, &body);
    }

    /// In the table behind the records.
    pub fn build_id(&mut self, id: &[u8], file: &str) {
        let mut name = Words::new(self.big);
        name.text(file, 8);
        let misc = 1 << 15 | if file.starts_with('[') { 1 } else { 2 };
        self.build_ids.u32(67).u16(misc).u16(u16::try_from(36 + name.bytes.len()).unwrap()).u32(u32::MAX);
        self.build_ids.bytes.extend(id);
        self.build_ids.bytes.extend(vec![0; 20 - id.len()]);
        self.build_ids.bytes.extend([u8::try_from(id.len()).unwrap(), 0, 0, 0]);
        self.build_ids.bytes.extend(name.bytes);
    }

    fn attribute(&self, event: &Event) -> Vec<u8> {
        let mut words = Words::new(self.big);
        let ids = if event.fields & READ != 0 { 4 } else { 0 };
        // Inherit nothing; mappings, commands, forks, a trailer for all.
        let flags = 1u64 << 8 | 1 << 9 | 1 << 13 | 1 << 18;
        let branches = if event.fields & BRANCH_STACK != 0 { 1 << 3 } else { 0 };
        let registers = if event.fields & REGS_USER != 0 { REGISTERS } else { 0 };
        let stack = if event.fields & STACK_USER != 0 { 16 } else { 0 };
        words.u32(event.kind).u32(ATTRIBUTE).u64(0x1cd).u64(1000).u64(event.fields).u64(ids).u64(flags);
        words.u64(0).u64(0).u64(0).u64(branches).u64(registers).u32(stack).u32(0);
        words.bytes.resize(ATTRIBUTE as usize, 0);
        words.bytes
    }

    /// The file.
    pub fn bytes(mut self) -> Vec<u8> {
        self.end_round();
        let mut out = Vec::new();
        self.write(&mut out, &self.records.bytes, 0, |_| Vec::new()).unwrap();
        out
    }

    /// The end of a round: perf sorts what came before it.
    pub fn end_round(&mut self) {
        self.record(68, 0, &Words::new(self.big));
    }

    /// Takes the records that were made so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records.bytes)
    }

    /// A file of some records, and so many blocks of others, of one size.
    pub fn write(
        &self,
        out: &mut impl Write,
        first: &[u8],
        blocks: usize,
        block: impl Fn(usize) -> Vec<u8>,
    ) -> std::io::Result<()> {
        let size = first.len() + block(0).len() * blocks;
        let mut ids = Words::new(self.big);
        for id in 1..=self.events.len() as u64 {
            ids.u64(id);
        }
        let mut attributes = Words::new(self.big);
        let mut described = Words::new(self.big);
        described.u32(self.events.len() as u32).u32(ATTRIBUTE);
        for (number, event) in self.events.iter().enumerate() {
            let attribute = self.attribute(event);
            attributes.bytes.extend(&attribute);
            attributes.u64((HEADER + 8 * number) as u64).u64(8);
            let mut name = Words::new(self.big);
            name.text(event.name, 64);
            described.bytes.extend(&attribute);
            described.u32(1).u32(name.bytes.len() as u32);
            described.bytes.extend(name.bytes);
            described.u64(number as u64 + 1);
        }
        let mut arch = Words::new(self.big);
        arch.u32(64).text("x86_64", 64);
        arch.bytes.resize(68, 0);
        let mut cpus = Words::new(self.big);
        cpus.u32(2).u32(2);
        let mut nodes = Words::new(self.big);
        nodes.u32(1).u32(0).u64(1 << 20).u64(1 << 19).u32(64);
        nodes.bytes.extend(b"0-1");
        nodes.bytes.resize(24 + 4 + 64, 0);
        let mut features = vec![(6, arch.bytes), (7, cpus.bytes), (12, described.bytes), (14, nodes.bytes)];
        if !self.build_ids.bytes.is_empty() {
            features.insert(0, (2, self.build_ids.bytes.clone()));
        }
        let attributes_at = HEADER + ids.bytes.len();
        let records_at = attributes_at + attributes.bytes.len();
        let table_at = records_at + size;
        let mut at = table_at + 16 * features.len();
        let mut head = Words::new(self.big);
        head.bytes.extend(if self.big { b"2ELIFREP" } else { b"PERFILE2" });
        head.u64(HEADER as u64).u64(u64::from(ATTRIBUTE) + 16);
        head.u64(attributes_at as u64).u64(attributes.bytes.len() as u64);
        head.u64(records_at as u64).u64(size as u64).u64(0).u64(0);
        head.u64(features.iter().map(|(number, _)| 1u64 << number).sum()).u64(0).u64(0).u64(0);
        for part in [&head.bytes, &ids.bytes, &attributes.bytes, first] {
            out.write_all(part)?;
        }
        (0..blocks).try_for_each(|n| out.write_all(&block(n)))?;
        let mut table = Words::new(self.big);
        for (_, feature) in &features {
            table.u64(at as u64).u64(feature.len() as u64);
            at += feature.len();
        }
        out.write_all(&table.bytes)?;
        features.iter().try_for_each(|(_, feature)| out.write_all(feature))
    }
}
