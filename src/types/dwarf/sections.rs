//! The sections that hold debug information: expanded where they are compressed, relocated where nothing is linked yet,
//! of the image itself and of the files that go with it.

use std::borrow::Cow;

use gimli::{EndianSlice, RunTimeEndian};
use object::{Object, ObjectSection, SectionIndex};

use super::relocate::{self, Places};
use super::{Skipped, skip};
use crate::image::Image;

/// A reader of one section.
pub(super) type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

/// What debug information is read from: keeps expanded sections alive while types borrow from them.
#[derive(Debug)]
pub struct DebugSections<'a> {
    pub(super) endian: RunTimeEndian,
    pub(super) main: Part<'a>,
    /// What dwz found to be the same in several files.
    pub(super) supplement: Option<Part<'a>>,
    /// `.dwo` files.
    pub(super) split: Vec<Part<'a>>,
    /// `.dwp` files: many `.dwo` files in one, and two tables that say which is where.
    pub(super) packages: Vec<Package<'a>>,
    pub(super) skipped: Skipped,
}

/// The sections of one file.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) info: Cow<'a, [u8]>,
    pub(super) types: Cow<'a, [u8]>,
    pub(super) abbreviations: Cow<'a, [u8]>,
    pub(super) strings: Cow<'a, [u8]>,
    pub(super) line_strings: Cow<'a, [u8]>,
    pub(super) string_offsets: Cow<'a, [u8]>,
    pub(super) addresses: Cow<'a, [u8]>,
    pub(super) lines: Cow<'a, [u8]>,
    /// `None`: the file is linked, and an address is one.
    pub(super) places: Option<Places>,
}

#[derive(Debug)]
pub(super) struct Package<'a> {
    pub(super) part: Part<'a>,
    pub(super) units: Cow<'a, [u8]>,
    pub(super) type_units: Cow<'a, [u8]>,
}

impl<'a> DebugSections<'a> {
    /// `None` when the image has no debug information of its own.
    #[must_use]
    pub fn of(image: &Image<'a>) -> Option<DebugSections<'a>> {
        if !DebugSections::present(image) {
            return None;
        }
        let mut skipped = Skipped::new();
        let main = Part::of(image, "", &mut skipped)?;
        let endian = if image.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let (split, packages) = (Vec::new(), Vec::new());
        Some(DebugSections { endian, main, supplement: None, split, packages, skipped })
    }

    /// Of the file that an image's debug information was moved to.
    #[must_use]
    pub fn of_debug_file(image: &Image<'_>, debug: &Image<'a>) -> Option<DebugSections<'a>> {
        let mut sections = DebugSections::of(debug)?;
        if let Some(places) = &mut sections.main.places {
            places.renumber(&image.sections_of(debug));
        }
        Some(sections)
    }

    #[must_use]
    pub fn present(image: &Image<'_>) -> bool {
        image.sections.iter().any(|s| matches!(s.name.as_ref(), ".debug_info" | ".zdebug_info") && s.bytes.is_some())
    }

    /// Adds the file that [`Image::supplement`] names.
    pub fn add_supplement(&mut self, image: &Image<'a>) {
        self.supplement = Part::of(image, "", &mut self.skipped);
    }

    /// Adds a `.dwo` file that [`DebugSections::split_units`] names, or a `.dwp` file. Which units it holds is looked
    /// up by their id: a file of another build adds nothing.
    pub fn add_split(&mut self, image: &Image<'a>) {
        let Some(part) = Part::of(image, ".dwo", &mut self.skipped) else { return };
        let Ok(file) = object::File::parse(image.bytes()) else { return };
        let mut index = |name| Gather { file: &file, image, skipped: &mut self.skipped }.section(name).0;
        let (units, type_units) = (index(".debug_cu_index"), index(".debug_tu_index"));
        if units.is_empty() {
            self.split.push(part);
        } else {
            self.packages.push(Package { part, units, type_units });
        }
    }
}

