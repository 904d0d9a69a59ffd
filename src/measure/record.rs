//! The record of a campaign, `straddle.record/1`: JSON lines, one [`Header`], then one [`Sample`] or [`Note`] a line.
//!
//! The header holds all that a verdict needs (suspects, matched units, margin), written before the first trial;
//! `verdict` reads nothing else. A line is written whole and flushed, so a killed campaign loses at most one line;
//! a torn last line is dropped and counted.

use serde::{Deserialize, Serialize};

use crate::diff::Suspect;
use crate::error::{Error, Result};
pub use crate::variant::Matched;

/// The schema that the first line names.
pub const SCHEMA: &str = "straddle.record/1";

/// What decides, and which way is good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// As the user wrote it: `wall`, `user`, `stdout:ns_per_op ([0-9.]+)`, `json:/ns_per_op`.
    pub name: String,
    /// `s`, `ns`, `op/s`, or empty when not known.
    pub unit: String,
    pub better: Better,
}

/// Which direction of the metric is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// The first line of a record: everything that is known before the first trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub schema: String,
    /// The version of `straddle` that wrote it.
    pub tool: String,
    /// What was compared, in the user's words: `fixtures/irrelevant-patch`.
    pub case: String,
    /// `"0x…"`: every draw follows from it.
    pub seed: String,
    /// RFC 3339.
    pub started: String,
    /// Facts of the machine and of the pinning, as `doctor` prints them.
    pub host: serde_json::Map<String, serde_json::Value>,
    /// The workload as it was run.
    pub command: String,
    pub metric: Metric,
    /// Read from the same runs and shown beside the metric that decides, in the order of [`Sample::also`].
    #[serde(default)]
    pub also: Vec<Metric>,
    /// The worker counts of a sweep: every cell runs with each of them. Empty: there is none.
    #[serde(default)]
    pub workers: Vec<u32>,
    /// The worker count whose row decides; `null`: every row does, each at its share of the level.
    #[serde(default)]
    pub decides: Option<u32>,
    /// Whether the program can start threads; `null` is unknown.
    #[serde(default)]
    pub threads: Option<bool>,
    /// The margin m, in percent, fixed before data.
    pub margin_percent: f64,
    /// The last look: no more blocks than this.
    pub max_blocks: u32,
    /// One block and no layouts: large effects only.
    #[serde(default)]
    pub quick: bool,
    /// The inside of some data moved, which no pad can match: so many layouts in a row are one full phase cycle, in which
    /// both versions stand at every phase of that data alike.
    #[serde(default)]
    pub cycle: Option<u32>,
    pub matched: Matched,
    pub suspects: Vec<Suspect>,
    /// Loaded content of the two as-built links is the same: nothing was run.
    pub identical: bool,
    /// What a reader should know of the builds and links: a submodule left out, another linked file that differs.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Variant name → blake3 of the binary.
    pub hashes: std::collections::BTreeMap<String, String>,
}

/// Which comparison a trial belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Four cells on two landings: the replicated 2×2.
    Block,
    /// Base and patched on one drawn landing.
    Layout,
    /// Base and patched with every section aligned; beside the estimate, never in it.
    Aligned,
    /// A second no-op link of base, compared with `b0` of block 0.
    Twin,
}

impl Group {
    /// As in the names of variants: `block-3/P0`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Block => "block",
            Group::Layout => "layout",
            Group::Aligned => "aligned",
            Group::Twin => "twin",
        }
    }
}

/// Which cell of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cell {
    /// Base code on base's landing (in a layout or an aligned pair: base).
    #[serde(rename = "b0")]
    B0,
    /// Patched code on base's landing: a transplant.
    #[serde(rename = "pB")]
    PB,
    /// Base code on patched's landing: a transplant.
    #[serde(rename = "bP")]
    BP,
    /// Patched code on patched's landing (in a layout or an aligned pair: patched).
    #[serde(rename = "p0")]
    P0,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    /// Non-zero exit, a signal, or no metric in its output; the words say which.
    Failed(String),
    /// Killed at the time limit.
    TimedOut,
}

