//! [`Capture`]: every link of a build, on disk as `capture.json` beside the content it names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::link::Input;
use crate::link::content;
use crate::link::replay::Link;
use crate::link::store::{self, Store};
use crate::link::words::Word;

pub const SCHEMA: &str = "straddle.capture/1";

/// What a link makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Makes {
    Program,
    SharedObject,
    /// `ld -r`: an object that a later link takes in.
    Relocatable,
}

/// What an input is, by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    Object,
    Archive,
    SharedObject,
    /// A linker script, a version script, a list of symbols: text.
    Script,
    Other,
}

/// An input with where it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    #[serde(flatten)]
    pub input: Input,
    /// Absolute; its folder's symbolic links are resolved, its own name is as the linker opened it.
    pub path: PathBuf,
    pub form: Form,
    /// Found by the linker's own search or named by a script, rather than by a word of the command line.
    pub searched: bool,
    /// A shared object without `DT_SONAME` that is named by an absolute path: the path itself ends in the output, so
    /// the replay reads the file where it is.
    pub in_place: bool,
}

/// The program that linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linker {
    /// Resolved: `/usr/bin/x86_64-linux-gnu-ld.bfd`.
    pub path: PathBuf,
    /// As it was called; lld and mold choose their dialect by it.
    pub argv0: String,
    /// blake3.
    pub hash: String,
}

/// A file that a replay reads where it is: a plugin, the linker that a wrapper turns into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlace {
    pub path: PathBuf,
    pub hash: String,
}

/// One link, with all that is needed to do it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The output's path below the build root, or absolute where it lies elsewhere.
    pub name: String,
    pub makes: Makes,
    pub output: PathBuf,
    /// blake3 of the output as the build's own linker left it; its content is in the store.
    pub output_hash: String,
    /// Paths below the build root at which the output lies too, byte for byte: cargo links `target/release/deps/x-HASH`
    /// and puts it at `target/release/x`.
    #[serde(default)]
    pub copies: Vec<String>,
    /// The output was changed after the link: stripped, patched.
    pub post_processed: bool,
    pub linker: Linker,
    /// After argv[0], response files expanded, without the words that name files to write.
    pub words: Vec<Word>,
    pub sysroot: Option<String>,
    pub folder: PathBuf,
    /// Those variables that linkers read ([`ENVIRONMENT`]).
    pub environment: BTreeMap<String, String>,
    pub inputs: Vec<Stored>,
    pub in_place: Vec<InPlace>,
    /// Inputs that hold no machine code yet: link-time optimisation.
    pub lto: Vec<String>,
    /// What lays out code or data instead of the order of the link: a list of symbols, a profile, a tool that comes after.
    #[serde(default)]
    pub ordered_by: Vec<String>,
}

impl Captured {
    /// `--build-id=uuid`: no two links give the same bytes.
    #[must_use]
    pub fn random_build_id(&self) -> bool {
        self.words.iter().any(|w| matches!(w, Word::Plain(text) if text.ends_with("-build-id=uuid")))
    }

    /// Whether equal sections are made one: the last `--icf=…` counts.
    pub(super) fn folds(&self) -> bool {
        let icf = |w: &Word| match w {
            Word::Plain(text) => text.trim_start_matches('-').strip_prefix("icf=").map(|how| how != "none"),
            _ => None,
        };
        self.words.iter().rev().find_map(icf).unwrap_or(false)
    }

    /// gold takes the path that it writes to for the name of a shared object that is given none (`-soname`): the path ends
    /// in the bytes.
    pub(super) fn holds_its_path(&self) -> bool {
        let named = |w: &Word| {
            let Word::Plain(text) = w else { return false };
            let option = text.trim_start_matches('-');
            option.starts_with("soname") || text == "-h"
        };
        let gold = self.linker.path.to_string_lossy().contains("gold");
        gold && self.makes == Makes::SharedObject && !self.words.iter().any(named)
    }

