//! The record of a campaign, `straddle.record/1`: JSON lines, one [`Header`], then one [`Sample`] a line.
//!
//! The header holds all that a verdict needs (suspects, matched units, margin), written before the first trial;
//! `verdict` reads nothing else. A line is written whole and flushed, so a killed campaign loses at most one line;
//! a torn last line is dropped and counted.

use serde::{Deserialize, Serialize};

use crate::diff::Suspect;

/// The schema that the first line names.
pub const SCHEMA: &str = "straddle.record/1";

/// What decides, and which way is good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// As the user wrote it: `wall`, `user`, `stdout:ns_per_op ([0-9.]+)`.
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

/// How many units could be given the same landing in both versions, and which could not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    pub units: u32,
    pub of: u32,
    /// Names of the rest, with the reason.
    pub rest: Vec<String>,
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
    /// The margin m, in percent, fixed before data.
    pub margin_percent: f64,
    /// The last look: no more blocks than this.
    pub max_blocks: u32,
    pub matched: Matched,
    pub suspects: Vec<Suspect>,
    /// Loaded content of the two as-built links is the same: nothing was run.
    pub identical: bool,
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

/// A whole record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub header: Header,
    pub samples: Vec<Sample>,
    /// Lines that could not be read (a torn last line), with the reason.
    pub dropped: Vec<String>,
}
