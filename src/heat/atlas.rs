//! One space of addresses for everything that code can refer to. A linked image has it; sections of a relocatable file
//! and per-CPU sections, which all begin at 0, get a region of their own in the hole that no machine can address.

use std::collections::{HashMap, HashSet};

use super::functions::Function;
use super::ops::{NO_OBJECT, Place};
use crate::image::{Field, Home, Image, Kind, Relocations, SymbolKind, Target};
use crate::objects::{Object, Space};

/// Not canonical on any 64-bit machine.
const HOLE: u64 = 0x8000_0000_0000_0000;
const REGION: u32 = 40;

/// The place in its section of an address of the atlas.
pub(super) fn local(address: u64) -> u64 {
    if address >> 56 == HOLE >> 56 { address & ((1 << REGION) - 1) } else { address }
}

/// Of code, which is in no per-CPU section.
pub(super) fn code_address(image: &Image<'_>, section: u32, address: u64) -> u64 {
    if image.kind.relocatable() { region(section, address) } else { address }
}

fn region(section: u32, address: u64) -> u64 {
    HOLE | (u64::from(section) & 0xffff) << REGION | address & ((1 << REGION) - 1)
}

pub(super) struct Atlas<'h, 'i> {
    image: &'h Image<'i>,
    relocations: &'h Relocations<'i>,
    /// Start, end and index of objects that begin inside no other, by start.
    spans: Vec<(u64, u64, u32)>,
    /// Start and end of every object, by index; empty for thread-local ones.
    ranges: Vec<(u64, u64)>,
    starts: Vec<u64>,
    /// By name; `None` where several have it.
    objects: HashMap<&'h str, Option<u32>>,
    /// Defined symbols of a relocatable file.
    symbols: HashMap<&'h str, u64>,
    /// Where objects of no size lie (a lock's class without lockdep): an address there may mean one of them.
    empty: HashSet<u64>,
    /// Functions by start.
    entries: HashMap<u64, u32>,
    /// Per-CPU sections: where they are linked, and their size and index.
    per_cpu: Vec<(u64, u64, u32)>,
    tables: Vec<(u64, u64, u32)>,
    /// Sections are not placed yet: only relocations tell what is meant.
    pub(super) separate: bool,
    /// Plain numbers can be addresses: linked at fixed ones.
    pub(super) absolute: bool,
    /// Where relocations of code were kept, what has none is no address.
    pub(super) exact: bool,
}

impl<'h, 'i> Atlas<'h, 'i> {
    pub(super) fn of(
        image: &'h Image<'i>,
        data: &'h [Object<'_>],
        relocations: &'h Relocations<'i>,
        functions: &[Function<'_>],
    ) -> Atlas<'h, 'i> {
        let sections = || (0u32..).zip(&image.sections);
        let per_cpu: Vec<u32> = data
            .iter()
            .filter_map(|o| match o.space {
                Space::Section(section) if !image.kind.relocatable() => Some(section),
                _ => None,
            })
            .collect();
        let mut atlas = Atlas {
            image,
            relocations,
            spans: Vec::with_capacity(data.len()),
            ranges: vec![(0, 0); data.len()],
            starts: Vec::with_capacity(data.len()),
            objects: HashMap::with_capacity(data.len()),
            symbols: HashMap::new(),
            empty: HashSet::new(),
            entries: HashMap::with_capacity(functions.len()),
            per_cpu: Vec::new(),
            tables: Vec::new(),
            separate: image.kind.relocatable(),
            absolute: matches!(image.kind, Kind::Executable | Kind::Vmlinux),
            exact: relocations.in_code || image.kind.relocatable(),
        };
        let range = |index: u32, s: &crate::image::Section<'_>| (s.address, s.address.saturating_add(s.size), index);
        atlas.per_cpu = sections().filter(|(i, _)| per_cpu.contains(i)).map(|(i, s)| range(i, s)).collect();
        let tables = sections().filter(|(_, s)| s.loaded && s.name.starts_with(".got"));
        atlas.tables = tables.map(|(i, s)| range(i, s)).collect();
        for (index, object) in (0u32..).zip(data).filter(|(_, o)| o.space != Space::Thread) {
            atlas.objects.entry(object.name).and_modify(|o| *o = None).or_insert(Some(index));
            let start = atlas.address(object.section, object.span.start.0);
            let end = start.saturating_add(object.span.size);
            atlas.spans.push((start, end, index));
            if let Some(range) = atlas.ranges.get_mut(index as usize) {
                *range = (start, end);
            }
        }
        atlas.spans.sort_unstable_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
        let mut reached = 0;
        atlas.spans.retain(|&(_, end, _)| {
            let apart = end > reached;
            reached = reached.max(end);
            apart
        });
        atlas.starts = atlas.spans.iter().map(|s| s.0).collect();
        if image.kind.relocatable() {
            for symbol in &image.symbols {
                if let Home::Section(section) = symbol.home {
                    atlas.symbols.insert(symbol.name.as_ref(), atlas.address(section, symbol.value));
                }
            }
        }
        for symbol in image.symbols.iter().filter(|s| s.size == 0 && s.kind == SymbolKind::Data) {
            if let Home::Section(section) = symbol.home {
                atlas.empty.insert(atlas.address(section, symbol.value));
            }
        }
        atlas.entries.extend((0u32..).zip(functions).map(|(i, f)| (f.start, i)));
        atlas
    }

