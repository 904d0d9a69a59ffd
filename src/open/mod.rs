//! From a path to bytes: the only room that opens the user's files for reading.
//!
//! Files are mapped, not copied: a 600 MB vmlinux costs the pages that are looked at.

#![allow(clippy::disallowed_methods, reason = "this is the room that opens files")]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Result};

/// The content of a file, mapped where possible.
#[derive(Debug)]
pub enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(vec) => vec,
        }
    }
}

/// Maps a regular file. A directory, an empty or an unreadable file is one clear line.
pub fn map(path: &Path) -> Result<Bytes> {
    let doing = || format!("opening {}", path.display());
    let file = File::open(path).map_err(|e| Error::io(doing(), e))?;
    let meta = file.metadata().map_err(|e| Error::io(doing(), e))?;
    if meta.is_dir() {
        return Err(Error::input(doing(), "is a directory").hint("name the image inside it"));
    }
    if !meta.is_file() {
        return Err(Error::input(doing(), "is not a regular file"));
    }
    if meta.len() == 0 {
        return Err(Error::input(doing(), "the file is empty"));
    }
    // SAFETY: the mapping is private and read-only. As with every mapped reader (ld, gdb, readelf), a file that is
    // truncated by someone else while it is read faults; nothing here writes to a file it has mapped.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(doing(), e))?;
    Ok(Bytes::Mapped(map))
}

/// Reads a small text file (configuration, a record, a map) that must be UTF-8.
pub fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(format!("reading {}", path.display()), e))
}