    /// Options by which the linker is told an order, as they were written.
    pub(super) fn ordering_options(&self) -> impl Iterator<Item = &str> {
        const ORDERING: [&str; 8] = [
            "symbol-ordering-file",
            "section-ordering-file",
            "call-graph-ordering-file",
            "shuffle-sections",
            "reverse-sections",
            "bp-startup-sort",
            "bp-compression-sort",
            "irpgo-profile",
        ];
        self.words.iter().filter_map(|word| {
            let (Word::Plain(text) | Word::Input { prefix: text, .. }) = word else { return None };
            let option = text.split('=').next().unwrap_or_default();
            ORDERING.contains(&option.trim_start_matches('-')).then_some(option)
        })
    }

    /// What a reader of the measurement has to know about the link, a sentence each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let name = &self.name;
        let mut all = Vec::new();
        if self.post_processed {
            all.push(format!(
                "{name} was changed after the link (strip, objcopy?): what is measured is the file as linked"
            ));
        }
        if !self.ordered_by.is_empty() {
            all.push(format!(
                "{name} is laid out by {}: the order of the link is not its layout",
                self.ordered_by.join(" and ")
            ));
        }
        all
    }

    /// Made by a build tool to learn about the compiler or to steer the build, not for its user: cmake's checks,
    /// meson's, cargo's build scripts, autoconf's tests.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        let mut parts = self.name.split('/');
        let tools = |p: &str| matches!(p, "CMakeFiles" | "meson-private") || p.starts_with("build_script_");
        let conftest = self.name.rsplit('/').next().is_some_and(|n| n == "conftest" || n.starts_with("conftest."));
        parts.any(tools) || conftest
    }
}

/// The variables that ld, gold, lld, mold and gcc's plugin read. The rest is left out: an environment holds secrets,
/// and what a linker does not read cannot change a link.
pub const ENVIRONMENT: &[&str] = &[
    "COLLECT_GCC",
    "COLLECT_GCC_OPTIONS",
    "COLLECT_LTO_WRAPPER",
    "COLLECT_NO_DEMANGLE",
    "COMPILER_PATH",
    "GNUTARGET",
    "LDEMULATION",
    "LD_LIBRARY_PATH",
    "LD_RUN_PATH",
    "LIBRARY_PATH",
    "LLD_VERSION",
    "PATH",
    "SOURCE_DATE_EPOCH",
    "TMPDIR",
];

/// An ELF file that the build wrote and no captured link made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// Below the build root.
    pub path: String,
    /// What its own content says of how it came to be.
    pub how: String,
}

/// Every link of one build.
#[derive(Debug, Serialize, Deserialize)]
pub struct Capture {
    pub schema: String,
    /// The build root.
    pub root: PathBuf,
    pub command: Vec<String>,
    pub links: Vec<Captured>,
    pub unseen: Vec<Unseen>,
    /// Reason → links (or files) that are not among `links` because of it.
    pub skipped: BTreeMap<String, usize>,
    pub problems: Vec<String>,
    #[serde(skip)]
    pub store: PathBuf,
}

impl Capture {
    /// Reads a capture from the folder it was stored in.
    pub fn load(folder: &Path) -> Result<Capture> {
        let path = folder.join("capture.json");
        let doing = || format!("reading the capture {}", path.display());
        let text = crate::open::text(&path)?;
        let mut capture: Capture = serde_json::from_str(&text).map_err(|e| Error::input(doing(), e.to_string()))?;
        if capture.schema != SCHEMA {
            return Err(Error::input(doing(), format!("it is `{}`, not `{SCHEMA}`", capture.schema))
                .hint("capture again with this version"));
        }
        if let Some(bad) = capture.hashes().find(|h| !is_hash(h)) {
            return Err(Error::input(doing(), format!("`{bad}` is no blake3 hash")));
        }
        capture.store = folder.to_owned();
        Ok(capture)
    }

