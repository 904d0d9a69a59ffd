//! Entries of types → [`Type`]s: each entry that a variable contains, once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU32;

use gimli::{AttributeValue, DwAt, DwTag, Operation};

use super::scopes::Scopes;
use super::units::{At, Dwarf, Entry, checked};
use super::{Skipped, skip};
use crate::types::{Alias, Bits, DEEPEST, Kind, Member, Type, TypeId};

pub(super) struct Builder<'b, 'd> {
    dwarf: &'b Dwarf<'d>,
    /// Of each unit.
    scopes: Vec<Scopes>,
    ids: HashMap<At, TypeId>,
    list: Vec<Type<'d>>,
    /// Named by a type that was read, and not read themselves.
    open: Vec<(TypeId, At)>,
    /// Entries that may still be read. Those of real files have several bytes each and are read about once; of
    /// a damaged one, each byte could begin a struct that holds all the rest.
    left: usize,
    over: usize,
}

impl<'b, 'd> Builder<'b, 'd> {
    pub(super) fn new(dwarf: &'b Dwarf<'d>, scopes: Vec<Scopes>) -> Builder<'b, 'd> {
        Builder { dwarf, scopes, ids: HashMap::new(), list: Vec::new(), open: Vec::new(), left: dwarf.size, over: 0 }
    }

    /// The type of an entry; what it is made of is read in [`Builder::finish`].
    pub(super) fn id(&mut self, at: At) -> Option<TypeId> {
        if let Some(id) = self.ids.get(&at) {
            return Some(*id);
        }
        let id = self.add(unknown())?;
        self.ids.insert(at, id);
        self.open.push((id, at));
        Some(id)
    }

    fn add(&mut self, own: Type<'d>) -> Option<TypeId> {
        let id = TypeId(u32::try_from(self.list.len()).ok()?);
        self.list.push(own);
        Some(id)
    }

