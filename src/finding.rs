//! What a rule has to say about one object: the unit of `scan`, `check` and the CI formats.

use serde::Serialize;

use crate::units::{Addr, Phase};

/// How much it matters, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    High,
    Medium,
    Low,
    Info,
}

/// What the claim stands on, strongest first. Every finding carries its tier; a reader must never
/// have to guess whether a "contended" line was seen or supposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    Measured,
    Sampled,
    Decoded,
    Typed,
    Static,
}

/// The object that a finding speaks of, or one of the others on its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    pub name: String,
    pub section: String,
    pub address: Addr,
    /// In bytes.
    pub size: u64,
    pub phase: Phase,
    /// `null`: not known from symbols alone.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// One thing worth a look, with its evidence and what to do. JSON as in `straddle.scan/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable rule name, kebab-case: `straddle`, `shared-line`.
    pub rule: &'static str,
    pub severity: Severity,
    pub evidence: Evidence,
    pub subject: Subject,
    pub others: Vec<Subject>,
    /// Functions that read or write the object; `null` is unknown.
    pub readers: Option<u32>,
    pub writers: Option<u32>,
    pub advice: String,
    /// What following the advice would cost, in bytes; `null` is unknown.
    pub cost_bytes: Option<u64>,
}
