//! Records → [`Type`]s. The type of number `n` is the `n`th of the table; number 0 is `void`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::raw::{Raw, Record, kind};
use super::{Skipped, skip};
use crate::types::{Alias, Bits, DEEPEST, Kind, Member, Type, TypeId};

/// The numbers and strings of one blob, after those of its base.
pub(super) struct Reader<'r, 'a> {
    base: Option<&'r Raw<'a>>,
    pub(super) own: &'r Raw<'a>,
    base_strings: usize,
    base_types: u32,
}

/// In bytes; the kernel's own limit (`KSYM_NAME_LEN`). Without one, a table of strings that has no end would be searched
/// from each of its bytes.
const LONGEST_NAME: usize = 512;

/// Of no type.
const NOWHERE: TypeId = TypeId(u32::MAX);

/// What is wrong in some records.
#[derive(Default)]
struct Faults {
    names: usize,
    types: usize,
    members: usize,
}

impl<'r, 'a> Reader<'r, 'a> {
    pub(super) fn new(base: Option<&'r Raw<'a>>, own: &'r Raw<'a>) -> Reader<'r, 'a> {
        let (base_strings, base_types) = base.map_or((0, 0), |b| (b.strings.len(), b.count()));
        Reader { base, own, base_strings, base_types }
    }

    /// Whether a name begins within another one, or outside of both tables: no writer shares the tails of names.
    pub(super) fn foreign(&self) -> bool {
        let Some(base) = self.base else { return false };
        let end_of_one = |at: usize| match at.checked_sub(self.base_strings) {
            Some(own) => self.own.strings.get(own) == Some(&0),
            None => base.strings.get(at) == Some(&0),
        };
        let starts = |name: u32| (name as usize).checked_sub(1).is_none_or(end_of_one);
        self.own.records().any(|record| {
            let structure = matches!(record.kind, kind::STRUCT | kind::UNION);
            !starts(record.name) || (structure && record.triples().any(|[name, _, _]| !starts(name)))
        })
    }

