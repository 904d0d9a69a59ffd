//! Objects: data and function symbols with a place, a class, a unit and one identity key.
//!
//! An object is keyed by section and address: aliases (`jiffies`, `jiffies_64`) are one object, and a per-CPU section
//! that starts at 0 does not collide with anything. Sizes are `st_size`, never the gap to the next symbol.

mod class;
mod declared;
mod demangle;
mod identity;
mod name;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::image::{Home, Image, SymbolKind};
use crate::units::{Addr, Span};

pub use class::{Class, Metadata};
pub use declared::{Declared, declared};
pub use demangle::demangled;
pub use identity::{Key, stem};
pub use name::{contended_by_name, pad_by_name};

/// What a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Data,
    Function,
}

/// Addresses are comparable only inside one space: a linked image has one, plus one for each per-CPU section (every
/// CPU has its copy) and one for the thread-local template; in a relocatable file every section is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    Shared,
    Thread,
    Section(u32),
}

/// One named object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'i> {
    pub name: &'i str,
    pub kind: Kind,
    pub class: Class,
    /// Index into [`Image::sections`].
    pub section: u32,
    pub space: Space,
    pub span: Span,
    /// The `FILE` symbol before it, for local symbols: the name of its source file, without folder.
    pub unit: Option<&'i str>,
    /// Other names at the same address.
    pub aliases: u32,
    /// Where it stands in the symbol table: the order of the link.
    pub order: u32,
}

impl Object<'_> {
    /// Where its bytes lie in the image. Thread-local symbols count from the start of their template.
    #[must_use]
    pub fn address(&self, image: &Image<'_>) -> u64 {
        let template = if self.space == Space::Thread { image.tls.map_or(0, |t| t.address) } else { 0 };
        self.span.start.0.saturating_add(template)
    }

    /// Its bytes; `None` where it has none in the file (`.bss`).
    #[must_use]
    pub fn content<'a>(&self, image: &Image<'a>) -> Option<&'a [u8]> {
        image.content(self.section, self.address(image), self.span.size)
    }
}

/// The objects of one kind, by space and address, and what was left out, by reason.
#[derive(Clone, Debug, Default)]
pub struct Objects<'i> {
    pub list: Vec<Object<'i>>,
    pub skipped: BTreeMap<&'static str, u64>,
}

impl<'i> Objects<'i> {
    /// Data: `STT_OBJECT`, `STT_COMMON` and `STT_TLS` symbols that have a size and a section.
    #[must_use]
    pub fn data(image: &'i Image<'_>) -> Objects<'i> {
        collect(image, Kind::Data)
    }

    /// Functions that have a size and a section.
    #[must_use]
    pub fn functions(image: &'i Image<'_>) -> Objects<'i> {
        collect(image, Kind::Function)
    }
}

fn collect<'i>(image: &'i Image<'_>, kind: Kind) -> Objects<'i> {
    let mut out = Objects::default();
    let classes = class::Classes::of(image);
    let mut unit = None;
    let mut left_out = |reason| *out.skipped.entry(reason).or_insert(0) += 1;
    for (order, symbol) in (0u32..).zip(&image.symbols) {
        let matches = match symbol.kind {
            SymbolKind::File => {
                // An empty name ends the last unit: what follows is the linker's own.
                unit = Some(symbol.name.as_ref()).filter(|n| !n.is_empty());
                continue;
            }
            SymbolKind::Data | SymbolKind::Tls => kind == Kind::Data,
            SymbolKind::Function => kind == Kind::Function,
            _ => false,
        };
        if !matches {
            continue;
        }
        let section = match symbol.home {
            Home::Section(section) => section,
            Home::Undefined => continue,
            Home::Absolute => {
                left_out("absolute symbol: it names a number, not a place");
                continue;
            }
            Home::Common => {
                left_out("common symbol: the linker has not placed it yet");
                continue;
            }
            Home::Broken => {
                left_out("its section does not exist");
                continue;
            }
        };
        if symbol.size == 0 {
            left_out("no size");
            continue;
        }
        let span = Span { start: Addr(symbol.value), size: symbol.size };
        if !holds(image, section, symbol.kind, span) {
            left_out("not inside its section");
            continue;
        }
        out.list.push(Object {
            name: symbol.name.as_ref(),
            kind,
            class: Class::Data,
            section,
            space: space(image, section, symbol.kind),
            span,
            unit: unit.filter(|_| symbol.local),
            aliases: 0,
            order,
        });
    }
    fold_aliases(&mut out.list);
    for object in &mut out.list {
        object.class = classes.class(object);
    }
    out
}

/// Only what lies inside its section has bytes and lines; a damaged size must not become a long walk.
fn holds(image: &Image<'_>, section: u32, kind: SymbolKind, span: Span) -> bool {
    let Some(home) = image.section(section) else { return false };
    let Some(end) = span.start.0.checked_add(span.size) else { return false };
    if kind == SymbolKind::Tls && !image.kind.relocatable() {
        return image.tls.is_some_and(|block| end <= block.size);
    }
    span.start.0 >= home.address && end <= home.address.saturating_add(home.size)
}

fn space(image: &Image<'_>, section: u32, kind: SymbolKind) -> Space {
    let per_cpu = || image.section(section).is_some_and(|s| class::is_per_cpu(&s.name));
    match kind {
        _ if image.kind.relocatable() => Space::Section(section),
        SymbolKind::Tls => Space::Thread,
        _ if per_cpu() => Space::Section(section),
        _ => Space::Shared,
    }
}

/// One object an address: the largest, then a global name before a local one, then the first by name.
fn fold_aliases(list: &mut Vec<Object<'_>>) {
    list.sort_unstable_by(|a, b| {
        let key = |o: &Object<'_>| (o.space, o.span.start, o.section, std::cmp::Reverse(o.span.size), o.unit.is_some());
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(b.name)).then(a.order.cmp(&b.order))
    });
    list.dedup_by(|later, kept| {
        let same = (later.space, later.span.start, later.section) == (kept.space, kept.span.start, kept.section);
        if same {
            kept.aliases += 1;
        }
        same
    });
}
