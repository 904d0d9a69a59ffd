//! What a name suggests. A guess that only ranks: where types or profiles are known it is not asked.

/// How names of contended data end: `tasklist_lock`, `tcp_memory_allocated`, `user_count.3`.
const ENDS: &[&str] = &[
    "lock",
    "locks",
    "spinlock",
    "rwlock",
    "mutex",
    "sem",
    "rwsem",
    "seq",
    "seqcount",
    "seqlock",
    "count",
    "counter",
    "counters",
    "cnt",
    "atomic",
    "refcount",
    "refcnt",
    "refs",
    "total",
    "allocated",
    "stat",
    "stats",
    "pending",
    "inflight",
    "wait",
    "waitq",
    "waitqueue",
    "queue",
    "generation",
    "jiffies",
    "clock",
    "timestamp",
    "users",
];

/// How they begin: `nr_files`, `num_ops`.
const BEGINS: &[&str] = &["nr", "num", "total", "atomic"];

/// Whether a name sounds like a lock, a counter or something else that several CPUs write. Whole words only, so that
/// `block` is no `lock`; and not words in the middle, so that `lock_ops` or `count_table` are what they end with.
#[must_use]
pub fn contended_by_name(name: &str) -> bool {
    let name = crate::objects::stem(name);
    let same = |word: Option<&str>, list: &[&str]| {
        word.is_some_and(|w| list.contains(&w.trim_end_matches(|c: char| c.is_ascii_digit())))
    };
    let mut words = name.split(['_', '.', ':']).filter(|w| !w.is_empty());
    let first = words.next();
    let last = words.next_back();
    same(last.or(first), ENDS) || (last.is_some() && same(first, BEGINS))
}

/// Whether a name is that of bytes which keep others apart: `_pad1_`, `__pad`, `tx_pad_2`, `padding`, and the names of the
/// kernel's empty structs (`CACHELINE_PADDING`).
#[must_use]
pub fn pad_by_name(name: &str) -> bool {
    let last = name.split('_').rfind(|w| !w.is_empty() && !w.bytes().all(|b| b.is_ascii_digit()));
    last.is_some_and(|w| matches!(w.trim_end_matches(|c: char| c.is_ascii_digit()), "pad" | "padding"))
}

#[cfg(test)]
mod tests {
    use super::{contended_by_name, pad_by_name};

    #[test]
    fn words_not_parts_of_words() {
        for yes in
            ["tcp_memory_allocated", "tasklist_lock", "nr_files", "counter.0", "lock2", "jiffies", "ns::hits::count"]
        {
            assert!(contended_by_name(yes), "{yes}");
        }
        for no in ["block_size", "account", "sequence", "x", "lock_ops", "nr"] {
            assert!(!contended_by_name(no), "{no}");
        }
    }
    #[test]
    fn pads_are_called_pads() {
        for yes in
            ["_pad1_", "__pad", "pad", "rx_pad_2", "_pad", "padding0", "cacheline_padding", "zone_padding", "pad_"]
        {
            assert!(pad_by_name(yes), "{yes}");
        }
        for no in ["touchpad", "pad_ops", "_", "7", "padded", "ipad"] {
            assert!(!pad_by_name(no), "{no}");
        }
    }
}