/// One run of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub group: Group,
    /// Block or layout number; 0 is as built.
    pub number: u32,
    pub cell: Cell,
    /// Of a sweep: how many workers ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    pub round: u32,
    /// 0, or 1 for the one repetition of a contaminated quad or pair.
    #[serde(default)]
    pub attempt: u32,
    /// Position in the campaign, from 0.
    pub order: u64,
    /// Nanoseconds since the campaign began.
    pub start_ns: u64,
    pub outcome: Outcome,
    /// The deciding metric, in its own unit; absent when the run failed.
    pub value: Option<f64>,
    /// The other metrics, in the order of [`Header::also`]; `null` where the run says nothing of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Option<f64>>,
    /// Seconds.
    pub wall: f64,
    pub user: f64,
    pub sys: f64,
    /// KiB.
    pub max_rss: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Steal of the CPUs used, in clock ticks; `null` is unknown.
    pub steal_ticks: Option<u64>,
    /// Outside evidence says that something else ran: kept, and repeated once.
    #[serde(default)]
    pub contaminated: bool,
    /// Bytes of environment added in front of the stack.
    pub stack_offset: u32,
}

/// A line between the samples: what the campaign found out or decided, when it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Note {
    Pilot(Pilot),
    Look(LookNote),
    Resumed(Resumed),
}

/// After the first rounds: what the rest will take. Times are expectations, never part of a verdict's numbers. What a pilot
/// with too little that is clean cannot tell is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pilot {
    /// A run with our own work around it; of a sweep, one with each worker count.
    pub seconds_per_run: f64,
    /// A linked and proven variant.
    pub seconds_per_link: f64,
    /// B, the rounds of every cell: chosen once, here.
    pub rounds: u32,
    /// The first look at which the noise lets a decision be expected, in 9 cases of 10; `null`: none that is allowed.
    pub blocks: Option<u32>,
    /// From here to the end of that look, or of the last one.
    pub seconds: Option<f64>,
    /// The smallest margin, in percent, that the last look allowed can decide.
    pub decidable_margin_percent: Option<f64>,
    /// Whether the record's own margin is one of them.
    pub reachable: Option<bool>,
    /// What was left of the budget; `null`: there is none.
    pub budget_seconds: Option<f64>,
    /// The last look that ends within the budget; `null`: not even the first.
    pub budget_blocks: Option<u32>,
    /// The smallest margin, in percent, that can be decided there.
    pub budget_margin_percent: Option<f64>,
}

/// A later look begins: its links are made and proven, none has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookNote {
    /// How many there are with this look's.
    pub blocks: u32,
    pub layouts: u32,
    /// Variant name → blake3 of the binary, of those that this look adds.
    pub hashes: std::collections::BTreeMap<String, String>,
}

/// A campaign that had been cut goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The `order` of the first run after it.
    pub order: u64,
}

/// A whole record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub header: Header,
    pub samples: Vec<Sample>,
    /// In the order of the file.
    pub notes: Vec<Note>,
    /// Lines that could not be read (a torn last line), with the reason.
    pub dropped: Vec<String>,
}

/// The most worker counts, and the most metrics, that one campaign may have.
pub const MOST_ROWS: usize = 32;

impl Header {
    /// The worker counts that every cell runs with; one unnamed count where there is no sweep.
    #[must_use]
    pub fn counts(&self) -> Vec<Option<u32>> {
        if self.workers.is_empty() { vec![None] } else { self.workers.iter().copied().map(Some).collect() }
    }

    /// This header as the record's first line, without the newline.
    pub fn line(&self) -> Result<String> {
        line("header", self)
    }
}

impl Sample {
    /// This sample as one line of the record, without the newline.
    pub fn line(&self) -> Result<String> {
        line("sample", self)
    }
}

fn line(what: &str, value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::input(format!("writing a {what} of the record"), e.to_string()))
}

