//! Which definitions are the same: every unit has its own copy of what a header declares.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use gimli::{AttributeValue, DwAt, DwTag};

use super::scopes::{Cursor, open_type};
use super::units::{At, Dwarf, Value, checked};

/// Hashes of entries by all that decides a layout and the names in it: equal for equal definitions of two units.
pub(super) struct Shapes<'b, 'd> {
    dwarf: &'b Dwarf<'d>,
    known: HashMap<At, u64>,
    /// Entries that may still be read: of a damaged file, each byte could begin a struct that holds all the rest.
    left: usize,
}

/// How deep types lie in one another. Those of a kernel reach some twenty.
const DEEPEST: usize = 64;

impl<'b, 'd> Shapes<'b, 'd> {
    pub(super) fn new(dwarf: &'b Dwarf<'d>, left: usize) -> Shapes<'b, 'd> {
        Shapes { dwarf, known: HashMap::new(), left }
    }

    /// `None` when it cannot be told; such a definition is like no other.
    pub(super) fn of(&mut self, at: At) -> Option<u64> {
        self.within(at, DEEPEST)
    }

    fn within(&mut self, at: At, depth: usize) -> Option<u64> {
        if let Some(known) = self.known.get(&at) {
            return Some(*known);
        }
        let depth = depth.checked_sub(1)?;
        // What a type that holds itself finds.
        self.known.insert(at, 0);
        let shape = self.read(at, depth);
        match shape {
            Some(shape) => self.known.insert(at, shape),
            None => self.known.remove(&at),
        };
        shape
    }

    fn read(&mut self, at: At, depth: usize) -> Option<u64> {
        let dwarf = self.dwarf;
        let unit = dwarf.unit(at.unit)?;
        let mut entries = unit.header.entries_raw(&unit.abbreviations, Some(at.offset)).ok()?;
        let own = entries.read_abbreviation().ok()??;
        let mut hasher = DefaultHasher::new();
        let tag = own.tag();
        self.attributes(&mut hasher, at.unit, &mut entries, own, depth)?;
        let laid_out = open_type(tag) || tag == gimli::DW_TAG_array_type;
        while laid_out && own.has_children() && entries.next_depth() > 0 {
            self.left = self.left.checked_sub(1)?;
            // Variants of an enum lie one level below the struct, their members two.
            let level = entries.next_depth();
            let Some(child) = entries.read_abbreviation().ok()? else { continue };
            if level <= 3 && counts(child.tag()) {
                level.hash(&mut hasher);
                self.attributes(&mut hasher, at.unit, &mut entries, child, depth)?;
                continue;
            }
            // What lies deeper is another type's.
            entries.skip_attributes(checked(child.attributes())?).ok()?;
            self.pass(&mut entries, level)?;
        }
        Some(hasher.finish())
    }

    /// To the entry after all children of one at `level`.
    fn pass(&mut self, entries: &mut Cursor<'_, 'd>, level: isize) -> Option<()> {
        while entries.next_depth() > level {
            self.left = self.left.checked_sub(1)?;
            if let Some(inner) = entries.read_abbreviation().ok()? {
                entries.skip_attributes(checked(inner.attributes())?).ok()?;
            }
        }
        Some(())
    }

    fn attributes(
        &mut self,
        hasher: &mut DefaultHasher,
        unit: u32,
        entries: &mut Cursor<'_, 'd>,
        own: &gimli::Abbreviation,
        depth: usize,
    ) -> Option<()> {
        own.tag().0.hash(hasher);
        for specification in checked(own.attributes())? {
            let attribute = entries.read_attribute(*specification).ok()?;
            let name = attribute.name();
            if matters(name) {
                name.0.hash(hasher);
                match self.value(unit, own.tag(), name, &attribute.value(), depth)? {
                    Some(value) => value.hash(hasher),
                    None => attribute.udata_value().or(attribute.sdata_value().map(|s| s as u64)).hash(hasher),
                }
            }
        }
        Some(())
    }

    /// What a text, an expression or a reference comes to; `None` inside: it is none of them.
    fn value(&mut self, unit: u32, tag: DwTag, name: DwAt, value: &Value<'d>, depth: usize) -> Option<Option<u64>> {
        if let Some(text) = self.dwarf.text(unit, value) {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            return Some(Some(hasher.finish()));
        }
        if let AttributeValue::Exprloc(expression) = value {
            let mut hasher = DefaultHasher::new();
            expression.0.slice().hash(&mut hasher);
            return Some(Some(hasher.finish()));
        }
        if !matches!(name, gimli::DW_AT_type | gimli::DW_AT_specification | gimli::DW_AT_signature) {
            return Some(None);
        }
        let Some(target) = self.dwarf.target(unit, value) else { return Some(None) };
        if pointer(tag) && name == gimli::DW_AT_type {
            return Some(self.pointed(target));
        }
        self.within(target, depth).map(Some)
    }

    /// A pointer's type is only named: see `Builder::pointed`.
    fn pointed(&mut self, target: At) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.dwarf.pointed(target)?.1.hash(&mut hasher);
        Some(hasher.finish())
    }
}

fn pointer(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
            | gimli::DW_TAG_ptr_to_member_type
    )
}

/// Children that decide a layout.
fn counts(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_member
            | gimli::DW_TAG_inheritance
            | gimli::DW_TAG_subrange_type
            | gimli::DW_TAG_variant_part
            | gimli::DW_TAG_variant
    )
}

/// Attributes that a layout or a name is made of: not where it was written, nor where the next entry is.
fn matters(name: DwAt) -> bool {
    matches!(
        name,
        gimli::DW_AT_name
            | gimli::DW_AT_byte_size
            | gimli::DW_AT_bit_size
            | gimli::DW_AT_data_member_location
            | gimli::DW_AT_data_bit_offset
            | gimli::DW_AT_bit_offset
            | gimli::DW_AT_alignment
            | gimli::DW_AT_type
            | gimli::DW_AT_specification
            | gimli::DW_AT_signature
            | gimli::DW_AT_declaration
            | gimli::DW_AT_external
            | gimli::DW_AT_count
            | gimli::DW_AT_upper_bound
            | gimli::DW_AT_lower_bound
            | gimli::DW_AT_byte_stride
            | gimli::DW_AT_bit_stride
            | gimli::DW_AT_discr_value
            | gimli::DW_AT_GNU_vector
    )
}
