//! Objects and the variables that debug information declares at their places.

use std::collections::BTreeMap;

use super::{Object, Space, stem};
use crate::image::{Image, Sizes};
use crate::types::{Kind, TypeId, TypeTable, Types, Variable};
use crate::units::Addr;

/// What is known of an object beyond its symbol.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'t> {
    pub variable: &'t Variable<'t>,
    /// `None` when the declaration has no type, or one of another size than the symbol.
    pub type_id: Option<TypeId>,
}

/// The declarations of `objects`, in their order, and what could not be used, by reason.
#[must_use]
pub fn declared<'t>(
    objects: &[Object<'_>],
    image: &Image<'_>,
    types: &'t Types<'t>,
) -> (Vec<Option<Declared<'t>>>, BTreeMap<&'static str, u64>) {
    let mut skipped = BTreeMap::new();
    let found = objects.iter().map(|object| {
        let variable = variable_of(object, image, types)?;
        let type_id = variable.type_id.filter(|&id| fits(&types.table, id, object, image));
        if type_id.is_none() && variable.type_id.is_some_and(|id| types.table.size(id).is_some()) {
            *skipped.entry("types of another size than their symbol").or_insert(0) += 1;
        }
        Some(Declared { variable, type_id })
    });
    (found.collect(), skipped)
}

/// At a place that only one object can have, the place decides; where spaces overlap (per-CPU sections of a kernel begin
/// at 0) the name must agree too. Thread-local variables have no address.
fn variable_of<'t>(object: &Object<'_>, image: &Image<'_>, types: &'t Types<'t>) -> Option<&'t Variable<'t>> {
    let relocatable = image.kind.relocatable();
    let candidates = types.at(relocatable.then_some(object.section), Addr(object.address(image)));
    let names = |v: &&Variable<'_>| {
        [v.name, v.linkage_name].into_iter().flatten().any(|n| n == object.name || n == stem(object.name))
    };
    match object.space {
        Space::Thread => None,
        Space::Section(_) if !relocatable => candidates.iter().find(names),
        Space::Section(_) | Space::Shared => candidates.iter().find(names).or_else(|| {
            // C++ names a static of a function only in its own words.
            candidates.iter().find(|v| v.type_id.is_some_and(|id| fits(&types.table, id, object, image)))
        }),
    }
}

/// The type's size is the symbol's; or the type ends in an array of as many elements as the initialiser has. Where only
/// the way to the next symbol is known, the type must fit into it.
fn fits(table: &TypeTable<'_>, id: TypeId, object: &Object<'_>, image: &Image<'_>) -> bool {
    let size = object.span.size;
    match table.size(id) {
        Some(known) if image.sizes == Sizes::UpTo => known <= size,
        Some(known) => known == size || (known < size && open_ended(table, id)),
        None => matches!(table.bare(id).map(|t| &t.kind), Some(Kind::Array { .. })),
    }
}

fn open_ended(table: &TypeTable<'_>, id: TypeId) -> bool {
    let Some(Kind::Struct(members)) = table.bare(id).map(|t| &t.kind) else { return false };
    let last = members.iter().max_by_key(|m| m.offset).and_then(|m| table.bare(m.type_id));
    let Some(Kind::Array { counts, .. }) = last.map(|t| &t.kind) else { return false };
    counts.first().is_some_and(|count| count.is_none_or(|c| c <= 1))
}
