//! The slot: one absolute path at which both versions are built, one after the other.
//!
//! `__FILE__`, `env!` and debug information hold the path of the tree, so a copy beside would itself be a treatment.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Kind, Result};

/// Where a version comes from.
#[derive(Clone, Debug)]
pub enum Tree {
    Folder(PathBuf),
    Git { repo: PathBuf, rev: String },
}

/// What was laid into the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Populated {
    /// The commit, where it came from git.
    pub commit: Option<String>,
    pub files: usize,
    /// Submodules, which stay empty folders.
    pub submodules: Vec<String>,
    /// Where the folder named as the repository lies below its top level; empty at the top. The build that ran there
    /// runs in this folder of the slot.
    pub prefix: PathBuf,
    /// Sockets, pipes and devices, which are left out.
    pub left_out: Vec<PathBuf>,
}

/// Empties `slot` and lays the tree into it: contents, modes, modification times and symbolic links; `.straddle` is
/// left out. Only a folder that an earlier call made, or an empty one, is emptied.
pub fn populate_slot(source: &Tree, slot: &Path) -> Result<Populated> {
    match source {
        Tree::Folder(folder) => {
            let doing = || format!("copying {}", folder.display());
            let from = folder.canonicalize().map_err(|e| Error::io(doing(), e))?;
            if !from.is_dir() {
                return Err(Error::input(doing(), "it is not a folder"));
            }
            let slot = wipe(slot)?;
            if from.starts_with(&slot) || slot.strip_prefix(&from).is_ok_and(|b| !b.starts_with(".straddle")) {
                return Err(Error::input(doing(), format!("the slot {} and the tree overlap", slot.display())));
            }
            let mut done = Populated::default();
            copy_folder(&from, &slot, &from, &slot, &mut done)?;
            Ok(done)
        }
        Tree::Git { repo, rev } => {
            let Found { git_dir, commit, prefix } = find_commit(repo, rev)?;
            let slot = wipe(slot)?;
            let done = check_out(&git_dir, commit, &slot)?;
            if !slot.join(&prefix).is_dir() {
                let problem = format!("{rev} has no folder {}", prefix.display());
                return Err(Error::input(format!("checking out {rev}"), problem));
            }
            Ok(Populated { prefix, ..done })
        }
    }
}

/// The file beside the slot that says that we made it.
fn marker(slot: &Path) -> PathBuf {
    let mut name = slot.file_name().unwrap_or_default().to_owned();
    name.push(".is-a-straddle-slot");
    slot.with_file_name(name)
}

fn wipe(slot: &Path) -> Result<PathBuf> {
    let doing = || format!("emptying {}", slot.display());
    let io = |e| Error::io(doing(), e);
    let full = fs::read_dir(slot).is_ok_and(|mut entries| entries.next().is_some());
    if full && !marker(slot).exists() {
        return Err(
            Error::input(doing(), "it holds files that are not ours").hint("name a folder that does not exist yet")
        );
    }
    fs::create_dir_all(slot).map_err(io)?;
    fs::write(marker(slot), "").map_err(io)?;
    fs::remove_dir_all(slot).map_err(io)?;
    fs::create_dir(slot).map_err(io)?;
    slot.canonicalize().map_err(io)
}

fn copy_folder(from: &Path, to: &Path, top: &Path, slot: &Path, done: &mut Populated) -> Result<()> {
    let io = |e| Error::io(format!("copying {}", from.display()), e);
    for entry in fs::read_dir(from).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let io = |e| Error::io(format!("copying {}", source.display()), e);
        let kind = entry.file_type().map_err(io)?;
        if entry.file_name() == ".straddle" {
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&target).map_err(io)?;
            copy_folder(&source, &target, top, slot, done)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(io)?;
            symlink(repoint(&link, from, top, slot), &target).map_err(io)?;
            done.files += 1;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(io)?;
            keep_time(&source, &target).map_err(io)?;
            done.files += 1;
        } else {
            done.left_out.push(source);
        }
    }
    let mode = fs::metadata(from).map_err(io)?.permissions();
    keep_time(from, to).and_then(|()| fs::set_permissions(to, mode)).map_err(io)
}

