//! Who uses some bytes: functions, by what they do.

use std::collections::BTreeSet;

use super::{Access, Heat, Kind, NOBODY};

/// Functions (by index) that use some bytes while the program runs; those that run only at start, at exit or by way of
/// exception are counted apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    pub readers: BTreeSet<u32>,
    /// With those that write atomically.
    pub writers: BTreeSet<u32>,
    pub atomics: BTreeSet<u32>,
    /// Take the address; what is done with it is not known.
    pub takers: BTreeSet<u32>,
    pub cold: BTreeSet<u32>,
}

impl Users {
    /// Read or write it: that its address is taken says too little.
    #[must_use]
    pub fn touch(&self) -> bool {
        !self.readers.is_empty() || !self.writers.is_empty()
    }

    /// Whether a function uses it in any way.
    #[must_use]
    pub fn has(&self, function: u32) -> bool {
        [&self.readers, &self.writers, &self.takers].iter().any(|set| set.contains(&function))
    }

    /// Those that read or write it.
    #[must_use]
    pub fn of_content(&self) -> BTreeSet<u32> {
        self.readers.union(&self.writers).copied().collect()
    }
}

impl Heat<'_> {
    /// Who uses some of an object's bytes. `anywhere`: with accesses whose index is not known, which may go elsewhere.
    #[must_use]
    pub fn users(&self, object: u32, bytes: std::ops::Range<u64>, anywhere: bool) -> Users {
        let mut users = Users::default();
        for access in self.of(object).iter().filter(|a| a.reaches(&bytes) && (anywhere || !a.indexed)) {
            let function = access.function;
            if function == NOBODY {
                continue;
            }
            if self.function(function).is_some_and(|f| f.cold) {
                users.cold.insert(function);
                continue;
            }
            if access.kind == Kind::Address {
                users.takers.insert(function);
            }
            if access.kind == Kind::Atomic {
                users.atomics.insert(function);
            }
            if access.kind.reads() {
                users.readers.insert(function);
            }
            if access.kind.writes() {
                users.writers.insert(function);
            }
        }
        // Who is known to touch it took the address for that.
        let known = users.of_content();
        users.takers.retain(|f| !known.contains(f));
        users
    }
}

impl Access {
    /// Whether two differ only in who made them, and how often.
    #[must_use]
    pub fn is_same_as(&self, other: &Access) -> bool {
        let Access { cpu, thread, count, hitm, .. } = *other;
        Access { cpu, thread, count, hitm, ..*self } == *other
    }

    /// Whether it touches some of these bytes of its object, or may.
    #[must_use]
    pub fn reaches(&self, bytes: &std::ops::Range<u64>) -> bool {
        let end = self.offset.saturating_add(u64::from(self.width).max(1));
        self.offset < bytes.end && (self.indexed || end > bytes.start)
    }
}
