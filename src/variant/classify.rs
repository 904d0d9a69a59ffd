//! Which sections may be padded: only an allowed name with the structure that fits it.
//!
//! Denied by default, because "it runs" is no proof: a pad inside a table that somebody walks (`__start_x` to
//! `__stop_x`) gives a program that starts, and is silently wrong.

use object::elf;

use super::object::Section;

/// What a section is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Bytes may follow it, its alignment may be raised.
    Paddable(Family),
    /// Left as it is; the words say why.
    Kept(String),
}

/// The two families of layout; both belong to a landing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Text,
    Data,
}

impl Class {
    pub(super) fn kept(why: impl Into<String>) -> Class {
        Class::Kept(why.into())
    }

    #[must_use]
    pub fn paddable(&self) -> bool {
        matches!(self, Class::Paddable(_))
    }
}

/// Judges one section of an object by its header.
#[must_use]
pub fn classify(section: &Section) -> Class {
    if let Some(why) = structure(section) {
        return Class::kept(why);
    }
    let Some((family, required, forbidden)) = allowed(&section.name) else {
        return Class::kept(if c_identifier(&section.name) {
            "its name is a C identifier: __start_ and __stop_ may bracket a table"
        } else {
            "its name is not on the list of sections known to be safe"
        });
    };
    if section.flags & required != required || section.flags & forbidden != 0 {
        return Class::kept("its flags do not fit its name");
    }
    Class::Paddable(family)
}

const WRITE: u64 = elf::SHF_WRITE.0;
const EXEC: u64 = elf::SHF_EXECINSTR.0;
const TLS: u64 = elf::SHF_TLS.0;

/// What forbids a pad whatever the name says.
fn structure(section: &Section) -> Option<&'static str> {
    let has = |flag: u64| section.flags & flag != 0;
    if !section.allocated() {
        return Some("it is not loaded");
    }
    match elf::SectionType(section.kind) {
        elf::SHT_PROGBITS | elf::SHT_NOBITS => {}
        elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY => {
            return Some("an array of pointers that is walked");
        }
        elf::SHT_NOTE => return Some("a note"),
        _ => return Some("neither PROGBITS nor NOBITS"),
    }
    if has(elf::SHF_MERGE.0) || has(elf::SHF_STRINGS.0) {
        return Some("the linker merges its entries");
    }
    if has(elf::SHF_LINK_ORDER.0) {
        return Some("its order is bound to another section (SHF_LINK_ORDER)");
    }
    if has(elf::SHF_COMPRESSED.0) || has(0x8000_0000) {
        return Some("compressed, or excluded from the link");
    }
    if section.entry_size > 1 {
        return Some("it declares entries of a fixed size");
    }
    if section.name.starts_with(".eh_frame") || section.name.starts_with(".gcc_except_table") {
        return Some("unwind tables");
    }
    None
}

/// The family of an allowed name, the flags it must have, and those it must not have.
///
/// Names with two dots (`.data..percpu`) are the kernel's, which has a list of its own; but for those of LLVM's private
/// constants, whose names begin with `.L` (`.rodata..Lanon.…` in Rust).
fn allowed(name: &str) -> Option<(Family, u64, u64)> {
    // stem, whether `.data.x` is allowed too, family, flags required, flags forbidden
    const STEMS: [(&str, bool, Family, u64, u64); 9] = [
        (".data", true, Family::Data, WRITE, EXEC | TLS),
        (".bss", true, Family::Data, WRITE, EXEC | TLS),
        (".rodata", true, Family::Data, 0, WRITE | EXEC | TLS),
        (".text", true, Family::Text, EXEC, WRITE | TLS),
        (".tdata", false, Family::Data, WRITE | TLS, EXEC),
        (".tbss", false, Family::Data, WRITE | TLS, EXEC),
        (".ldata", true, Family::Data, WRITE, EXEC | TLS),
        (".lbss", true, Family::Data, WRITE, EXEC | TLS),
        (".lrodata", true, Family::Data, 0, WRITE | EXEC | TLS),
    ];
    STEMS.iter().find_map(|&(stem, open, family, required, forbidden)| {
        let rest = name.strip_prefix(stem)?;
        (rest.is_empty() || (open && variable(rest))).then_some((family, required, forbidden))
    })
}

fn variable(rest: &str) -> bool {
    rest.starts_with('.') && (!rest.starts_with("..") || rest.starts_with("..L"))
}

fn c_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = elf::SHF_ALLOC.0;

    fn section(name: &str, flags: u64) -> Section {
        Section { name: name.into(), kind: elf::SHT_PROGBITS.0, flags, align: 8, size: 8, ..Section::default() }
    }

    #[test]
    fn allowed_names_with_fitting_flags_may_be_padded() {
        for (name, flags) in [
            (".data", A | WRITE),
            (".data.rel.ro.local._ZTV3Foo", A | WRITE),
            (".bss.counter", A | WRITE),
            (".rodata.table", A),
            (".tdata", A | WRITE | TLS),
            (".lrodata", A),
            (".rodata..Lanon.0f.3", A),
            (".data..L__unnamed_1", A | WRITE),
            (".text.unlikely._Z1fv", A | EXEC),
        ] {
            assert!(classify(&section(name, flags)).paddable(), "{name}");
        }
    }

    #[test]
    fn everything_else_is_kept_with_its_reason() {
        let merge = A | elf::SHF_MERGE.0;
        for (name, flags, why) in [
            (".rodata.str1.1", merge, "merges"),
            ("mytable", A | WRITE, "C identifier"),
            (".data..percpu", A | WRITE, "not on the list"),
            (".database", A | WRITE, "not on the list"),
            (".init", A | EXEC, "not on the list"),
            (".tdata.x", A | WRITE | TLS, "not on the list"),
            (".text", A | WRITE | EXEC, "flags"),
            (".rodata", A | WRITE, "flags"),
            (".comment", 0, "not loaded"),
            (".eh_frame", A, "unwind"),
            (".data.ordered", A | WRITE | elf::SHF_LINK_ORDER.0, "LINK_ORDER"),
        ] {
            let Class::Kept(got) = classify(&section(name, flags)) else { panic!("{name} may be padded") };
            assert!(got.contains(why), "{name}: {got}");
        }
        let array = Section { kind: elf::SHT_INIT_ARRAY.0, ..section(".data.array", A | WRITE) };
        assert!(!classify(&array).paddable());
        assert!(!classify(&Section { entry_size: 8, ..section(".data.entries", A | WRITE) }).paddable());
    }
}
