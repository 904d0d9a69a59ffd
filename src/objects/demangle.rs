//! Names as a user wrote them: C++ and Rust symbols in any text.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// In bytes. A symbol of a few dozen letters can stand for megabytes.
const LONGEST: usize = 400;

/// Symbols longer than this are left alone, in bytes: to take them apart costs more than it tells.
const LONGEST_SYMBOL: usize = 4096;

/// The text with every mangled name in it (`_Z…`, `_R…`, with members and suffixes behind a point) demangled.
#[must_use]
pub fn demangled(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = start(rest) {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c: char| !c.is_ascii_alphanumeric() && !"_.$@".contains(c)).unwrap_or(from.len());
        let (token, after) = from.split_at(length);
        out.push_str(before);
        match symbol(token) {
            Some((plain, tail)) => out.extend([plain.as_str(), tail]),
            None => out.push_str(token),
        }
        rest = after;
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Where the next mangled name begins.
fn start(text: &str) -> Option<usize> {
    let word =
        |at: usize| text.get(..at).and_then(|t| t.chars().next_back()).is_some_and(|c| c.is_alphanumeric() || c == '_');
    let all = text.match_indices("_Z").chain(text.match_indices("_R")).map(|(at, _)| at);
    all.filter(|at| !word(*at)).min()
}

/// A symbol's plain name, and what is behind the symbol: the point may be one of its own, of a suffix or of a member.
fn symbol(token: &str) -> Option<(String, &str)> {
    if token.len() > LONGEST_SYMBOL {
        return None;
    }
    let points = token.rmatch_indices('.').map(|(at, _)| at).take(16);
    std::iter::once(token.len()).chain(points).find_map(|end| {
        let (name, tail) = token.split_at_checked(end)?;
        Some((plain(name)?, tail))
    })
}

fn plain(name: &str) -> Option<String> {
    let mut out = Bounded(String::new());
    // A full buffer is an error to the writer, and what was written stands.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let _ = write!(out, "{rust:#}");
    } else {
        let symbol = Symbol::new(name.as_bytes()).ok()?;
        let _ = symbol.structured_demangle(&mut out, &DemangleOptions::new());
    }
    Some(out.0).filter(|plain| !plain.is_empty())
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = LONGEST.saturating_sub(self.0.len());
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::demangled;
    use proptest::prelude::*;

    #[test]
    fn names_in_a_text() {
        for (text, plain) in [
            ("_ZN2ns4TypeIiE6sharedE", "ns::Type<int>::shared"),
            ("_ZN2ns2inE.v.a, x", "ns::in.v.a, x"),
            ("_ZZ1fvE5local", "f()::local"),
            ("if CPUs write _ZN2ns3twoE while", "if CPUs write ns::two while"),
            ("_ZN4demo5QUEUE17h0123456789abcdefE.head", "demo::QUEUE.head"),
            ("_RNvCs1234_4demo5QUEUE", "demo::QUEUE"),
            ("my_Zone, _Z, _R, a", "my_Zone, _Z, _R, a"),
            ("jiffies", "jiffies"),
        ] {
            assert_eq!(demangled(text), plain, "{text}");
        }
        // Each pair repeats the one before twice.
        let bomb = format!("_Z1f{}", "St4pairI".to_string() + &"iiE".repeat(3) + &"S_".repeat(500));
        assert!(demangled(&bomb).len() <= bomb.len().max(500));
    }

    proptest! {
        #[test]
        fn any_text_is_kept_or_told(text in "(_Z|_R)?[A-Za-z0-9_.$ ]{0,60}") {
            let plain = demangled(&text);
            prop_assert!(plain.len() <= text.len() + 420);
            prop_assert!(text.contains("_Z") || text.contains("_R") || plain == text);
        }
    }
}