/// Where a link of `folder` must point in the copy. An absolute link into the tree itself must lead into the copy, or the
/// build would leave the slot; a relative one that leads out of the tree must still find its file, from elsewhere.
fn repoint(link: &Path, folder: &Path, top: &Path, slot: &Path) -> PathBuf {
    if let Ok(below) = link.strip_prefix(top) {
        return slot.join(below);
    }
    match folder.join(link).canonicalize() {
        Ok(file) if link.is_relative() && !file.starts_with(top) => file,
        _ => link.to_owned(),
    }
}

fn keep_time(from: &Path, to: &Path) -> std::io::Result<()> {
    let meta = fs::metadata(from)?;
    let times = fs::FileTimes::new().set_modified(meta.modified()?).set_accessed(meta.accessed()?);
    match File::open(to) {
        Ok(file) => file.set_times(times),
        // Not readable even for its owner: the mode is the source's, the time is not worth failing for.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(e),
    }
}

/// Runs git; gives what it prints. A git that cannot be started is the machine's fault, one that says no the input's.
fn git(doing: &str, args: &[&str], set: impl FnOnce(&mut Command)) -> Result<String> {
    let mut command = Command::new("git");
    // A hook or an alias may have set these for another repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(variable);
    }
    set(command.args(args).env("LC_ALL", "C"));
    let out = command.output().map_err(|e| {
        let why = Error::io(doing, e).problem;
        Error::machine(doing, format!("git could not be started: {why}")).hint("install git, or name two folders")
    })?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim_end_matches('\n').to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said.lines().next().unwrap_or("it said nothing");
    Err(Error::input(doing, line.trim_start_matches("fatal: ")))
}

/// A revision that git knows.
struct Found {
    /// Absolute.
    git_dir: PathBuf,
    commit: String,
    prefix: PathBuf,
}

fn find_commit(repo: &Path, rev: &str) -> Result<Found> {
    let doing = format!("finding the revision {rev} in {}", repo.display());
    let at = |c: &mut Command| {
        c.current_dir(repo);
    };
    if !repo.is_dir() {
        return Err(Error::input(doing, "there is no such folder"));
    }
    let git_dir = git(&doing, &["rev-parse", "--absolute-git-dir"], at)?;
    let prefix = git(&doing, &["rev-parse", "--show-prefix"], at)?;
    let wanted = format!("{rev}^{{commit}}");
    let commit = git(&doing, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted], at).map_err(|e| {
        match e.kind {
            Kind::Input => Error::input(&doing, "git knows no such commit").hint("`git log --oneline` lists them"),
            Kind::Machine => e,
        }
    })?;
    // Without the slash at its end, so that it prints as a path does.
    let prefix = Path::new(&prefix).components().collect();
    Ok(Found { git_dir: PathBuf::from(git_dir), commit, prefix })
}

