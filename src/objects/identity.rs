//! The one identity key: what stays the same of an object across two builds of nearly the same source.
//!
//! Names alone are not unique (a kernel has two thousand `__func__.N`), and the numbers that compilers append change
//! with any edit. So: section, unit, the name without its counters, and, among equals, an order.

use super::{Kind, Object};
use crate::image::Image;

/// Groups objects that may be the same; most groups hold one. Who is who inside a group is decided by size,
/// content and order, in that sequence (pairing by order alone invents size changes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'i> {
    pub kind: Kind,
    pub section: &'i str,
    /// `None` for global names.
    pub unit: Option<&'i str>,
    pub stem: &'i str,
}

impl<'i> Key<'i> {
    #[must_use]
    pub fn of(object: &Object<'i>, image: &'i Image<'_>) -> Key<'i> {
        let section = image.section(object.section).map_or("", |s| s.name.as_ref());
        Key { kind: object.kind, section, unit: object.unit, stem: stem(object.name) }
    }
}

/// The name without what compilers append: `.12`, `.llvm.123`, `.isra.0`, `.constprop.0`, `.lto_priv.1`, the counter
/// of `__UNIQUE_ID_x12` and `__BTF_ID__struct__x__12`, and the hash of Rust's legacy mangling. `.cold` and `.part`
/// stay: they name another piece of code.
#[must_use]
pub fn stem(name: &str) -> &str {
    if name.starts_with("__UNIQUE_ID_") || name.starts_with("__BTF_ID__") {
        let name = name.rsplit_once('.').filter(|(_, n)| number(n)).map_or(name, |(head, _)| head);
        return name.trim_end_matches(|c: char| c.is_ascii_digit());
    }
    let mut name = name;
    while let Some((head, tail)) = name.rsplit_once('.') {
        if head.is_empty() || !(number(tail) || matches!(tail, "llvm" | "isra" | "constprop" | "lto_priv")) {
            break;
        }
        name = head;
    }
    rust_hash(name).unwrap_or(name)
}

fn number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `_ZN4core3fmt17h0123456789abcdefE` without its hash.
fn rust_hash(name: &str) -> Option<&str> {
    let (head, hash) = name.strip_suffix('E')?.rsplit_once("17h")?;
    (name.starts_with("_ZN") && hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn counters_go_and_names_stay() {
        for (name, want) in [
            ("__func__.12", "__func__"),
            ("foo.isra.0", "foo"),
            ("foo.constprop.0.isra.3", "foo"),
            ("foo.llvm.7346", "foo"),
            ("foo.cold", "foo.cold"),
            ("foo.part.0", "foo.part"),
            ("foo.lto_priv.0.cold", "foo.lto_priv.0.cold"),
            (".LC0", ".LC0"),
            (".0", ".0"),
            ("md5", "md5"),
            ("__UNIQUE_ID_ddebug318.14", "__UNIQUE_ID_ddebug"),
            ("__BTF_ID__struct__task_struct__26", "__BTF_ID__struct__task_struct__"),
            ("_ZN4core3fmt17h0123456789abcdefE", "_ZN4core3fmt"),
            ("v1.2.x", "v1.2.x"),
        ] {
            assert_eq!(stem(name), want, "{name}");
        }
    }
}
