//! The folder that is made: everything is written beside it, and takes its name at once when it is whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::error::{Error, Result};

const WHOLE: &str = "whole";

/// A folder under a name of its own, gone with this value unless [`Folder::take_name`] is called.
#[derive(Debug)]
pub struct Folder {
    wanted: PathBuf,
    beside: TempDir,
    /// Held as long as this one is at work in `beside`.
    _lock: File,
}

impl Folder {
    /// Refuses a folder with something in it: results are never overwritten.
    pub fn beside(wanted: &Path) -> Result<Folder> {
        let doing = || format!("making the folder {}", wanted.display());
        match fs::read_dir(wanted) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Error::input(doing(), "it is there and not empty").hint("another name, or remove it"));
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(doing(), e)),
        }
        let io = |e| Error::io(doing(), e);
        let (Some(name), parent) = (wanted.file_name(), wanted.parent().unwrap_or(Path::new("."))) else {
            return Err(Error::input(doing(), "it has no name"));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        fs::create_dir_all(parent).map_err(io)?;
        // Absolute: the linker runs in another folder.
        let parent = parent.canonicalize().map_err(io)?;
        let prefix = format!(".{}-", name.to_string_lossy());
        sweep(&parent, &prefix);
        let beside = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent).map_err(io)?;
        let lock = File::open(beside.path()).map_err(io)?;
        locked(&lock);
        let folder = Folder { wanted: parent.join(name), beside, _lock: lock };
        // A folder in the folder, for that one is made for its owner's eyes only.
        fs::create_dir(folder.whole()).map_err(io)?;
        Ok(folder)
    }

    fn whole(&self) -> PathBuf {
        self.beside.path().join(WHOLE)
    }

    /// Where a file is to be written.
    pub fn path(&self, name: &str) -> PathBuf {
        self.whole().join(name)
    }

    /// A folder for what nobody keeps.
    pub fn scratch(&self) -> Result<TempDir> {
        tempfile::tempdir_in(self.beside.path()).map_err(|e| Error::io("making a scratch folder", e))
    }

    /// A list of plain values, or of lists of them, stands on one line: a unit a line.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let doing = || format!("writing {}", self.wanted.join(name).display());
        let value = serde_json::to_value(value).map_err(|e| Error::input(doing(), e.to_string()))?;
        let write = || {
            let mut file = BufWriter::new(File::create(self.path(name))?);
            indented(&value, 0, &mut file)?;
            writeln!(file)?;
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
        };
        write().map_err(|e| Error::io(doing(), e))
    }

    /// Everything is there: the folder gets its name, in place of an empty one.
    pub fn take_name(self) -> Result<()> {
        let named = || {
            // The links were not forced to the disk one by one.
            for entry in fs::read_dir(self.whole())? {
                File::open(entry?.path())?.sync_all()?;
            }
            File::open(self.whole())?.sync_all()?;
            fs::rename(self.whole(), &self.wanted)
        };
        named().map_err(|e| Error::io(format!("making the folder {}", self.wanted.display()), e))
    }
}

fn indented(value: &Value, depth: usize, out: &mut impl Write) -> std::io::Result<()> {
    let plain = |v: &Value| match v {
        Value::Array(list) => !list.iter().any(|v| v.is_array() || v.is_object()),
        Value::Object(_) => false,
        _ => true,
    };
    let indent = |depth: usize| "  ".repeat(depth);
    match value {
        Value::Object(map) if depth == 0 || !map.values().all(plain) => {
            writeln!(out, "{{")?;
            for (n, (key, value)) in map.iter().enumerate() {
                let comma = if n > 0 { ",\n" } else { "" };
                write!(out, "{comma}{}{}: ", indent(depth + 1), Value::from(key.as_str()))?;
                indented(value, depth + 1, out)?;
            }
            write!(out, "\n{}}}", indent(depth))
        }
        Value::Array(list) if !plain(value) => {
            writeln!(out, "[")?;
            for (n, value) in list.iter().enumerate() {
                let comma = if n > 0 { ",\n" } else { "" };
                write!(out, "{comma}{}", indent(depth + 1))?;
                indented(value, depth + 1, out)?;
            }
            write!(out, "\n{}]", indent(depth))
        }
        flat => write!(out, "{flat}"),
    }
}

/// Removes what runs for the same folder left when they were killed: nobody holds its lock any more.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(prefix) && path.join(WHOLE).is_dir();
        if ours && File::open(&path).is_ok_and(|f| locked(&f)) {
            drop(fs::remove_dir_all(path));
        }
    }
}

/// Whether the lock could be had; it goes with the file.
fn locked(file: &File) -> bool {
    // SAFETY: flock takes a descriptor that `file` keeps open, and touches no memory.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_line_and_the_value_is_the_same() {
        let value = serde_json::json!({"a": 1, "units": [{"file": "x\"y", "pad": 8}, {"list": [1, null]}], "none": []});
        let mut text = Vec::new();
        indented(&value, 0, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\n    {\"file\":\"x\\\"y\",\"pad\":8},\n    {\"list\":[1,null]}\n  ]"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("sub").join("v");
        let names =
            || fs::read_dir(dir.path().join("sub")).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        let folder = Folder::beside(&wanted).unwrap();
        folder.write_json("a", &1).unwrap();
        assert!(!wanted.exists());
        // Another run for the same name leaves this one alone, for it is at work; what a killed run left goes.
        fs::create_dir_all(dir.path().join("sub/.v-killed").join(WHOLE)).unwrap();
        drop(Folder::beside(&wanted).unwrap());
        assert!(folder.path("a").exists() && names().len() == 1);
        drop(folder);
        assert!(names().is_empty());
        fs::create_dir(&wanted).unwrap();
        let folder = Folder::beside(&wanted).unwrap();
        folder.write_json("a", &1).unwrap();
        folder.take_name().unwrap();
        assert_eq!(names(), ["v"]);
        assert_eq!(fs::read(wanted.join("a")).unwrap(), b"1\n");
        assert!(Folder::beside(&wanted).unwrap_err().to_string().contains("not empty"));
    }
}
