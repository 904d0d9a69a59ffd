//! What happens while a linker is held at its exec stop: the same link is done beside it, and its inputs are stored.
//!
//! The link done beside tells all files it reads (`--dependency-file`), those too that are on no command line:
//! `-lfoo`, start files, scripts named by scripts. Rejected: changing the held linker's own arguments.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use libc::{c_int, pid_t};

use crate::error::{Error, Result};
use crate::link::store::{self, Store};
use crate::link::stored::{Captured, ENVIRONMENT, Form, InPlace, Linker, Makes, Stored};
use crate::link::trace::{Next, Watch};
use crate::link::words::{self, Word, Words};
use crate::link::{Input, content, paths, thin};

/// Everything gathered while the build runs.
pub struct Session<'a> {
    pub root: &'a Path,
    pub store: &'a Store,
    /// Where the links beside are done.
    pub scratch: &'a Path,
    pub started: SystemTime,
    /// Finished links in the order in which they ended.
    pub finished: Vec<Captured>,
    pub skipped: BTreeMap<String, usize>,
    pub problems: Vec<String>,
    /// Outputs whose link could not be captured, and why.
    pub lost: Vec<(PathBuf, String)>,
    held: HashMap<pid_t, Held>,
    linking: HashMap<pid_t, Linking>,
    /// Processes that are a captured link: what they start or become is part of it.
    linkers: HashSet<pid_t>,
    lto_members: HashMap<String, Vec<String>>,
}

/// A linker that was let go.
enum Linking {
    /// Captured; the hash of what the link beside made.
    Captured(Box<Captured>, String),
    /// The link beside failed, for this reason. So will this one, mostly: build scripts try what works.
    Lost(PathBuf, String),
}

/// A linker at its exec stop.
struct Held {
    program: PathBuf,
    argv0: String,
    words: Words,
    folder: PathBuf,
    environment: BTreeMap<String, String>,
    beside: tempfile::TempDir,
    output: PathBuf,
}

impl<'a> Session<'a> {
    pub fn new(root: &'a Path, store: &'a Store, scratch: &'a Path, started: SystemTime) -> Session<'a> {
        Session {
            root,
            store,
            scratch,
            started,
            finished: Vec::new(),
            skipped: BTreeMap::new(),
            problems: Vec::new(),
            lost: Vec::new(),
            held: HashMap::new(),
            linking: HashMap::new(),
            linkers: HashSet::new(),
            lto_members: HashMap::new(),
        }
    }

    pub fn skip(&mut self, reason: &str) {
        *self.skipped.entry(reason.to_owned()).or_default() += 1;
    }

    /// Reads what a stopped linker is about to do; `None` lets it go.
    fn read(&self, pid: pid_t, program: PathBuf) -> std::result::Result<Option<Held>, &'static str> {
        let line = fs::read(proc(pid, "cmdline")).map_err(|_| "its command line could not be read")?;
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let line: Option<Vec<String>> =
            line.strip_suffix(b"\0").unwrap_or(&line).split(|b| *b == 0).map(utf8).collect();
        let Some((argv0, args)) = line.as_deref().and_then(<[String]>::split_first) else {
            return Err("its command line is not UTF-8");
        };
        if args.first().is_some_and(|a| matches!(a.as_str(), "-run" | "--run")) {
            return Ok(None); // `mold -run make`: not a link but a build.
        }
        let folder = fs::read_link(proc(pid, "cwd")).map_err(|_| "its folder could not be read")?;
        let args = words::expand(args, &|file| crate::open::text(&folder.join(file)).ok());
        let words = Words::read(&args);
        if !words.links_something() {
            return Ok(None);
        }
        let beside = tempfile::tempdir_in(self.scratch).map_err(|_| "there is no room for a scratch folder")?;
        let output = paths::resolve(&folder, &words.output).ok_or("its output's folder does not exist")?;
        let environment = environment(pid).into_iter().filter_map(|(k, v)| {
            let (k, v) = (k.into_string().ok()?, v.into_string().ok()?);
            ENVIRONMENT.contains(&k.as_str()).then_some((k, v))
        });
        let (environment, argv0) = (environment.collect(), argv0.clone());
        Ok(Some(Held { program, argv0, words, folder, environment, beside, output }))
    }

