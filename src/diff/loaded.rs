//! Whether two images run the same, byte for byte.

use crate::image::{Home, Image, Section, SectionKind, SymbolKind};

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
