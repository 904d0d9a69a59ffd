//! Profiles: text or bytes → [`Samples`], each with the line or the byte it stands at. One file a format; which one it
//! is, its content says. What a sample means for an image is told in `heat`: here a place is what the profile calls it.
//!
//! A profile is read twice, so that it need not be kept: for the mappings ([`Samples::maps`]), then sample by sample.

mod c2c;
mod cachelines;
mod columns;
mod list;
mod maps;
mod mem_report;
mod perf_data;
mod script;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::open::Bytes;

use perf_data::PerfData;

pub use maps::{Map, Maps, Owner};

/// What a profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    PerfData,
    PerfScript,
    PerfC2c,
    PerfMem,
    /// A table of the kernel's documentation (`net_cachelines`).
    CacheLines,
    /// Names, with weights and marks.
    List,
}

impl Format {
    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::PerfData => "perf.data",
            Format::PerfScript => "perf script",
            Format::PerfC2c => "perf c2c report",
            Format::PerfMem => "perf mem report",
            Format::CacheLines => "a net_cachelines table",
            Format::List => "a list of names",
        }
    }
}

impl Format {
    /// Places are addresses of a running system, or may be.
    #[must_use]
    pub fn has_addresses(self) -> bool {
        matches!(self, Format::PerfData | Format::PerfScript | Format::PerfC2c | Format::PerfMem)
    }
}

/// Where a sample was taken, or what it touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place<'a> {
    /// While it ran.
    Address(u64),
    /// `file`: the program or library, where it is told.
    Symbol { name: &'a str, offset: u64, file: Option<&'a str> },
    /// Of every object of a type.
    Member { of: &'a str, path: &'a str },
}

/// What an access does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Does {
    pub reads: bool,
    pub writes: bool,
    pub locked: bool,
}

impl Does {
    pub const READ: Does = Does { reads: true, writes: false, locked: false };
    pub const WRITE: Does = Does { reads: false, writes: true, locked: false };
}

/// What a sample stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// An access to memory was seen: its address is known.
    Access,
    /// Only where the program was.
    Code,
    /// A person says so; weighted or not.
    Word { weighted: bool },
}

/// One sample, or a row that stands for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The line, from 1, of a text; the byte of a binary file.
    pub at: u64,
    /// Samples that it stands for.
    pub count: u64,
    pub stands: Stands,
    /// `None`: not told.
    pub does: Option<Does>,
    pub code: Option<Place<'a>>,
    /// What both `code` and `code`'s symbol are known of: the address, where `code` is the symbol.
    pub code_address: Option<u64>,
    pub data: Option<Place<'a>>,
    pub cpu: Option<u32>,
    pub process: Option<u32>,
    pub thread: Option<u32>,
    /// In nanoseconds.
    pub time: Option<u64>,
    /// Cycles of all that it stands for; 0 where it was not measured.
    pub cycles: u64,
    /// How many found the line modified in the cache of another CPU.
    pub hitm: u64,
}

impl Sample<'_> {
    /// With nothing known but that it is there.
    #[must_use]
    pub fn at(at: u64, stands: Stands) -> Self {
        Sample {
            at,
            count: 1,
            stands,
            does: None,
            code: None,
            code_address: None,
            data: None,
            cpu: None,
            process: None,
            thread: None,
            time: None,
            cycles: 0,
            hitm: 0,
        }
    }
}

/// Samples that were left out, and what else a profile says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// By reason.
    pub skipped: BTreeMap<&'static str, u64>,
    pub problems: Vec<String>,
}

impl Told {
    fn skip(&mut self, reason: &'static str, count: u64) {
        *self.skipped.entry(reason).or_insert(0) += count;
    }
}

/// A profile of any kind, looked at but not read.
#[derive(Debug)]
pub struct Samples<'a> {
    /// As the user named it; for messages.
    pub path: String,
    pub format: Format,
    pub maps: Maps<'a>,
    content: Content<'a>,
}

#[derive(Debug)]
enum Content<'a> {
    PerfData(PerfData<'a>),
    Text(&'a str),
}

/// What one profile gives to whoever takes its samples.
pub type Sink<'s, 'a> = &'s mut dyn FnMut(Sample<'a>);