    /// Turns a link that was done beside into one that can be done again.
    fn gather(&mut self, held: Held) -> Result<(Captured, String)> {
        let read = |name: &str| {
            fs::read(held.beside.path().join(name))
                .map(|b| String::from_utf8_lossy(&b).into_owned())
                .unwrap_or_default()
        };
        let (map, rule) = (read("map"), read("dependencies"));
        let mut link = Captured {
            name: self.name(&held.output),
            makes: makes(&held.words),
            output_hash: String::new(),
            output: held.output,
            copies: Vec::new(),
            post_processed: false,
            linker: Linker { hash: self.store.put_file(&held.program)?, path: held.program, argv0: held.argv0 },
            sysroot: held.words.sysroot.clone(),
            words: held.words.words,
            folder: held.folder,
            environment: held.environment,
            inputs: Vec::new(),
            in_place: Vec::new(),
            lto: Vec::new(),
            ordered_by: Vec::new(),
        };
        for plugin in held.words.plugins {
            let path = link.folder.join(plugin);
            link.in_place.push(InPlace { hash: store::hash_file(&path)?, path });
        }
        self.gather_inputs(&mut link, &paths::dependencies(&rule), &map)?;
        link.ordered_by = link.ordering_options().map(str::to_owned).collect();
        link.ordered_by.extend(self.profile(&link));
        let beside = store::hash_file(&held.beside.path().join("out").join(file_name(&link.output)))?;
        Ok((link, beside))
    }

    fn gather_inputs(&mut self, link: &mut Captured, opened: &[String], map: &str) -> Result<()> {
        let mut index: HashMap<PathBuf, usize> = HashMap::new();
        let named =
            |w: &Word| if let Word::Input { text, .. } = w { locate(&link.folder, &link.words, text) } else { None };
        let arguments: Vec<PathBuf> = link.words.iter().filter_map(named).collect();
        let resolved: Vec<(PathBuf, &str)> =
            opened.iter().filter_map(|o| Some((paths::resolve(&link.folder, o)?, o.as_str()))).collect();
        let also = arguments.iter().map(|p| (p.clone(), ""));
        for (path, name) in resolved.iter().cloned().chain(also) {
            if link.in_place.iter().any(|p| p.path == path) || !path.is_file() {
                continue;
            }
            if !index.contains_key(&path) {
                let mut stored = self.take_in(&path)?;
                stored.searched = !arguments.contains(&path);
                index.insert(path.clone(), link.inputs.len());
                self.look_for_lto(link, &stored, name, map)?;
                link.inputs.push(stored);
            }
        }
        let (folder, words) = (link.folder.clone(), link.words.clone());
        for word in &mut link.words {
            match word {
                Word::Input { text, input, .. } => {
                    *input = locate(&folder, &words, text).and_then(|p| index.get(&p).copied());
                    if let Some(stored) = input.and_then(|i| link.inputs.get_mut(i)) {
                        let kept = paths::relative_means(self.root, &folder, text, &stored.path);
                        stored.in_place |= !kept && stored.form == Form::SharedObject && self.nameless(stored)?;
                    }
                }
                Word::Folder { text, .. } => *text = absolute_folders(&folder, text),
                Word::Plain(_) => {}
            }
        }
        Ok(())
    }

