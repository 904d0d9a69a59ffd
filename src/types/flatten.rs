//! A type's members, level by level: what lies beside what.

use super::{DEEPEST, Kind, TypeId, TypeTable};

/// One member at its place in the outermost object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'d> {
    /// The names that lead to it, without those of anonymous members; empty for a whole object.
    pub path: Vec<&'d str>,
    /// From the start of the outermost object, in bytes.
    pub offset: u64,
    /// In bytes; `None` is unknown.
    pub size: Option<u64>,
    /// Asked for in the source, on the member or its type, in bytes.
    pub align: Option<u64>,
    pub type_id: TypeId,
}

/// Members of one object that are looked at. The largest structs of a kernel have some hundreds; nesting in damaged
/// debug information has no end.
const MOST: usize = 4096;

impl<'d> TypeTable<'d> {
    /// The members of every struct in a type, each struct's beside each other, outermost first. Members of anonymous
    /// structs and unions and of base classes count to the struct that holds them. Elements of arrays are not entered.
    #[must_use]
    pub fn levels(&self, id: TypeId) -> Vec<Vec<Field<'d>>> {
        let mut levels: Vec<Vec<Field<'d>>> = Vec::new();
        let mut left = MOST;
        let mut open = vec![Field { path: Vec::new(), offset: 0, size: None, align: None, type_id: id }];
        while let Some(outer) = open.pop() {
            let mut level = Vec::new();
            self.members_of(&outer, DEEPEST, &mut left, &mut level);
            open.extend(level.iter().rev().filter(|f| f.path.len() < DEEPEST).cloned());
            if !level.is_empty() {
                levels.push(level);
            }
        }
        levels
    }

    fn members_of(&self, outer: &Field<'d>, depth: usize, left: &mut usize, level: &mut Vec<Field<'d>>) {
        let (Some(depth), Some(kind)) = (depth.checked_sub(1), self.bare(outer.type_id)) else { return };
        let (Kind::Struct(members) | Kind::Union(members)) = &kind.kind else { return };
        for member in members {
            let Some(fewer) = left.checked_sub(1) else { return };
            *left = fewer;
            let Some(offset) = outer.offset.checked_add(member.offset) else { continue };
            let field = Field {
                path: outer.path.iter().copied().chain(member.name).collect(),
                offset,
                size: if member.bits.is_some() { None } else { self.size(member.type_id) },
                align: self.asked_align(member.align, member.type_id),
                type_id: member.type_id,
            };
            match member.name {
                Some(_) => level.push(field),
                None => self.members_of(&field, depth, left, level),
            }
        }
    }
}
