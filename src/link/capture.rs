//! Runs a build, watched, and stores every link it did.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::link::hold::Session;
use crate::link::store::Store;
use crate::link::stored::{Capture, Captured, SCHEMA, Unseen};
use crate::link::{content, trace};

/// The build command.
#[derive(Clone, Debug)]
pub enum Build {
    /// Run by `sh -c`.
    Shell(String),
    /// A program and its arguments; the program is looked for in `PATH`.
    Words(Vec<OsString>),
}

/// What to capture, and where to.
#[derive(Clone, Debug)]
pub struct Request {
    pub build: Build,
    /// The tree: the build runs in it, and inputs are named relative to it.
    pub dir: PathBuf,
    /// The capture's folder; made where there is none, what is in it is replaced.
    pub store: PathBuf,
    /// The link that is wanted, a glob ([`Capture::select`]); several matches or none fail at once.
    pub link: Option<String>,
    /// Asked now and then; once it says yes, the build and all that it started are killed.
    pub stop: Option<fn() -> bool>,
}

/// Builds and captures. Blocks; the build's own output goes to `build.log`, its end is shown when it fails.
pub fn capture(request: &Request) -> Result<Capture> {
    // ptrace and wait belong to one thread: in one of our own no child of the caller's is reaped by mistake.
    std::thread::scope(|scope| match scope.spawn(|| captured(request)).join() {
        Ok(result) => result,
        Err(_) => Err(Error::machine("capturing the build", "the watching thread died")),
    })
}

fn captured(request: &Request) -> Result<Capture> {
    let root = request.dir.canonicalize().map_err(|e| Error::io(format!("opening {}", request.dir.display()), e))?;
    let making = |e| Error::io(format!("making the capture {}", request.store.display()), e);
    fs::create_dir_all(&request.store).map_err(making)?;
    let folder = request.store.canonicalize().map_err(making)?;
    drop(fs::remove_file(folder.join("capture.json")));
    let store = Store::open(folder.join("objects"))?;
    // What an earlier capture left when it was killed.
    drop(fs::remove_dir_all(folder.join("scratch")));
    fs::create_dir_all(folder.join("scratch")).map_err(making)?;
    let scratch = tempfile::tempdir_in(folder.join("scratch")).map_err(making)?;
    let started = now_on_disk(scratch.path()).map_err(making)?;

    let mut session = Session::new(&root, &store, scratch.path(), started);
    let log = folder.join("build.log");
    let ended = trace::run(command(request, &root, &log)?, &mut session, request.stop)?;
    check_ended(&request.build, ended.status, &log)?;

    let mut capture = Capture {
        schema: SCHEMA.to_owned(),
        command: request.build.words(),
        links: Vec::new(),
        unseen: Vec::new(),
        skipped: std::mem::take(&mut session.skipped),
        problems: std::mem::take(&mut session.problems),
        store: folder.clone(),
        root: root.clone(),
    };
    if ended.outlived > 0 {
        capture.problems.push(format!("{} processes of the build went on running after it", ended.outlived));
    }
    let written = written_since(&root, &folder, started);
    settle(&mut capture, session.finished, &written, started);
    capture.unseen = unseen(&capture, &written, &session.lost);
    capture.tidy(&store)?;
    capture.save()?;
    if capture.links.is_empty() {
        return Err(linked_nothing(&capture));
    }
    if let Some(glob) = &request.link {
        capture.select(Some(glob))?;
    }
    Ok(capture)
}

impl Build {
    fn words(&self) -> Vec<String> {
        match self {
            Build::Shell(script) => vec!["sh".to_owned(), "-c".to_owned(), script.clone()],
            Build::Words(words) => words.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        }
    }

    fn shown(&self) -> String {
        match self {
            Build::Shell(script) => script.clone(),
            Build::Words(_) => self.words().join(" "),
        }
    }
}

/// The clock that stamps files, which lags behind the real one by up to a tick.
fn now_on_disk(folder: &Path) -> std::io::Result<SystemTime> {
    tempfile::tempfile_in(folder)?.metadata()?.modified()
}

fn command(request: &Request, root: &Path, log: &Path) -> Result<Command> {
    let mut command = Command::new("/bin/sh");
    match &request.build {
        Build::Shell(script) => {
            command.arg("-c").arg(format!("{}exec /bin/sh -c \"$1\" </dev/null", trace::GATE)).arg("sh").arg(script)
        }
        Build::Words(words) if !words.is_empty() => {
            command.arg("-c").arg(format!("{}exec \"$@\" </dev/null", trace::GATE)).arg("sh").args(words)
        }
        Build::Words(_) => {
            return Err(Error::input("capturing the build", "there is no build command").hint("-- make"));
        }
    };
    let io = |e| Error::io(format!("writing {}", log.display()), e);
    let out = File::create(log).map_err(io)?;
    // One open file, so that both streams stay in order.
    command.current_dir(root).stdout(out.try_clone().map_err(io)?).stderr(out);
    Ok(command)
}