    /// Stores one input. A thin archive becomes an ordinary one.
    fn take_in(&mut self, path: &Path) -> Result<Stored> {
        let mut hash = self.store.put_file(path)?;
        let mut form = Form::Script;
        if fs::metadata(path).is_ok_and(|m| m.len() > 0) {
            let bytes = crate::open::map(&self.store.path(&hash))?;
            form = content::form(&bytes);
            if thin::is_thin(&bytes) {
                let folder = path.parent().unwrap_or(Path::new("/"));
                let read = |member: &Path| {
                    let member = folder.join(member);
                    fs::read(&member).map_err(|e| Error::io(format!("reading {}", member.display()), e))
                };
                hash = self.store.put_bytes(&thin::flatten(&path.display().to_string(), &bytes, &read)?)?;
            }
        }
        let outside = path.strip_prefix(self.root).is_err();
        let old = fs::metadata(path).and_then(|m| m.modified()).is_ok_and(|t| t < self.started);
        let input = Input { name: self.name(path), system: outside && old, hash };
        Ok(Stored { input, path: path.to_owned(), form, searched: false, in_place: false })
    }

    fn nameless(&self, stored: &Stored) -> Result<bool> {
        Ok(!content::has_soname(&crate::open::map(&self.store.path(&stored.input.hash))?))
    }

    fn name(&self, path: &Path) -> String {
        path.strip_prefix(self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// An object counts as it is, a member of an archive only if the map says that it was taken in.
    fn look_for_lto(&mut self, link: &mut Captured, stored: &Stored, opened: &str, map: &str) -> Result<()> {
        let name = &stored.input.name;
        if !matches!(stored.form, Form::Object | Form::Archive) {
            return Ok(());
        }
        if !self.lto_members.contains_key(&stored.input.hash) {
            let bytes = crate::open::map(&self.store.path(&stored.input.hash))?;
            let members = match stored.form {
                Form::Archive => content::lto_members(&bytes),
                _ if content::is_lto(&bytes) => vec![String::new()],
                _ => Vec::new(),
            };
            self.lto_members.insert(stored.input.hash.clone(), members);
        }
        let compiled_late = [".ltrans", ".lto.", "lto.tmp"].iter().any(|late| map.contains(late));
        for member in self.lto_members.get(&stored.input.hash).into_iter().flatten() {
            if member.is_empty() {
                link.lto.push(name.clone());
            } else if map.contains(&format!("{opened}({member})")) || compiled_late {
                link.lto.push(format!("{name}({member})"));
            }
        }
        Ok(())
    }

    /// lld sorts functions by the call graph that a profile left in the objects.
    fn profile(&self, link: &Captured) -> Option<String> {
        const PROFILE: &str = ".llvm.call-graph-profile";
        let lld = link.linker.path.to_string_lossy().contains("lld");
        let off = link.words.iter().any(|w| {
            matches!(w, Word::Plain(text) if matches!(text.trim_start_matches('-'), "no-call-graph-profile-sort" | "call-graph-profile-sort=none"))
        });
        let objects = link.inputs.iter().filter(|s| lld && !off && matches!(s.form, Form::Object | Form::Archive));
        let sorted = |s: &&Stored| {
            crate::open::map(&self.store.path(&s.input.hash)).is_ok_and(|b| content::has_section(&b, PROFILE))
        };
        let found = objects.filter(|s| !s.input.system).find(sorted)?;
        Some(format!("a profile ({PROFILE} in {})", found.input.name))
    }

    fn inside_a_link(&self, pid: pid_t) -> bool {
        let mut at = pid;
        while at > 1 {
            if self.linkers.contains(&at) {
                return true;
            }
            let Ok(status) = fs::read_to_string(proc(at, "status")) else { return false };
            let parent = status.lines().find_map(|l| l.strip_prefix("PPid:")).and_then(|p| p.trim().parse().ok());
            let Some(parent) = parent else { return false };
            at = parent;
        }
        false
    }
}

impl Watch for Session<'_> {
    fn exec(&mut self, pid: pid_t) -> Result<Next> {
        let Ok(program) = fs::read_link(proc(pid, "exe")) else { return Ok(Next::Go) };
        if !is_linker(&program) {
            return Ok(Next::Go);
        }
        // rustc's `gcc-ld/ld.lld` turns into `rust-lld`: a replay needs both.
        if let Some(Linking::Captured(link, _)) = self.linking.get_mut(&pid) {
            link.in_place.push(InPlace { hash: store::hash_file(&program)?, path: program });
            return Ok(Next::Go);
        }
        if self.inside_a_link(pid) {
            return Ok(Next::Go);
        }
        match self.read(pid, program) {
            Ok(None) => Ok(Next::Go),
            Ok(Some(held)) => {
                let child = beside(&held, environment(pid))?;
                self.held.insert(pid, held);
                Ok(Next::HoldFor(child))
            }
            Err(why) => {
                self.skip(why);
                Ok(Next::Go)
            }
        }
    }

    fn ended(&mut self, pid: pid_t, status: c_int) -> Result<Next> {
        let Some(held) = self.held.remove(&pid) else { return Ok(Next::Go) };
        let made = held.beside.path().join("out").join(file_name(&held.output)).is_file();
        if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 && made) {
            let said = fs::read_to_string(held.beside.path().join("said")).unwrap_or_default();
            let said = said.lines().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
            let why = format!("the same link, done beside the build by {}, failed: {said}", held.program.display());
            self.linking.insert(pid, Linking::Lost(held.output, why));
            return Ok(Next::GoAndTell);
        }
        let output = held.output.clone();
        match self.gather(held) {
            Ok((link, beside)) => {
                self.linking.insert(pid, Linking::Captured(Box::new(link), beside));
                self.linkers.insert(pid);
                Ok(Next::GoAndTell)
            }
            // A full disk ends the capture; an input that cannot be stored loses this link alone, and says so.
            Err(e) if e.kind == crate::error::Kind::Machine => Err(e),
            Err(e) => {
                self.linking.insert(pid, Linking::Lost(output, e.to_string()));
                Ok(Next::GoAndTell)
            }
        }
    }

