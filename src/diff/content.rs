//! Whether two objects hold the same, addresses aside.
//!
//! Where relocations were kept (objects, `--emit-relocs`, what a loader patches) the fields they fill are compared by
//! what they refer to, everything else byte by byte. Where none were kept, equal bytes are equal, and bytes that differ
//! are a change only if they cannot be addresses: the rest stays undecided until code is decoded.

use crate::image::{Field, Home, Image, Relocations, Section, SectionKind, SymbolKind, Target};
use crate::objects::{Kind, Object, Objects, stem};

/// The answer of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    Equal,
    Different,
    Undecided,
}

/// One image, ready to be asked what an address names.
pub(super) struct Reader<'i, 'a> {
    image: &'i Image<'a>,
    relocations: Relocations<'a>,
    /// Shared address space only, by start: (start, end, name).
    names: Vec<(u64, u64, &'i str)>,
    /// Loaded sections, by address: (start, end).
    loaded: Vec<(u64, u64)>,
}

impl<'i, 'a> Reader<'i, 'a> {
    pub(super) fn of(image: &'i Image<'a>, data: &Objects<'i>, functions: &Objects<'i>) -> Reader<'i, 'a> {
        use crate::objects::Space;
        let shared = data.list.iter().chain(&functions.list).filter(|o| o.space == Space::Shared);
        let mut names: Vec<_> = shared.map(|o| (o.span.start.0, o.span.end(), o.name)).collect();
        names.sort_unstable();
        let mut loaded: Vec<_> = image
            .sections
            .iter()
            .filter(|s| s.loaded && !s.tls && s.address != 0 && s.size > 0)
            .map(|s| (s.address, s.address.saturating_add(s.size)))
            .collect();
        loaded.sort_unstable();
        Reader { image, relocations: image.relocations(), names, loaded }
    }

    /// The object that holds an address, and how far into it.
    fn name(&self, address: u64) -> Option<(&'i str, u64)> {
        let at = self.names.partition_point(|&(start, _, _)| start <= address).checked_sub(1)?;
        let &(start, end, name) = self.names.get(at)?;
        (address < end).then(|| (stem(name), address - start))
    }

    /// The relocated fields of an object, counted from its start.
    fn fields(&self, object: &Object<'_>) -> Vec<Field<'a>> {
        let start = object.address(self.image);
        let fields = self.relocations.within(object.section, start, start.saturating_add(object.span.size));
        fields.iter().map(|f| Field { address: f.address - start, ..f.clone() }).collect()
    }

    /// Whether a value could be an address of this image. One past the end counts: tables end there.
    fn is_address(&self, value: u64) -> bool {
        let at = self.loaded.partition_point(|&(start, _)| start <= value).checked_sub(1);
        at.and_then(|at| self.loaded.get(at)).is_some_and(|&(_, end)| value <= end)
    }

    fn word(&self, bytes: &[u8]) -> u64 {
        let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        if self.image.big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    }
}

/// Compares objects of two images.
pub(super) struct Compare<'r, 'i, 'a> {
    pub base: &'r Reader<'i, 'a>,
    pub patched: &'r Reader<'i, 'a>,
}

impl Compare<'_, '_, '_> {
    /// Both must be of one size.
    pub(super) fn objects(&self, a: &Object<'_>, b: &Object<'_>) -> Sameness {
        let (Some(x), Some(y)) = (a.content(self.base.image), b.content(self.patched.image)) else {
            let zero = |r: &Reader<'_, '_>, o: &Object<'_>| {
                r.image.section(o.section).is_some_and(|s| s.kind == SectionKind::NoBits)
            };
            return if zero(self.base, a) && zero(self.patched, b) { Sameness::Equal } else { Sameness::Undecided };
        };
        let (fields_a, fields_b) = (self.base.fields(a), self.patched.fields(b));
        if !self.same_fields(&fields_a, &fields_b) {
            return Sameness::Different;
        }
        let (x, y) = (masked(x, &fields_a), masked(y, &fields_b));
        match a.kind {
            _ if x == y => Sameness::Equal,
            // Relative branches that the assembler resolved have no relocation: only decoding can tell.
            Kind::Function => Sameness::Undecided,
            Kind::Data => self.words(&x, &y),
        }
    }

    /// The same fields at the same offsets, referring to the same things as far as they say.
    fn same_fields(&self, x: &[Field<'_>], y: &[Field<'_>]) -> bool {
        let differs = |(f, g): (&Field<'_>, &Field<'_>)| match (&f.target, &g.target) {
            (Target::Symbol { name: p, addend: m }, Target::Symbol { name: q, addend: n }) => {
                (stem(p), m) != (stem(q), n)
            }
            (Target::Address { address: p, .. }, Target::Address { address: q, .. }) => {
                match (self.base.name(*p), self.patched.name(*q)) {
                    (Some(p), Some(q)) => p != q,
                    // Strings and constants without a name: masked.
                    _ => false,
                }
            }
            _ => false,
        };
        x.len() == y.len()
            && x.iter().zip(y).all(|(f, g)| (f.address, f.width) == (g.address, g.width) && !differs((f, g)))
    }

    /// Data without (all) relocations: words that differ and are addresses in both may name the same thing.
    fn words(&self, x: &[u8], y: &[u8]) -> Sameness {
        let width = self.base.image.class.pointer_size() as usize;
        let mut answer = Sameness::Equal;
        for (p, q) in x.chunks(width).zip(y.chunks(width)).filter(|(p, q)| p != q) {
            let (m, n) = (self.base.word(p), self.patched.word(q));
            let addresses = p.len() == width && self.base.is_address(m) && self.patched.is_address(n);
            match (self.base.name(m), self.patched.name(n)) {
                _ if !addresses => return Sameness::Different,
                (Some(m), Some(n)) if m == n => {}
                (Some(_), Some(_)) => return Sameness::Different,
                _ => answer = Sameness::Undecided,
            }
        }
        answer
    }
}

