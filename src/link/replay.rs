//! [`Link`]: a captured link that is done again, from the store alone, with some inputs replaced.
//!
//! Below a scratch folder the inputs lie as they lay in the build (`root/…`) and on the system (`outside/…`): relative
//! words stay as they are, so that what a linker script matches (`*crtbegin.o`, `*lib/hot.o`) still matches. What the
//! linker found by its own search lies in `first/`, the first folder that it searches. Rejected: a flat folder of
//! numbered files, in which those patterns would match nothing.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::image::map::plain;
use crate::link::hold::{file_name, option};
use crate::link::paths::{self, mirror};
use crate::link::store::{self, Store};
use crate::link::stored::{Captured, Form, Stored};
use crate::link::words::Word;
use crate::link::{Input, Linked, Relink, script};
use crate::open::Bytes;

/// A link of a [`crate::link::Capture`], ready to be done again; many at once if wanted.
#[derive(Debug)]
pub struct Link {
    captured: Captured,
    inputs: Vec<Input>,
    store: Arc<Store>,
    /// The capture's folder; scratch folders are made in it.
    folder: PathBuf,
    root: PathBuf,
    order: Vec<String>,
    checked: OnceLock<std::result::Result<(), String>>,
    /// For how many microseconds its linkers have run.
    linked_for: AtomicU64,
}

impl Link {
    pub(super) fn new(captured: Captured, store: Arc<Store>, folder: PathBuf, root: &Path) -> Result<Link> {
        let inputs: Vec<Input> = captured.inputs.iter().map(|s| s.input.clone()).collect();
        let known = |w: &Word| !matches!(w, Word::Input { input: Some(i), .. } if *i >= inputs.len());
        if !captured.words.iter().all(known) {
            return Err(Error::input(format!("opening the link of {}", captured.name), "a word names no input"));
        }
        // Absolute: the linker runs in another folder.
        let folder = folder.canonicalize().map_err(|e| Error::io(format!("opening {}", folder.display()), e))?;
        let store = if store.path("").is_absolute() { store } else { Arc::new(Store::open(folder.join("objects"))?) };
        let (root, order) = (root.to_owned(), Vec::new());
        let (checked, linked_for) = (OnceLock::new(), AtomicU64::new(0));
        Ok(Link { captured, inputs, store, folder, root, order, checked, linked_for })
    }

    /// How long its linkers have run so far, all added up: what a variant costs anyway.
    #[must_use]
    pub fn linked_for(&self) -> Duration {
        Duration::from_micros(self.linked_for.load(Ordering::Relaxed))
    }

    /// What was captured.
    #[must_use]
    pub fn captured(&self) -> &Captured {
        &self.captured
    }

    /// The build's own loose objects, in the order of the link line: those whose order is free. An archive is searched
    /// for what is missing so far, so it stays where it is, and so does what the system brings (`crti.o` … `crtn.o`).
    #[must_use]
    pub fn orderable(&self) -> Vec<String> {
        let name = |at: &usize| {
            let Some(Word::Input { input: Some(i), .. }) = self.captured.words.get(*at) else { return None };
            self.inputs.get(*i).map(|input| input.name.clone())
        };
        self.places().iter().filter_map(name).collect()
    }

    /// Which words are orderable objects; one that is named twice is none.
    fn places(&self) -> Vec<usize> {
        let words = &self.captured.words;
        let input = |w: &Word| match w {
            Word::Input { prefix, input: Some(i), .. } if prefix.is_empty() => Some(*i),
            _ => None,
        };
        let free = |i: usize| {
            let own = |s: &Stored| s.form == Form::Object && !s.input.system && !s.in_place;
            self.captured.inputs.get(i).is_some_and(own) && words.iter().filter(|w| input(w) == Some(i)).count() == 1
        };
        (0..words.len()).filter(|&at| words.get(at).and_then(input).is_some_and(free)).collect()
    }

