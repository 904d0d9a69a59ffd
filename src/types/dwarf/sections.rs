//! The sections that hold debug information, expanded where they are compressed.

use std::borrow::Cow;

use gimli::{EndianSlice, RunTimeEndian};
use object::{Object, ObjectSection};

use super::{Skipped, skip};
use crate::image::Image;

/// A reader of one section.
pub(super) type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

/// What debug information is read from: keeps expanded sections alive while types borrow from them.
#[derive(Debug)]
pub struct DebugSections<'a> {
    pub(super) endian: RunTimeEndian,
    pub(super) info: Cow<'a, [u8]>,
    pub(super) types: Cow<'a, [u8]>,
    pub(super) abbreviations: Cow<'a, [u8]>,
    pub(super) strings: Cow<'a, [u8]>,
    pub(super) line_strings: Cow<'a, [u8]>,
    pub(super) string_offsets: Cow<'a, [u8]>,
    pub(super) addresses: Cow<'a, [u8]>,
    pub(super) lines: Cow<'a, [u8]>,
    pub(super) skipped: Skipped,
}

/// zlib cannot expand by more; no real debug information comes near it.
const MOST_EXPANDED: u64 = 1032;

impl<'a> DebugSections<'a> {
    /// `None` when the image has no debug information, or none that is final: in a relocatable file every reference
    /// from section to section is a relocation, and those are not applied here.
    #[must_use]
    pub fn of(image: &Image<'a>) -> Option<DebugSections<'a>> {
        if !DebugSections::present(image) || image.kind.relocatable() {
            return None;
        }
        let file = object::File::parse(image.bytes()).ok()?;
        let mut skipped = Skipped::new();
        let mut get = |name: &str| expanded(&file, name, &mut skipped);
        let sections = DebugSections {
            endian: if image.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little },
            info: get(".debug_info"),
            types: get(".debug_types"),
            abbreviations: get(".debug_abbrev"),
            strings: get(".debug_str"),
            line_strings: get(".debug_line_str"),
            string_offsets: get(".debug_str_offsets"),
            addresses: get(".debug_addr"),
            lines: get(".debug_line"),
            skipped: Skipped::new(),
        };
        Some(DebugSections { skipped, ..sections })
    }

    /// What is counted when [`DebugSections::of`] finds debug information and does not read it.
    pub const UNREAD: &'static str = "debug information not read: in a relocatable file its references are not final";

    /// Whether the image has debug information, of whatever state.
    #[must_use]
    pub fn present(image: &Image<'_>) -> bool {
        image.sections.iter().any(|s| matches!(s.name.as_ref(), ".debug_info" | ".zdebug_info") && s.bytes.is_some())
    }

    pub(super) fn slice<'d>(&self, section: &'d [u8]) -> Slice<'d> {
        EndianSlice::new(section, self.endian)
    }
}

fn expanded<'a>(file: &object::File<'a>, name: &str, skipped: &mut Skipped) -> Cow<'a, [u8]> {
    // By name, also as `.zdebug_…`, the older way to compress.
    let Some(section) = file.section_by_name(name) else { return Cow::Borrowed(&[]) };
    let data = section.compressed_data().ok().filter(|d| {
        let most = (d.data.len() as u64).saturating_mul(MOST_EXPANDED).saturating_add(1024);
        d.format == object::CompressionFormat::None || d.uncompressed_size <= most
    });
    data.and_then(|d| d.decompress().ok()).unwrap_or_else(|| {
        skip(skipped, "sections of debug information that could not be expanded", 1);
        Cow::Borrowed(&[])
    })
}