    fn exiting(&mut self, pid: pid_t, status: c_int) -> Result<()> {
        self.linkers.remove(&pid);
        let Some(linking) = self.linking.remove(&pid) else { return Ok(()) };
        let output = match &linking {
            Linking::Captured(link, _) => &link.output,
            Linking::Lost(output, _) => output,
        };
        if status != 0 || !output.is_file() {
            self.skip("the linker failed (a probe that tries what works)");
            return Ok(());
        }
        let (mut link, beside) = match linking {
            Linking::Captured(link, beside) => (*link, beside),
            Linking::Lost(output, why) => {
                self.lost.push((output, why));
                return Ok(());
            }
        };
        link.output_hash = self.store.put_file(&link.output)?;
        if link.output_hash != beside && !link.random_build_id() && !link.holds_its_path() {
            let name = &link.name;
            self.problems.push(format!("{name}: the linker gave other bytes when the same link was done twice"));
        }
        self.finished.push(link);
        Ok(())
    }
}

/// Starts the same link, its output and what it says going to the scratch folder; its temporaries too. The tracer
/// reaps it. It leads a group of its own, which the tracer kills, and dies with us.
fn beside(held: &Held, environment: Vec<(OsString, OsString)>) -> Result<pid_t> {
    let doing = || format!("linking {} beside the build", held.output.display());
    let at = held.beside.path();
    let io = |e| Error::io(doing(), e);
    fs::create_dir(at.join("out")).map_err(io)?;
    let said = File::create(at.join("said")).map_err(io)?;
    let mut command = Command::new(&held.program);
    command.arg0(&held.argv0).args(held.words.written());
    command.arg("-o").arg(at.join("out").join(file_name(&held.output)));
    command.arg(option("-Map=", &at.join("map"))).arg(option("--dependency-file=", &at.join("dependencies")));
    if held.words.resolution {
        command.arg(option("-plugin-opt=-fresolution=", &at.join("resolution")));
    }
    command.current_dir(&held.folder).env_clear().envs(environment).env("LC_ALL", "C").env("TMPDIR", at);
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(io)?).stderr(said);
    command.process_group(0);
    // SAFETY: prctl is async-signal-safe, and takes plain numbers. The thread that spawns lives until the capture ends.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(io)?;
    Ok(child.id() as pid_t)
}

