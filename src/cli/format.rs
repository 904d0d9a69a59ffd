//! `--format`: one value, many renderings.

use std::io::Write;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::findings::Findings;
use crate::report::page::{Page, View};
use crate::report::{csv, github, gitlab, html, markdown, sarif, table};

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
    /// The tables, for a spreadsheet; never cut.
    Csv,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Workflow commands, which GitHub shows at the lines of a pull request.
    Github,
    /// GitLab's code quality report.
    Gitlab,
}

/// What a value is rendered from, beside itself.
pub struct Views<P, F> {
    pub page: P,
    pub findings: F,
}

impl Format {
    /// Of every value.
    pub const OF_PAGES: &[Format] = &[Format::Table, Format::Json, Format::Markdown, Format::Html, Format::Csv];
    /// Of a value that has findings.
    pub const OF_FINDINGS: &[Format] = &[
        Format::Table,
        Format::Json,
        Format::Markdown,
        Format::Html,
        Format::Csv,
        Format::Sarif,
        Format::Github,
        Format::Gitlab,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Json => "json",
            Format::Markdown => "markdown",
            Format::Html => "html",
            Format::Csv => "csv",
            Format::Sarif => "sarif",
            Format::Github => "github",
            Format::Gitlab => "gitlab",
        }
    }

    /// How much of a long value is shown. `all`: the user asks for everything.
    #[must_use]
    pub fn view(self, all: bool) -> View {
        match (self, all) {
            (Format::Html, _) => View::Document,
            (Format::Csv, _) | (_, true) => View::All,
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
        self.write_views(value, Views { page, findings: Findings::default }, out)
    }

    /// Of a value that has findings too.
    pub fn write_views<P: FnOnce() -> Page, F: FnOnce() -> Findings>(
        self,
        value: &impl Serialize,
        views: Views<P, F>,
        out: &mut impl Write,
    ) -> Result<()> {
        let mut out = std::io::BufWriter::new(out);
        let Views { page, findings } = views;
        let page = || page().demangled();
        let written = match self {
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, value).map_err(Into::into).and_then(|()| writeln!(out))
            }
            Format::Table => table::write(&page(), &mut out),
            Format::Markdown => markdown::write(&page(), &mut out),
            Format::Html => html::write(&page(), &mut out),
            Format::Csv => csv::write(&page(), &mut out),
            Format::Sarif => sarif::write(&findings(), &mut out),
            Format::Github => github::write(&findings(), &mut out),
            Format::Gitlab => gitlab::write(&findings(), &mut out),
        };
        match written.and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("writing the report", e)),
            _ => Ok(()),
        }
    }
}
