//! From a path to bytes: the only room that opens the user's files for reading.
//!
//! Files are mapped, not copied: a 600 MB vmlinux costs the pages that are looked at.

#![allow(clippy::disallowed_methods, reason = "this is the room that opens files")]

pub mod companions;

use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Result};

/// The content of a file, mapped where possible.
#[derive(Debug)]
pub enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Lets go of the memory of a part that was read. It is read again from the file when it is looked at again.
    pub fn forget(&self, part: std::ops::Range<usize>) {
        if let Bytes::Mapped(map) = self
            && part.start < part.end
            && part.end <= map.len()
        {
            // SAFETY: the mapping is read-only and of a file: what is dropped comes back as it was.
            // Where the system does not do it, memory stays in use, no more.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, part.start, part.len()) };
        }
    }
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

/// Opens a regular file for reading. Anything else is one clear line, said before it is opened: a pipe would block,
/// a device would never end.
pub fn regular(path: &Path) -> Result<File> {
    let doing = || format!("opening {}", path.display());
    let check = |meta: std::io::Result<Metadata>| {
        let meta = meta.map_err(|e| Error::io(doing(), e))?;
        if meta.is_dir() {
            return Err(Error::input(doing(), "is a directory").hint("name a file inside it"));
        }
        if !meta.is_file() {
            return Err(Error::input(doing(), "is not a regular file"));
        }
        Ok(())
    };
    check(std::fs::metadata(path))?;
    let file = File::open(path).map_err(|e| Error::io(doing(), e))?;
    // It may have been replaced in between.
    check(file.metadata())?;
    Ok(file)
}

/// Maps a regular file. A directory, an empty or an unreadable file is one clear line.
pub fn map(path: &Path) -> Result<Bytes> {
    let doing = || format!("opening {}", path.display());
    let file = regular(path)?;
    if file.metadata().map_err(|e| Error::io(doing(), e))?.len() == 0 {
        return Err(Error::input(doing(), "the file is empty"));
    }
    // SAFETY: the mapping is private and read-only. As with every mapped reader (ld, gdb, readelf), a file that is
    // truncated by someone else while it is read faults; nothing here writes to a file it has mapped.
    match unsafe { memmap2::Mmap::map(&file) } {
        Ok(map) => Ok(Bytes::Mapped(map)),
        // Files of /sys can be read, but not all of them mapped.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::EACCES | libc::EPERM)) => {
            bounded_bytes(file, LARGEST_TEXT, &doing()).map(Bytes::Owned)
        }
        Err(e) => Err(Error::io(doing(), e)),
    }
}

/// Reads a small file whole. Those of /sys and /proc say that they are empty, and cannot be mapped.
///
/// # Errors
/// It cannot be opened, or has more than 1 MiB.
pub fn small(path: &Path) -> Result<Bytes> {
    let doing = || format!("reading {}", path.display());
    let file = regular(path).map_err(|e| Error { doing: doing(), ..e })?;
    bounded_bytes(file, 1 << 20, &doing()).map(Bytes::Owned)
}

/// What [`text`] reads at most, in bytes.
const LARGEST_TEXT: u64 = 1 << 30;

/// Reads a text (configuration, a record, a map) from a regular file of at most 1 GiB. Bytes that are no UTF-8 become
/// U+FFFD: a record torn within a letter must still be read up to there.
pub fn text(path: &Path) -> Result<String> {
    let doing = || format!("reading {}", path.display());
    let file = regular(path).map_err(|e| Error { doing: doing(), ..e })?;
    bounded(file, LARGEST_TEXT, &doing())
}

/// Reads standard input as [`text`] reads a file.
pub fn read_stdin_text() -> Result<String> {
    bounded(std::io::stdin().lock(), LARGEST_TEXT, "reading standard input")
}

fn bounded(from: impl Read, limit: u64, doing: &str) -> Result<String> {
    let bytes = bounded_bytes(from, limit, doing)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

fn bounded_bytes(from: impl Read, limit: u64, doing: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = from.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::io(doing, e))?;
    if read as u64 > limit {
        return Err(Error::input(doing, format!("it is larger than {limit} bytes, which no such file is")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_torn_text_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = |path: &Path| [map(path).unwrap_err().to_string(), text(path).unwrap_err().to_string()];
        for (path, why) in [
            (dir.path(), "is a directory"),
            (Path::new("/dev/zero"), "not a regular file"),
            (pipe.as_path(), "not a regular file"),
            (Path::new("/no/such/file"), "no such file"),
        ] {
            for error in refused(path) {
                assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
            }
        }
        let torn = dir.path().join("torn");
        std::fs::write(&torn, b"caf\xc3").unwrap();
        assert_eq!(text(&torn).unwrap(), "caf\u{fffd}");
    }

    #[test]
    fn a_text_without_end_is_refused_at_the_limit() {
        assert_eq!(bounded(&b"four"[..], 4, "reading").unwrap(), "four");
        let error = bounded(std::io::repeat(b'x'), 4, "reading").unwrap_err();
        assert!(error.to_string().contains("larger than 4 bytes"), "{error}");
    }
}
