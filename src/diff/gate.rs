//! `--fail-on`: what a user does not want between two builds.

use super::{Diff, Suspect};
use crate::error::{Error, Result};

/// One condition, by name; `hot`: only of data that code is seen to use, or of code that may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    name: String,
    hot: bool,
}

const OF_SUSPECTS: [&str; 4] = ["new-straddle", "new-neighbour", "new-crossing", "new-phase"];
const OF_COUNTS: [&str; 4] = ["moved", "changed", "resized", "type-changed"];

impl Gate {
    /// # Errors
    /// When there is no such condition: the message lists those that there are.
    pub fn parse(text: &str) -> Result<Gate> {
        let (name, hot) = text.strip_suffix(":hot").map_or((text, false), |name| (name, true));
        let known = OF_SUSPECTS.contains(&name) || (!hot && OF_COUNTS.contains(&name));
        if !known {
            let list = [OF_SUSPECTS.join(", "), OF_COUNTS.join(", ")].join(", ");
            return Err(Error::input(
                "reading the command line",
                format!("--fail-on {text}: there is no such condition"),
            )
            .hint(format!("one of {list}; new-…:hot for what code is seen to use")));
        }
        Ok(Gate { name: name.to_string(), hot })
    }

    /// What violates it, in words; `None`: nothing does.
    #[must_use]
    pub fn violated(&self, diff: &Diff) -> Option<String> {
        let data = &diff.data;
        let count = match (self.name.as_str(), self.hot) {
            ("moved", _) => data.moved + diff.functions.moved,
            ("changed", _) => data.content_changed + data.resized + diff.functions.changed,
            ("resized", _) => data.resized,
            ("type-changed", _) => diff.types.as_ref().map_or(0, |t| t.changed),
            ("new-straddle", false) => data.newly_straddling,
            ("new-neighbour", false) => data.new_neighbours,
            ("new-crossing", false) => diff.functions.loops_newly_crossing,
            ("new-phase", false) => data.rephased + diff.functions.rephased,
            (name, _) => {
                let is = |s: &&Suspect| s.why.iter().any(|w| w == name) && s.evidence.starts_with("decoded");
                let found: Vec<&Suspect> = diff.suspects.iter().filter(is).collect();
                let first = found.first()?;
                return Some(format!("{} of what is used: {}, the first is {}", name, found.len(), first.name));
            }
        };
        (count > 0).then(|| format!("{}: {count}", self.name))
    }
}
