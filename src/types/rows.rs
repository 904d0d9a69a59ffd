//! A type flattened: every member that it holds, in the order of its declaration, each followed by what it holds.

use super::{Alias, Bits, DEEPEST, Field, Kind, Member, TypeId, TypeTable};

/// One member of a flattened type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'d> {
    /// Of a bit field, `offset` and `size` are those of the bytes that hold its bits.
    pub field: Field<'d>,
    pub bits: Option<Bits>,
    /// The row of the member that holds this one; `None` where it is the type itself.
    pub parent: Option<usize>,
    /// Holds other rows.
    pub opened: bool,
}

/// A flattened type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows<'d> {
    pub list: Vec<Row<'d>>,
    /// There are more members: too many, or those of a base class that is not told here (virtual, or only declared).
    pub cut: bool,
}

/// Members that are read of one type. The largest types of a kernel have some thousands; nesting in damaged debug
/// information has no end.
const MOST: usize = 1 << 14;

impl<'d> Rows<'d> {
    /// Whether a row is another one or lies inside it.
    #[must_use]
    pub fn within(&self, row: usize, outer: usize) -> bool {
        let up = |at: &usize| self.list.get(*at)?.parent;
        std::iter::successors(Some(row), up).take(DEEPEST + 1).any(|at| at == outer)
    }
}

