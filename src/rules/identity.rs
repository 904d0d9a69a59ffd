//! Who a finding is about, across builds: what stays the same when everything has moved. Never an address.

use serde::Deserialize;

use crate::finding::{Finding, Subject};
use crate::objects::stem;

/// Rule, section, unit and name of what a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub rule: String,
    pub of: Named,
}

/// One object or member: the section, the last part of the file, and the name without the compiler's counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Named {
    pub section: String,
    pub unit: String,
    pub name: String,
}

/// What identifies a subject, as it stands in JSON of `straddle.scan/1` and `straddle.check/1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Written {
    pub name: String,
    pub section: String,
    pub file: Option<String>,
}

impl Named {
    fn of(name: &str, section: &str, file: Option<&str>) -> Named {
        // Trees are built at different paths.
        let unit = file.and_then(|f| f.rsplit('/').next()).unwrap_or_default();
        Named { section: section.to_string(), unit: unit.to_string(), name: plain(name) }
    }
}

impl From<&Subject> for Named {
    fn from(s: &Subject) -> Named {
        Named::of(&s.name, &s.section, s.file.as_deref())
    }
}

impl From<&Written> for Named {
    fn from(s: &Written) -> Named {
        Named::of(&s.name, &s.section, s.file.as_deref())
    }
}

impl Identity {
    #[must_use]
    pub fn of(finding: &Finding) -> Identity {
        Identity { rule: finding.rule.to_string(), of: Named::from(&finding.subject) }
    }

    /// The same in hexadecimal digits, for formats that want a fingerprint. `nth`: which of several that have one identity.
    #[must_use]
    pub fn fingerprint(&self, nth: usize) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.rule, &self.of.section, &self.of.unit, &self.of.name] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.update(&(nth as u64).to_le_bytes());
        hasher.finalize().to_hex().chars().take(32).collect()
    }
}

/// `cache.12.head` without `.12`; a member of a symbol with a suffix keeps its path.
fn plain(name: &str) -> String {
    let end = name.char_indices().skip(1).find(|(_, c)| *c == '.').map_or(name.len(), |(at, _)| at);
    let (whole, rest) = name.split_at(end);
    let counter = |part: &&str| {
        !(part.is_empty()
            || part.bytes().all(|b| b.is_ascii_digit())
            || matches!(*part, "llvm" | "isra" | "constprop" | "lto_priv"))
    };
    std::iter::once(stem(whole)).chain(rest.split('.').filter(counter)).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_members_and_lose_their_counters() {
        for (name, want) in [
            ("cache.12.head", "cache.head"),
            ("cache.13", "cache"),
            ("db.mutex_", "db.mutex_"),
            ("events[10]", "events[10]"),
            (".LC0", ".LC0"),
            ("_ZN4demo5QUEUE17h0123456789abcdefE.head", "_ZN4demo5QUEUE.head"),
        ] {
            assert_eq!(plain(name), want, "{name}");
        }
    }

    #[test]
    fn a_tree_may_move_and_a_unit_may_not() {
        let named = |file| Named::of("lock", ".data", Some(file));
        assert_eq!(named("/build/a/kernel/fork.c"), named("fork.c"));
        assert_ne!(named("fork.c"), named("exit.c"));
        let identity = |rule: &str| Identity { rule: rule.to_string(), of: named("fork.c") };
        assert_eq!(identity("a").fingerprint(0), identity("a").fingerprint(0));
        assert_ne!(identity("a").fingerprint(0), identity("a").fingerprint(1));
        assert_ne!(identity("a").fingerprint(0), identity("b").fingerprint(0));
    }
}
