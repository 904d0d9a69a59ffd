//! [`Page`] → one HTML file that needs nothing else: style, pictures and a little script are inside. Readable without
//! the script, which adds a filter and sorting.

mod svg;

use std::io::{self, Write};

use super::page::{Block, Page, Side, Table};
use super::table::one_line;

/// Writes the page.
pub fn write(page: &Page, out: &mut impl Write) -> io::Result<()> {
    let title = escape(&page.title);
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <main>\n<h1>{title}</h1>",
        include_str!("style.css")
    )?;
    if !page.sentence.is_empty() {
        writeln!(out, "<p class=\"answer\">{}</p>", escape(&page.sentence))?;
    }
    for block in &page.blocks {
        match block {
            Block::Text(text) => writeln!(out, "<p>{}</p>", escape(text))?,
            Block::Table(table) => write_table(table, out)?,
            Block::List { heading, items } => {
                if !heading.is_empty() {
                    writeln!(out, "<h2>{}</h2>", escape(heading))?;
                }
                writeln!(out, "<ul>")?;
                for item in items {
                    writeln!(out, "<li>{}</li>", escape(item))?;
                }
                writeln!(out, "</ul>")?;
            }
            Block::Figure(figure) => {
                writeln!(out, "<figure>\n<figcaption>{}</figcaption>", escape(&figure.caption))?;
                svg::write(figure, out)?;
                writeln!(out, "</figure>")?;
            }
        }
    }
    if !page.notes.is_empty() {
        writeln!(out, "<footer>")?;
        for note in &page.notes {
            writeln!(out, "<p>{}</p>", escape(note))?;
        }
        writeln!(out, "</footer>")?;
    }
    writeln!(out, "</main>\n<script>\n{}</script>\n</body>\n</html>", include_str!("script.js"))
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let side = |side| if side == Side::Right { " class=\"n\"" } else { "" };
    let heading = escape(&table.heading);
    // A table that is wider than the window scrolls in a box of its own, which keys must reach.
    let name = if heading.is_empty() { "table" } else { heading.as_str() };
    if !heading.is_empty() {
        writeln!(out, "<h2>{heading}</h2>")?;
    }
    writeln!(out, "<div class=\"wide\" role=\"region\" aria-label=\"{name}\" tabindex=\"0\">\n<table>\n<thead><tr>")?;
    for column in &table.columns {
        writeln!(out, "<th scope=\"col\"{}>{}</th>", side(column.side), escape(&column.name))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in &table.rows {
        write!(out, "<tr>")?;
        for (cell, column) in row.iter().zip(&table.columns) {
            write!(out, "<td{}>{}</td>", side(column.side), escape(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody>\n</table>\n</div>")?;
    if let Some(more) = &table.more {
        writeln!(out, "<p class=\"more\">{}</p>", escape(more))?;
    }
    Ok(())
}

/// For text and for attributes. Names come from files: none may end a tag or hide in a control character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