impl<'a> Part<'a> {
    fn of(image: &Image<'a>, suffix: &str, skipped: &mut Skipped) -> Option<Part<'a>> {
        let file = object::File::parse(image.bytes()).ok()?;
        let mut gather = Gather { file: &file, image, skipped };
        let mut get = |name: &str| gather.section(&format!("{name}{suffix}"));
        let mut info = get(".debug_info");
        let mut types = get(".debug_types");
        let mut string_offsets = get(".debug_str_offsets");
        let mut addresses = get(".debug_addr");
        let mut lines = get(".debug_line");
        let (abbreviations, strings, line_strings) = (get(".debug_abbrev"), get(".debug_str"), get(".debug_line_str"));
        let places = image.kind.relocatable().then(|| {
            let all = [&info, &types, &abbreviations, &strings, &line_strings, &string_offsets, &addresses, &lines];
            let bases = all.iter().flat_map(|(_, from)| from.iter().copied()).collect();
            let mut relocation = relocate::Relocation::of(image, bases);
            let mut apply = |(bytes, from): &mut Gathered<'a>| relocation.apply(&file, bytes, from);
            let places = Places { info: apply(&mut info), addresses: apply(&mut addresses) };
            for others in [&mut types, &mut string_offsets, &mut lines] {
                apply(others);
            }
            relocation.finish(gather.skipped);
            places
        });
        Some(Part {
            info: info.0,
            types: types.0,
            abbreviations: abbreviations.0,
            strings: strings.0,
            line_strings: line_strings.0,
            string_offsets: string_offsets.0,
            addresses: addresses.0,
            lines: lines.0,
            places,
        })
    }
}

/// The bytes of all sections of one name, and where in them each begins: an object has one for each of its groups.
type Gathered<'a> = (Cow<'a, [u8]>, Vec<(SectionIndex, u64)>);

struct Gather<'f, 'a> {
    file: &'f object::File<'a>,
    image: &'f Image<'a>,
    skipped: &'f mut Skipped,
}

impl<'a> Gather<'_, 'a> {
    fn section(&mut self, name: &str) -> Gathered<'a> {
        let mut all: Gathered<'a> = (Cow::Borrowed(&[]), Vec::new());
        let older = name.replacen(".debug_", ".zdebug_", 1);
        for (index, section) in (0..).map(SectionIndex).zip(&self.image.sections) {
            if (section.name != name && section.name != older) || section.bytes.is_none() {
                continue;
            }
            let Ok(section) = self.file.section_by_index(index) else { continue };
            let bytes = self.expanded(&section);
            all.1.push((index, all.0.len() as u64));
            match all.0.is_empty() {
                true => all.0 = bytes,
                false => all.0.to_mut().extend_from_slice(&bytes),
            }
        }
        all
    }

    fn expanded(&mut self, section: &object::Section<'a, '_>) -> Cow<'a, [u8]> {
        let Ok(data) = section.compressed_data() else { return self.nothing(BROKEN) };
        if data.format != object::CompressionFormat::None && data.uncompressed_size > most(data.data.len() as u64) {
            return self.nothing(TOO_LARGE);
        }
        data.decompress().unwrap_or_else(|_| self.nothing(BROKEN))
    }

    fn nothing(&mut self, reason: &'static str) -> Cow<'a, [u8]> {
        skip(self.skipped, reason, 1);
        Cow::Borrowed(&[])
    }
}

const BROKEN: &str = "sections of debug information that could not be expanded";
const TOO_LARGE: &str = "sections of debug information not expanded: they would become too large";

/// What a section may expand to, in bytes. Real debug information becomes some ten times larger; zlib cannot expand by
/// more than 1032, zstd by many thousands.
fn most(compressed: u64) -> u64 {
    let small = compressed.saturating_mul(1032).saturating_add(1024).min(64 << 20);
    compressed.saturating_mul(64).max(small)
}
