//! The one path under which every variant runs.
//!
//! The slot is the linked file's own place in the build tree: same path, same `argv[0]`, same `AT_EXECFN`, so that no
//! variant's name can move the stack. What was there comes back when the slot is dropped.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Holds one variant at a time.
#[derive(Debug)]
pub struct Slot {
    path: PathBuf,
    /// A folder beside the slot, hence on its file system: the original, the next variant, copies.
    stage: tempfile::TempDir,
    original: Option<PathBuf>,
    /// Variants that live on another file system and were copied here once. One copy, not one a run: every copy has
    /// pages of its own, and where those lie in memory is a treatment too.
    copies: HashMap<PathBuf, PathBuf>,
}

impl Slot {
    /// Takes the place, keeping what is there.
    pub fn take(path: &Path) -> Result<Slot> {
        let doing = || format!("taking the place of {}", path.display());
        let path = std::path::absolute(path).map_err(|e| Error::io(doing(), e))?;
        let folder = path.parent().ok_or_else(|| Error::input(doing(), "it has no folder"))?;
        let stage = tempfile::Builder::new()
            .prefix(".straddle-slot-")
            .tempdir_in(folder)
            .map_err(|e| Error::io(doing(), e).hint("variants run in the place of the linked file"))?;
        let original = match fs::symlink_metadata(&path) {
            Ok(m) if m.is_dir() => return Err(Error::input(doing(), "it is a directory")),
            Ok(_) => {
                let kept = stage.path().join("original");
                link_or_copy(&path, &kept).map_err(|e| Error::io(doing(), e))?;
                Some(kept)
            }
            Err(_) => None,
        };
        Ok(Slot { path, stage, original, copies: HashMap::new() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts `variant` into the slot: a hard link under another name, then a rename, so that the slot is never empty
    /// and never half a file. Does nothing when the slot holds it already.
    pub fn hold(&mut self, variant: &Path) -> Result<()> {
        let doing = || format!("putting {} in the place of {}", variant.display(), self.path.display());
        if variant == self.path {
            return Err(Error::input(doing(), "it is that place itself").hint("a variant needs a file of its own"));
        }
        let source = self.copies.get(variant).map_or(variant, PathBuf::as_path);
        let wanted = fs::metadata(source).map_err(|e| Error::io(doing(), e))?;
        if !wanted.is_file() {
            return Err(Error::input(doing(), "is not a regular file"));
        }
        let same = |m: fs::Metadata| (m.dev(), m.ino()) == (wanted.dev(), wanted.ino());
        // Renaming one link of a file over another does nothing and leaves both (rename(2)).
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            return Ok(());
        }
        let next = self.stage.path().join("next");
        if let Err(first) = fs::hard_link(source, &next) {
            let copied = (|| {
                let copy = self.stage.path().join(format!("copy-{}", self.copies.len()));
                fs::copy(source, &copy)?;
                link_or_copy(&copy, &next)?;
                Ok::<_, io::Error>(copy)
            })();
            match copied {
                Ok(copy) => self.copies.insert(variant.to_owned(), copy),
                Err(e) => return Err(Error::io(doing(), e).because(first)),
            };
        }
        fs::rename(&next, &self.path).map_err(|e| Error::io(doing(), e))
    }
}

fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

impl Drop for Slot {
    fn drop(&mut self) {
        match &self.original {
            // Should the slot hold the original itself, rename(2) leaves both names, and ours goes with the stage.
            Some(original) if fs::rename(original, &self.path).is_err() => self.stage.disable_cleanup(true),
            Some(_) => {}
            None => drop(fs::remove_file(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut all: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn the_original_comes_back_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        for name in ["prog", "a", "b"] {
            fs::write(at(name), name).unwrap();
        }
        let mut slot = Slot::take(&at("prog")).unwrap();
        for name in ["a", "b", "b", "a"] {
            slot.hold(&at(name)).unwrap();
            assert_eq!(fs::read_to_string(at("prog")).unwrap(), name);
            assert_eq!(fs::metadata(at("prog")).unwrap().ino(), fs::metadata(at(name)).unwrap().ino());
        }
        assert!(slot.hold(&at("missing")).is_err() && slot.hold(&at("prog")).is_err());
        drop(slot);
        assert_eq!(fs::read_to_string(at("prog")).unwrap(), "prog");
        assert_eq!(names(dir.path()), ["a", "b", "prog"]);
    }

    #[test]
    fn a_place_that_was_empty_is_empty_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "a").unwrap();
        let mut slot = Slot::take(&dir.path().join("prog")).unwrap();
        slot.hold(&dir.path().join("a")).unwrap();
        drop(slot);
        assert_eq!(names(dir.path()), ["a"]);
        assert!(Slot::take(dir.path()).is_err());
    }

    /// Another file system: /dev/shm against the target folder.
    #[test]
    fn a_variant_on_another_file_system_is_copied_once() {
        let (Ok(far), near) =
            (tempfile::tempdir_in("/dev/shm"), tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap())
        else {
            return;
        };
        fs::write(far.path().join("a"), "a").unwrap();
        fs::write(near.path().join("b"), "b").unwrap();
        let mut slot = Slot::take(&near.path().join("prog")).unwrap();
        let ino = || fs::metadata(near.path().join("prog")).unwrap().ino();
        slot.hold(&far.path().join("a")).unwrap();
        let first = ino();
        slot.hold(&near.path().join("b")).unwrap();
        slot.hold(&far.path().join("a")).unwrap();
        assert_eq!(first, ino());
        assert_eq!(fs::read_to_string(near.path().join("prog")).unwrap(), "a");
    }
}
