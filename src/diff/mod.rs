//! Two images → what changed, what merely moved, and which moves could matter ([`Suspect`]).

use serde::{Deserialize, Serialize};

/// What moved though its bytes are the same, as `straddle.diff/1` and `straddle.verdict/1` print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub name: String,
    /// `data` or `function`.
    pub kind: String,
    pub section: String,
    pub base: Place,
    pub patched: Place,
    /// Whether its own content differs between the two (relocated fields masked); `null` is unknown.
    pub bytes_changed: Option<bool>,
    pub evidence: String,
    pub readers: Option<u32>,
    pub writers: Option<u32>,
    /// The variant that would test it, in words.
    pub test: String,
}

/// Where a suspect lies in one of the two images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `"0x…"`.
    pub address: String,
    /// In bytes from the start of its line.
    pub phase: u32,
    /// The other objects on its lines.
    pub with: Vec<String>,
}
