//! Variants and a workload → [`record::Record`]: raw samples, as they come.

#![allow(clippy::disallowed_methods, reason = "this room runs workloads, reads clocks and writes records")]

pub mod record;
