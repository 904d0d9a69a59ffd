//! What it costs to look at a type. A damaged file can give thousands of members to each of its symbols.

use std::collections::HashMap;

use super::{TypeId, TypeTable};

/// How many members and steps rules take for each type, each worked out once.
#[derive(Debug)]
pub struct Weights<'t, 'd> {
    table: &'t TypeTable<'d>,
    whole: HashMap<TypeId, usize>,
    steps: HashMap<TypeId, usize>,
}

impl<'t, 'd> Weights<'t, 'd> {
    #[must_use]
    pub fn new(table: &'t TypeTable<'d>) -> Weights<'t, 'd> {
        Weights { table, whole: HashMap::new(), steps: HashMap::new() }
    }

    /// Every member at every level, what is contended in them, and what is in the elements of arrays.
    pub fn of(&mut self, id: TypeId) -> usize {
        if let Some(weight) = self.whole.get(&id) {
            return *weight;
        }
        let mut weight = self.steps(id);
        for field in self.table.levels(id).into_iter().flatten() {
            let elements = self.table.elements(field.type_id, field.size);
            weight = weight.saturating_add(1).saturating_add(elements.map_or(0, |e| self.steps(e.of)));
        }
        self.whole.insert(id, weight);
        weight
    }

    fn steps(&mut self, id: TypeId) -> usize {
        let table = self.table;
        *self.steps.entry(id).or_insert_with(|| table.contended_steps(id))
    }
}
