//! Where an image has no section table: its sections, as the labels of the kernel's linker script bound them.

use std::borrow::Cow;

use super::listed::Listed;
use super::{Section, SectionKind};
use crate::units::Align;

/// A section and the labels at its two ends (include/asm-generic/vmlinux.lds.h).
struct Place {
    name: &'static str,
    start: &'static str,
    end: &'static str,
    writable: bool,
    executable: bool,
    zeroed: bool,
}

const fn place(name: &'static str, start: &'static str, end: &'static str) -> Place {
    Place { name, start, end, writable: false, executable: false, zeroed: false }
}

const PLACES: &[Place] = &[
    Place { executable: true, ..place(".text", "_stext", "_etext") },
    place(".rodata", "__start_rodata", "__end_rodata"),
    Place { writable: true, ..place(".init.data", "__init_begin", "__init_end") },
    Place { executable: true, ..place(".init.text", "_sinittext", "_einittext") },
    Place { writable: true, ..place(".data", "_sdata", "_edata") },
    Place { writable: true, ..place(".data..percpu", "__per_cpu_start", "__per_cpu_end") },
    Place { writable: true, zeroed: true, ..place(".bss", "__bss_start", "__bss_stop") },
    Place { writable: true, zeroed: true, ..place(".brk", "__brk_base", "__brk_limit") },
    place(".BTF", "__start_BTF", "__stop_BTF"),
    place(".notes", "__start_notes", "__stop_notes"),
];

/// Bytes of an image, and the address of the first.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
}

/// The sections that a list of symbols bounds, behind the empty one that an index of 0 means, and the names of those that
/// it does not bound.
pub(super) fn sections<'a>(
    symbols: &[Listed<'_>],
    memory: Option<Memory<'a>>,
) -> (Vec<Section<'a>>, Vec<&'static str>) {
    let at = |label: &str| symbols.iter().find(|s| s.name == label).map(|s| s.address);
    let mut found = vec![section(&place("", "", ""), 0, 0, None)];
    let mut missing = Vec::new();
    for place in PLACES {
        match at(place.start).zip(at(place.end)).filter(|(start, end)| start < end) {
            Some((start, end)) => found.push(section(place, start, end - start, memory)),
            // What only some kernels have is not missed.
            None if matches!(place.name, ".brk" | ".BTF" | ".notes" | ".data..percpu") => {}
            None => missing.push(place.name),
        }
    }
    (found, missing)
}

fn section<'a>(place: &Place, address: u64, size: u64, memory: Option<Memory<'a>>) -> Section<'a> {
    let kind = match place.name {
        "" => SectionKind::Null,
        ".notes" => SectionKind::Note,
        _ if place.zeroed => SectionKind::NoBits,
        _ => SectionKind::Bits,
    };
    Section {
        name: Cow::Borrowed(place.name),
        kind,
        address,
        size,
        align: Align::ONE,
        loaded: size > 0,
        writable: place.writable,
        executable: place.executable,
        tls: false,
        bytes: memory.filter(|_| !place.zeroed).and_then(|memory| memory.part(address, size)),
    }
}

/// How the banner of every kernel begins (init/version.c).
pub(super) const BANNER: &[u8] = b"Linux version ";

pub(super) const PAGE: u64 = 4096;

/// The address of the first of an arm64 kernel's bytes: that of `_text`, and, since some tables leave it out, what makes
/// the branch in the header lead to the entry. `None` where they do not agree.
pub(super) fn start<'n>(bytes: &[u8], named: impl Iterator<Item = (&'n str, u64)>) -> Option<u64> {
    let (mut text, mut entry) = (None, None);
    for (name, address) in named {
        match name {
            "_text" => text = Some(address),
            // `stext` before 5.8.
            "primary_entry" | "stext" => entry = entry.or(Some(address)),
            _ => {}
        }
    }
    let by_entry = entry.zip(branch(bytes)).map(|(entry, offset)| entry.wrapping_sub(offset));
    let start = text.or(by_entry)?;
    by_entry.is_none_or(|by_entry| by_entry == start).then_some(start)
}

/// Where the first branch of the header leads, from its start.
fn branch(bytes: &[u8]) -> Option<u64> {
    let (codes, _) = bytes.get(..8)?.as_chunks();
    codes.iter().zip([0u64, 4]).find_map(|(code, at)| {
        let code = u32::from_le_bytes(*code);
        // B: 0b000101 and 26 bits of words, signed.
        let words = (code << 6).cast_signed() >> 6;
        (code >> 26 == 0b00_0101).then(|| at.wrapping_add_signed(i64::from(words) * 4))
    })
}

impl<'a> Memory<'a> {
    pub(super) fn part(self, address: u64, size: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
    }
}
