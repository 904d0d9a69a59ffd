//! File names, from the headers of line tables. Each header is read once, and only where a declaration names it.

use std::collections::HashMap;

use gimli::{DebugLineOffset, Reader as _};

use super::units::{Dwarf, Tables, Value};
use super::{Skipped, skip};
use crate::types::SourceFile;

pub(super) struct Files<'b, 'd> {
    dwarf: &'b Dwarf<'d>,
    /// By part and offset; `None`: damaged, or past the limit.
    tables: HashMap<(u32, usize), Option<Table<'d>>>,
    /// Bytes of headers that may still be read. Headers of real files do not overlap.
    left: usize,
    unread: usize,
}

/// What one header names. gimli's own keeps room for as many files as a damaged one may promise.
struct Table<'d> {
    folders: Vec<Value<'d>>,
    /// A name, and the number of its folder.
    files: Vec<(Value<'d>, u64)>,
    /// The number of the first file and the first folder: 1 before DWARF 5, where folder 0 is not written.
    first: u64,
}

impl<'b, 'd> Files<'b, 'd> {
    pub(super) fn new(dwarf: &'b Dwarf<'d>) -> Files<'b, 'd> {
        let left = dwarf.parts.iter().map(|p| p.lines.len()).fold(0, usize::saturating_add);
        Files { dwarf, tables: HashMap::new(), left, unread: 0 }
    }

    /// A file by the number that a unit's entries give it.
    pub(super) fn get(&mut self, unit: u32, index: u64) -> Option<SourceFile<'d>> {
        let unit = self.dwarf.unit(unit)?;
        let (part, at) = unit.lines?;
        let tables = self.dwarf.parts.get(part as usize)?;
        if !self.tables.contains_key(&(part, at.0)) {
            let table = self.read(tables, unit.header.address_size(), at);
            self.unread += usize::from(table.is_none());
            self.tables.insert((part, at.0), table);
        }
        let table = self.tables.get(&(part, at.0))?.as_ref()?;
        let place = |number: u64| usize::try_from(number.checked_sub(table.first)?).ok();
        let (name, folder) = table.files.get(place(index)?)?;
        // Folder 0 is where the compiler ran.
        let folder = Some(*folder).filter(|&number| number != 0).and_then(|number| table.folders.get(place(number)?));
        let text = |value| self.dwarf.text_in(tables, unit, value);
        Some(SourceFile { folder: folder.and_then(text), name: text(name)? })
    }

    fn read(&mut self, tables: &Tables<'d>, address_size: u8, at: DebugLineOffset) -> Option<Table<'d>> {
        if self.left == 0 {
            return None;
        }
        let before = self.left;
        // What a damaged header costs is not known: a few are tried, not thousands.
        self.left = before.saturating_sub(tables.lines.len() / 64 + 1);
        let program = tables.line_tables().program(at, address_size, None, None).ok()?;
        let header = program.header();
        self.left = before.saturating_sub(header.header_length());
        Some(Table {
            folders: header.include_directories().to_vec(),
            files: header.file_names().iter().map(|f| (f.path_name(), f.directory_index())).collect(),
            first: u64::from(header.version() < 5),
        })
    }

    pub(super) fn finish(self, skipped: &mut Skipped) {
        skip(skipped, "damaged line tables: files of declarations are not known", self.unread);
    }
}
