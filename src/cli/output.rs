//! Where a result goes: standard output or a file, a job's summary, and at which paths of the source.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::format::{Format, Views};
use crate::error::{Error, Result};
use crate::report::findings::Findings;
use crate::report::page::{Page, View};

/// How and where to write.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    #[arg(long, value_enum, default_value_t, help = "How to write the result")]
    pub format: Format,
    #[arg(short, long, value_name = "FILE", help = "Write it to a file instead of standard output")]
    pub output: Option<PathBuf>,
    #[arg(long, value_name = "FILE", help = "Append it as Markdown to this file too")]
    #[arg(long_help = "Append it as Markdown to this file too (default with --format github: $GITHUB_STEP_SUMMARY)")]
    pub summary: Option<PathBuf>,
    #[arg(long, value_name = "DIR", help = "Where the source is: paths are told from there [default: .]")]
    pub source_root: Option<PathBuf>,
}

impl OutputArgs {
    /// Whether rows and findings are all wanted, by `--all` or because a format is never cut.
    #[must_use]
    pub fn whole(&self, all: bool) -> bool {
        self.format.view(all) == View::All
    }

    /// Writes a value. `page`: of all rows, or the first ones.
    ///
    /// # Errors
    /// When it cannot be written; then no file of that name is new.
    pub fn write<P: Fn() -> Page, F: Fn() -> Findings>(
        &self,
        value: &impl Serialize,
        views: Views<P, F>,
        out: &mut impl Write,
    ) -> Result<()> {
        let root = Root::of(self.source_root.as_deref())?;
        let findings = || (views.findings)().located(|path| root.relative(path));
        let mut text = Vec::new();
        let full = Views { page: &views.page, findings };
        self.format.write_views(value, full, &mut text)?;
        match &self.output {
            Some(path) => replace(path, &text)?,
            None => match out.write_all(&text).and_then(|()| out.flush()) {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(Error::io("writing the report", e));
                }
                _ => {}
            },
        }
        let of_the_job = || std::env::var_os("GITHUB_STEP_SUMMARY").filter(|p| !p.is_empty()).map(PathBuf::from);
        let given = self.summary.clone();
        match given.or_else(|| if self.format == Format::Github { of_the_job() } else { None }) {
            Some(path) => append(&path, &(views.page)()),
            None => Ok(()),
        }
    }
}

/// Beside it, then renamed: a reader sees the old file or the new one. What is no file (`/dev/stdout`) is written to.
fn replace(path: &Path, text: &[u8]) -> Result<()> {
    let failed = |e| Error::io(format!("writing {}", path.display()), e);
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return std::fs::OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(text)).map_err(failed);
    }
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.prefix(".straddle-").tempfile_in(folder).map_err(failed)?;
    file.write_all(text).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

fn append(path: &Path, page: &Page) -> Result<()> {
    let mut text = Vec::new();
    let failed = |e| Error::io(format!("writing {}", path.display()), e);
    crate::report::markdown::write(&page.clone().demangled(), &mut text).map_err(failed)?;
    text.push(b'\n');
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut f| f.write_all(&text))
        .map_err(failed)
}

/// The folder that paths are told from.
struct Root {
    folder: PathBuf,
}

impl Root {
    fn of(given: Option<&Path>) -> Result<Root> {
        let path = given.unwrap_or(Path::new("."));
        let failed = |e| Error::io(format!("opening the source root {}", path.display()), e);
        let folder = std::fs::canonicalize(path).map_err(failed)?;
        if !folder.is_dir() {
            let problem = "it is no folder";
            return Err(Error::input(format!("opening the source root {}", path.display()), problem));
        }
        Ok(Root { folder })
    }

    /// Of a path as a compiler wrote it, or of an image: relative where it lies below the root, or where its end names a
    /// file below it (it was built elsewhere); as it is otherwise.
    fn relative(&self, path: &str) -> String {
        let parts = normal(Path::new(path));
        let plain: PathBuf = parts.iter().collect();
        if Path::new(path).is_absolute() {
            let absolute = Path::new("/").join(&plain);
            if let Ok(inside) = absolute.strip_prefix(&self.folder) {
                return inside.display().to_string();
            }
        }
        for from in 0..parts.len() {
            let end: PathBuf = parts.iter().skip(from).collect();
            if self.folder.join(&end).is_file() {
                return end.display().to_string();
            }
        }
        if Path::new(path).is_absolute() { path.to_string() } else { plain.display().to_string() }
    }
}

/// Without `.` and `..`, as far as the text tells: nothing leads out of a root.
fn normal(path: &Path) -> Vec<&std::ffi::OsStr> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_the_root() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("kernel")).unwrap();
        std::fs::write(tree.path().join("kernel/fork.c"), "").unwrap();
        let root = Root::of(Some(tree.path())).unwrap();
        let below = root.folder.join("x/y.c").display().to_string();
        for (path, want) in [
            (below.as_str(), "x/y.c"),
            ("/build/linux-6.12/kernel/fork.c", "kernel/fork.c"),
            ("/build/linux-6.12/arch/../kernel/fork.c", "kernel/fork.c"),
            ("../../kernel/fork.c", "kernel/fork.c"),
            ("/usr/include/stdio.h", "/usr/include/stdio.h"),
            ("../../etc/x", "etc/x"),
        ] {
            assert_eq!(root.relative(path), want, "{path}");
        }
        assert!(Root::of(Some(&tree.path().join("kernel/fork.c"))).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("none/out"), b"x").is_err());
        assert!(replace(folder.path(), b"x").is_err(), "a folder");
        replace(Path::new("/dev/null"), b"x").unwrap();
    }
}