/// The bytes with the fields zeroed; their addresses count from the first byte.
fn masked(bytes: &[u8], fields: &[Field<'_>]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for field in fields {
        let start = usize::try_from(field.address).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(field.width).unwrap_or(usize::MAX)).min(bytes.len());
        if let Some(field) = bytes.get_mut(start..end) {
            field.fill(0);
        }
    }
    bytes
}

/// Whether what is loaded is the same in both: names, addresses, sizes and bytes of all loaded sections, the build id
/// aside. Two such images run the same, whatever their debug information says.
#[must_use]
pub fn loaded_content_equal(a: &Image<'_>, b: &Image<'_>) -> bool {
    let loaded = |i: &Image<'_>| -> Vec<usize> {
        (0..i.sections.len()).filter(|&n| i.sections.get(n).is_some_and(|s| s.loaded)).collect()
    };
    let (x, y) = (loaded(a), loaded(b));
    if (a.machine, a.class, a.big_endian, a.kind) != (b.machine, b.class, b.big_endian, b.kind) || x.len() != y.len() {
        return false;
    }
    x.iter().zip(&y).all(|(&m, &n)| match (a.sections.get(m), b.sections.get(n)) {
        (Some(p), Some(q)) => same_section(a, p, b, q),
        _ => false,
    }) && same_relocations(a, b)
}

fn same_section(a: &Image<'_>, p: &Section<'_>, b: &Image<'_>, q: &Section<'_>) -> bool {
    let shape = |s: &Section<'_>| (s.address, s.size, s.kind, s.align, s.writable, s.executable, s.tls);
    if p.name != q.name || shape(p) != shape(q) {
        return false;
    }
    if p.kind == SectionKind::Note {
        return without_build_id(a, p) == without_build_id(b, q);
    }
    p.bytes == q.bytes
}

/// The bytes of a note section with the build id blanked; a kernel keeps other notes beside it.
fn without_build_id(image: &Image<'_>, section: &Section<'_>) -> Vec<u8> {
    let mut bytes = section.bytes.unwrap_or_default().to_vec();
    let id: Vec<u8> = image.build_id.as_deref().map(unhex).unwrap_or_default();
    if !id.is_empty()
        && let Some(at) = bytes.windows(id.len()).position(|w| w == id.as_slice())
        && let Some(found) = bytes.get_mut(at..at + id.len())
    {
        found.fill(0);
    }
    bytes
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).filter_map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// In an object file what is loaded also depends on what the linker will fill in.
fn same_relocations(a: &Image<'_>, b: &Image<'_>) -> bool {
    if !a.kind.relocatable() {
        return true;
    }
    let defined = |i: &Image<'_>| -> Vec<(String, u64, u64, Home, SymbolKind)> {
        i.symbols
            .iter()
            .map(|s| (s.name.to_string(), s.value, s.size, s.home, s.kind))
            .filter(|s| s.4 != SymbolKind::File)
            .collect()
    };
    let (x, y) = (a.relocations(), b.relocations());
    let sections = 0u32..u32::try_from(a.sections.len()).unwrap_or(u32::MAX);
    defined(a) == defined(b) && sections.into_iter().all(|s| x.within(s, 0, u64::MAX) == y.within(s, 0, u64::MAX))
}
