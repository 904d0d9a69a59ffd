//! `straddle doctor`.

use std::io::Write;
use std::time::Duration;

use super::config;
use super::format::Format;
use crate::error::{Exit, Result};
use crate::measure::cpus::CpuSet;
use crate::measure::doctor;
use crate::report;

/// Whether this machine can measure, and what would make it better; exit code 4 where measuring is pointless.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    #[arg(
        long,
        value_name = "SET",
        help = "The CPUs that would be measured on: 2,3 or 0-1 [default: as triage takes]"
    )]
    pub cpus: Option<String>,
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    #[arg(help = "How long to probe the noise; 0s: not at all")]
    pub probe: Duration,
    #[arg(long, value_enum, default_value_t, help = "How to write the result")]
    pub format: Format,
}

/// Looks, probes and writes.
pub fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("doctor", &[Format::Table, Format::Json, Format::Markdown, Format::Html])?;
    let cpus = CpuSet::resolve(args.cpus.as_deref(), 1)?;
    let checkup = doctor::examine(&cpus, args.probe);
    args.format.write(&checkup, || report::doctor::page(&checkup), out)?;
    Ok(if checkup.hopeless() { Exit::Machine } else { Exit::Done })
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { config::duration(text) }
}