pub(super) fn option(prefix: &str, path: &Path) -> OsString {
    let mut option = OsString::from(prefix);
    option.push(path);
    option
}

fn proc(pid: pid_t, what: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{what}"))
}

fn environment(pid: pid_t) -> Vec<(OsString, OsString)> {
    let bytes = fs::read(proc(pid, "environ")).unwrap_or_default();
    let pairs = bytes.split(|b| *b == 0).filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        let (key, value) = pair.split_at_checked(at)?;
        Some((OsString::from_vec(key.to_vec()), OsString::from_vec(value.get(1..)?.to_vec())))
    });
    pairs.filter(|(k, _)| !k.is_empty()).collect()
}

/// By the name of the resolved executable: `ld`, `x86_64-linux-gnu-ld.bfd`, `ld.lld-14`, `rust-lld`, `mold`.
/// `collect2` is none: it starts one.
#[must_use]
pub fn is_linker(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let stem = if stem.len() < name.len() { stem.strip_suffix('-').unwrap_or(name) } else { name };
    let stem = [".bfd", ".gold", ".lld", ".mold", ".wild"].iter().find_map(|s| stem.strip_suffix(s)).unwrap_or(stem);
    ["ld", "gold", "lld", "mold", "wild"].contains(&stem.rsplit('-').next().unwrap_or(stem))
}

fn makes(words: &Words) -> Makes {
    match (words.relocatable, words.shared) {
        (true, _) => Makes::Relocatable,
        (_, true) => Makes::SharedObject,
        _ => Makes::Program,
    }
}

/// The file that a word names: seen from the linker's folder, else (ld(1), `-T`: scripts, which no dependency file
/// lists) in the folders that `-L` names.
fn locate(folder: &Path, words: &[Word], text: &str) -> Option<PathBuf> {
    let search =
        words.iter().filter_map(|w| if let Word::Folder { text, .. } = w { Some(text.as_str()) } else { None });
    let from = |at: PathBuf| paths::resolve(&at, text).filter(|p| p.is_file());
    from(folder.to_owned()).or_else(|| search.map(|at| folder.join(at)).find_map(from))
}

pub(super) fn file_name(path: &Path) -> &Path {
    path.file_name().map_or(Path::new("a.out"), Path::new)
}

fn absolute_folders(folder: &Path, list: &str) -> String {
    let absolute = |part: &str| {
        // `=` and `$SYSROOT` stand for the sysroot.
        if part.starts_with(['/', '=', '$']) {
            return part.to_owned();
        }
        folder.join(part).canonicalize().unwrap_or_else(|_| folder.join(part)).to_string_lossy().into_owned()
    };
    list.split(':').map(absolute).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linkers_are_known_by_name() {
        for yes in [
            "ld",
            "ld.bfd",
            "x86_64-linux-gnu-ld.bfd",
            "ld.gold",
            "ld.lld",
            "ld.lld-14",
            "lld",
            "rust-lld",
            "mold",
            "ld.mold",
            "lld-19",
            "aarch64-linux-gnu-ld",
            "ld (deleted)",
        ] {
            assert!(is_linker(Path::new(yes)), "{yes}");
        }
        for no in
            ["collect2", "gcc", "ld-linux-x86-64.so.2", "build", "old", "ldd", "ldconfig", "world", "ld.so", "cc1"]
        {
            assert!(!is_linker(Path::new(no)), "{no}");
        }
    }
}