/// The build's own last lines, when it failed.
fn check_ended(build: &Build, status: libc::c_int, log: &Path) -> Result<()> {
    const LINES: usize = 20;
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    let how = if libc::WIFSIGNALED(status) {
        format!("it was killed by signal {}", libc::WTERMSIG(status))
    } else {
        format!("it ended with status {}", libc::WEXITSTATUS(status))
    };
    let text = end_of(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n  ");
    let said = if tail.is_empty() {
        "it printed nothing".to_owned()
    } else {
        format!("the end of its output, all of it in {}:\n  {tail}", log.display())
    };
    Err(Error::input(format!("running the build `{}`", build.shown()), format!("{how}; {said}")))
}

/// The last 64 KiB of a file: a build's log may be larger than memory.
fn end_of(log: &Path) -> std::io::Result<String> {
    const END: u64 = 64 << 10;
    let mut file = File::open(log)?;
    let from = file.metadata()?.len().saturating_sub(END);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// A linked ELF file written since the build started.
struct Written {
    path: PathBuf,
    hash: String,
    build_id: Option<Vec<u8>>,
}

/// By ctime, which `cp -p` and `touch -d` cannot set back.
fn written_since(root: &Path, folder: &Path, started: SystemTime) -> Vec<Written> {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let since = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                let ours = path == folder || matches!(entry.file_name().to_str(), Some(".straddle" | ".git"));
                if !ours {
                    folders.push(path);
                }
            } else if meta.is_file() && meta.len() > 0 && (meta.ctime(), meta.ctime_nsec()) >= since {
                let Ok(bytes) = crate::open::map(&path) else { continue };
                if content::is_linked_elf(&bytes) == Some(true) {
                    let (hash, build_id) = (blake3::hash(&bytes).to_hex().to_string(), content::build_id(&bytes));
                    found.push(Written { path, hash, build_id });
                }
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Keeps the last link of each output that is still there, follows outputs that were renamed, names the inputs.
fn settle(capture: &mut Capture, finished: Vec<Captured>, written: &[Written], started: SystemTime) {
    let mut skipped = std::mem::take(&mut capture.skipped);
    let mut skip = |reason: &str| *skipped.entry(reason.to_owned()).or_default() += 1;
    let by_hash: HashMap<&str, &Path> = written.iter().map(|w| (w.hash.as_str(), w.path.as_path())).collect();
    let by_id: HashMap<&[u8], &Path> =
        written.iter().filter_map(|w| Some((w.build_id.as_deref()?, w.path.as_path()))).collect();
    let mut links: Vec<Captured> = Vec::new();
    let mut taken: HashSet<PathBuf> = HashSet::new();
    for mut link in finished.into_iter().rev() {
        if !link.output.exists() {
            let kept = crate::open::map(&capture.object(&link.output_hash));
            let id = kept.ok().and_then(|b| content::build_id(&b));
            let now = by_hash.get(link.output_hash.as_str()).or_else(|| by_id.get(id.as_deref()?)).copied();
            let Some(now) = now else {
                skip("the output was gone at the end of the build");
                continue;
            };
            link.output = now.to_owned();
            link.name = now.strip_prefix(&capture.root).unwrap_or(now).to_string_lossy().into_owned();
        }
        if !taken.insert(link.output.clone()) {
            skip("linked again later in the build");
            continue;
        }
        link.post_processed = match by_hash.get(link.output_hash.as_str()) {
            Some(path) if *path == link.output => false,
            _ => super::store::hash_file(&link.output).is_ok_and(|h| h != link.output_hash),
        };
        let copies = written.iter().filter(|w| w.hash == link.output_hash && w.path != link.output);
        let below = |w: &Written| Some(w.path.strip_prefix(&capture.root).ok()?.to_string_lossy().into_owned());
        link.copies = copies.filter_map(below).collect();
        link.ordered_by.extend(optimised_later(&link.output));
        name_temporaries(&mut link, capture, started);
        links.push(link);
    }
    links.reverse();
    capture.links = links;
    capture.skipped = skipped;
}

/// What has laid out, or is meant to lay out, the linked file after the link.
fn optimised_later(output: &Path) -> Option<String> {
    let bytes = crate::open::map(output).ok()?;
    let has = |name: &str| content::has_section(&bytes, name);
    if has(".bolt.") || has(".note.bolt_info") {
        return Some("BOLT, after the link".to_owned());
    }
    has(".llvm_bb_addr_map").then(|| "a post-link optimiser, if one follows (.llvm_bb_addr_map)".to_owned())
}

/// A compiler's temporary is gone by now: it is named after the source that it was compiled from (`temporary:hot.c`).
/// Rejected: its place among the temporaries, which shifts when a patch adds a source. An object that names no source
/// still gets its place among those of its kind.
fn name_temporaries(link: &mut Captured, capture: &Capture, started: SystemTime) {
    let mut taken = HashSet::new();
    let mut nameless = 0;
    for stored in &mut link.inputs {
        let folder_gone = stored.path.parent().is_some_and(|p| !p.exists());
        let outside = stored.path.strip_prefix(&capture.root).is_err();
        let new = |m: fs::Metadata| m.modified().is_ok_and(|t| t >= started);
        if !stored.path.exists() && (outside || folder_gone) {
            let bytes = crate::open::map(&capture.object(&stored.input.hash));
            let name = match bytes.ok().and_then(|b| content::source(&b)) {
                Some(source) => free_name(format!("temporary:{source}"), &mut taken),
                None => {
                    nameless += 1;
                    let extension = stored.path.extension().unwrap_or_default().to_string_lossy();
                    format!("temporary#{nameless}.{extension}")
                }
            };
            for lto in link.lto.iter_mut().filter(|l| **l == stored.input.name) {
                lto.clone_from(&name);
            }
            stored.input.name = name;
            stored.input.system = false;
        } else if outside && fs::metadata(&stored.path).is_ok_and(new) {
            stored.input.system = false;
        }
    }
}

/// `name`, `name#2`, …: two folders may each have a source of that name.
fn free_name(name: String, taken: &mut HashSet<String>) -> String {
    let mut free = name.clone();
    let mut number = 1;
    while !taken.insert(free.clone()) {
        number += 1;
        free = format!("{name}#{number}");
    }
    free
}

/// Linked files that no captured link made, by path, content or build id.
fn unseen(capture: &Capture, written: &[Written], lost: &[(PathBuf, String)]) -> Vec<Unseen> {
    let outputs: HashSet<&Path> = capture.links.iter().map(|l| l.output.as_path()).collect();
    let hashes: HashSet<&str> = capture.links.iter().map(|l| l.output_hash.as_str()).collect();
    let inputs: HashSet<&str> = capture.links.iter().flat_map(|l| &l.inputs).map(|s| s.input.hash.as_str()).collect();
    let id = |l: &Captured| content::build_id(&crate::open::map(&capture.object(&l.output_hash)).ok()?);
    let ids: HashSet<Vec<u8>> = capture.links.iter().filter_map(id).collect();
    let known = |w: &Written| {
        outputs.contains(w.path.as_path())
            || hashes.contains(w.hash.as_str())
            || inputs.contains(w.hash.as_str()) && !w.path.exists()
            || w.build_id.as_ref().is_some_and(|id| ids.contains(id))
    };
    let how = |w: &Written| {
        if let Some((_, why)) = lost.iter().find(|(output, _)| *output == w.path) {
            return why.clone();
        }
        let by = crate::open::map(&w.path).ok().and_then(|b| content::linked_by(&b));
        match by {
            Some(by) => format!("it was linked by {by}, in a process that this build did not start (a daemon, a sandbox), or copied here"),
            None => "it was copied here, made from another file, or linked by a process that this build did not start (a daemon, a sandbox)".to_owned(),
        }
    };
    let name = |w: &Written| w.path.strip_prefix(&capture.root).unwrap_or(&w.path).to_string_lossy().into_owned();
    written.iter().filter(|w| !known(w)).map(|w| Unseen { path: name(w), how: how(w) }).collect()
}

fn linked_nothing(capture: &Capture) -> Error {
    let doing = "capturing the build";
    if let Some(first) = capture.unseen.first() {
        let more = match capture.unseen.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        return Error::input(
            doing,
            format!("no link was captured, yet {}{more} was written: {}", first.path, first.how),
        );
    }
    if let Some(problem) = capture.problems.first() {
        return Error::input(doing, problem.clone());
    }
    if !capture.skipped.is_empty() {
        let reasons: BTreeMap<_, _> = capture.skipped.iter().collect();
        let reasons: Vec<String> = reasons.iter().map(|(why, n)| format!("{n}: {why}")).collect();
        return Error::input(doing, format!("the build linked nothing that is left ({})", reasons.join("; ")));
    }
    Error::input(doing, "the build linked nothing: it is up to date")
        .hint("clean the tree first (`make clean`, `cargo clean`, a fresh build folder)")
}
