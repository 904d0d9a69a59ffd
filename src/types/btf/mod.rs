//! BTF, the kernel's compact type information → [`Types`]: of a section `.BTF` or as `/sys/kernel/btf/` has it, of either
//! byte order, whole or split (a module's, which continues the numbers and strings of the kernel's).
//!
//! Every type is read: a kernel's are some megabytes. A reader of our own, for names must be borrowed, members of a
//! damaged file bounded, and kinds newer than the reader passed over; the crates there are copy, or give up.

mod raw;
mod table;
mod variables;

use std::collections::BTreeMap;

use object::{Object, ObjectSection};

use super::{TypeTable, Types};
use crate::error::{Error, Result};
use crate::image::{Image, TypesFrom};
use raw::Raw;

/// How many of what were left out, by reason.
type Skipped = BTreeMap<&'static str, u64>;

fn skip(skipped: &mut Skipped, reason: &'static str, times: usize) {
    if times > 0 {
        *skipped.entry(reason).or_insert(0) += times as u64;
    }
}

/// The type information of one file.
#[derive(Clone, Debug)]
pub struct Btf<'a> {
    doing: String,
    own: Raw<'a>,
    /// `.BTF.base`: what a module that is built outside of the kernel's tree needs of it, structs without their members.
    distilled: Option<Raw<'a>>,
}

impl<'a> Btf<'a> {
    /// Reads a raw blob, or the section of an ELF file. `name` is the file's, for messages.
    ///
    /// # Errors
    /// When there is none, or its header is wrong. What is wrong behind the header is counted in [`Types::skipped`].
    pub fn parse(bytes: &'a [u8], name: &str) -> Result<Btf<'a>> {
        let doing = format!("reading the BTF of {name}");
        if !bytes.starts_with(b"\x7fELF") {
            return Ok(Btf { own: Raw::parse(bytes, &doing)?, distilled: None, doing });
        }
        let file = object::File::parse(bytes).map_err(|e| Error::input(doing.as_str(), e.to_string()))?;
        let section = |name| file.section_by_name(name).and_then(|s| s.data().ok()).filter(|d| !d.is_empty());
        let own = section(".BTF").ok_or_else(|| {
            Error::input(doing.as_str(), "the file has no section .BTF").hint("a kernel has one with DEBUG_INFO_BTF")
        })?;
        let distilled = section(".BTF.base").map(|base| Raw::parse(base, &doing)).transpose()?;
        Ok(Btf { own: Raw::parse(own, &doing)?, distilled, doing })
    }

    /// Whether an image has some.
    #[must_use]
    pub fn present(image: &Image<'_>) -> bool {
        image.sections.iter().any(|s| s.name == ".BTF" && s.bytes.is_some())
    }

    /// Whether it continues the types of another file. The strings of such a blob begin without the empty one.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.own.strings.first() != Some(&0)
    }

    /// Whether its types can be read without another file.
    #[must_use]
    pub fn needs_base(&self) -> bool {
        self.is_split() && self.distilled.is_none()
    }

    /// Its types, numbered after those of the base, and the variables that it places in sections of `image`.
    /// `base` is not used where the types stand alone.
    ///
    /// # Errors
    /// When the base is missing, is split itself, or is not the one that the types were made with.
    pub fn types(&self, base: Option<&Btf<'a>>, image: Option<&Image<'_>>) -> Result<Types<'a>> {
        let wrong = |problem: &str| Error::input(self.doing.as_str(), problem);
        let base = base.filter(|_| self.is_split());
        if base.is_some_and(Btf::is_split) {
            return Err(wrong("its base is split itself").hint("the kernel's own: --base-btf vmlinux"));
        }
        if self.needs_base() && base.is_none() {
            return Err(wrong("it is split: its types continue those of the kernel it was built for")
                .hint("--base-btf VMLINUX, or --base-btf /sys/kernel/btf/vmlinux for a module of the running kernel"));
        }
        let whole = base.map(|b| &b.own);
        let reader = match &self.distilled {
            Some(distilled) if self.is_split() => table::Reader::new(Some(distilled), &self.own),
            _ => table::Reader::new(whole, &self.own),
        };
        if reader.foreign() {
            return Err(wrong("its names do not fit those of its base: it was made with another one")
                .hint("the kernel that the module was built for"));
        }
        let pointer = image.map_or_else(|| reader.pointer_size(), |i| i.class.pointer_size());
        let mut skipped = self.own.skipped.clone();
        let mut list = reader.read(pointer, 0, &mut skipped);
        let variables = image.map(|image| variables::find(&reader, image, &mut skipped)).unwrap_or_default();
        if let Some(distilled) = self.distilled.as_ref().filter(|_| self.is_split()) {
            let shift = u32::try_from(list.len()).unwrap_or(u32::MAX);
            if let Some(whole) = whole {
                list.extend(table::Reader::new(None, whole).read(pointer, shift, &mut skipped));
            }
            table::complete(&mut list, distilled.count(), shift, &mut skipped);
        }
        let table = TypeTable { list };
        Ok(Types { from: Some(TypesFrom::Btf), table, variables, definitions: Vec::new(), skipped })
    }
}