    pub(super) fn finish(mut self, skipped: &mut Skipped) -> Vec<Type<'d>> {
        while let Some((id, at)) = self.open.pop() {
            if self.left == 0 {
                self.over += 1;
                continue;
            }
            let read = self.read(at).unwrap_or_else(unknown);
            if let Some(slot) = self.list.get_mut(id.0 as usize) {
                *slot = read;
            }
        }
        skip(skipped, "types left unread: the debug information repeats itself without end", self.over);
        let unknown = self.list.iter().filter(|t| matches!(t.kind, Kind::Unknown)).count();
        skip(skipped, "types that are only declared or not known here", unknown - self.over.min(unknown));
        self.list
    }

    fn read(&mut self, at: At) -> Option<Type<'d>> {
        self.left = self.left.saturating_sub(1);
        let entry = self.dwarf.entry(at)?;
        // The stub that stands for a type of another unit.
        if let Some(AttributeValue::DebugTypesRef(_)) = entry.attr_value(gimli::DW_AT_signature) {
            let of = self.refers(at.unit, &entry, gimli::DW_AT_signature);
            return Some(Type { kind: Kind::Alias { how: Alias::Typedef, of }, ..unknown() });
        }
        let name = self.dwarf.name(at.unit, &entry).or_else(|| self.completed(at.unit, &entry));
        let scope = name.and_then(|_| self.scope(at));
        let kind = self.kind(at, &entry)?;
        let size = match kind {
            // An alias has its type's; an array's is worked out where it is not given.
            Kind::Alias { .. } | Kind::Unknown => None,
            Kind::Pointer { .. } => {
                number(&entry, gimli::DW_AT_byte_size).or_else(|| self.pointer_size(at.unit, &entry))
            }
            Kind::Base => number(&entry, gimli::DW_AT_byte_size).or_else(|| self.value_size(at, &entry)),
            _ => number(&entry, gimli::DW_AT_byte_size),
        };
        Some(Type { name, scope, size, align: number(&entry, gimli::DW_AT_alignment), kind })
    }

    fn kind(&mut self, at: At, entry: &Entry<'d>) -> Option<Kind<'d>> {
        let alias = |how, of| Some(Kind::Alias { how, of });
        let declared_only = entry.attr_value(gimli::DW_AT_declaration) == Some(AttributeValue::Flag(true));
        match entry.tag() {
            _ if declared_only => Some(Kind::Unknown),
            gimli::DW_TAG_base_type | gimli::DW_TAG_unspecified_type | gimli::DW_TAG_subrange_type => Some(Kind::Base),
            gimli::DW_TAG_enumeration_type => Some(Kind::Enum),
            gimli::DW_TAG_subroutine_type => Some(Kind::Function),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
            | gimli::DW_TAG_ptr_to_member_type => Some(Kind::Pointer { to: self.pointed(at.unit, entry) }),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_interface_type => {
                Some(Kind::Struct(self.members(at, number(entry, gimli::DW_AT_byte_size))))
            }
            gimli::DW_TAG_union_type => Some(Kind::Union(self.members(at, None))),
            // A vector is one value.
            gimli::DW_TAG_array_type if entry.has_attr(gimli::DW_AT_GNU_vector) => Some(Kind::Base),
            gimli::DW_TAG_array_type => self.array(at, entry),
            gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias => {
                alias(Alias::Typedef, self.refers(at.unit, entry, gimli::DW_AT_type))
            }
            gimli::DW_TAG_const_type | gimli::DW_TAG_restrict_type | gimli::DW_TAG_immutable_type => {
                alias(Alias::Const, self.refers(at.unit, entry, gimli::DW_AT_type))
            }
            gimli::DW_TAG_volatile_type => alias(Alias::Volatile, self.refers(at.unit, entry, gimli::DW_AT_type)),
            gimli::DW_TAG_atomic_type => alias(Alias::Atomic, self.refers(at.unit, entry, gimli::DW_AT_type)),
            _ => None,
        }
    }

    /// Where it is not written down. A pointer to a function of a class is two words in the C++ ABI of every machine here:
    /// the function, and what to add to its object.
    fn pointer_size(&self, unit: u32, entry: &Entry<'d>) -> Option<u64> {
        let word = u64::from(self.dwarf.unit(unit)?.header.address_size());
        let member = entry.tag() == gimli::DW_TAG_ptr_to_member_type;
        let function = || Some(self.behind(unit, entry)?.tag() == gimli::DW_TAG_subroutine_type);
        Some(if member && function().unwrap_or(false) { 2 * word } else { word })
    }

    /// Of a vector, and of `nullptr`, where it is not written down.
    fn value_size(&mut self, at: At, entry: &Entry<'d>) -> Option<u64> {
        match entry.tag() {
            gimli::DW_TAG_array_type => {
                let Kind::Array { counts, .. } = self.array(at, entry)? else { return None };
                let element = number(&self.behind(at.unit, entry)?, gimli::DW_AT_byte_size)?;
                counts.iter().try_fold(element, |size, count| size.checked_mul((*count)?))
            }
            gimli::DW_TAG_unspecified_type => {
                let name = self.dwarf.name(at.unit, entry)?;
                let word = u64::from(self.dwarf.unit(at.unit)?.header.address_size());
                matches!(name, "decltype(nullptr)" | "nullptr_t").then_some(word)
            }
            _ => None,
        }
    }

    /// The type of an entry behind typedefs and qualifiers.
    fn behind(&self, unit: u32, entry: &Entry<'d>) -> Option<Entry<'d>> {
        let mut at = self.dwarf.target(unit, &entry.attr_value(gimli::DW_AT_type)?)?;
        for _ in 0..DEEPEST {
            let own = self.dwarf.entry(at)?;
            match own.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type => {
                    at = self.dwarf.target(at.unit, &own.attr_value(gimli::DW_AT_type)?)?;
                }
                _ => return Some(own),
            }
        }
        None
    }

    fn refers(&mut self, unit: u32, entry: &Entry<'d>, attribute: DwAt) -> Option<TypeId> {
        self.id(self.dwarf.target(unit, &entry.attr_value(attribute)?)?)
    }

    /// The name of the declaration that an entry completes.
    fn completed(&self, unit: u32, entry: &Entry<'d>) -> Option<&'d str> {
        let at = self.dwarf.target(unit, &entry.attr_value(gimli::DW_AT_specification)?)?;
        self.dwarf.name(at.unit, &self.dwarf.entry(at)?)
    }

    /// What the name at an entry is written behind.
    fn scope(&self, at: At) -> Option<Box<str>> {
        self.scopes.get(at.unit as usize)?.name(self.dwarf, at).map(String::into_boxed_str)
    }

    /// The whole name of what a pointer points to; the type itself is not read.
    fn pointed(&self, unit: u32, entry: &Entry<'d>) -> Option<Cow<'d, str>> {
        let (at, name) = self.dwarf.pointed(self.dwarf.target(unit, &entry.attr_value(gimli::DW_AT_type)?)?)?;
        Some(self.scope(at).map_or(Cow::Borrowed(name), |scope| Cow::Owned(format!("{scope}::{name}"))))
    }

    /// Members that take bytes: no static ones. The variants of a Rust enum are an anonymous union.
    fn members(&mut self, at: At, size: Option<u64>) -> Vec<Member<'d>> {
        let mut members = Vec::new();
        let tags = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance, gimli::DW_TAG_variant_part];
        self.children(at, &tags, |builder, entry| {
            members.extend(match entry.tag() {
                gimli::DW_TAG_variant_part => builder.variants(At { unit: at.unit, offset: entry.offset() }, size),
                _ => builder.member(at.unit, entry),
            });
        });
        members
    }

    /// Each variant by its name, and the tag that says which it is. Where the tag is a value that a field cannot have, it
    /// lies in that field.
    fn variants(&mut self, part: At, size: Option<u64>) -> Option<Member<'d>> {
        let mut members = Vec::new();
        self.children(part, &[gimli::DW_TAG_member, gimli::DW_TAG_variant], |builder, entry| {
            if entry.tag() == gimli::DW_TAG_member {
                let tag = builder.member(part.unit, entry);
                return members.extend(tag.map(|tag| Member { name: tag.name.or(Some("{tag}")), ..tag }));
            }
            let variant = At { unit: part.unit, offset: entry.offset() };
            builder.children(variant, &[gimli::DW_TAG_member], |builder, entry| {
                members.extend(builder.member(part.unit, entry));
            });
        });
        let type_id = self.add(Type { size, kind: Kind::Union(members), ..unknown() })?;
        Some(Member { name: None, offset: 0, align: None, bits: None, line: None, type_id })
    }

    fn member(&mut self, unit: u32, entry: &Entry<'d>) -> Option<Member<'d>> {
        if entry.has_attr(gimli::DW_AT_external) || entry.has_attr(gimli::DW_AT_declaration) {
            return None;
        }
        let mut type_id = self.refers(unit, entry, gimli::DW_AT_type)?;
        let place = entry.attr_value(gimli::DW_AT_data_member_location);
        let whole = match place {
            Some(AttributeValue::Exprloc(expression)) => {
                let encoding = self.dwarf.unit(unit)?.header.encoding();
                match expression.operations(encoding).next().ok()?? {
                    Operation::PlusConstant { value } => value,
                    // A virtual base lies where each object says: what it holds is not told.
                    _ if entry.tag() == gimli::DW_TAG_inheritance => {
                        type_id = self.add(Type { kind: Kind::Base, ..unknown() })?;
                        0
                    }
                    _ => return None,
                }
            }
            // No location: a union's member, or a bit field that is placed by bits alone.
            _ => number(entry, gimli::DW_AT_data_member_location).unwrap_or(0),
        };
        let unit_size = || {
            number(entry, gimli::DW_AT_byte_size).or_else(|| number(&self.behind(unit, entry)?, gimli::DW_AT_byte_size))
        };
        let (offset, bits) = bits(entry, whole, unit_size, self.dwarf.big_endian)?;
        let name = self.dwarf.name(unit, entry).filter(|_| entry.tag() == gimli::DW_TAG_member);
        let line = number(entry, gimli::DW_AT_decl_line).and_then(|line| u32::try_from(line).ok());
        let line = line.and_then(NonZeroU32::new);
        Some(Member { name, offset, align: number(entry, gimli::DW_AT_alignment), bits, line, type_id })
    }

    fn array(&mut self, at: At, entry: &Entry<'d>) -> Option<Kind<'d>> {
        let element = self.refers(at.unit, entry, gimli::DW_AT_type)?;
        let mut stride = number(entry, gimli::DW_AT_byte_stride);
        let in_bits = entry.has_attr(gimli::DW_AT_bit_stride);
        let mut counts = Vec::new();
        let ranges = [gimli::DW_TAG_subrange_type, gimli::DW_TAG_enumeration_type, gimli::DW_TAG_generic_subrange];
        self.children(at, &ranges, |_, range| {
            counts.push(elements(range));
            stride = stride.or_else(|| number(range, gimli::DW_AT_byte_stride));
        });
        (!in_bits && !counts.is_empty()).then_some(Kind::Array { element, counts, stride })
    }

    /// Each direct child of some tags. Others are passed with all that they hold.
    fn children(&mut self, at: At, tags: &[DwTag], each: impl FnMut(&mut Self, &Entry<'d>)) {
        let _: Option<()> = self.each_child(at, tags, each);
    }

    /// `None` where the entries are damaged: what came before stands.
    fn each_child(&mut self, at: At, tags: &[DwTag], mut each: impl FnMut(&mut Self, &Entry<'d>)) -> Option<()> {
        let dwarf = self.dwarf;
        let unit = dwarf.unit(at.unit)?;
        let from = |offset| unit.header.entries_raw(&unit.abbreviations, Some(offset)).ok();
        let mut entries = from(at.offset)?;
        let own = entries.read_abbreviation().ok()??;
        entries.skip_attributes(checked(own.attributes())?).ok()?;
        let mut depth = usize::from(own.has_children());
        while depth > 0 {
            self.left = self.left.checked_sub(1)?;
            let offset = entries.next_offset();
            let Some(child) = entries.read_abbreviation().ok()? else {
                depth -= 1;
                continue;
            };
            let mut sibling = None;
            for specification in checked(child.attributes())? {
                let attribute = entries.read_attribute(*specification).ok()?;
                if let (gimli::DW_AT_sibling, AttributeValue::UnitRef(next)) = (attribute.name(), attribute.value()) {
                    sibling = Some(next).filter(|next| *next > entries.next_offset());
                }
            }
            if depth == 1 && tags.contains(&child.tag()) {
                each(self, &dwarf.entry(At { unit: at.unit, offset })?);
            }
            match sibling {
                // To the next one at this depth, without what lies between.
                Some(next) if child.has_children() => entries = from(next)?,
                _ => depth += usize::from(child.has_children()),
            }
        }
        Some(())
    }
}

/// A number that is one in the file: not an expression, not a reference.
fn number(entry: &Entry<'_>, name: DwAt) -> Option<u64> {
    entry.attr(name)?.udata_value()
}

/// Where a bit field begins: `whole` moved to the byte of its first bit. DWARF 4 and later count from the start of the
/// struct; before, and clang still, from the most significant bit of a unit of `unit_size` bytes: backwards where the
/// field ends behind that unit.
fn bits(
    entry: &Entry<'_>,
    whole: u64,
    unit_size: impl Fn() -> Option<u64>,
    big_endian: bool,
) -> Option<(u64, Option<Bits>)> {
    let Some(count) = number(entry, gimli::DW_AT_bit_size) else { return Some((whole, None)) };
    let from_top = || entry.attr(gimli::DW_AT_bit_offset)?.sdata_value();
    let first = match (number(entry, gimli::DW_AT_data_bit_offset), from_top()) {
        (Some(first), _) => i64::try_from(first).ok()?,
        (None, None) => 0,
        (None, Some(from_top)) if big_endian => from_top,
        (None, Some(from_top)) => {
            let unit = i64::try_from(unit_size()?.checked_mul(8)?).ok()?;
            unit.checked_sub(from_top)?.checked_sub_unsigned(count)?
        }
    };
    let offset = whole.checked_add_signed(first.div_euclid(8))?;
    Some((offset, Some(Bits { first: first.rem_euclid(8).unsigned_abs(), count })))
}

/// How many elements a dimension has. `[0]` has an upper bound of -1.
fn elements(range: &Entry<'_>) -> Option<u64> {
    if let Some(count) = number(range, gimli::DW_AT_count) {
        return Some(count);
    }
    let lower = number(range, gimli::DW_AT_lower_bound).unwrap_or(0);
    match range.attr(gimli::DW_AT_upper_bound)?.sdata_value() {
        Some(-1) => Some(0),
        _ => number(range, gimli::DW_AT_upper_bound)?.checked_sub(lower)?.checked_add(1),
    }
}

fn unknown<'d>() -> Type<'d> {
    Type { name: None, scope: None, size: None, align: None, kind: Kind::Unknown }
}
