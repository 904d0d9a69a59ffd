//! Capture, Landing, seed → Plan → patched objects → linked, proven Variant.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Phase;

/// What keeps its meaning across base and patched: which section of which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitKey {
    /// [`crate::link::Input::name`].
    pub file: String,
    /// The archive member, where `file` is an archive.
    pub member: Option<String>,
    pub section: String,
    /// Which of the sections of that name, from 0.
    pub index: u32,
}

impl fmt::Display for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.member {
            Some(member) => write!(f, "{}({member})", self.file)?,
            None => f.write_str(&self.file)?,
        }
        write!(f, ":{}", self.section)?;
        if self.index > 0 {
            write!(f, "#{}", self.index)?;
        }
        Ok(())
    }
}

/// The landing that a plan asks for: the phase of each unit, mod the line.
pub type Targets = BTreeMap<UnitKey, Phase>;
