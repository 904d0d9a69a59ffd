//! A build command → [`Capture`]: every link it did, stored so that it can be done again.

#![allow(clippy::disallowed_methods, reason = "this room runs builds and linkers and stores what they read")]

mod capture;
mod content;
mod hold;
mod paths;
mod replay;
mod script;
mod slot;
mod store;
mod stored;
mod thin;
mod trace;
mod words;

pub use capture::{Build, Request, capture};
pub use replay::Link;
pub use slot::{Populated, Tree, populate_slot};
pub use store::hash_file;
pub use stored::{
    Capture, Captured, ENVIRONMENT, Form, Glob, InPlace, Linker, Makes, SCHEMA, Stored, Unseen, lto_hint,
};
pub use words::Word;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;
use crate::open::Bytes;

/// A file that a link read: an object, an archive, a shared object, a linker script.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Input {
    /// Stable between the two versions' builds: the path below the build root (`src/hot.o`), the source for a
    /// compiler's temporary (`temporary:hot.c`), the absolute path for the system's own (`/usr/lib/…/crt1.o`).
    pub name: String,
    /// Whether it belongs to the system rather than to the build.
    pub system: bool,
    /// blake3 of its content, in hex: its name in the store.
    pub hash: String,
}

/// What one link said about itself.
#[derive(Clone, Debug)]
pub struct Linked {
    /// The text of the link map.
    pub map: String,
    /// File name as the map prints it ([`crate::image::map::plain`]) → index into [`Relink::inputs`].
    pub files: BTreeMap<String, usize>,
}

/// A link that can be done again with some of its inputs replaced. The fake beside it (in tests) calls `gcc`.
pub trait Relink: Sync {
    fn inputs(&self) -> &[Input];

    /// The pristine bytes of an input.
    fn bytes(&self, input: usize) -> Result<Bytes>;

    /// The names of those inputs whose order is not the build's own, in their order; none where all stand as built.
    fn order(&self) -> &[String] {
        &[]
    }

    /// Whether the linker makes equal sections one (`--icf`): a changed one may come apart from the others.
    fn folds(&self) -> bool {
        false
    }

    /// Links again into `output`: the same linker, arguments, folder and environment, with the inputs in `replaced`
    /// changed. Nothing is left at `output` when it fails.
    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked>;
}

/// Removes what a link wrote and nobody may run; that it is gone already is fine.
pub fn discard(output: &Path) {
    let _ = std::fs::remove_file(output);
}
