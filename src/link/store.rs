//! Files kept by their content: each once, named by its blake3.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::open;

/// The folder `objects/` of a capture.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Files seen: device, inode, size, mtime and ctime → hash. A build reads the same libraries again and again.
    seen: Mutex<HashMap<Identity, String>>,
}

type Identity = (u64, u64, u64, i64, i64, i64, i64);

fn identity(meta: &fs::Metadata) -> Identity {
    (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
}

impl Store {
    /// Opens the store, making its folder where there is none.
    pub fn open(folder: PathBuf) -> Result<Store> {
        fs::create_dir_all(&folder).map_err(|e| Error::io(format!("making {}", folder.display()), e))?;
        Ok(Store { folder, seen: Mutex::default() })
    }

    /// Where the content named `hash` lies.
    #[must_use]
    pub fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(hash.get(..2).unwrap_or("xx")).join(hash)
    }

    /// Copies a file in. A copy, not a hard link: compilers write over their outputs in place.
    pub fn put_file(&self, path: &Path) -> Result<String> {
        let doing = || format!("storing {}", path.display());
        let mut file = open::regular(path)?;
        let id = identity(&file.metadata().map_err(|e| Error::io(doing(), e))?);
        if let Some(hash) = self.seen.lock().ok().and_then(|s| s.get(&id).cloned()) {
            return Ok(hash);
        }
        let hash = self.put(&mut file).map_err(|e| Error::io(doing(), e))?;
        if let Ok(mut seen) = self.seen.lock() {
            seen.insert(id, hash.clone());
        }
        Ok(hash)
    }

    pub fn put_bytes(&self, mut bytes: &[u8]) -> Result<String> {
        self.put(&mut bytes).map_err(|e| Error::io(format!("writing into {}", self.folder.display()), e))
    }

    fn put(&self, content: &mut dyn Read) -> io::Result<String> {
        let mut copy = tempfile::NamedTempFile::new_in(&self.folder)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let n = content.read(&mut buffer)?;
            let Some(part) = buffer.get(..n).filter(|p| !p.is_empty()) else { break };
            hasher.update(part);
            copy.write_all(part)?;
        }
        let hash = hasher.finalize().to_hex().to_string();
        let path = self.path(&hash);
        if !path.exists() {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            copy.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
            copy.persist(&path).map_err(|e| e.error)?;
        }
        Ok(hash)
    }

    /// Deletes what nobody names: links that were only probes leave objects behind.
    pub fn keep_only(&self, named: &std::collections::HashSet<&str>) -> Result<usize> {
        let doing = || format!("tidying {}", self.folder.display());
        let mut gone = 0;
        for shelf in fs::read_dir(&self.folder).map_err(|e| Error::io(doing(), e))?.flatten() {
            // A copy that a killed capture did not finish.
            if shelf.file_type().is_ok_and(|t| t.is_file()) {
                fs::remove_file(shelf.path()).map_err(|e| Error::io(doing(), e))?;
                continue;
            }
            for entry in fs::read_dir(shelf.path()).into_iter().flatten().flatten() {
                if !entry.file_name().to_str().is_some_and(|n| named.contains(n)) {
                    fs::remove_file(entry.path()).map_err(|e| Error::io(doing(), e))?;
                    gone += 1;
                }
            }
        }
        Ok(gone)
    }
}

/// The blake3 of a regular file, in hex: the one hash by which files are told apart everywhere.
pub fn hash_file(path: &Path) -> Result<String> {
    let doing = || format!("reading {}", path.display());
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open::regular(path)?).map_err(|e| Error::io(doing(), e))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Writes beside, syncs, renames: nothing partial is left under the final name.
pub fn write_beside(path: &Path, bytes: &[u8]) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let go = || -> io::Result<()> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut beside = tempfile::NamedTempFile::new_in(folder)?;
        beside.write_all(bytes)?;
        beside.as_file().sync_all()?;
        beside.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        beside.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    go().map_err(|e| Error::io(doing(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_content_is_kept_once_and_the_unnamed_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects")).unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "same").unwrap();
        fs::write(&b, "same").unwrap();
        let hash = store.put_file(&a).unwrap();
        assert_eq!(store.put_file(&b).unwrap(), hash);
        assert_eq!(hash_file(&store.path(&hash)).unwrap(), hash);
        let other = store.put_bytes(b"other").unwrap();
        assert_eq!(store.keep_only(&[hash.as_str()].into()).unwrap(), 1);
        assert!(store.path(&hash).exists() && !store.path(&other).exists());
    }
}
