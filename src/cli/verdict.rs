//! `straddle verdict RECORD`: the same verdict again, from the record alone.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::format::Format;
use crate::error::{Error, Exit, Result};
use crate::measure::record::Record;
use crate::report::page::Page;
use crate::report::verdict as pages;
use crate::verdict::{Verdict, Verdicts, verdicts};

/// Read a campaign's record and give its verdict again; of several machines' records, one verdict where they agree.
#[derive(Clone, Debug, clap::Args)]
pub struct VerdictArgs {
    /// The records that `triage` wrote, of one case; `-` is standard input
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Prints the verdict of a record, or of several; its exit code is the answer's.
pub fn run(args: &VerdictArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("verdict", Format::OF_PAGES)?;
    let records = args.records.iter().map(|path| parse(path)).collect::<Result<Vec<Record>>>()?;
    let verdicts = Verdicts::new(verdicts(&records)?);
    match verdicts.verdicts.as_slice() {
        [one] => write(one, args.format, out)?,
        several if args.format == Format::Html => {
            args.format.write(&verdicts, || Page::joined("verdicts", several.iter().map(pages::document)), out)?;
        }
        several if args.format != Format::Json => {
            for (at, one) in several.iter().enumerate() {
                if at > 0 {
                    blank(out)?;
                }
                write(one, args.format, out)?;
            }
        }
        _ => args.format.write(&verdicts, Page::default, out)?,
    }
    Ok(verdicts.exit())
}

fn blank(out: &mut impl Write) -> Result<()> {
    match writeln!(out) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("writing the report", e)),
        _ => Ok(()),
    }
}

fn parse(path: &Path) -> Result<Record> {
    read(path).and_then(|text| Record::parse(&text)).map_err(|mut e| {
        if !e.doing.contains(&path.display().to_string()) {
            e.doing = format!("{}: {}", path.display(), e.doing);
        }
        e
    })
}

/// One verdict in one format. `triage` and `verdict` both end here, so that they print the same bytes.
pub fn write(verdict: &Verdict, format: Format, out: &mut impl Write) -> Result<()> {
    let page = || match format {
        Format::Markdown => pages::brief(verdict),
        Format::Html => pages::document(verdict),
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
    use crate::verdict::verdict;

    fn run_on(text: &str, format: Format) -> (Result<Exit>, String) {
        run_on_all(&[text], format)
    }

    fn run_on_all(texts: &[&str], format: Format) -> (Result<Exit>, String) {
        let files: Vec<_> = texts.iter().map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        files.iter().zip(texts).for_each(|(file, text)| std::fs::write(file.path(), text).unwrap());
        let mut out = Vec::new();
        let records = files.iter().map(|file| file.path().into()).collect();
        let exit = run(&VerdictArgs { records, format }, &mut out);
        (exit, String::from_utf8(out).unwrap())
    }

    fn text(record: &Record) -> String {
        let lines = record.samples.iter().map(|s| s.line().unwrap());
        std::iter::once(record.header.line().unwrap()).chain(lines).map(|l| l + "\n").collect()
    }

    #[test]
    fn records_of_several_machines_give_one_verdict_or_one_each() {
        let campaign = |name: &str, seed, code| {
            let mut record = Campaign::new(World::new(code, 0.0), 0.01, seed).fixed(8, 6);
            record.header.host.insert("cpu_model".into(), name.into());
            text(&record)
        };
        let [a, b, c] = [campaign("Xeon", 1, 0.3), campaign("EPYC", 2, 0.3), campaign("Arm", 3, 0.0)];
        let (exit, out) = run_on_all(&[&a, &b], Format::Table);
        assert!(exit.unwrap() == Exit::Gate && out.contains("on EPYC, Xeon: code"), "{out}");
        let (exit, out) = run_on_all(&[&a, &b, &c], Format::Table);
        assert!(exit.unwrap() == Exit::Gate && out.contains("on Arm: inconclusive"), "{out}");
        let (exit, out) = run_on_all(&[&c, &a], Format::Json);
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((exit.unwrap(), &json["schema"]), (Exit::Gate, &"straddle.verdicts/1".into()));
        assert_eq!(json["verdicts"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_record_gives_its_answer_and_its_exit_code() {
        let record = Campaign::new(World::new(0.3, 0.0), 0.01, 5).fixed(12, 6);
        let text = text(&record);
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
        let gone = run(&VerdictArgs { records: vec!["no/such/record".into()], format: Format::Json }, &mut Vec::new());
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
