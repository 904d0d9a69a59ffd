//! A [`Relink`] for tests: asks gcc for its linker command once, then runs `ld` with some inputs replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use straddle::error::{Error, Result};
use straddle::link::{Input, Linked, Relink};
use straddle::open::{self, Bytes};

pub struct Fake {
    dir: tempfile::TempDir,
    args: Vec<String>,
    inputs: Vec<Input>,
    /// The path of each input, as the linker's map prints it.
    paths: Vec<String>,
}

/// Compiles C (`x.c`) and C++ (`x.cc`) sources with `flags`, puts the objects named in `archives` into archives, and
/// records how `driver link` calls the linker.
pub fn build(
    sources: &[(&str, &str)],
    flags: &[&str],
    archives: &[(&str, &[&str])],
    driver: &str,
    link: &[&str],
) -> Fake {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in sources {
        std::fs::write(dir.path().join(name), text).unwrap();
        if name.ends_with(".h") {
            continue;
        }
        let compiler = if name.ends_with(".cc") { "g++" } else { "gcc" };
        run(dir.path(), compiler, &[&["-c", name], flags].concat());
    }
    for (name, members) in archives {
        run(dir.path(), "ar", &[&["rcs", name], *members].concat());
    }
    record(dir, driver, link)
}

/// As [`build`], of objects that are in `dir` already.
pub fn record(dir: tempfile::TempDir, driver: &str, link: &[&str]) -> Fake {
    let out = Command::new(driver).args(link).args(["-o", "probe", "-###"]).current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    let line = text.lines().find(|l| l.contains("collect2")).unwrap_or_else(|| panic!("{text}"));
    let words = shlex::split(line).unwrap();
    let mut args = Vec::new();
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" | "-plugin" => drop(words.next()),
            w if w.starts_with("-plugin") => {}
            _ => args.push(word),
        }
    }
    let mut fake = Fake { dir, args, inputs: Vec::new(), paths: Vec::new() };
    let probe = fake.dir.path().join("probe");
    let map = fake.relink(&BTreeMap::new(), &probe).unwrap().map;
    let mut seen = BTreeSet::new();
    for path in map.lines().filter_map(|l| l.strip_prefix("LOAD ")) {
        let Ok(bytes) = open::map(&fake.dir.path().join(path)) else { continue };
        let relocatable = bytes.starts_with(b"\x7fELF") && bytes[16] == 1;
        let named = fake.args.iter().any(|a| a == path || library(a).is_some_and(|l| path.ends_with(&l)));
        if named && (relocatable || bytes.starts_with(b"!<")) && seen.insert(path.to_owned()) {
            let hash = blake3::hash(&bytes).to_hex().to_string();
            fake.inputs.push(Input { name: path.to_owned(), system: path.starts_with('/'), hash });
            fake.paths.push(path.to_owned());
        }
    }
    fake
}

impl Fake {
    pub fn run(&self, program: &Path) -> String {
        let out = Command::new(program).output().unwrap();
        format!("{:?} {}{}", out.status, String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    }
}

impl Relink for Fake {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn bytes(&self, input: usize) -> Result<Bytes> {
        open::map(&self.dir.path().join(&self.paths[input]))
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked> {
        let scratch = tempfile::tempdir().unwrap();
        let mut files: BTreeMap<String, usize> = self.paths.iter().cloned().zip(0..).collect();
        let mut args = self.args.clone();
        for (&input, bytes) in replaced {
            let old = &self.paths[input];
            let new: PathBuf = scratch.path().join(format!("{input}{}", &old[old.len() - 2..]));
            std::fs::write(&new, bytes).unwrap();
            let new = new.to_str().unwrap().to_owned();
            for arg in &mut args {
                if arg == old || library(arg).is_some_and(|l| old.ends_with(&l)) {
                    arg.clone_from(&new);
                }
            }
            files.remove(old);
            files.insert(new, input);
        }
        let map = scratch.path().join("map");
        let out = Command::new("ld")
            .args(&args)
            .arg("-o")
            .arg(output)
            .arg(format!("-Map={}", map.display()))
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        if !out.status.success() {
            let _ = std::fs::remove_file(output);
            return Err(Error::input("linking", String::from_utf8_lossy(&out.stderr).into_owned()));
        }
        Ok(Linked { map: open::text(&map)?, files })
    }
}

/// `-lfoo` → `/libfoo.a`.
fn library(arg: &str) -> Option<String> {
    arg.strip_prefix("-l").map(|name| format!("/lib{name}.a"))
}

fn run(dir: &Path, program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}