impl<'d> TypeTable<'d> {
    /// Every member of a type. Anonymous structs and unions and base classes are no rows of their own, what they hold is;
    /// elements of arrays are not entered.
    #[must_use]
    pub fn rows(&self, id: TypeId) -> Rows<'d> {
        let mut rows = Rows::default();
        let whole = Field { path: Vec::new(), offset: 0, size: None, align: None, type_id: id };
        self.open(&whole, None, DEEPEST, &mut rows);
        rows
    }

    fn open(&self, outer: &Field<'d>, parent: Option<usize>, depth: usize, rows: &mut Rows<'d>) {
        let (Some(depth), Some(kind)) = (depth.checked_sub(1), self.bare(outer.type_id)) else { return };
        let (Kind::Struct(members) | Kind::Union(members)) = &kind.kind else { return };
        for member in members {
            if rows.list.len() >= MOST {
                rows.cut = true;
                return;
            }
            let Some(offset) = outer.offset.checked_add(member.offset) else { continue };
            let field = Field {
                path: outer.path.iter().copied().chain(member.name).collect(),
                offset,
                size: self.member_size(member),
                align: self.asked_align(member.align, member.type_id),
                type_id: member.type_id,
            };
            if member.name.is_none() {
                let told = self.bare(member.type_id).map(|t| matches!(t.kind, Kind::Struct(_) | Kind::Union(_)));
                rows.cut |= told != Some(true) && member.bits.is_none();
                self.open(&field, parent, depth, rows);
                continue;
            }
            let at = rows.list.len();
            rows.list.push(Row { field: field.clone(), bits: member.bits, parent, opened: false });
            self.open(&field, Some(at), depth, rows);
            let opened = rows.list.len() > at + 1;
            if let Some(row) = rows.list.get_mut(at) {
                row.opened = opened;
            }
        }
    }

    /// In bytes; those that hold its bits, of a bit field.
    #[must_use]
    pub fn member_size(&self, member: &Member<'_>) -> Option<u64> {
        match member.bits {
            Some(bits) => bits.first.checked_add(bits.count).map(|bits| bits.div_ceil(8)),
            None => self.size(member.type_id),
        }
    }

    /// The member that a path names: `lock`, `inner.lock`, `events[10]`, `rows[1][2].count`. `None` where there is none, or
    /// no such element.
    #[must_use]
    pub fn member(&self, id: TypeId, path: &'d str) -> Option<Field<'d>> {
        let mut field = Field { path: Vec::new(), offset: 0, size: self.size(id), align: None, type_id: id };
        for word in path.split('.') {
            let (name, indices) = word.split_at(word.find('[').unwrap_or(word.len()));
            let found = self.named_member(&field, name, DEEPEST)?;
            field = self.element(found, indices)?;
            if let Some(last) = field.path.last_mut() {
                *last = word;
            }
        }
        Some(field)
    }

    /// The line at which a struct declares what a path begins with.
    #[must_use]
    pub fn declared_line(&self, id: TypeId, path: &[&str]) -> Option<u32> {
        let first = path.first()?;
        self.line_of(id, first.split('[').next()?, DEEPEST)
    }

    fn line_of(&self, id: TypeId, name: &str, depth: usize) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        let (Kind::Struct(members) | Kind::Union(members)) = &self.bare(id)?.kind else { return None };
        // A base class has a name, and may stand in another file.
        let nameless = |id| self.bare(id).is_some_and(|t| t.name.is_none());
        members.iter().find_map(|member| match member.name {
            Some(own) => (own == name).then_some(member.line?.get()),
            None if nameless(member.type_id) => self.line_of(member.type_id, name, depth),
            None => None,
        })
    }

    fn named_member(&self, outer: &Field<'d>, name: &str, depth: usize) -> Option<Field<'d>> {
        let depth = depth.checked_sub(1)?;
        let (Kind::Struct(members) | Kind::Union(members)) = &self.bare(outer.type_id)?.kind else { return None };
        members.iter().find_map(|member| {
            let field = Field {
                path: outer.path.iter().copied().chain(member.name).collect(),
                offset: outer.offset.checked_add(member.offset)?,
                size: self.member_size(member),
                align: self.asked_align(member.align, member.type_id),
                type_id: member.type_id,
            };
            match member.name {
                Some(own) => (own == name).then_some(field),
                None => self.named_member(&field, name, depth),
            }
        })
    }

    /// The element of an array that indices name: `[10]`, `[1][2]`; itself without any. Every dimension must be given: there
    /// is no type for a row of a table.
    #[must_use]
    pub fn element(&self, field: Field<'d>, indices: &str) -> Option<Field<'d>> {
        if indices.is_empty() {
            return Some(field);
        }
        let Kind::Array { element, counts, stride } = &self.bare(field.type_id)?.kind else { return None };
        let inside = indices.strip_prefix('[')?.strip_suffix(']')?;
        let wanted: Vec<u64> = inside.split("][").map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let size = self.size(*element);
        let stride = stride.or(size)?;
        if wanted.len() != counts.len() {
            return None;
        }
        let mut number = 0u64;
        for (index, count) in wanted.iter().zip(counts) {
            if count.is_some_and(|count| *index >= count) {
                return None;
            }
            number = number.checked_mul(count.unwrap_or(1))?.checked_add(*index)?;
        }
        let offset = field.offset.checked_add(number.checked_mul(stride)?)?;
        Some(Field { offset, size, type_id: *element, ..field })
    }

    /// What alignment a type needs, in bytes, as far as it can be told: debug information says it only where the source
    /// asks for it. A scalar needs its size, at most `scalar`; a struct what its members need, at most what their offsets
    /// and its size show.
    #[must_use]
    pub fn natural_align(&self, id: TypeId, scalar: u64) -> u64 {
        self.align_within(id, scalar, DEEPEST, &mut MOST.clone()).max(self.asked_align(None, id).unwrap_or(1))
    }

    fn align_within(&self, id: TypeId, scalar: u64, depth: usize, left: &mut usize) -> u64 {
        let (Some(depth), Some(fewer)) = (depth.checked_sub(1), left.checked_sub(1)) else { return 1 };
        *left = fewer;
        let Some(own) = self.get(id) else { return 1 };
        let asked = own.align.unwrap_or(1);
        let natural = match &own.kind {
            Kind::Alias { how, of: Some(of) } => {
                let of_it = self.align_within(*of, scalar, depth, left);
                // C11 atomics of up to a double word are aligned to their size.
                if *how == Alias::Atomic { of_it.max(lowest(self.size(*of), 16.min(scalar.max(8)))) } else { of_it }
            }
            Kind::Array { element, .. } => self.align_within(*element, scalar, depth, left),
            Kind::Struct(members) | Kind::Union(members) => {
                let member = |m: &Member<'_>| {
                    let needs = self.align_within(m.type_id, scalar, depth, left).max(m.align.unwrap_or(1));
                    if m.offset == 0 || m.bits.is_some() { needs } else { needs.min(lowest(Some(m.offset), u64::MAX)) }
                };
                let most = members.iter().map(member).max().unwrap_or(1);
                most.min(lowest(own.size, u64::MAX))
            }
            _ => lowest(self.size(id), scalar),
        };
        natural.max(asked)
    }
}

/// The largest power of two that divides a number, at most `most`; 1 where there is no number.
fn lowest(number: Option<u64>, most: u64) -> u64 {
    number.filter(|n| *n > 0).map_or(1, |n| 1 << n.trailing_zeros()).min(most)
}
