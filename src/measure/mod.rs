//! Variants and a workload → [`record::Record`]: raw samples, as they come.
//!
//! ```text
//! Workload ─▶ Real (a Runner: Slot, environment, spawn, gauges) ─▶ RunResult ─▶ Campaign ─▶ Record
//! ```
//!
//! Nothing of ours runs, allocates, locks or prints between the start of a run and its end.

#![allow(clippy::disallowed_methods, reason = "this room runs workloads, reads clocks and writes records")]

pub mod campaign;
pub mod contamination;
pub mod cpus;
pub mod doctor;
pub mod environment;
#[cfg(test)]
pub(crate) mod fake;
pub mod gauges;
pub mod host;
pub mod metric;
pub mod pilot;
pub mod record;
pub mod run;
pub mod slot;
mod spawn;
pub mod stop;
pub mod workers;
pub mod workload;
pub mod writer;