impl Note {
    /// This note as one line of the record, without the newline.
    pub fn line(&self) -> Result<String> {
        line("note", self)
    }
}

impl Record {
    /// A record without a sample.
    #[must_use]
    pub fn new(header: Header) -> Record {
        Record { header, samples: Vec::new(), notes: Vec::new(), dropped: Vec::new() }
    }

    /// What the pilot expected, if the campaign came so far.
    #[must_use]
    pub fn pilot(&self) -> Option<Pilot> {
        self.notes.iter().find_map(|n| if let Note::Pilot(pilot) = n { Some(*pilot) } else { None })
    }

    /// The later looks that were begun.
    pub fn looks(&self) -> impl Iterator<Item = &LookNote> {
        self.notes.iter().filter_map(|n| if let Note::Look(look) = n { Some(look) } else { None })
    }

    /// The hashes of a group's binaries in one word; `None` when the record does not know them.
    #[must_use]
    pub fn files(&self, group: Group, number: u32) -> Option<String> {
        let prefix = format!("{}-{number}/", group.name());
        let maps = std::iter::once(&self.header.hashes).chain(self.looks().map(|look| &look.hashes));
        let of = |(name, hash): (&String, &String)| name.starts_with(&prefix).then(|| format!("{name} {hash} "));
        Some(maps.flatten().filter_map(of).collect::<String>()).filter(|all| !all.is_empty())
    }

    /// How often the campaign had been resumed before the run with this `order`. Runs of two sessions did not stand
    /// side by side, whatever the record says of their round.
    #[must_use]
    pub fn session(&self, order: u64) -> usize {
        self.notes.iter().filter(|n| matches!(n, Note::Resumed(r) if r.order <= order)).count()
    }

    /// Reads a whole record from its text. Lines are counted from 1 in errors; empty lines are passed over.
    ///
    /// A last line that does not end in a newline and cannot be read was torn by a kill: it is dropped and said in
    /// [`Record::dropped`]. Any other line that cannot be read is an error, because a writer that flushes whole lines
    /// never leaves one: guessing past it would hide a damaged file.
    pub fn parse(text: &str) -> Result<Record> {
        let mut header = None;
        let mut samples = Vec::new();
        let mut notes = Vec::new();
        let mut dropped = Vec::new();
        for (index, raw) in text.split_inclusive('\n').enumerate() {
            let (number, body) = (index + 1, raw.trim());
            if body.is_empty() {
                continue;
            }
            if header.is_none() {
                header = Some(Header::parse(body, number)?);
                continue;
            }
            match (serde_json::from_str::<Sample>(body), raw.ends_with('\n')) {
                (Ok(sample), _) => samples.push(sample),
                (Err(e), whole) => match serde_json::from_str::<Note>(body) {
                    Ok(note) => notes.push(note),
                    Err(_) if !whole => dropped.push(format!("line {number}: torn ({})", in_line(&e))),
                    Err(_) => {
                        let doing = format!("reading the record, line {number}");
                        return Err(Error::input(doing, format!("not a sample: {}", in_line(&e))));
                    }
                },
            }
        }
        match header {
            Some(header) => Ok(Record { header, samples, notes, dropped }),
            None => Err(not_a_record(1, "no line at all")),
        }
    }
}

/// Facts of the host that must be the same for one campaign to go on.
const SAME_HOST: [&str; 3] = ["cpu_model", "cpus_used", "aslr_off_in_runs"];

