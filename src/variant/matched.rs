//! How far two versions have been given one landing, as a record keeps it.

use serde::{Deserialize, Serialize};

/// How many units could be given the same landing in both versions, and which could not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    pub units: u32,
    pub of: u32,
    /// Names of the rest, with the reason.
    pub rest: Vec<String>,
    /// Those of the rest inside which common data moved against their start, so that no pad can match it:
    /// `hot.o:.data (alignment 64)`.
    #[serde(default)]
    pub inside_moved: Vec<String>,
    /// Data whose luck the drawn layouts cannot average out, so that it would be taken for the code: those of `inside_moved`
    /// that are aligned to 32 bytes and more, and what stands apart in the two versions on most drawn landings.
    #[serde(default)]
    pub rigid: Vec<String>,
}

impl Matched {
    /// Those of `rigid` whose inside is the same: data that stands apart in the two versions, whatever is padded.
    pub fn apart(&self) -> impl Iterator<Item = &str> {
        self.rigid.iter().filter(|unit| !self.inside_moved.contains(unit)).map(String::as_str)
    }
}
