//! What a rule has to say about one object: the unit of `scan`, `check` and the CI formats.

use serde::{Deserialize, Serialize};

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

/// So many of so many places, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    pub at: u64,
    pub of: u64,
}

impl Share {
    /// Which of two is larger, without rounding.
    #[must_use]
    pub fn cmp_exact(self, other: Share) -> std::cmp::Ordering {
        let cross = |a: Share, b: Share| u128::from(a.at) * u128::from(b.of);
        cross(self, other).cmp(&cross(other, self))
    }
}

/// What becomes of one span over all the places it may get: an object over all shifts upstream in its section, a member
/// over all bases of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Places: one for each step of the alignment in a line.
    pub of: u64,
    /// Places at which it lies on two lines though it fits one.
    pub straddles: u64,
    /// Places at which it is on a line with something contended, or with one of the finding's others.
    pub meets: u64,
    /// Places at which it does either.
    pub either: u64,
}

impl Sensitivity {
    /// Places at which it does either.
    #[must_use]
    pub fn share(self) -> Share {
        Share { at: self.either, of: self.of }
    }
}

/// Another way to follow an advice, and its price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alternative {
    pub advice: String,
    /// Of the whole object, in bytes, and in lines when it begins on one.
    pub size: u64,
    pub lines: u64,
    pub cost_bytes: u64,
}

/// One of the accesses that a finding stands on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Use {
    pub object: String,
    /// In the object, in bytes.
    pub offset: u64,
    /// In bytes; 0 is unknown.
    pub width: u32,
    /// `read`, `write`, `read-write` or `atomic`.
    pub kind: &'static str,
    pub function: String,
    /// The function that is handed the address and makes the access.
    pub through: Option<String>,
    pub evidence: Evidence,
    /// Instructions where decoded, samples or weights where measured.
    pub count: u64,
    /// How many made it; `null`: not known.
    pub cpus: Option<u32>,
}

/// What profiles saw of what a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Samples (or weights of a list), on its line or to its bytes.
    pub samples: u64,
    /// The most CPUs that one datum was touched by; `null`: not told.
    pub cpus: Option<u32>,
    /// Pairs of a write and another CPU's access to different data of one line: what a layout can mend. `null`: it is not
    /// about sharing.
    pub conflict: Option<u64>,
    /// Such pairs to the same datum: what no layout mends.
    pub true_sharing: u64,
    /// Samples that found the line modified in the cache of another CPU.
    pub hitm: u64,
}

impl Measured {
    /// What orders findings.
    #[must_use]
    pub fn weight(self) -> u64 {
        self.conflict.unwrap_or(self.samples)
    }
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
    pub alternatives: Vec<Alternative>,
    /// `null`: its place does not depend on what is upstream, or is not known.
    pub sensitivity: Option<Sensitivity>,
    /// Some of the accesses that it stands on, the strongest first; empty where none is known.
    pub accesses: Vec<Use>,
    /// `null`: no profile, or it saw nothing of it.
    pub measured: Option<Measured>,
}

impl Finding {
    /// With nothing said yet but what it is about.
    #[must_use]
    pub fn about(rule: &'static str, severity: Severity, evidence: Evidence, subject: Subject) -> Finding {
        Finding {
            rule,
            severity,
            evidence,
            subject,
            others: Vec::new(),
            readers: None,
            writers: None,
            advice: String::new(),
            cost_bytes: None,
            alternatives: Vec::new(),
            sensitivity: None,
            accesses: Vec::new(),
            measured: None,
        }
    }
}