impl Header {
    /// Why the campaign that began with this header is another one than that which would begin with `now`, in words;
    /// `None` when it can go on. Times, the tool's version and what else is said of the host may differ.
    #[must_use]
    pub fn differs(&self, now: &Header) -> Option<String> {
        let pairs = [
            ("seed", self.seed.clone(), now.seed.clone()),
            ("margin", self.margin_percent.to_string(), now.margin_percent.to_string()),
            ("number of blocks", self.max_blocks.to_string(), now.max_blocks.to_string()),
            ("phase cycle", format!("{:?}", self.cycle), format!("{:?}", now.cycle)),
            ("--quick", self.quick.to_string(), now.quick.to_string()),
            ("metric", self.metric.name.clone(), now.metric.name.clone()),
            ("better", format!("{:?}", self.metric.better), format!("{:?}", now.metric.better)),
            ("command", self.command.clone(), now.command.clone()),
            ("list of other metrics", names(&self.also), names(&now.also)),
            ("list of worker counts", format!("{:?}", self.workers), format!("{:?}", now.workers)),
            ("deciding row", format!("{:?}", self.decides), format!("{:?}", now.decides)),
        ];
        let of = |header: &Header, key| header.host.get(key).map_or_else(|| "unknown".into(), ToString::to_string);
        let host = SAME_HOST.map(|key| (key, of(self, key), of(now, key)));
        if let Some((what, then, now)) = pairs.into_iter().chain(host).find(|(_, then, now)| then != now) {
            return Some(format!("its {what} is {then}, not {now}"));
        }
        let other = |name: &&String| self.hashes.get(*name) != now.hashes.get(*name);
        let name = self.hashes.keys().chain(now.hashes.keys()).find(other)?;
        Some(format!("its {name} is not the file that is linked now"))
    }

    fn parse(body: &str, number: usize) -> Result<Header> {
        #[derive(Deserialize)]
        struct Named {
            schema: String,
        }
        let named: Named =
            serde_json::from_str(body).map_err(|e| not_a_record(number, format!("no `schema`: {}", in_line(&e))))?;
        if named.schema != SCHEMA {
            return Err(not_a_record(number, format!("the schema is `{}`", named.schema.escape_debug())));
        }
        let header: Header =
            serde_json::from_str(body).map_err(|e| not_a_record(number, format!("bad header: {}", in_line(&e))))?;
        let margin = header.margin_percent;
        if !(margin.is_finite() && margin > 0.0 && margin <= 100.0) {
            return Err(not_a_record(number, format!("margin_percent is {margin}, expected more than 0, at most 100")));
        }
        let mut counts = header.workers.clone();
        counts.sort_unstable();
        counts.dedup();
        if counts.len() != header.workers.len() || counts.len().max(header.also.len()) > MOST_ROWS {
            let problem = format!("expected up to {MOST_ROWS} worker counts and other metrics, no count twice");
            return Err(not_a_record(number, problem));
        }
        if header.decides.is_some_and(|row| !header.workers.contains(&row)) {
            return Err(not_a_record(number, "the row that decides is none of the workers"));
        }
        if header.cycle == Some(0) {
            return Err(not_a_record(number, "cycle is 0, expected null or the layouts of a cycle"));
        }
        Ok(header)
    }
}

fn names(metrics: &[Metric]) -> String {
    let of = |m: &Metric| format!("{} ({:?})", m.name, m.better);
    format!("[{}]", metrics.iter().map(of).collect::<Vec<_>>().join(", "))
}

fn not_a_record(number: usize, problem: impl Into<String>) -> Error {
    Error::input(format!("reading the record, line {number}"), problem)
        .hint(format!("a record begins with a line that says \"schema\":\"{SCHEMA}\""))
}

