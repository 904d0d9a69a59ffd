//! The slot: one absolute path at which both versions are built, one after the other.
//!
//! `__FILE__`, `env!` and debug information hold the path of the tree, so a copy beside would itself be a treatment.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

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
            let (git_dir, commit) = find_commit(repo, rev)?;
            check_out(&git_dir, commit, &wipe(slot)?)
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
            // A link into the tree itself must lead into the copy, or the build would leave the slot.
            let link = link.strip_prefix(top).map(|below| slot.join(below)).unwrap_or(link);
            symlink(link, &target).map_err(io)?;
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

fn git(args: &[&str], set: impl FnOnce(&mut Command)) -> std::result::Result<String, String> {
    let mut command = Command::new("git");
    // A hook or an alias may have set these for another repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(variable);
    }
    set(command.args(args).env("LC_ALL", "C"));
    let out = command.output().map_err(|e| format!("git could not be started: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said.lines().next().unwrap_or("it said nothing");
    Err(line.trim_start_matches("fatal: ").to_owned())
}

fn find_commit(repo: &Path, rev: &str) -> Result<(PathBuf, String)> {
    let doing = || format!("finding the revision {rev} in {}", repo.display());
    let at = |c: &mut Command| {
        c.current_dir(repo);
    };
    if !repo.is_dir() {
        return Err(Error::input(doing(), "there is no such folder"));
    }
    let git_dir = git(&["rev-parse", "--absolute-git-dir"], at).map_err(|e| Error::input(doing(), e))?;
    let wanted = format!("{rev}^{{commit}}");
    let commit = git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted], at)
        .map_err(|_| Error::input(doing(), "git knows no such commit").hint("`git log --oneline` lists them"))?;
    Ok((PathBuf::from(git_dir), commit))
}

/// With an index of our own: neither the user's index nor their work tree is touched.
fn check_out(git_dir: &Path, commit: String, slot: &Path) -> Result<Populated> {
    let doing = || format!("checking out {commit}");
    let fail = |e: String| Error::input(doing(), e);
    let index = tempfile::tempdir().map_err(|e| Error::io(doing(), e))?;
    let at = |c: &mut Command| {
        c.current_dir(slot).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", slot);
        c.env("GIT_INDEX_FILE", index.path().join("index"));
    };
    git(&["read-tree", &commit], at).map_err(fail)?;
    git(&["checkout-index", "--all", "--force"], at).map_err(fail)?;
    let listed = git(&["ls-files", "--stage", "-z"], at).map_err(fail)?;
    let (modules, files): (Vec<&str>, Vec<&str>) =
        listed.split('\0').filter(|l| !l.is_empty()).partition(|l| l.starts_with("160000"));
    let name = |line: &str| line.split_once('\t').map_or(line, |(_, name)| name).to_owned();
    let submodules = modules.into_iter().map(name).collect();
    Ok(Populated { files: files.len(), submodules, left_out: Vec::new(), commit: Some(commit) })
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
}
