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
    // Behind a table a line would be a row of it.
    if !page.notes.is_empty() && matches!(page.blocks.last(), Some(Block::Table(_))) {
        writeln!(out)?;
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

/// Names such as `__func__.1` or `a|b` must come through as they are, and must not become links, tags or entities.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = one_line(text);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        let link = c == ']' && matches!(next, '(' | '[' | ':');
        let entity = c == '&' && (next == '#' || next.is_ascii_alphanumeric());
        if link || entity || matches!(c, '|' | '_' | '*' | '`' | '<' | '>' | '\\' | '~' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_no_markup() {
        for (name, want) in [
            ("__func__.1", "\\_\\_func\\_\\_.1"),
            ("<script>", "\\<script\\>"),
            ("[x](y)", "[x\\](y)"),
            ("[+560, +612] & more", "[+560, +612] & more"),
            ("&lt;", "\\&lt;"),
            ("a\n# b", "a\u{fffd}# b"),
        ] {
            assert_eq!(escape(name), want);
        }
    }
}
