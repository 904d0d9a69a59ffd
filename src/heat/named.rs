//! What a name in a profile means here: an object, a member of one, or a member of every object of a type.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use super::{Known, Named};
use crate::formats::Place;
use crate::image::Image;
use crate::objects::{Declared, Object, declared, demangled};
use crate::types::{TypeId, TypeTable, Types};

/// What the names of a profile mean in one image.
pub struct Naming<'n, 'i> {
    objects: &'n [Object<'i>],
    by_name: HashMap<&'n str, Vec<u32>>,
    /// By their names in the source, where those differ.
    plain: OnceCell<HashMap<String, Vec<u32>>>,
    types: Option<(&'n TypeTable<'n>, Vec<Option<Declared<'n>>>)>,
    /// Bytes of members, of objects that were asked for.
    members: RefCell<HashMap<u32, Vec<(u64, u64)>>>,
    /// Where structs are: in which object, at which offset.
    inside: OnceCell<HashMap<TypeId, Vec<(u32, u64)>>>,
}

/// Places of structs that are kept. A kernel's objects hold some hundred thousand.
const MOST: usize = 1 << 20;

impl Known for Naming<'_, '_> {
    fn named(&self, place: &Place<'_>) -> Named {
        self.find(place)
    }

    fn in_member(&self, object: u32, offset: u64) -> Option<bool> {
        let (table, _) = self.types.as_ref()?;
        let mut all = self.members.borrow_mut();
        let members = all.entry(object).or_insert_with(|| {
            let rows = self.type_of(object).map(|id| table.rows(id).list).unwrap_or_default();
            let bytes = rows.iter().map(|r| (r.field.offset, r.field.offset.saturating_add(r.field.size.unwrap_or(0))));
            bytes.collect()
        });
        Some(members.iter().any(|(start, end)| (*start..*end).contains(&offset)))
    }
}

impl<'n, 'i> Naming<'n, 'i> {
    #[must_use]
    pub fn of(image: &'n Image<'_>, objects: &'n [Object<'i>], types: Option<&'n Types<'n>>) -> Naming<'n, 'i> {
        let mut by_name: HashMap<&str, Vec<u32>> = HashMap::with_capacity(objects.len());
        for (index, object) in (0u32..).zip(objects) {
            by_name.entry(object.name).or_default().push(index);
        }
        let types = types.map(|t| (&t.table, declared(objects, image, t).0));
        Naming { objects, by_name, plain: OnceCell::new(), types, members: RefCell::default(), inside: OnceCell::new() }
    }

    fn find(&self, place: &Place<'_>) -> Named {
        match *place {
            Place::Address(_) => Vec::new(),
            Place::Member { of, path } => self.of_type(of, path),
            Place::Symbol { name, offset, .. } => {
                let objects = self.objects_called(name);
                if !objects.is_empty() {
                    return objects.iter().filter_map(|&i| self.bytes(i, offset)).collect();
                }
                let Some((whole, path)) = name.split_once('.').filter(|_| offset == 0) else { return Vec::new() };
                let members =
                    self.objects_called(whole).iter().filter_map(|&i| self.member(i, self.type_of(i)?, 0, path));
                let members: Named = members.collect();
                if members.is_empty() { self.of_type(whole, path) } else { members }
            }
        }
    }

    fn objects_called(&self, name: &str) -> &[u32] {
        self.by_name.get(name).or_else(|| self.plain().get(name)).map(Vec::as_slice).unwrap_or_default()
    }

    fn plain(&self) -> &HashMap<String, Vec<u32>> {
        self.plain.get_or_init(|| {
            let mut plain: HashMap<String, Vec<u32>> = HashMap::new();
            for (index, object) in (0u32..).zip(self.objects) {
                if let std::borrow::Cow::Owned(name) = demangled(object.name) {
                    plain.entry(name).or_default().push(index);
                }
            }
            plain
        })
    }

    /// Of a whole object its bytes; from an offset on, what is not known.
    fn bytes(&self, index: u32, offset: u64) -> Option<(u32, u64, u64)> {
        let size = self.objects.get(index as usize)?.span.size;
        (offset < size).then_some((index, offset, if offset == 0 && size <= WORD { size } else { 0 }))
    }

    fn type_of(&self, index: u32) -> Option<TypeId> {
        self.types.as_ref()?.1.get(index as usize)?.as_ref()?.type_id
    }

    fn member(&self, index: u32, id: TypeId, at: u64, path: &str) -> Option<(u32, u64, u64)> {
        let (table, _) = self.types.as_ref()?;
        let field = table.member(id, path)?;
        let (offset, size) = (at.checked_add(field.offset)?, field.size);
        let end = self.objects.get(index as usize)?.span.size;
        (offset < end).then_some((index, offset, size.unwrap_or(0).min(end - offset)))
    }

    fn of_type(&self, of: &str, path: &str) -> Named {
        let Some((table, declared)) = &self.types else { return Vec::new() };
        let inside = self.inside.get_or_init(|| inside(table, declared));
        let wanted = |id: &TypeId| {
            let name = table.name(*id);
            name == of || ["struct ", "union "].iter().any(|kind| name.strip_prefix(kind) == Some(of))
        };
        let mut found: Named = inside
            .iter()
            .filter(|(id, _)| wanted(id))
            .flat_map(|(id, places)| places.iter().filter_map(|&(index, at)| self.member(index, *id, at, path)))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// What one instruction reaches.
const WORD: u64 = 8;

fn inside(table: &TypeTable<'_>, declared: &[Option<Declared<'_>>]) -> HashMap<TypeId, Vec<(u32, u64)>> {
    let mut found: HashMap<TypeId, Vec<(u32, u64)>> = HashMap::new();
    let mut left = MOST;
    let typed = (0u32..).zip(declared).filter_map(|(index, d)| Some((index, d.as_ref()?.type_id?)));
    for (index, id) in typed {
        found.entry(id).or_default().push((index, 0));
        let rows = table.rows(id);
        let Some(fewer) = left.checked_sub(rows.list.len()) else { break };
        left = fewer;
        for row in rows.list.iter().filter(|row| row.opened) {
            found.entry(row.field.type_id).or_default().push((index, row.field.offset));
        }
    }
    found
}
