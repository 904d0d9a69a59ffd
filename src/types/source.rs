//! Which tier of type information an image is read with: DWARF where it is there, else BTF, else names only.

use std::collections::BTreeMap;

use super::{Alias, Btf, DebugSections, Definition, Kind, Type, TypeId, TypeTable, Types};
use crate::error::{Error, Result};
use crate::image::Image;

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// The most that is there: DWARF knows the variables, BTF only the types.
    #[default]
    Auto,
    Dwarf,
    Btf,
    /// Symbols alone, the fastest.
    Names,
}

/// Type information that was found and is not read yet; keeps alive what types borrow from.
#[derive(Debug)]
pub enum Source<'a> {
    Dwarf(Box<DebugSections<'a>>),
    Btf {
        own: Box<Btf<'a>>,
        base: Option<Box<Btf<'a>>>,
    },
    /// Names only, and why, by reason.
    Names(BTreeMap<&'static str, u64>),
}

/// Files that hold BTF beside the image, raw or as ELF: content, and name for messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'f, 'a> {
    /// The image's debug file.
    pub debug: Option<&'f Image<'a>>,
    /// Instead of the image's own section.
    pub btf: Option<(&'a [u8], &'a str)>,
    /// Which a module's continues.
    pub base: Option<(&'a [u8], &'a str)>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// When a tier that was asked for (by name, or with a file of its own) is not there or cannot be used. What
    /// [`Want::Auto`] cannot use by itself becomes a reason instead.
    pub fn of(image: &Image<'a>, want: Want, files: Files<'_, 'a>) -> Result<Source<'a>> {
        let given = files.btf.is_some() || files.base.is_some();
        match want {
            Want::Names => Ok(Source::Names(BTreeMap::new())),
            Want::Dwarf => dwarf(image, files).ok_or_else(|| no_dwarf(image)),
            Want::Btf => btf(image, files),
            Want::Auto => match files.btf.is_none().then(|| dwarf(image, files)).flatten() {
                Some(source) => Ok(source),
                None if given => btf(image, files),
                None => Ok(btf_or_names(image)),
            },
        }
    }

    /// Reads it; variables are those of the same image.
    ///
    /// # Errors
    /// When BTF does not fit its base.
    pub fn read(&self, image: &Image<'_>) -> Result<Types<'_>> {
        match self {
            Source::Dwarf(sections) => Ok(sections.read()),
            Source::Btf { own, base } => own.types(base.as_deref(), Some(image)),
            Source::Names(skipped) => Ok(Types { skipped: skipped.clone(), ..Types::default() }),
        }
    }
}

impl Source<'_> {
    /// Reads the structs, classes and unions of which `wanted` says yes to the name: [`Types::definitions`], and what
    /// they contain.
    ///
    /// # Errors
    /// When BTF does not fit its base.
    pub fn read_named(&self, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Types<'_>> {
        match self {
            Source::Dwarf(sections) => Ok(sections.read_named(wanted)),
            Source::Btf { own, base } => {
                let types = own.types(base.as_deref(), None)?;
                Ok(Types { definitions: definitions(&types.table, wanted), ..types })
            }
            Source::Names(skipped) => Ok(Types { skipped: skipped.clone(), ..Types::default() }),
        }
    }
}

impl Types<'_> {
    /// Makes definitions of the types that were read, where `wanted` says yes to the name. Of DWARF, of each unit.
    pub fn define(&mut self, wanted: &(dyn Fn(&str) -> bool + Sync)) {
        let whole = |d: Definition<'_>| (self.table.name(d.type_id), d.type_id);
        let named: Vec<(String, TypeId)> = definitions(&self.table, wanted).into_iter().map(whole).collect();
        let defined = |(name, type_id)| Definition { name, type_id, unit: None, file: None, line: None, copies: 1 };
        self.definitions = named.into_iter().map(defined).collect();
    }
}

/// Of a table that has every type. A typedef is one where what it stands for has no name or is not wanted by its own.
fn definitions<'d>(table: &TypeTable<'d>, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Vec<Definition<'d>> {
    let is = |(id, own): &(TypeId, &Type<'d>)| {
        let bare = table.bare(*id).filter(|b| matches!(b.kind, Kind::Struct(_) | Kind::Union(_)));
        let alone = || bare.is_some_and(|b| b.name.is_none_or(|name| !wanted(name)));
        let typedef = matches!(own.kind, Kind::Alias { how: Alias::Typedef, .. });
        let itself = || bare.is_some_and(|b| std::ptr::eq(b, *own));
        own.name.is_some_and(wanted) && if typedef { alone() } else { itself() }
    };
    let found = table.iter().filter(is).map(|(type_id, own)| {
        let name = own.name.unwrap_or_default().to_string();
        Definition { name, type_id, unit: None, file: None, line: None, copies: 1 }
    });
    let mut found: Vec<Definition<'d>> = found.collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn dwarf<'a>(image: &Image<'a>, files: Files<'_, 'a>) -> Option<Source<'a>> {
    let sections =
        files.debug.map_or_else(|| DebugSections::of(image), |debug| DebugSections::of_debug_file(image, debug));
    sections.map(|sections| Source::Dwarf(Box::new(sections)))
}

fn no_dwarf(image: &Image<'_>) -> Error {
    let doing = format!("reading the types of {}", image.path);
    Error::input(doing, "there is no debug information (DWARF) in it").hint("build it with -g, or --types btf")
}

fn btf<'a>(image: &Image<'a>, files: Files<'_, 'a>) -> Result<Source<'a>> {
    // A kernel without a section table still has it between two labels.
    let bare = image.sections.iter().find(|s| s.name == ".BTF").and_then(|s| s.bytes);
    let inside = bare.filter(|_| !image.bytes().starts_with(b"\x7fELF")).unwrap_or(image.bytes());
    let (bytes, name) = files.btf.unwrap_or((inside, ""));
    let own = Btf::parse(bytes, if name.is_empty() { &image.path } else { name })?;
    let base = files.base.map(|(bytes, name)| Btf::parse(bytes, name)).transpose()?;
    Ok(Source::Btf { own: Box::new(own), base: base.map(Box::new) })
}

fn btf_or_names<'a>(image: &Image<'a>) -> Source<'a> {
    let mut skipped = BTreeMap::new();
    if !Btf::present(image) {
        return Source::Names(skipped);
    }
    match btf(image, Files::default()) {
        Ok(Source::Btf { own, .. }) if own.needs_base() => {
            skipped.insert("BTF not read: a module's continues the kernel's (--base-btf)", 1);
        }
        Ok(source) => return source,
        Err(_) => {
            skipped.insert("BTF not read: it is damaged (--types btf says how)", 1);
        }
    }
    Source::Names(skipped)
}