    /// The same link with its [orderable](Link::orderable) objects in another order; all of them must be in `order`.
    pub fn reordered(&self, order: &[String]) -> Result<Link> {
        let doing = || format!("ordering the link of {}", self.captured.name);
        let (places, names) = (self.places(), self.orderable());
        if let Some(other) = order.iter().find(|o| !names.contains(o)) {
            return Err(Error::input(doing(), format!("{other} is no object of the build on the link line"))
                .hint("a plan fits the build that it was made for"));
        }
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if order.len() != names.len() || sorted.len() != names.len() {
            let problem = format!("{} objects are to be ordered, the link has {}", order.len(), names.len());
            return Err(Error::input(doing(), problem));
        }
        let word = |name: &String| {
            let at = names.iter().position(|n| n == name)?;
            self.captured.words.get(*places.get(at)?).cloned()
        };
        let mut captured = self.captured.clone();
        for (place, name) in places.iter().zip(order) {
            if let (Some(slot), Some(word)) = (captured.words.get_mut(*place), word(name)) {
                *slot = word;
            }
        }
        Ok(Link {
            captured,
            linked_for: AtomicU64::new(0),
            inputs: self.inputs.clone(),
            store: Arc::clone(&self.store),
            folder: self.folder.clone(),
            root: self.root.clone(),
            order: order.to_vec(),
            checked: self.checked.clone(),
        })
    }

    /// The output as the build's own linker wrote it.
    pub fn original(&self) -> Result<Bytes> {
        crate::open::map(&self.store.path(&self.captured.output_hash))
    }

    /// Links with nothing replaced below `scratch` and compares with the original, byte by byte. A random build id
    /// (`--build-id=uuid`) alone may differ.
    pub fn prove_pass_through(&self, scratch: &Path) -> Result<()> {
        let doing = || format!("repeating the link of {}", self.captured.name);
        let folder = tempfile::tempdir_in(scratch).map_err(|e| Error::io(doing(), e))?;
        let again = folder.path().join(file_name(&self.captured.output));
        self.relink(&BTreeMap::new(), &again)?;
        let (again, original) = (crate::open::map(&again)?, self.original()?);
        if *again == *original {
            return Ok(());
        }
        if self.captured.random_build_id() && without_build_id(&again) == without_build_id(&original) {
            return Ok(());
        }
        let at = again.iter().zip(original.iter()).position(|(a, b)| a != b).unwrap_or(again.len().min(original.len()));
        let problem =
            format!("the bytes differ from offset {at:#x} on ({} bytes against {})", again.len(), original.len());
        let hint = match self.captured.holds_its_path() {
            true => "link with -soname: without it gold writes the output's path into a shared object",
            false => "look at the capture's problems; a linker that is not deterministic cannot be varied",
        };
        Err(Error::input(doing(), problem).hint(hint))
    }

    /// The linker, its plugins, what is read in place and the store's copies are what they were when captured.
    fn check(&self) -> Result<()> {
        let check = || -> std::result::Result<(), String> {
            let c = &self.captured;
            let in_place = c.inputs.iter().filter(|s| s.in_place).map(|s| (s.path.clone(), &s.input.hash));
            let plugins = c.in_place.iter().map(|p| (p.path.clone(), &p.hash));
            let linker = [(c.linker.path.clone(), &c.linker.hash)].into_iter();
            let copies = c.inputs.iter().map(|s| (self.store.path(&s.input.hash), &s.input.hash));
            for (path, hash) in linker.chain(plugins).chain(in_place).chain(copies) {
                match store::hash_file(&path) {
                    Ok(now) if now == *hash => {}
                    Ok(_) => return Err(format!("{} is not the file that it was when captured", path.display())),
                    Err(e) => return Err(format!("{} is gone: {}", path.display(), e.problem)),
                }
            }
            Ok(())
        };
        self.checked.get_or_init(check).clone().map_err(|problem| {
            Error::input(format!("repeating the link of {}", self.captured.name), problem)
                .hint("capture the build again")
        })
    }

