//! The middle form of a report: what to say, not how it looks. Every value builds one; every renderer reads it.

use std::borrow::Cow;

use crate::objects::demangled;

/// A report: one sentence that answers, then figures, then what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    /// The answer in one sentence.
    pub sentence: String,
    pub blocks: Vec<Block>,
    /// Problems, what was skipped and why, where to see the rest.
    pub notes: Vec<String>,
}

impl Page {
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
            }
        }
        self
    }
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    Text(String),
    Table(Table),
    /// Short reasons or next steps, one a line.
    List {
        heading: String,
        items: Vec<String>,
    },
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
