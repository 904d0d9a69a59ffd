//! Placement rules that a project writes down in `straddle.toml`.

mod spec;

pub use spec::{Bound, Deliberate, Relation, Rule, What, contradiction};

/// What a placement rule can ask, and what `check` says beside it.
pub const NAMES: &[&str] =
    &["drift", "group", "max-size", "no-match", "no-straddle", "offset", "own-line", "separate", "together"];