    /// Lays the inputs below `scratch`; returns where each one lies.
    fn lay(&self, scratch: &Path, replaced: &BTreeMap<usize, Vec<u8>>) -> Result<Vec<PathBuf>> {
        let inputs = &self.captured.inputs;
        let places: Vec<PathBuf> = inputs.iter().map(|s| mirror(scratch, &self.root, &s.path)).collect();
        let moved: HashMap<&Path, &Path> = inputs
            .iter()
            .zip(&places)
            .filter(|(s, _)| !s.in_place)
            .map(|(s, place)| (s.path.as_path(), place.as_path()))
            .collect();
        for (number, (stored, place)) in inputs.iter().zip(&places).enumerate() {
            let doing = |e| Error::io(format!("laying {} below {}", stored.input.name, scratch.display()), e);
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent).map_err(doing)?;
            }
            let copy = self.store.path(&stored.input.hash);
            match (replaced.get(&number), stored.form) {
                (Some(bytes), _) => fs::write(place, bytes).map_err(doing)?,
                (None, Form::Script) => {
                    let text = fs::read(&copy).map_err(doing)?;
                    let sysroot = self.captured.sysroot.as_deref();
                    fs::write(place, script::repoint(&text, sysroot, &moved)).map_err(doing)?;
                }
                // A symbolic link: nothing is copied, and linkers print the name they open.
                (None, _) => symlink(&copy, place).map_err(doing)?,
            }
        }
        self.lay_first(scratch, &places)?;
        Ok(places)
    }

    fn lay_first(&self, scratch: &Path, places: &[PathBuf]) -> Result<()> {
        let first = scratch.join("first");
        let doing = |e| Error::io(format!("laying files below {}", first.display()), e);
        fs::create_dir(&first).map_err(doing)?;
        for (stored, place) in self.captured.inputs.iter().zip(places).filter(|(s, _)| s.searched) {
            match symlink(place, first.join(file_name(&stored.path))) {
                // Two of one name: the one that the linker met first stays.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                other => other.map_err(doing)?,
            }
        }
        Ok(())
    }

    fn command(&self, scratch: &Path, places: &[PathBuf], output: &Path) -> Result<Command> {
        let c = &self.captured;
        let folder = mirror(scratch, &self.root, &c.folder);
        fs::create_dir_all(&folder).map_err(|e| Error::io(format!("making {}", folder.display()), e))?;
        let mut command = Command::new(&c.linker.path);
        command.arg0(&c.linker.argv0).current_dir(&folder);
        // `-flavor gnu` has to come first.
        let flavor = matches!(c.words.first(), Some(Word::Plain(w)) if w == "-flavor");
        let (before, after) = c.words.split_at(if flavor { c.words.len().min(2) } else { 0 });
        let written = |words: &[Word]| words.iter().map(|w| self.written(w, scratch, places)).collect::<Vec<_>>();
        command.args(written(before));
        command.arg(option("-L", &scratch.join("first"))).arg("-rpath-link").arg(scratch.join("first"));
        command.args(written(after)).arg("-o").arg(output);
        command.arg(option("-Map=", &scratch.join("map")));
        command.arg(option("--dependency-file=", &scratch.join("dependencies")));
        command.env_clear().envs(&c.environment).env("LC_ALL", "C");
        if c.environment.get("TMPDIR").is_some_and(|t| !Path::new(t).is_dir()) {
            command.env_remove("TMPDIR");
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn written(&self, word: &Word, scratch: &Path, places: &[PathBuf]) -> std::ffi::OsString {
        match word {
            Word::Plain(text) => text.into(),
            Word::Folder { prefix, text } => {
                let mirrored = |part: &str| match Path::new(part).strip_prefix(&self.root) {
                    Ok(_) => mirror(scratch, &self.root, Path::new(part)).to_string_lossy().into_owned(),
                    Err(_) => part.to_owned(),
                };
                format!("{prefix}{}", text.split(':').map(mirrored).collect::<Vec<_>>().join(":")).into()
            }
            Word::Input { prefix, text, input } => {
                let stored = input.and_then(|i| Some((self.captured.inputs.get(i)?, places.get(i)?)));
                match stored {
                    Some((s, place)) if !self.as_written(s, text) => option(prefix, place),
                    _ => format!("{prefix}{text}").into(),
                }
            }
        }
    }

    fn as_written(&self, stored: &Stored, text: &str) -> bool {
        stored.in_place || paths::relative_means(&self.root, &self.captured.folder, text, &stored.path)
    }

    /// Names as the map prints them → inputs. The linker must have read nothing but what was laid for it.
    fn files(&self, scratch: &Path, places: &[PathBuf]) -> Result<BTreeMap<String, usize>> {
        let rule = scratch.join("dependencies");
        let text = fs::read(&rule).map_err(|e| Error::io("reading which files the linker opened", e))?;
        let folder = mirror(scratch, &self.root, &self.captured.folder);
        let by_place: HashMap<&Path, usize> = places.iter().enumerate().map(|(i, p)| (p.as_path(), i)).collect();
        let mut files = BTreeMap::new();
        for name in paths::dependencies(&String::from_utf8_lossy(&text)) {
            let Some(path) = paths::resolve(&folder, &name) else { continue };
            let place = if path.parent() == Some(scratch.join("first").as_path()) {
                fs::read_link(&path).unwrap_or(path)
            } else {
                path
            };
            if let Some(index) = by_place.get(place.as_path()) {
                files.insert(plain(&name), *index);
            } else if !self.read_in_place(&place) {
                return Err(Error::input(
                    format!("repeating the link of {}", self.captured.name),
                    format!("the linker read {}, which is not part of the capture", place.display()),
                )
                .hint("capture the build again"));
            } else if let Some(index) = self.captured.inputs.iter().position(|s| s.path == place) {
                files.insert(plain(&name), index);
            }
        }
        Ok(files)
    }

    /// A file of the system that is as it was: found past `first/`, or one that has to be read where it is.
    fn read_in_place(&self, path: &Path) -> bool {
        let c = &self.captured;
        let same = |hash: &str| store::hash_file(path).is_ok_and(|now| now == hash);
        c.in_place.iter().any(|p| p.path == path)
            || c.inputs.iter().any(|s| s.path == path && (s.input.system || s.in_place) && same(&s.input.hash))
    }
}

impl Relink for Link {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn order(&self) -> &[String] {
        &self.order
    }

    fn bytes(&self, input: usize) -> Result<Bytes> {
        let doing = "reading an input of the link";
        let input = self.inputs.get(input).ok_or_else(|| Error::input(doing, format!("there is no input {input}")))?;
        let path = self.store.path(&input.hash);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() == 0 => Ok(Bytes::Owned(Vec::new())),
            _ => crate::open::map(&path),
        }
    }

    fn folds(&self) -> bool {
        self.captured.folds()
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked> {
        let doing = || format!("linking {}", output.display());
        self.check()?;
        if let Some(bad) = replaced.keys().find(|i| self.captured.inputs.get(**i).is_none_or(|s| s.in_place)) {
            return Err(Error::input(doing(), format!("input {bad} cannot be replaced")));
        }
        let scratches = self.folder.join("scratch");
        fs::create_dir_all(&scratches).map_err(|e| Error::io(doing(), e))?;
        let scratch =
            tempfile::Builder::new().prefix("link-").tempdir_in(&scratches).map_err(|e| Error::io(doing(), e))?;
        let places = self.lay(scratch.path(), replaced)?;
        let parent = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize().map_err(|e| Error::io(doing(), e))?;
        let beside = tempfile::Builder::new().prefix(".link-").tempdir_in(parent).map_err(|e| Error::io(doing(), e))?;
        let made = beside.path().join(file_name(output));
        let mut command = self.command(scratch.path(), &places, &made)?;
        let began = Instant::now();
        let run = command.output().map_err(|e| Error::io(doing(), e))?;
        self.linked_for.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        if !run.status.success() {
            let said = String::from_utf8_lossy(&run.stderr);
            let said = said.lines().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
            let problem = format!("{}: {said}", run.status);
            return Err(Error::input(doing(), problem.replace(&scratch.path().display().to_string(), "")));
        }
        let map = fs::read(scratch.path().join("map")).map_err(|e| Error::io("reading the link map", e))?;
        let files = self.files(scratch.path(), &places)?;
        // Whole under its name at once, but not forced to the disk: nothing that is linked here must outlive a power cut.
        fs::rename(&made, output).map_err(|e| Error::io(doing(), e))?;
        Ok(Linked { map: String::from_utf8_lossy(&map).into_owned(), files })
    }
}

/// The file with the build id's bytes set to zero.
fn without_build_id(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let id = super::content::build_id(&bytes).unwrap_or_default();
    if !id.is_empty()
        && let Some(at) = bytes.windows(id.len()).position(|w| w == id)
        && let Some(place) = bytes.get_mut(at..at + id.len())
    {
        place.fill(0);
    }
    bytes
}
