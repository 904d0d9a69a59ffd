//! [`Page`] → Markdown, short enough for a mail or a pull request.

use std::io::{self, Write};

use super::page::{Block, Page, Side, Table};
use super::table::one_line;

/// Writes the page as GitHub-flavoured Markdown.
pub fn write(page: &Page, out: &mut impl Write) -> io::Result<()> {
    if !page.title.is_empty() {
        writeln!(out, "**{}**", escape(&page.title))?;
    }
    if !page.sentence.is_empty() {
        writeln!(out, "{}", escape(&page.sentence))?;
    }
    for block in page.blocks.iter().filter(|b| !matches!(b, Block::Figure(_))) {
        writeln!(out)?;
        match block {
            Block::Figure(_) => {}
            Block::Text(text) => writeln!(out, "{}", escape(text))?,
            Block::Table(table) => write_table(table, out)?,
            Block::List { heading, items } => {
                if !heading.is_empty() {
                    writeln!(out, "{}", escape(heading))?;
                }
                for item in items {
                    writeln!(out, "- {}", escape(item))?;
                }
            }
        }
    }
    for note in &page.notes {
        writeln!(out, "{}", escape(note))?;
    }
    Ok(())
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let row = |cells: &mut dyn Iterator<Item = String>| format!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    writeln!(out, "{}", row(&mut table.columns.iter().map(|c| escape(&c.name))))?;
    let rule = |side| if side == Side::Right { "---:" } else { "---" };
    writeln!(out, "{}", row(&mut table.columns.iter().map(|c| rule(c.side).to_string())))?;
    for cells in &table.rows {
        writeln!(out, "{}", row(&mut cells.iter().map(|c| escape(c))))?;
    }
    if let Some(more) = &table.more {
        writeln!(out, "\n{}", escape(more))?;
    }
    Ok(())
}

/// Names such as `__func__.1` or `a|b` must come through as they are.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        if matches!(c, '|' | '_' | '*' | '`' | '<' | '>' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
