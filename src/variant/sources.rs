//! The objects behind a link: loose ones, and archive members that were pulled in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::archive::{self, Member};
use super::object::{self, Kind, Object};
use super::patch::{self, Edit};
use super::verify;
use crate::error::{Error, Result};
use crate::link::{Input, Relink, lto_hint};
use crate::open::Bytes;

/// One object that takes part in the link.
pub(super) struct Source {
    pub input: usize,
    pub member: Option<String>,
    /// The header of its archive member; `None` for a loose object.
    header: Option<usize>,
    /// Its bytes in the input.
    content: Range<usize>,
    /// `libx.a(y.o)`.
    pub name: String,
    pub object: Object,
}

/// Everything that has been read of a link's inputs.
#[derive(Default)]
pub(super) struct Sources {
    bytes: BTreeMap<usize, Bytes>,
    archives: BTreeMap<usize, Vec<Member>>,
    pub list: Vec<Source>,
    found: BTreeMap<(usize, Option<String>), Lookup>,
}

/// What stands behind a name of the map.
#[derive(Clone)]
pub(super) enum Lookup {
    Source(usize),
    /// No object to patch, with the reason.
    Not(Cow<'static, str>),
}

impl Sources {
    /// Reads every loose object; refuses what a header patch cannot treat honestly (LTO).
    pub(super) fn open(link: &dyn Relink) -> Result<Sources> {
        let mut sources = Sources::default();
        for (index, input) in link.inputs().iter().enumerate() {
            let bytes = link.bytes(index)?;
            match object::kind(&bytes) {
                Kind::Bitcode => return Err(lto(&input.name, true)),
                Kind::Relocatable => {
                    let source = source(index, input, None, &bytes, 0..bytes.len(), input.name.clone())?;
                    sources.found.insert((index, None), Lookup::Source(sources.list.len()));
                    sources.list.push(source);
                }
                Kind::Archive => {}
                Kind::ThinArchive | Kind::Other => continue,
            }
            sources.bytes.insert(index, bytes);
        }
        Ok(sources)
    }

    /// The object behind a file (and member) of the map, read now if it is the first time.
    pub(super) fn find(&mut self, inputs: &[Input], index: usize, member: Option<&str>) -> Result<Lookup> {
        let key = (index, member.map(str::to_owned));
        if let Some(known) = self.found.get(&key) {
            return Ok(known.clone());
        }
        let lookup = match (inputs.get(index), member) {
            (Some(input), Some(member)) => self.member(index, input, member)?,
            _ => Lookup::Not("made by the linker".into()),
        };
        self.found.insert(key, lookup.clone());
        Ok(lookup)
    }

    fn member(&mut self, index: usize, input: &Input, member: &str) -> Result<Lookup> {
        let Some(bytes) = self.bytes.get(&index) else { return Ok(Lookup::Not("its archive holds no bytes".into())) };
        if let std::collections::btree_map::Entry::Vacant(slot) = self.archives.entry(index) {
            slot.insert(
                archive::members(bytes).map_err(|e| Error::input(format!("reading {}", input.name), e.to_string()))?,
            );
        }
        let mut named = self.archives.get(&index).into_iter().flatten().filter(|m| m.name == member);
        let lookup = match (named.next(), named.next()) {
            (Some(one), None) => {
                let name = format!("{}({member})", input.name);
                let inner = bytes.get(one.content.clone()).unwrap_or_default();
                if object::kind(inner) == Kind::Bitcode {
                    return Err(lto(&name, true));
                }
                if object::kind(inner) != Kind::Relocatable {
                    return Ok(Lookup::Not("its archive member is no relocatable object".into()));
                }
                let source = source(index, input, Some(one.header), inner, one.content.clone(), name)?;
                self.list.push(Source { member: Some(member.to_owned()), ..source });
                Lookup::Source(self.list.len() - 1)
            }
            (Some(_), Some(_)) => Lookup::Not("its archive has two members of that name".into()),
            (None, _) => Lookup::Not("its archive has no member of that name".into()),
        };
        Ok(lookup)
    }

    pub(super) fn pristine(&self, source: &Source) -> &[u8] {
        self.bytes.get(&source.input).and_then(|b| b.get(source.content.clone())).unwrap_or_default()
    }

    /// Patches the objects named by source index, re-reads each with the second reader, and puts archives together
    /// again. Returns new bytes by input index, and how many objects were patched.
    pub(super) fn patch(
        &self,
        edits: &BTreeMap<usize, BTreeMap<usize, Edit>>,
    ) -> Result<(BTreeMap<usize, Vec<u8>>, usize)> {
        let mut replaced = BTreeMap::new();
        let mut archives: BTreeMap<usize, BTreeMap<usize, Vec<u8>>> = BTreeMap::new();
        for (&index, edits) in edits {
            let Some(source) = self.list.get(index) else { continue };
            let pristine = self.pristine(source);
            let doing = || format!("patching {}", source.name);
            let patched = patch::patch(pristine, edits).map_err(|e| Error::input(doing(), e.problem))?;
            verify::patched(pristine, &patched, edits).map_err(|why| Error::input(doing(), why))?;
            match source.header {
                None => drop(replaced.insert(source.input, patched)),
                Some(header) => drop(archives.entry(source.input).or_default().insert(header, patched)),
            }
        }
        for (input, members) in archives {
            let old = self.bytes.get(&input).map(|b| &**b).unwrap_or_default();
            let new = archive::rebuild(old, &members)?;
            verify::archive(old, &new).map_err(|why| Error::input("patching an archive", why))?;
            replaced.insert(input, new);
        }
        Ok((replaced, edits.len()))
    }
}

fn source(
    index: usize,
    input: &Input,
    header: Option<usize>,
    bytes: &[u8],
    content: Range<usize>,
    name: String,
) -> Result<Source> {
    let object = object::parse(&name, bytes)?;
    if object.sections.iter().any(|s| s.name.starts_with(".gnu.lto_")) {
        return Err(lto(&name, false));
    }
    if object.sources > 1 && !input.system && header.is_none() {
        return Err(Error::input(format!("reading {name}"), "it was merged by an earlier link (ld -r)")
            .hint("act at the link that made it"));
    }
    Ok(Source { input: index, member: None, header, content, name, object })
}

fn lto(name: &str, llvm: bool) -> Error {
    Error::input(format!("reading {name}"), "it is an LTO object: its sections are made at link time")
        .hint(lto_hint(name, llvm))
}
