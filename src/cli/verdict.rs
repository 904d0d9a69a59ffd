//! `straddle verdict RECORD`: the same verdict again, from the record alone.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::format::Format;
use crate::error::{Error, Exit, Result};
use crate::measure::record::Record;
use crate::report::{markdown, table, verdict as pages};
use crate::verdict::{Verdict, verdict};

/// Read a campaign's record and give its verdict again.
#[derive(Clone, Debug, clap::Args)]
pub struct VerdictArgs {
    /// The record that `triage` or `bench` wrote; `-` is standard input
    pub record: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Prints the verdict of a record; its exit code is the answer's.
pub fn run(args: &VerdictArgs, out: &mut impl Write) -> Result<Exit> {
    let record = read(&args.record).and_then(|text| Record::parse(&text)).map_err(|mut e| {
        if !e.doing.contains(&args.record.display().to_string()) {
            e.doing = format!("{}: {}", args.record.display(), e.doing);
        }
        e
    })?;
    let verdict = verdict(&record);
    write(&verdict, args.format, out)?;
    Ok(verdict.exit())
}

/// One verdict in one format. `triage` and `verdict` both end here, so that they print the same bytes.
pub fn write(verdict: &Verdict, format: Format, out: &mut impl Write) -> Result<()> {
    let written = match format {
        Format::Table => table::write(&pages::page(verdict), out),
        Format::Markdown => markdown::write(&pages::brief(verdict), out),
        Format::Json => json(verdict, out),
    };
    match written.and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Error::io("writing the verdict", e)),
    }
}

fn json(verdict: &Verdict, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, verdict)?;
    writeln!(out)
}

fn read(path: &Path) -> Result<String> {
    if path.as_os_str() != "-" {
        return crate::open::text(path);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| Error::io("reading standard input", e))?;
    Ok(text)
}
