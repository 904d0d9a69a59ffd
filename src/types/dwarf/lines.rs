//! File names, from the headers of line tables. Each header is read once, and only where a declaration names it.

use std::collections::HashMap;

use gimli::{LineProgramHeader, Section as _, UnitHeader};

use super::sections::Slice;
use super::units::Dwarf;
use crate::types::SourceFile;

pub(super) struct Files<'b, 'd> {
    dwarf: &'b Dwarf<'d>,
    /// By offset; `None`: damaged, or past the limit.
    headers: HashMap<usize, Option<LineProgramHeader<Slice<'d>>>>,
    /// Files and folders that may still be read. Tables of real files do not overlap, so that a file in one takes
    /// bytes of its own.
    left: usize,
}

impl<'b, 'd> Files<'b, 'd> {
    pub(super) fn new(dwarf: &'b Dwarf<'d>) -> Files<'b, 'd> {
        Files { dwarf, headers: HashMap::new(), left: dwarf.lines.reader().len() }
    }

    /// A file by the number that a unit's entries give it.
    pub(super) fn get(&mut self, unit: u32, index: u64) -> Option<SourceFile<'d>> {
        let dwarf = self.dwarf;
        let at = dwarf.unit(unit)?.lines?;
        let (left, header) = (&mut self.left, &dwarf.unit(unit)?.header);
        let table = self.headers.entry(at.0).or_insert_with(|| read(dwarf, header, at, left)).as_ref()?;
        let file = table.file(index)?;
        // Folder 0 is where the compiler ran.
        let folder = Some(file.directory_index()).filter(|&i| i != 0).and_then(|i| table.directory(i));
        let text = |value| dwarf.text(unit, &value);
        Some(SourceFile { folder: folder.and_then(text), name: text(file.path_name())? })
    }
}

fn read<'d>(
    dwarf: &Dwarf<'d>,
    unit: &UnitHeader<Slice<'d>>,
    at: gimli::DebugLineOffset,
    left: &mut usize,
) -> Option<LineProgramHeader<Slice<'d>>> {
    if *left == 0 {
        return None;
    }
    let program = dwarf.lines.program(at, unit.address_size(), None, None).ok()?;
    let header = program.header().clone();
    *left = left.saturating_sub(header.file_names().len() + header.include_directories().len());
    Some(header)
}