    pub(super) fn record(&self, number: u32) -> Option<Record<'a>> {
        let index = number.checked_sub(1)?;
        match (index.checked_sub(self.base_types), self.base) {
            (Some(own), _) => self.own.record(own),
            (None, base) => base?.record(index),
        }
    }

    /// `None`: no name, or one that cannot be read.
    pub(super) fn name(&self, offset: u32) -> Option<&'a str> {
        let offset = offset as usize;
        let rest = match (offset.checked_sub(self.base_strings), self.base) {
            (Some(own), _) => self.own.strings.get(own..)?,
            (None, base) => base?.strings.get(offset..)?,
        };
        let rest = rest.get(..rest.len().min(LONGEST_NAME))?;
        let name = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        std::str::from_utf8(name).ok().filter(|n| !n.is_empty())
    }

    /// In bytes, of the integer that has its size on every machine of the kernel's; 8 where there is none.
    pub(super) fn pointer_size(&self) -> u64 {
        let all = self.base.into_iter().chain([self.own]).flat_map(Raw::records);
        let long = |r: &Record<'_>| {
            let name = self.name(r.name).filter(|_| r.kind == kind::INT);
            matches!(name, Some("long" | "long int" | "unsigned long" | "long unsigned int"))
        };
        all.into_iter().find(long).map_or(8, |r| u64::from(r.size_or_type))
    }

    /// All types of the base and its own. `pointer` in bytes; `shift` is how many types stand before them in the table.
    pub(super) fn read(&self, pointer: u64, shift: u32, skipped: &mut Skipped) -> Vec<Type<'a>> {
        let mut faults = Faults::default();
        let all = self.base.into_iter().chain([self.own]).flat_map(Raw::records);
        let list = all.map(|record| self.one(&record, pointer, shift, &mut faults)).collect();
        skip(skipped, "names of BTF that are not in its table of strings", faults.names);
        skip(skipped, "types of BTF that are used and not there", faults.types);
        skip(skipped, "members of BTF at no byte of their struct, or of no type", faults.members);
        list
    }

    fn one(&self, record: &Record<'a>, pointer: u64, shift: u32, faults: &mut Faults) -> Type<'a> {
        let size = Some(u64::from(record.size_or_type));
        let of = |faults: &mut Faults| self.id(record.size_or_type, shift, faults);
        let alias = |how, faults: &mut Faults| (None, Kind::Alias { how, of: of(faults) });
        let members = |faults: &mut Faults| self.members(record, shift, faults);
        let (size, kind) = match record.kind {
            kind::INT | kind::FLOAT => (size, Kind::Base),
            kind::ENUM | kind::ENUM64 => (size, Kind::Enum),
            kind::PTR => (Some(pointer), Kind::Pointer { to: self.pointed(record.size_or_type).map(Cow::Borrowed) }),
            kind::ARRAY => (None, self.array(record, shift, faults).unwrap_or(Kind::Unknown)),
            // A base that was distilled has none of the members.
            kind::STRUCT | kind::UNION if record.triples().len() == 0 && record.size_or_type > 0 => {
                (size, Kind::Unknown)
            }
            kind::STRUCT => (size, Kind::Struct(members(faults))),
            kind::UNION => (size, Kind::Union(members(faults))),
            kind::TYPEDEF => alias(Alias::Typedef, faults),
            kind::VOLATILE => alias(Alias::Volatile, faults),
            kind::CONST | kind::RESTRICT => alias(Alias::Const, faults),
            // `__user`, `__percpu`: says nothing about the bytes.
            kind::TYPE_TAG => alias(Alias::Typedef, faults),
            kind::FUNC | kind::FUNC_PROTO => (None, Kind::Function),
            _ => (None, Kind::Unknown),
        };
        let named = matches!(
            record.kind,
            kind::INT
                | kind::FLOAT
                | kind::ENUM
                | kind::ENUM64
                | kind::STRUCT
                | kind::UNION
                | kind::FWD
                | kind::TYPEDEF
        );
        let name = if named { self.known_name(record.name, faults) } else { None };
        Type { name, scope: None, size, align: None, kind }
    }

    fn known_name(&self, offset: u32, faults: &mut Faults) -> Option<&'a str> {
        let name = self.name(offset);
        // Anonymous: offset 0, or the empty string of a newer writer.
        let empty = || {
            let own = (offset as usize).checked_sub(self.base_strings);
            offset == 0 || own.and_then(|at| self.own.strings.get(at)) == Some(&0)
        };
        faults.names += usize::from(name.is_none() && !empty());
        name
    }

    /// `None` is `void`. A number that is not there must not be that of another blob's type.
    pub(super) fn type_id(&self, number: u32, shift: u32) -> Option<TypeId> {
        let index = number.checked_sub(1)?;
        let there = index < self.base_types.saturating_add(self.own.count());
        Some(if there { TypeId(index.saturating_add(shift)) } else { NOWHERE })
    }

    fn id(&self, number: u32, shift: u32, faults: &mut Faults) -> Option<TypeId> {
        let id = self.type_id(number, shift);
        faults.types += usize::from(id == Some(NOWHERE));
        id
    }

    /// As [`TypeTable::chain`](crate::types::TypeTable): what is behind typedefs and qualifiers.
    fn bare(&self, number: u32) -> Option<Record<'a>> {
        let aliased = |r: &Record<'a>| match r.kind {
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                self.record(r.size_or_type)
            }
            _ => None,
        };
        std::iter::successors(self.record(number), aliased).take(DEEPEST).last()
    }

    /// The name of what a pointer points to, through a few qualifiers.
    fn pointed(&self, number: u32) -> Option<&'a str> {
        let mut record = self.record(number)?;
        for _ in 0..4 {
            match record.kind {
                kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG | kind::PTR => {
                    record = self.record(record.size_or_type)?;
                }
                _ => break,
            }
        }
        self.name(record.name).filter(|_| !matches!(record.kind, kind::TYPE_TAG | kind::FUNC | kind::VAR))
    }

    fn members(&self, record: &Record<'a>, shift: u32, faults: &mut Faults) -> Vec<Member<'a>> {
        let mut members = Vec::with_capacity(record.triples().len());
        for [name, number, place] in record.triples() {
            let (first, count) = self.place(record.flag, number, place);
            // An older pahole writes `void` for what it does not know (`_Atomic`): the place is still right.
            faults.members += usize::from(number == 0);
            if first % 8 != 0 && count.is_none() {
                faults.members += 1;
                continue;
            }
            members.push(Member {
                name: self.known_name(name, faults),
                offset: first / 8,
                align: None,
                bits: count.map(|count| Bits { first: first % 8, count }),
                line: None,
                type_id: self.id(number, shift, faults).unwrap_or(NOWHERE),
            });
        }
        members
    }

    /// The first bit of a member, from the start of its struct, and how many it has if it is a bit field.
    fn place(&self, flag: bool, number: u32, place: u32) -> (u64, Option<u64>) {
        if flag {
            let count = u64::from(place >> 24);
            return (u64::from(place & 0xff_ffff), Some(count).filter(|&c| c > 0));
        }
        // Older writers gave each width of a bit field an integer type of its own.
        let Some(bare) = self.bare(number).filter(|b| b.kind == kind::INT) else { return (u64::from(place), None) };
        let encoding = bare.word(0).unwrap_or(0);
        let (first, count) = (u64::from(encoding >> 16 & 0xff), u64::from(encoding & 0xff));
        let whole = first == 0 && count == u64::from(bare.size_or_type).saturating_mul(8) && place.is_multiple_of(8);
        (u64::from(place) + first, Some(count).filter(|_| !whole))
    }

    /// A dimension that has 0 elements is not known: `int a[]` and `int a[0]` are one here.
    fn array(&self, record: &Record<'a>, shift: u32, faults: &mut Faults) -> Option<Kind<'a>> {
        let mut element = record.word(0)?;
        let count = |r: &Record<'_>| Some(r.word(8).map(u64::from)).map(|c| c.filter(|&c| c > 0));
        let mut counts = vec![count(record)?];
        // `int a[2][3]` is an array of arrays.
        while let Some(inner) = self.record(element).filter(|r| r.kind == kind::ARRAY && counts.len() < DEEPEST) {
            counts.push(count(&inner)?);
            element = inner.word(0)?;
        }
        Some(Kind::Array { element: self.id(element, shift, faults)?, counts, stride: None })
    }
}

/// Puts the types of the kernel, which begin at `shift`, in the place of what a distilled base says of them: the one that
/// has the same name and size, if there is one.
pub(super) fn complete(list: &mut [Type<'_>], distilled: u32, shift: u32, skipped: &mut Skipped) {
    let mut kernel: HashMap<(Option<&str>, Option<u64>), Option<u32>> = HashMap::new();
    for (number, own) in (0..).zip(&*list).skip(shift as usize) {
        if matches!(own.kind, Kind::Struct(_) | Kind::Union(_)) && own.name.is_some() {
            kernel.entry((own.name, own.size)).and_modify(|found| *found = None).or_insert(Some(number));
        }
    }
    let mut left = 0;
    let found: Vec<Option<u32>> = list
        .iter()
        .take(distilled as usize)
        .map(|own| {
            let wanted = own.size.is_some() && matches!(own.kind, Kind::Unknown);
            let found = kernel.get(&(own.name, own.size)).copied().flatten().filter(|_| wanted);
            left += usize::from(wanted && found.is_none());
            found
        })
        .collect();
    for (own, found) in list.iter_mut().zip(found) {
        if let Some(number) = found {
            own.size = None;
            own.kind = Kind::Alias { how: Alias::Typedef, of: Some(TypeId(number)) };
        }
    }
    skip(skipped, "types of which the distilled base of BTF has no members (--base-btf has them)", left);
}
