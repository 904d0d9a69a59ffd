//! `--format`: one value, many renderings.

use std::io::Write;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::page::{Page, View};
use crate::report::{html, markdown, table};

/// How a value is written. A format that makes no sense for a command is an error that lists those that do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, on a terminal.
    #[default]
    Table,
    /// The value itself; never cut.
    Json,
    /// For a mail or a pull request.
    Markdown,
    /// One file for a browser, with pictures.
    Html,
}

impl Format {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Json => "json",
            Format::Markdown => "markdown",
            Format::Html => "html",
        }
    }

    /// How much of a long value is shown. `all`: the user asks for everything.
    #[must_use]
    pub fn view(self, all: bool) -> View {
        match (self, all) {
            (Format::Html, _) => View::Document,
            (_, true) => View::All,
            (_, false) => View::Screen,
        }
    }

    /// # Errors
    /// When the command cannot write this format: the command line is wrong (exit code 2).
    pub fn among(self, command: &str, known: &[Format]) -> Result<()> {
        if known.contains(&self) {
            return Ok(());
        }
        let list = known.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
        Err(Error::input(format!("writing {command} as {}", self.name()), "this command has no such format").hint(list))
    }

    /// Writes a value: itself as JSON, with symbols as they are in the file; its page otherwise, with plain names. A closed pipe is success.
    pub fn write(self, value: &impl Serialize, page: impl FnOnce() -> Page, out: &mut impl Write) -> Result<()> {
        let mut out = std::io::BufWriter::new(out);
        let written = match self {
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, value).map_err(Into::into).and_then(|()| writeln!(out))
            }
            Format::Table => table::write(&page().demangled(), &mut out),
            Format::Markdown => markdown::write(&page().demangled(), &mut out),
            Format::Html => html::write(&page().demangled(), &mut out),
        };
        match written.and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("writing the report", e)),
            _ => Ok(()),
        }
    }
}
