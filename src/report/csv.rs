//! The tables of a [`Page`] → comma-separated values (RFC 4180), an empty line between two tables.

use std::io::{self, Write};

use super::page::{Block, Page};
use super::table::one_line;

/// Writes every table with its heads; prose is left out.
pub fn write(page: &Page, out: &mut impl Write) -> io::Result<()> {
    let tables = page.blocks.iter().filter_map(|block| match block {
        Block::Table(table) => Some(table),
        Block::Text(_) | Block::List { .. } | Block::Figure(_) => None,
    });
    for (nth, table) in tables.enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        let heads: Vec<String> = table.columns.iter().map(|c| cell(&c.name)).collect();
        writeln!(out, "{}", heads.join(","))?;
        for row in &table.rows {
            writeln!(out, "{}", row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(","))?;
        }
    }
    Ok(())
}

/// A spreadsheet must not take a name for a formula.
fn cell(text: &str) -> String {
    let text = one_line(text);
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        for (text, want) in
            [("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("=1+1", "'=1+1"), ("-1.5", "-1.5"), ("a\nb", "a\u{fffd}b")]
        {
            assert_eq!(cell(text), want);
        }
    }
}
