//! Which types say that several threads write them: locks, atomics, and what is volatile.

use serde::Serialize;

use super::{Alias, DEEPEST, Kind, Type, TypeId, TypeTable};

/// Why a type is written from several threads, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contention {
    /// Somebody else may write it: a thread, a signal handler or a device.
    Volatile,
    Atomic,
    Lock,
}

/// Steps of one walk: a type is small, damaged debug information is not.
const MOST: u32 = 4096;

impl TypeTable<'_> {
    /// What a type is or holds, the strongest of it. Pointers are not followed.
    #[must_use]
    pub fn contention(&self, id: TypeId) -> Option<Contention> {
        self.contended(id).into_iter().map(|(_, _, how)| how).max()
    }

    /// What is contended in some bytes of a type, the strongest of it.
    #[must_use]
    pub fn contended_in(&self, id: TypeId, bytes: std::ops::Range<u64>) -> Option<Contention> {
        let inside =
            |(offset, size, _): &(u64, u64, _)| *offset < bytes.end && offset.saturating_add(*size) > bytes.start;
        self.contended(id).into_iter().filter(inside).map(|(_, _, how)| how).max()
    }

    /// Whether a type is one lock or atomic (or an array of them) from its first byte to its last, and nothing beside it,
    /// and why.
    #[must_use]
    pub fn contended_piece(&self, id: TypeId) -> Option<Contention> {
        match *self.contended(id).as_slice() {
            [(0, size, how)] if self.size(id) == Some(size) => Some(how),
            _ => None,
        }
    }

    /// What is contended in a type: offset and size in bytes, and why. An array is one piece.
    #[must_use]
    pub fn contended(&self, id: TypeId) -> Vec<(u64, u64, Contention)> {
        let mut found = Vec::new();
        self.walk(id, 0, (DEEPEST, &mut MOST.clone()), &mut found);
        found
    }

    /// Steps that [`TypeTable::contended`] takes.
    pub(super) fn contended_steps(&self, id: TypeId) -> usize {
        let mut left = MOST;
        self.walk(id, 0, (DEEPEST, &mut left), &mut Vec::new());
        (MOST - left) as usize
    }

    fn walk(&self, id: TypeId, at: u64, (depth, left): (usize, &mut u32), found: &mut Vec<(u64, u64, Contention)>) {
        let (Some(depth), Some(fewer)) = (depth.checked_sub(1), left.checked_sub(1)) else { return };
        *left = fewer;
        let Some(own) = self.get(id) else { return };
        if let Some(how) = of_its_own(own) {
            found.push((at, self.size(id).unwrap_or(0), how));
            return;
        }
        match &own.kind {
            Kind::Alias { how, of: Some(of) } => {
                let before = found.len();
                self.walk(*of, at, (depth, left), found);
                if *how == Alias::Volatile && found.len() == before {
                    found.push((at, self.size(id).unwrap_or(0), Contention::Volatile));
                }
            }
            Kind::Struct(members) | Kind::Union(members) => {
                for member in members {
                    self.walk(member.type_id, at.saturating_add(member.offset), (depth, left), found);
                }
            }
            Kind::Array { element, .. } => {
                let mut inner = Vec::new();
                self.walk(*element, 0, (depth, left), &mut inner);
                if let Some(how) = inner.into_iter().map(|(_, _, how)| how).max() {
                    found.push((at, self.size(id).unwrap_or(0), how));
                }
            }
            _ => {}
        }
    }
}

fn of_its_own(own: &Type<'_>) -> Option<Contention> {
    let name = own.name.unwrap_or_default();
    match own.kind {
        Kind::Alias { how: Alias::Atomic, .. } => Some(Contention::Atomic),
        Kind::Alias { how: Alias::Typedef, .. } if ATOMIC_TYPEDEFS.contains(&name) || c11_atomic(name) => {
            Some(Contention::Atomic)
        }
        Kind::Struct(_) if atomic_class(name) => Some(Contention::Atomic),
        Kind::Struct(_) | Kind::Union(_) | Kind::Alias { how: Alias::Typedef, .. } if LOCKS.contains(&name) => {
            Some(Contention::Lock)
        }
        _ => None,
    }
}

/// `include/linux/types.h`, `include/linux/refcount.h`.
const ATOMIC_TYPEDEFS: &[&str] = &["atomic_t", "atomic64_t", "atomic_long_t", "refcount_t"];

/// C11, 7.17.6. gcc writes no `_Atomic` into DWARF 4, only these names.
fn c11_atomic(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("atomic_") else { return false };
    let signed = rest.strip_prefix('u').unwrap_or(rest);
    matches!(signed, "char" | "short" | "int" | "long" | "llong" | "intptr_t" | "intmax_t")
        || matches!(rest, "flag" | "bool" | "schar" | "char8_t" | "char16_t" | "char32_t" | "wchar_t")
        || matches!(rest, "size_t" | "ptrdiff_t")
        || ["int_least", "int_fast"].iter().any(|p| signed.starts_with(p))
}

/// `std::atomic<T>` and its bases in libstdc++ and libc++, Rust's `core::sync::atomic`.
fn atomic_class(name: &str) -> bool {
    let template = name.split_once('<').map(|(template, _)| template);
    matches!(template, Some("atomic" | "__atomic_base" | "__atomic_float" | "Atomic" | "AtomicPtr"))
        || matches!(name, "atomic_flag" | "__atomic_flag_base" | "AtomicBool")
        || name
            .strip_prefix("AtomicI")
            .or_else(|| name.strip_prefix("AtomicU"))
            .is_some_and(|bits| matches!(bits, "8" | "16" | "32" | "64" | "128" | "size"))
}

/// The kernel's (`include/linux/`), POSIX's and C++'s. Rust's locks hold atomics.
const LOCKS: &[&str] = &[
    "spinlock",
    "spinlock_t",
    "raw_spinlock",
    "raw_spinlock_t",
    "arch_spinlock_t",
    "qspinlock",
    "rwlock_t",
    "qrwlock",
    "mutex",
    "rt_mutex",
    "ww_mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "semaphore",
    "seqcount",
    "seqcount_t",
    "seqlock_t",
    "percpu_counter",
    "wait_queue_head",
    "wait_queue_head_t",
    "swait_queue_head",
    "completion",
    "pthread_mutex_t",
    "pthread_rwlock_t",
    "pthread_spinlock_t",
    "pthread_cond_t",
    "pthread_barrier_t",
    "sem_t",
    "mtx_t",
    "cnd_t",
    "timed_mutex",
    "recursive_mutex",
    "recursive_timed_mutex",
    "shared_mutex",
    "shared_timed_mutex",
    "condition_variable",
];

#[cfg(test)]
mod tests {
    use super::{atomic_class, c11_atomic};

    #[test]
    fn names_of_atomics() {
        for yes in ["atomic_int", "atomic_ulong", "atomic_uint_fast64_t", "atomic_uintptr_t", "atomic_size_t"] {
            assert!(c11_atomic(yes), "{yes}");
        }
        for no in ["atomic_t", "atomic_notifier_head", "atomic_", "int", "atomic_intx"] {
            assert!(!c11_atomic(no), "{no}");
        }
        for yes in
            ["atomic<long int>", "__atomic_base<int>", "AtomicU64", "AtomicUsize", "AtomicPtr<u8>", "Atomic<bool>"]
        {
            assert!(atomic_class(yes), "{yes}");
        }
        for no in ["atomic", "AtomicUx", "AtomicInfo", "atomic_ref<int>", "unique_ptr<atomic<int>>"] {
            assert!(!atomic_class(no), "{no}");
        }
    }
}