    /// Of an address in a section, as the file has it.
    pub(super) fn address(&self, section: u32, address: u64) -> u64 {
        if self.image.kind.relocatable() || self.per_cpu.iter().any(|&(_, _, s)| s == section) {
            region(section, address)
        } else {
            address
        }
    }

    /// Of an offset to the copy of one CPU (`gs:` of x86).
    pub(super) fn per_cpu(&self, offset: u64) -> Option<u64> {
        let &(_, _, section) = self.per_cpu.iter().find(|(start, end, _)| (*start..*end).contains(&offset))?;
        Some(self.address(section, offset))
    }

    /// Whether a per-CPU section has an address, as it is linked.
    pub(super) fn holds(&self, section: u32, address: u64) -> bool {
        self.per_cpu.iter().any(|&(start, end, s)| s == section && (start..end).contains(&address))
    }

    pub(super) fn relocations(&self, section: u32, start: u64, end: u64) -> &'h [Field<'i>] {
        self.relocations.within(section, start, end)
    }

    /// The object at a place, and how far into it. An indexed access that a relocation names may start outside.
    pub(super) fn find(&self, place: Place, indexed: bool) -> Option<(u32, u64)> {
        if let Some(&(start, end)) = self.ranges.get(place.object as usize) {
            if (start..end).contains(&place.address) {
                return Some((place.object, place.address - start));
            }
            if indexed {
                return Some((place.object, 0));
            }
        }
        let linked = self.per_cpu.iter().find(|(start, end, _)| *start > 0 && (*start..*end).contains(&place.address));
        let address = linked.map_or(place.address, |&(_, _, section)| self.address(section, place.address));
        let at = self.starts.partition_point(|&start| start <= address).checked_sub(1)?;
        let &(start, end, index) = self.spans.get(at)?;
        (address < end).then(|| (index, address - start))
    }

    /// Whether an object without a size may be meant.
    pub(super) fn ambiguous(&self, place: Place) -> bool {
        place.object == NO_OBJECT && self.empty.contains(&place.address)
    }

    /// Of an object, in bytes.
    pub(super) fn size(&self, object: u32) -> u64 {
        self.ranges.get(object as usize).map_or(0, |(start, end)| end - start)
    }

    /// The function that starts at an address.
    pub(super) fn function(&self, address: u64) -> Option<u32> {
        self.entries.get(&address).copied()
    }

    /// What a relocated field refers to. `decoded`: what the instruction holds. `relative`: from its end, at `end`.
    pub(super) fn target(&self, field: &Field<'_>, decoded: u64, relative: bool, end: u64) -> Option<Place> {
        let object = match field.target {
            Target::Symbol { name, .. } => self.objects.get(name).copied().flatten().unwrap_or(NO_OBJECT),
            _ => NO_OBJECT,
        };
        if !self.separate {
            // A per-CPU object's address is an offset into its section.
            let home = match (field.target.clone(), self.ranges.get(object as usize)) {
                (_, Some(&(start, _))) => Some(start & !((1 << REGION) - 1)).filter(|h| h >> 56 == HOLE >> 56),
                (Target::Address { section, .. }, None) => {
                    self.per_cpu.iter().any(|p| p.2 == section).then(|| region(section, 0))
                }
                _ => None,
            };
            let address = home.map_or(decoded, |home| home | decoded & ((1 << REGION) - 1));
            return Some(Place { address, object });
        }
        // Addends of relative fields count from the field; the instruction may have more bytes after it.
        let rest = if relative { i64::try_from(end.checked_sub(field.address)?).ok()? } else { 0 };
        let address = match field.target {
            Target::Symbol { name, addend } => {
                let addend = if field.got { 0 } else { addend.wrapping_add(rest) };
                self.symbols.get(name)?.wrapping_add_signed(addend)
            }
            Target::Address { section, address } => {
                let short = if relative { rest - 4 } else { 0 };
                self.address(section, address).wrapping_add_signed(short)
            }
            Target::Unknown => return None,
        };
        Some(Place { address, object })
    }

    /// What an entry of the global offset table points to.
    pub(super) fn table_entry(&self, address: u64) -> Option<Place> {
        let &(_, _, section) = self.tables.iter().find(|(start, end, _)| (*start..*end).contains(&address))?;
        let field = self.relocations(section, address, address.saturating_add(1)).first()?;
        match field.target {
            Target::Address { section, address } => Some(Place::at(self.address(section, address))),
            Target::Symbol { name, addend: 0 } => {
                let object = self.objects.get(name).copied().flatten()?;
                let &(start, _) = self.ranges.get(object as usize)?;
                Some(Place { address: start, object })
            }
            _ => None,
        }
    }
}