/// serde_json counts lines within the one line it was given; only its column says something.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what}, column {}", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            schema: SCHEMA.into(),
            tool: "0.1.0".into(),
            case: "fixtures/both".into(),
            seed: "0x2a".into(),
            started: "2026-11-30T12:00:00Z".into(),
            host: serde_json::Map::new(),
            command: "{bin} 200000".into(),
            metric: Metric { name: "wall".into(), unit: "s".into(), better: Better::Lower },
            also: Vec::new(),
            workers: Vec::new(),
            decides: None,
            threads: None,
            margin_percent: 1.0,
            max_blocks: 48,
            quick: false,
            cycle: None,
            matched: Matched::default(),
            suspects: Vec::new(),
            identical: false,
            problems: Vec::new(),
            hashes: std::collections::BTreeMap::new(),
        }
    }

    fn sample(order: u64) -> Sample {
        Sample {
            group: Group::Block,
            number: 0,
            cell: Cell::BP,
            workers: None,
            round: 3,
            attempt: 0,
            order,
            start_ns: 17,
            outcome: if order == 1 { Outcome::Failed("signal 11 ünder load".into()) } else { Outcome::Ok },
            value: (order != 1).then_some(0.1 + 0.2),
            also: Vec::new(),
            wall: 0.5,
            user: 0.25,
            sys: 0.0,
            max_rss: 900,
            voluntary_switches: 1,
            involuntary_switches: 0,
            steal_ticks: None,
            contaminated: false,
            stack_offset: 16,
        }
    }

    fn text() -> String {
        let lines = [header().line().unwrap(), sample(0).line().unwrap(), sample(1).line().unwrap()];
        lines.map(|l| l + "\n").concat()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record::parse(&text()).unwrap();
        assert_eq!(record.header, header());
        assert_eq!(record.samples, [sample(0), sample(1)]);
        assert!(record.dropped.is_empty());
    }

    /// What the campaign noted is read back, and a kind that this tool does not know is refused.
    #[test]
    fn notes_stand_between_samples() {
        let hashes = [("block-4/B0".to_string(), "ab".to_string())].into();
        let notes = [Note::Look(LookNote { blocks: 6, layouts: 12, hashes }), Note::Resumed(Resumed { order: 1 })];
        let [look, resumed] = notes.each_ref().map(|n| n.line().unwrap() + "\n");
        let record = Record::parse(&(text() + &look + &sample(2).line().unwrap() + "\n" + &resumed)).unwrap();
        assert_eq!((record.samples.len(), &record.notes[..]), (3, &notes[..]));
        assert_eq!([0, 1, 2].map(|order| record.session(order)), [0, 1, 1]);
        assert!(Record::parse(&(text() + "{\"nonsense\":{}}\n")).is_err());
    }

    #[test]
    fn another_campaign_is_told_in_one_line() {
        let mut now = header();
        now.tool = "9".into();
        now.started = "2027".into();
        assert_eq!(header().differs(&now), None);
        now.hashes.insert("block-0/B0".into(), "ab".into());
        assert!(header().differs(&now).unwrap().contains("block-0/B0"));
        let swept = Header { workers: vec![1, 2], ..header() };
        assert_eq!(header().differs(&swept).unwrap(), "its list of worker counts is [], not [1, 2]");
        now.seed = "0x2b".into();
        assert_eq!(header().differs(&now).unwrap(), "its seed is 0x2a, not 0x2b");
    }

    /// A kill may cut the file at any byte: what was whole stays, at most one line is lost, and that is said.
    #[test]
    fn a_torn_last_line_is_dropped_and_counted() {
        let text = text();
        let body = text.find('\n').unwrap() + 1;
        for cut in (body..text.len()).filter(|&c| text.is_char_boundary(c)) {
            let record = Record::parse(&text[..cut]).unwrap();
            let whole = text[body..cut].matches('\n').count();
            let torn = !text[..cut].ends_with('\n');
            let (read, lost) = (record.samples.len(), record.dropped.len());
            assert!(read == whole && lost == usize::from(torn) || read == whole + 1 && lost == 0, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_record_is_one_clear_line() {
        let says = |text: &str, what: &str| {
            let error = Record::parse(text).unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
        };
        says("", "no line at all");
        says("\u{7f}ELF", "line 1: no `schema`");
        says("{\"schema\":\"straddle.scan/1\"}\n", "the schema is `straddle.scan/1`");
        says("{\"schema\":\"straddle.record/1\"}\n", "missing field");
        says(&text().replace("\"order\":0", "\"order\":-1"), "line 2: not a sample");
        says(&text().replace("\"margin_percent\":1.0", "\"margin_percent\":0"), "margin_percent is 0");
        says(&text().replace("\"workers\":[]", "\"workers\":[2,1,2]"), "no count twice");
        says(&text().replace("\"decides\":null", "\"decides\":3"), "none of the workers");
    }
}
