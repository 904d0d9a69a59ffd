//! [`Page`] → plain text for a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

use super::page::{Block, Page, Side, Table};
use crate::error::unseen;

/// Writes the page as plain text: title, sentence, blocks, notes.
pub fn write(page: &Page, out: &mut impl Write) -> io::Result<()> {
    if !page.title.is_empty() {
        writeln!(out, "{}", one_line(&page.title))?;
    }
    if !page.sentence.is_empty() {
        write_wrapped(&page.sentence, "", out)?;
    }
    for block in page.blocks.iter().filter(|b| !matches!(b, Block::Figure(_))) {
        writeln!(out)?;
        match block {
            Block::Figure(_) => {}
            Block::Text(text) => write_wrapped(text, "", out)?,
            Block::Table(table) => write_table(table, out)?,
            Block::List { heading, items } => {
                writeln!(out, "{}", one_line(heading))?;
                for item in items {
                    write_wrapped(item, "  ", out)?;
                }
            }
        }
    }
    if !page.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &page.notes {
        write_wrapped(note, "", out)?;
    }
    Ok(())
}

/// Columns of a line of prose; tables are as wide as they are.
const WIDTH: usize = 100;

/// Prose, broken between words. `indent` stands before every line, two more blanks before all but the first.
fn write_wrapped(text: &str, indent: &str, out: &mut impl Write) -> io::Result<()> {
    let text = one_line(text);
    let mut line = indent.to_string();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{}", no_command(&line))?;
            line = format!("{indent}  ");
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    writeln!(out, "{}", no_command(&line))
}

/// A name that begins a line in the log of a CI job must not be taken for a command to its runner.
fn no_command(line: &str) -> Cow<'_, str> {
    let text = line.trim_start();
    if !text.starts_with("::") && !text.starts_with("##[") {
        return Cow::Borrowed(line);
    }
    let indent = line.len() - text.len();
    Cow::Owned(format!("{}\u{fffd}{text}", " ".repeat(indent)))
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    if !table.heading.is_empty() {
        writeln!(out, "{}", one_line(&table.heading))?;
    }
    let mut builder = Builder::default();
    builder.push_record(table.columns.iter().map(|c| c.name.clone()));
    for row in &table.rows {
        builder.push_record(row.iter().map(|cell| one_line(cell)));
    }
    let mut grid = builder.build();
    grid.with(Style::empty()).with(Padding::new(2, 0, 0, 0));
    for (i, column) in table.columns.iter().enumerate() {
        if column.side == Side::Right {
            grid.modify(Columns::one(i), Alignment::right());
        }
    }
    for line in grid.to_string().lines() {
        writeln!(out, "{}", no_command(line.trim_end()))?;
    }
    if let Some(more) = &table.more {
        writeln!(out, "  {more}")?;
    }
    Ok(())
}

/// Names come from files: what a terminal would obey must not reach it.
pub(super) fn one_line(cell: &str) -> String {
    cell.chars().map(|c| if unseen(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_right_and_control_characters_stay_out() {
        let mut table = Table::new("sections", &["name", ">objects"]);
        table.rows = vec![vec![".data\x1b[2J".into(), "7".into()], vec![".bss".into(), "1200".into()]];
        let page = Page { title: "t".into(), blocks: vec![Block::Table(table)], ..Page::default() };
        let mut out = Vec::new();
        write(&page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("        7\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
