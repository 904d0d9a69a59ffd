//! The folder in which a triage works: `$XDG_CACHE_HOME/straddle/NAME-HASH/`.
//!
//! It lies outside the user's tree, because build systems look upwards (cargo for a workspace, git for a repository) and
//! a slot inside the tree would find the wrong one. The same case always gets the same folder, so the absolute path
//! of the slot, which `__FILE__` carries into the program, is the same from run to run.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::config::{Case, Trees};
use crate::error::{Error, Result};

/// The working folder, held by one process at a time.
#[derive(Debug)]
pub struct Work {
    root: PathBuf,
    /// Dropped last: the lock goes with the file.
    _lock: File,
}

impl Work {
    /// Creates or reuses the folder of this case and locks it.
    pub fn open(case: &Case) -> Result<Work> {
        let root = cache()?.join(folder_name(case)?);
        let doing = || format!("preparing the working folder {}", root.display());
        fs::create_dir_all(&root).map_err(|e| Error::io(doing(), e))?;
        let lock = File::create(root.join("lock")).map_err(|e| Error::io(doing(), e))?;
        // SAFETY: flock takes a descriptor that `lock` keeps open, and touches no memory.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(Error::machine(doing(), "another triage of this case is running")
                .hint("wait for it, or stop it: two at once would measure each other"));
        }
        Ok(Work { root, _lock: lock })
    }

    /// Where both versions are built, one after the other.
    #[must_use]
    pub fn slot(&self) -> PathBuf {
        self.root.join("tree")
    }

    /// The store of one version's links.
    #[must_use]
    pub fn capture(&self, version: &str) -> PathBuf {
        self.root.join(version)
    }

    /// An empty folder for the linked variants.
    pub fn variants(&self) -> Result<PathBuf> {
        let path = self.root.join("variants");
        clear(&path)?;
        fs::create_dir_all(&path).map_err(|e| Error::io(format!("creating {}", path.display()), e))?;
        Ok(path)
    }

    /// The records of this case, the newest first.
    pub fn records(&self) -> Result<Vec<PathBuf>> {
        let doing = || format!("looking for records in {}", self.root.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(|e| Error::io(doing(), e))? {
            let entry = entry.map_err(|e| Error::io(doing(), e))?;
            if entry.path().extension().is_some_and(|e| e == "record") {
                let written = entry.metadata().and_then(|m| m.modified()).map_err(|e| Error::io(doing(), e))?;
                found.push((written, entry.path()));
            }
        }
        found.sort();
        Ok(found.into_iter().rev().map(|(_, path)| path).collect())
    }

    /// A new record's path; records are never overwritten.
    #[must_use]
    pub fn record(&self, started: &str) -> PathBuf {
        let stamp: String = started.chars().filter(char::is_ascii_alphanumeric).collect();
        (0..)
            .map(|n: u32| if n == 0 { format!("{stamp}.record") } else { format!("{stamp}-{n}.record") })
            .map(|name| self.root.join(name))
            .find(|path| !path.exists())
            .unwrap_or_else(|| self.root.join("record"))
    }
}

/// Removes a folder of ours with everything in it; none there is fine.
pub fn clear(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(format!("clearing {}", path.display()), e)),
        _ => Ok(()),
    }
}

fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|c| c.join("straddle"))
        .ok_or_else(|| {
            Error::machine("finding a working folder", "neither XDG_CACHE_HOME nor HOME is set")
                .hint("XDG_CACHE_HOME=/var/tmp/me straddle triage …")
        })
}

/// `irrelevant-patch-1f3a9c02`: readable, and one per pair of versions and build.
fn folder_name(case: &Case) -> Result<String> {
    let absolute = |p: &Path| fs::canonicalize(p).map_err(|e| Error::io(format!("opening {}", p.display()), e));
    let identity = match &case.trees {
        Trees::Folders { base, patched } => format!("{}\0{}", absolute(base)?.display(), absolute(patched)?.display()),
        Trees::Git { repo, base, patched } => format!("{}\0{base}..{patched}", absolute(repo)?.display()),
    };
    let hash = blake3::hash(format!("{identity}\0{}", case.build).as_bytes()).to_hex();
    let last = case.name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let word: String = last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    Ok(format!("{word}-{}", hash.get(..8).unwrap_or_default()))
}

/// The time now, RFC 3339 in UTC, to the second.
#[must_use]
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    rfc3339(seconds)
}

fn rfc3339(seconds: u64) -> String {
    let time = libc::time_t::try_from(seconds).unwrap_or_default();
    // SAFETY: `tm` is a plain C struct for which all zeroes is a value; gmtime_r writes only to it.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals.
    unsafe { libc::gmtime_r(&raw const time, &raw mut tm) };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_a_date() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_709_164_800), "2024-02-29T00:00:00Z");
    }
}