impl<'a> Samples<'a> {
    /// Tells by its content what a profile is, and reads what is mapped where. `path` is for messages.
    ///
    /// # Errors
    /// It is none of the formats.
    pub fn open(bytes: &'a [u8], path: &str) -> Result<Samples<'a>> {
        Samples::look(bytes, None, path)
    }

    fn look(bytes: &'a [u8], file: Option<&'a Bytes>, path: &str) -> Result<Samples<'a>> {
        let doing = || format!("reading the profile {path}");
        if perf_data::is_one(bytes) {
            let (data, maps) = PerfData::open(bytes, file, path)?;
            let content = Content::PerfData(data);
            return Ok(Samples { path: path.to_string(), format: Format::PerfData, maps, content });
        }
        if bytes.contains(&0) {
            return Err(Error::input(doing(), "it is a binary file, and no perf.data").hint(KINDS));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::input(doing(), format!("byte {} is no UTF-8", e.valid_up_to())).hint(KINDS))?;
        let format =
            detect(text).ok_or_else(|| Error::input(doing(), "nothing in it looks like a profile").hint(KINDS))?;
        let maps = if format == Format::PerfScript { script::maps(text) } else { Maps::default() };
        Ok(Samples { path: path.to_string(), format, maps, content: Content::Text(text) })
    }

    /// The same of a file, of which no more is kept in memory than is looked at.
    ///
    /// # Errors
    /// As [`Samples::open`].
    pub fn of_file(file: &'a Bytes, path: &str) -> Result<Samples<'a>> {
        Samples::look(file, Some(file), path)
    }

    /// Hands out every sample, in the order of the file, and tells what was left out.
    ///
    /// # Errors
    /// A line of a list that says nothing that is known.
    pub fn each(&self, sink: Sink<'_, 'a>) -> Result<Told> {
        let mut told = Told::default();
        match (&self.content, self.format) {
            (Content::PerfData(data), _) => data.read(sink, &mut told),
            (Content::Text(text), Format::CacheLines) => cachelines::read(text, sink, &mut told),
            (Content::Text(text), Format::PerfC2c) => c2c::read(text, sink, &mut told),
            (Content::Text(text), Format::PerfMem) => mem_report::read(text, sink, &mut told),
            (Content::Text(text), Format::List) => list::read(text, &self.path, sink)?,
            (Content::Text(text), _) => script::read(text, sink, &mut told),
        }
        Ok(told)
    }
}

const KINDS: &str = "a perf.data, text of `perf script`, `perf c2c report --stdio` or `perf mem report`, a list of names, or a table of net_cachelines";

/// Lines that are looked at.
const LOOKED_AT: usize = 2000;

fn detect(text: &str) -> Option<Format> {
    let lines = || text.lines().take(LOOKED_AT);
    if lines().any(cachelines::is_head) {
        return Some(Format::CacheLines);
    }
    if lines().any(c2c::is_head) {
        return Some(Format::PerfC2c);
    }
    if lines().any(mem_report::is_head) {
        return Some(Format::PerfMem);
    }
    if lines().any(script::is_line) {
        return Some(Format::PerfScript);
    }
    let mut named = lines().filter(|l| !list::is_empty(l)).peekable();
    (named.peek().is_some() && named.all(list::is_line)).then_some(Format::List)
}

/// What an event counts, by its name: where no data source is recorded.
fn of_event(name: &str) -> Option<Does> {
    match () {
        () if name.contains("store") => Some(Does::WRITE),
        () if name.contains("load") => Some(Does::READ),
        () => None,
    }
}

/// Words of a line, with the byte where each begins.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_ascii_whitespace().map(move |word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

/// `0x1f`, or without `0x`.
fn hex(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// `name+0x1f` or `name`.
fn symbol<'a>(word: &'a str, file: Option<&'a str>) -> Option<Place<'a>> {
    if word.is_empty() || word == "[unknown]" {
        return None;
    }
    let (name, offset) = match word.rsplit_once("+0x") {
        Some((name, offset)) if !name.is_empty() => (name, hex(offset)?),
        _ => (word, 0),
    };
    Some(Place::Symbol { name, offset, file })
}
