//! `straddle verdict RECORD`: the same verdict again, from the record alone.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::format::Format;
use crate::error::{Exit, Result};
use crate::measure::record::Record;
use crate::report::verdict as pages;
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
    let page = || match format {
        Format::Markdown => pages::brief(verdict),
        _ => pages::page(verdict),
    };
    format.write(verdict, page, out)
}

fn read(path: &Path) -> Result<String> {
    if path.as_os_str() != "-" {
        return crate::open::text(path);
    }
    crate::open::read_stdin_text()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::verdict::simulated::{Campaign, World};

    fn run_on(text: &str, format: Format) -> (Result<Exit>, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut out = Vec::new();
        let exit = run(&VerdictArgs { record: file.path().into(), format }, &mut out);
        (exit, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_record_gives_its_answer_and_its_exit_code() {
        let record = Campaign::new(World::new(0.3, 0.0), 0.01, 5).fixed(12, 6);
        let lines = record.samples.iter().map(|s| s.line().unwrap());
        let text: String = std::iter::once(record.header.line().unwrap()).chain(lines).map(|l| l + "\n").collect();
        let torn = format!("{text}{{\"group\":\"blo");
        for (format, says) in
            [(Format::Table, "code"), (Format::Markdown, "**"), (Format::Json, "\"verdict\": \"code\"")]
        {
            let (exit, out) = run_on(&torn, format);
            assert_eq!(exit.unwrap(), Exit::Gate);
            assert!(out.contains(says), "{out}");
        }
        assert!(run_on(&torn, Format::Table).1.contains("torn"));
    }

    #[test]
    fn a_bad_record_is_one_line_that_names_the_file() {
        let (exit, out) = run_on("not a record\n", Format::Json);
        let error = exit.unwrap_err();
        assert_eq!((error.exit(), out.as_str()), (Exit::Input, ""));
        let text = error.to_string();
        assert!(text.lines().count() == 1 && text.contains("line 1"), "{text}");
        let gone = run(&VerdictArgs { record: "no/such/record".into(), format: Format::Json }, &mut Vec::new());
        assert!(gone.unwrap_err().to_string().starts_with("reading no/such/record"));
    }

    /// A reader that has seen enough closes the pipe: that is success.
    #[test]
    fn a_closed_pipe_is_success() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let verdict = verdict(&Campaign::new(World::new(0.0, 0.0), 0.01, 5).fixed(4, 6));
        for format in [Format::Table, Format::Markdown, Format::Json] {
            write(&verdict, format, &mut Closed).unwrap();
        }
    }
}
