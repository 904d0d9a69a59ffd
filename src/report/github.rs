//! [`Findings`] → GitHub's workflow commands, which annotate the lines of a pull request.

use std::io::{self, Write};

use crate::finding::Severity;

use super::findings::{Findings, Item};
use super::table::one_line;

/// GitHub shows so many of each kind for a step, and drops the others in silence.
const MOST: usize = 10;

/// Writes one command a line: the first ten, and how many more there are.
pub fn write(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    for item in findings.items.iter().take(MOST) {
        writeln!(out, "{}", command(item))?;
    }
    let more = findings.items.len().saturating_sub(MOST);
    if more > 0 {
        let weak = match findings.left_out {
            0 => String::new(),
            weak => format!(", and {weak} of severity info"),
        };
        let text =
            format!("{more} more findings in {}{weak}: --format sarif and json have all of them", findings.title);
        writeln!(out, "::notice title=straddle::{}", data(&text))?;
    }
    for problem in findings.problems.iter().take(MOST) {
        writeln!(out, "::notice title=straddle::{}", data(problem))?;
    }
    Ok(())
}

fn command(item: &Item) -> String {
    let level = match item.severity {
        Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "notice",
    };
    let (file, line) = item.place();
    let line = line.map_or_else(String::new, |line| format!(",line={line}"));
    let title = format!("straddle: {}", item.rule);
    format!("::{level} file={}{line},title={}::{}", property(file), property(&title), data(&item.message))
}

/// A percent sign begins an escape, a line end would begin a command of its own.
fn data(text: &str) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    one_line(&text)
}

/// What separates properties must not stand in one.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
