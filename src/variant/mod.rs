//! Capture, Landing, seed → Plan → patched objects → linked, proven Variant.
//!
//! A variant is the same code, linked anew from the same objects, with its sections somewhere else:
//!
//! ```text
//! link::Relink ─▶ Program::open      every input section of the link, and which of them may be moved   program
//!                    │                 (an allow-list and the section's structure)                      classify
//! Targets ───────▶ solve             pads by arithmetic from the pristine landing                      solve
//!                    ▼
//!                  Plan              bytes behind units, raised alignments, the phases it promises      plan, draw
//!                    ▼
//!                  patch             section headers of objects and archive members, in memory          patch, archive
//!                    ▼
//!                  link              link::Relink, and the new map                                      make
//!                    ▼
//!                  verify            a second ELF reader: objects, symbols, bytes, landing              verify
//!                    ▼
//!                  Variant           or an error that names the unit and the check
//! ```
//!
//! [`kinds`] says what each kind of variant asks for. [`make`] links a given plan, all of whose targets must be met. [`land`] solves a plan for the phases that are
//! wanted, corrects it by what the linker did, and names the units that could not be matched.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Phase;

mod archive;
mod classify;
mod draw;
mod joint;
pub mod kinds;
mod landings;
mod make;
mod masks;
mod matched;
mod object;
mod patch;
mod plan;
mod program;
mod rows;
mod solve;
mod sources;
mod verify;

pub use classify::{Class, Family};
pub use draw::{
    Common, Inside, align_all, common, cycle, held_apart, matched_report, random_lead, random_targets,
    targets_as_built, turned,
};
pub use joint::{Joint, differences, lines_of, random_joint, together};
pub use landings::{By, Entry, Kept, Landings, Missed, Named, UnitAsBuilt, VersionAsBuilt};
pub use make::{Aim, Landed, NOWHERE, Unmatched, Variant, land, make, make_ordered};
pub use matched::Matched;
pub use plan::Plan;
pub use program::{Program, Unit};
pub use solve::{Solved, solve};
pub use verify::Proof;

/// What keeps its meaning across base and patched: which section of which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitKey {
    /// [`crate::link::Input::name`].
    pub file: String,
    /// The archive member, where `file` is an archive.
    pub member: Option<String>,
    pub section: String,
    /// Which of the sections of that name, from 0, in the object's order.
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

/// Whole lines in front of an output section's units, by its name: addresses move, no phase does (a placebo).
pub type Lead = BTreeMap<String, u64>;

/// How far units stand from the common unit before them, in lines: who shares a line with whom.
pub type Lines = BTreeMap<UnitKey, Gap>;

/// A distance from an earlier unit of the same output section, from the line of one's first byte to the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub after: UnitKey,
    /// At least so many: pads only add.
    pub lines: u64,
}

/// The line that landings are matched on.
const LINE: u64 = crate::units::LineSize::B64.bytes();

/// Where `address` lies in its line.
fn phase(address: u64) -> Phase {
    crate::units::LineSize::B64.phase_of(crate::units::Addr(address))
}
