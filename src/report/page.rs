//! The middle form of a report: what to say, not how it looks. Every value builds one; every renderer reads it.

use std::borrow::Cow;

use super::figure::{Drawing, Figure};
use crate::objects::demangled;

/// A report: one sentence that answers, then figures, then what to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub title: String,
    /// The answer in one sentence.
    pub sentence: String,
    pub blocks: Vec<Block>,
    /// Problems, what was skipped and why, where to see the rest.
    pub notes: Vec<String>,
}

impl Page {
    /// Several as one, below each other.
    #[must_use]
    pub fn joined(title: &str, pages: impl Iterator<Item = Page>) -> Page {
        let mut whole = Page { title: title.to_string(), ..Page::default() };
        for page in pages {
            whole.blocks.push(Block::List { heading: page.title, items: vec![page.sentence] });
            whole.blocks.extend(page.blocks);
            whole.blocks.push(Block::List { heading: String::new(), items: page.notes });
        }
        whole
    }

    /// With the names of C++ and Rust as they are written in the source.
    #[must_use]
    pub fn demangled(mut self) -> Page {
        let plain = |text: &mut String| {
            if let Cow::Owned(plain) = demangled(text) {
                *text = plain;
            }
        };
        plain(&mut self.sentence);
        self.notes.iter_mut().for_each(plain);
        for block in &mut self.blocks {
            match block {
                Block::Text(text) => plain(text),
                Block::Table(table) => table.rows.iter_mut().flatten().for_each(plain),
                Block::List { items, .. } => items.iter_mut().for_each(plain),
                Block::Figure(figure) => {
                    plain(&mut figure.caption);
                    if let Drawing::Lines(lines) = &mut figure.drawing {
                        lines.rows.iter_mut().flat_map(|r| &mut r.spans).for_each(|s| plain(&mut s.name));
                    }
                }
            }
        }
        self
    }
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    Text(String),
    Table(Table),
    /// Short reasons or next steps, one a line.
    List {
        heading: String,
        items: Vec<String>,
    },
    /// Says nothing that is not said in words too.
    Figure(Figure),
}

/// Whom a page is for: how much of a long value it shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// One screen.
    #[default]
    Screen,
    /// A document to look through, with figures.
    Document,
    /// Everything, as text.
    All,
}

impl View {
    /// Rows of a table that has so many on a screen. A document of a whole kernel stays below a megabyte.
    #[must_use]
    pub fn rows(self, on_a_screen: usize) -> usize {
        match self {
            View::Screen => on_a_screen,
            View::Document => on_a_screen.max(1000),
            View::All => usize::MAX,
        }
    }
}

/// A table whose cells are already words; numbers carry their unit in the cell or the column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub heading: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
    /// Rows that a renderer for people may leave out of its view, in words ("12 more: --all").
    pub more: Option<String>,
}

/// A column's head and side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub side: Side,
}

/// Words go left, numbers right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl Table {
    /// `heads`: names of the columns; a leading `>` sets a column of numbers.
    #[must_use]
    pub fn new(heading: impl Into<String>, heads: &[&str]) -> Table {
        let column = |h: &&str| match h.strip_prefix('>') {
            Some(name) => Column { name: name.to_string(), side: Side::Right },
            None => Column { name: (*h).to_string(), side: Side::Left },
        };
        Table { heading: heading.into(), columns: heads.iter().map(column).collect(), ..Table::default() }
    }
}
