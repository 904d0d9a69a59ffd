//! The command that is measured, and how it is started.
//!
//! `{bin}` stands for the slot, the one path under which every variant runs. A command without it (`make bench`)
//! starts something that finds the binary by itself; the variant takes the linked file's place for the run.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What makes a shell necessary. Braces are not among them: to `sh` they are letters.
const META: &[char] = &['|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?', '[', '~', '#', '!', '\n'];

/// Stands for the worker count in the command of a sweep.
pub const WORKERS: &str = "{workers}";

/// A command, resolved: the same bytes for every run of every variant.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As it is run, for people and the record.
    pub command: String,
    /// The file that is executed.
    pub program: CString,
    /// Never empty.
    pub argv: Vec<CString>,
    /// The working folder.
    pub folder: PathBuf,
    /// Where variants are put.
    pub slot: PathBuf,
}

impl Workload {
    /// What is run, for people and the record: `{bin}` filled in, `{workers}` left open.
    #[must_use]
    pub fn describe(template: &str, slot: &Path) -> String {
        fill(template, slot.as_os_str()).to_string_lossy().into_owned()
    }

    /// The template of one row of a sweep.
    #[must_use]
    pub fn with_workers(template: &str, workers: u32) -> String {
        template.replace(WORKERS, &workers.to_string())
    }

    /// `template` is split as a shell would and executed directly, or given to `sh -c` when it needs a shell.
    /// `path` is the `PATH` in which a bare name is looked up. Relative paths count from `folder`.
    pub fn new(template: &str, slot: &Path, folder: &Path, path: Option<&OsStr>) -> Result<Workload> {
        let doing = || format!("reading the command `{template}`");
        let absolute = |p: &Path| std::path::absolute(p).map_err(|e| Error::io(doing(), e));
        let (slot, folder) = (absolute(slot)?, absolute(folder)?);
        if !folder.is_dir() {
            return Err(Error::input(doing(), format!("its working folder {} is no folder", folder.display())));
        }
        let words: Vec<OsString> = if needs_shell(template) {
            ["/bin/sh".into(), "-c".into(), fill_quoted(template, &slot)?].into()
        } else {
            let words = shlex::split(template).ok_or_else(|| Error::input(doing(), "a quote is not closed"))?;
            words.iter().map(|word| fill(word, slot.as_os_str())).collect()
        };
        let Some(first) = words.first().filter(|w| !w.is_empty()) else {
            return Err(Error::input(doing(), "it is empty").hint("name a program, or {bin}"));
        };
        let program = resolve(Path::new(first), &slot, &folder, path)
            .ok_or_else(|| Error::input(doing(), format!("no program `{}` that can be run", first.display())))?;
        let c = |s: &OsStr| CString::new(s.as_bytes()).map_err(|_| Error::input(doing(), "it holds a NUL byte"));
        let argv = words.iter().map(|w| c(w)).collect::<Result<Vec<_>>>()?;
        let command = Workload::describe(template, &slot);
        Ok(Workload { command, program: c(program.as_os_str())?, argv, folder, slot })
    }
}

fn needs_shell(template: &str) -> bool {
    // `VAR=1 {bin}` sets a variable.
    let assigns = template.split_whitespace().next().is_some_and(|word| word.contains('='));
    assigns || template.contains(META)
}

fn fill(word: &str, slot: &OsStr) -> OsString {
    let mut bytes = Vec::new();
    for (i, part) in word.split("{bin}").enumerate() {
        if i > 0 {
            bytes.extend_from_slice(slot.as_bytes());
        }
        bytes.extend_from_slice(part.as_bytes());
    }
    OsString::from_vec(bytes)
}

fn fill_quoted(template: &str, slot: &Path) -> Result<OsString> {
    let quoted = shlex::bytes::try_quote(slot.as_os_str().as_bytes())
        .map_err(|e| Error::input(format!("quoting {}", slot.display()), e.to_string()))?;
    Ok(fill(template, OsStr::from_bytes(&quoted)))
}

/// The file behind the first word. The slot need not exist yet.
fn resolve(first: &Path, slot: &Path, folder: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if first.as_os_str().as_bytes().contains(&b'/') {
        let whole = folder.join(first);
        return (whole == slot || runs(&whole)).then_some(whole);
    }
    std::env::split_paths(path?).map(|dir| folder.join(dir).join(first)).find(|p| runs(p))
}

fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(template: &str) -> Result<Vec<String>, String> {
        let path = OsStr::new("/usr/bin:/bin");
        Workload::new(template, Path::new("/b/my prog"), Path::new("/"), Some(path))
            .map(|w| w.argv.iter().map(|a| a.to_str().unwrap().to_owned()).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_plain_command_is_executed_directly() {
        assert_eq!(argv("{bin} -n 'two words' x{bin}").unwrap(), ["/b/my prog", "-n", "two words", "x/b/my prog"]);
        assert_eq!(argv("env --x={bin}").unwrap(), ["env", "--x=/b/my prog"]);
    }

    #[test]
    fn a_shell_is_asked_only_where_one_is_needed() {
        for template in ["{bin} | tail -1", "N=1 {bin}", "{bin} > /dev/null", "cd / && {bin}", "{bin} $HOME"] {
            let got = argv(template).unwrap();
            assert_eq!(got[..2], ["/bin/sh", "-c"], "{template}");
            assert!(got[2].contains("'/b/my prog'"), "{got:?}");
        }
    }

    #[test]
    fn a_bad_command_is_one_clear_line() {
        assert!(argv("{bin} 'x").unwrap_err().contains("not closed"));
        assert!(argv("  ").unwrap_err().contains("empty"));
        assert!(argv("no-such-program-here 1").unwrap_err().contains("no-such-program-here"));
        assert!(argv("/etc/passwd").unwrap_err().contains("/etc/passwd"));
    }
}