    pub(super) fn save(&self) -> Result<()> {
        let path = self.store.join("capture.json");
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::input(format!("writing {}", path.display()), e.to_string()))?;
        text.push(b'\n');
        store::write_beside(&path, &text)
    }

    /// The programs and shared objects other than `except` (a [`Captured::name`]) that the two builds linked to other
    /// bytes, or that only one of them linked; sorted. Probes and `ld -r` objects are left out: nobody runs them.
    #[must_use]
    pub fn differing(&self, other: &Capture, except: &str) -> Vec<String> {
        fn linked<'a>(capture: &'a Capture, except: &str) -> BTreeMap<&'a str, &'a str> {
            let kept = |l: &&Captured| l.makes != Makes::Relocatable && !l.is_probe() && l.name != except;
            capture.links.iter().filter(kept).map(|l| (l.name.as_str(), l.output_hash.as_str())).collect()
        }
        let (ours, theirs) = (linked(self, except), linked(other, except));
        let all: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
        all.into_iter().filter(|name| ours.get(name) != theirs.get(name)).map(str::to_owned).collect()
    }

    /// Where the content named `hash` lies.
    pub(super) fn object(&self, hash: &str) -> PathBuf {
        self.store.join("objects").join(hash.get(..2).unwrap_or_default()).join(hash)
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = &str> {
        self.links.iter().flat_map(|l| {
            let inputs = l.inputs.iter().map(|s| s.input.hash.as_str());
            inputs.chain([l.output_hash.as_str(), l.linker.hash.as_str()])
        })
    }

    pub(super) fn tidy(&self, store: &Store) -> Result<()> {
        store.keep_only(&self.hashes().collect::<HashSet<_>>()).map(drop)
    }

    /// The one link whose output's name (or path below the root) the glob matches; without a glob the only program
    /// or shared object ([probes](Captured::is_probe) aside). None or several is an error that lists what there is; link-time optimisation is refused.
    pub fn select(&self, glob: Option<&str>) -> Result<Link> {
        let doing = "choosing the link";
        let wanted = glob.map(Glob::new).transpose()?;
        let found: Vec<Captured> = match &wanted {
            Some(glob) => self.meant(glob),
            None => self.links.iter().filter(|l| l.makes != Makes::Relocatable && !l.is_probe()).cloned().collect(),
        };
        match found.as_slice() {
            [one] => self.open(one),
            [] => Err(self.no_match(doing, glob, wanted.as_ref())),
            several => Err(Error::input(doing, format!("the build linked several: {}", names(several.iter())))
                .hint("name one with --link, a glob on the output's path")),
        }
    }

    /// The links whose output the glob names; where there is none, those of which it names a copy, under that name.
    fn meant(&self, glob: &Glob) -> Vec<Captured> {
        let own: Vec<Captured> = self.links.iter().filter(|l| glob.matches(&l.name)).cloned().collect();
        let copied = |link: &Captured| {
            let copy = link.copies.iter().find(|c| glob.matches(c))?;
            Some(Captured { name: copy.clone(), output: self.root.join(copy), ..link.clone() })
        };
        if own.is_empty() { self.links.iter().filter_map(copied).collect() } else { own }
    }

    fn no_match(&self, doing: &str, glob: Option<&str>, wanted: Option<&Glob>) -> Error {
        if let Some(unseen) = self.unseen.iter().find(|u| wanted.is_none_or(|g| g.matches(&u.path))) {
            return Error::input(
                doing,
                format!("{} was written, but its link was not captured: {}", unseen.path, unseen.how),
            );
        }
        let all = names(self.links.iter());
        match glob {
            Some(glob) => Error::input(doing, format!("no link matches `{glob}`; the build linked {all}")),
            None => Error::input(doing, format!("the build linked no program and no shared object, only {all}")),
        }
    }

    /// Opens one of [`Capture::links`] for replay.
    pub fn open(&self, link: &Captured) -> Result<Link> {
        if let Some(file) = link.lto.first() {
            let more = link.lto.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let problem = format!("{file}{more} is compiled for link-time optimisation: it holds no sections to move");
            let llvm = link.inputs.iter().filter(|s| file.starts_with(&s.input.name)).any(|s| {
                let bytes = crate::open::map(&self.object(&s.input.hash));
                bytes.is_ok_and(|b| content::holds_bitcode(&b))
            });
            return Err(Error::input(format!("opening the link of {}", link.name), problem).hint(lto_hint(file, llvm)));
        }
        Link::new(link.clone(), Arc::new(Store::open(self.store.join("objects"))?), self.store.clone(), &self.root)
    }
}