/// With an index of our own: neither the user's index nor their work tree is touched.
fn check_out(git_dir: &Path, commit: String, slot: &Path) -> Result<Populated> {
    let doing = format!("checking out {commit}");
    let index = tempfile::tempdir().map_err(|e| Error::io(&doing, e))?;
    let at = |c: &mut Command| {
        c.current_dir(slot).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", slot);
        c.env("GIT_INDEX_FILE", index.path().join("index"));
    };
    git(&doing, &["read-tree", &commit], at)?;
    git(&doing, &["checkout-index", "--all", "--force"], at)?;
    let listed = git(&doing, &["ls-files", "--stage", "-z"], at)?;
    let (modules, files): (Vec<&str>, Vec<&str>) =
        listed.split('\0').filter(|l| !l.is_empty()).partition(|l| l.starts_with("160000"));
    let name = |line: &str| line.split_once('\t').map_or(line, |(_, name)| name).to_owned();
    let submodules = modules.into_iter().map(name).collect();
    Ok(Populated { files: files.len(), submodules, commit: Some(commit), ..Populated::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(dir: &Path, script: &str) {
        let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn a_folder_is_laid_as_it_is_and_only_our_own_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, slot) = (dir.path().join("tree"), dir.path().join("slot"));
        fs::create_dir(&tree).unwrap();
        sh(
            &tree,
            "mkdir -p sub .straddle/x; echo hi > sub/a; touch -d 2001-02-03 sub/a; chmod 750 sub/a; ln -s sub/a l; ln -s $PWD/sub abs; mkfifo p",
        );
        let done = populate_slot(&Tree::Folder(tree.clone()), &slot).unwrap();
        assert_eq!((done.files, done.left_out.len()), (3, 1));
        sh(
            &slot,
            "test $(stat -c %a%Y sub/a) = 750$(date -d 2001-02-03 +%s); test $(readlink l) = sub/a; test ! -e .straddle; test $(readlink abs) = $PWD/sub; touch extra",
        );
        populate_slot(&Tree::Folder(tree.clone()), &slot).unwrap();
        assert!(!slot.join("extra").exists(), "the slot is emptied first");
        let error = populate_slot(&Tree::Folder(slot.clone()), &tree).unwrap_err();
        assert!(error.to_string().contains("not ours") && tree.join("sub/a").exists(), "{error}");
        let inside = populate_slot(&Tree::Folder(tree.clone()), &tree.join("copy")).unwrap_err();
        assert!(inside.to_string().contains("overlap"), "{inside}");
        populate_slot(&Tree::Folder(tree.clone()), &tree.join(".straddle/slot")).unwrap();
    }

    #[test]
    fn a_revision_is_laid_without_touching_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let (repo, slot) = (dir.path().join("repo"), dir.path().join("slot"));
        fs::create_dir(&repo).unwrap();
        sh(
            &repo,
            "git init -q . && git config user.email a@b && git config user.name n && echo one > f && git add f && \
                   git commit -qm 1 && echo two > f && git commit -qam 2 && echo dirty > f && echo staged > g && git add g",
        );
        let before = fs::read(repo.join(".git/index")).unwrap();
        let tree = |rev: &str| Tree::Git { repo: repo.clone(), rev: rev.to_owned() };
        populate_slot(&tree("HEAD~1"), &slot).unwrap();
        assert_eq!(fs::read_to_string(slot.join("f")).unwrap(), "one\n");
        let done = populate_slot(&tree("HEAD"), &slot).unwrap();
        assert_eq!(fs::read_to_string(slot.join("f")).unwrap(), "two\n");
        assert_eq!((done.files, done.commit.map(|c| c.len()), slot.join("g").exists()), (1, Some(40), false));
        assert_eq!(fs::read(repo.join(".git/index")).unwrap(), before);
        assert_eq!(fs::read_to_string(repo.join("f")).unwrap(), "dirty\n");
        for bad in ["nope", "--all", ""] {
            let error = populate_slot(&tree(bad), &slot).unwrap_err().to_string();
            assert!(error.contains("no such commit"), "{error}");
        }
        assert!(slot.join("f").exists(), "a bad revision empties nothing");
    }

    /// The whole repository is laid; the caller learns in which folder of it the build belongs.
    #[test]
    fn a_subdirectory_is_named_below_the_top() {
        let dir = tempfile::tempdir().unwrap();
        let (repo, slot) = (dir.path().join("repo"), dir.path().join("slot"));
        fs::create_dir(&repo).unwrap();
        sh(
            &repo,
            "git init -q . && git config user.email a@b && git config user.name n && echo > top && git add . && \
                   git commit -qm 1 && mkdir -p 'a b/c' && echo > 'a b/c/f' && git add . && git commit -qm 2",
        );
        let at = |below: &str, rev: &str| Tree::Git { repo: repo.join(below), rev: rev.to_owned() };
        let done = populate_slot(&at("a b/c", "HEAD"), &slot).unwrap();
        assert_eq!(done.prefix, Path::new("a b/c"));
        assert!(slot.join("top").exists() && slot.join(&done.prefix).join("f").exists());
        assert_eq!(populate_slot(&at("", "HEAD"), &slot).unwrap().prefix, Path::new(""));
        assert_eq!(populate_slot(&at(".git", "HEAD"), &slot).unwrap().prefix, Path::new(""), "as in a bare repository");
        let error = populate_slot(&at("a b/c", "HEAD~1"), &slot).unwrap_err();
        assert!(error.to_string().contains("HEAD~1 has no folder a b/c"), "{error}");
    }
}