/// The flag to drop, for an input that is compiled for link-time optimisation, by LLVM or by gcc.
#[must_use]
pub fn lto_hint(input: &str, llvm: bool) -> &'static str {
    match llvm {
        true if input.contains(".rcgu.o") || input.contains(".rlib") => {
            "build without -C linker-plugin-lto (cargo: lto = \"off\")"
        }
        true => "build without -flto or -flto=thin (clang)",
        false => "build without -flto (gcc)",
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What build tools link to learn something comes last.
fn names<'a>(links: impl Iterator<Item = &'a Captured>) -> String {
    const SHOWN: usize = 12;
    let (probes, mut all): (Vec<&Captured>, Vec<&Captured>) = links.partition(|l| l.is_probe());
    all.extend(probes);
    let mut names: Vec<&str> = all.iter().take(SHOWN).map(|l| l.name.as_str()).collect();
    if all.len() > SHOWN {
        names.push("…");
    }
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A shell glob on a path: `*` and `?` stay within one folder, `**` does not; without a `/` it looks at the name only.
#[derive(Debug)]
pub struct Glob {
    regex: regex::Regex,
    name_only: bool,
}

impl Glob {
    pub fn new(glob: &str) -> Result<Glob> {
        let mut pattern = String::from("^");
        let mut rest = glob.trim_start_matches("./");
        let name_only = !rest.contains('/');
        while let Some(c) = rest.chars().next() {
            let (taken, text) = match c {
                '*' if rest.starts_with("**/") => (3, "(?:.*/)?".to_owned()),
                '*' if rest.starts_with("**") => (2, ".*".to_owned()),
                '*' => (1, "[^/]*".to_owned()),
                '?' => (1, "[^/]".to_owned()),
                c => (c.len_utf8(), regex::escape(c.encode_utf8(&mut [0; 4]))),
            };
            pattern.push_str(&text);
            rest = rest.get(taken..).unwrap_or_default();
        }
        pattern.push('$');
        let regex = regex::Regex::new(&pattern)
            .map_err(|e| Error::input(format!("reading the glob `{glob}`"), e.to_string()))?;
        Ok(Glob { regex, name_only })
    }

    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.name_only { name } else { path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_the_shells() {
        let matches = |glob: &str, path: &str| Glob::new(glob).unwrap().matches(path);
        assert!(matches("demo", "demo") && matches("demo", "build/bin/demo") && !matches("demo", "demo2"));
        assert!(matches("target/release/deps/bench-*", "target/release/deps/bench-0f"));
        assert!(!matches("target/*", "target/release/x") && matches("target/**", "target/release/x"));
        assert!(matches("**/x", "x") && matches("./x", "x") && matches("a+b", "a+b") && matches("d?mo", "demo"));
    }

    #[test]
    fn a_capture_of_another_version_or_with_a_path_for_a_hash_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            std::fs::write(dir.path().join("capture.json"), text).unwrap();
            Capture::load(dir.path()).unwrap_err().to_string()
        };
        let empty = r#"{"schema":"straddle.capture/9","root":"/","command":[],"links":[],"unseen":[],"skipped":{},"problems":[]}"#;
        assert!(load(empty).contains("straddle.capture/9"));
        assert!(load("{").contains("capture.json"));
        assert!(!is_hash("../../../../etc/passwd"));
    }
}
