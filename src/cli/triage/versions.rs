//! Two trees → two captured links, ready to be varied: built at the same path, one after the other.

use std::path::{Path, PathBuf};

use crate::cli::config::{Case, Trees};
use crate::cli::progress::Progress;
use crate::cli::triage::work::Work;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::link::{self, Build, Capture, Link, Request, Tree};
use crate::open::Bytes;
use crate::variant::Program;
use crate::{diff, open};

/// One version: its link, and the link read whole.
pub struct Version {
    pub name: &'static str,
    pub link: Link,
    pub program: Program,
    /// The file as the build's own linker wrote it.
    pub linked: Bytes,
}

/// Base and patched.
pub struct Versions {
    pub base: Version,
    pub patched: Version,
    /// Where the linked file lies in the slot; every variant runs there.
    pub output: PathBuf,
    /// What a reader should know about the builds.
    pub problems: Vec<String>,
}

/// Builds both versions in the slot, captures their links, and proves that each can be repeated byte by byte.
pub fn build(case: &Case, work: &Work, progress: &Progress) -> Result<Versions> {
    let mut problems = Vec::new();
    let (base, base_output) = version(case, "base", work, progress, &mut problems)?;
    let (patched, output) = version(case, "patched", work, progress, &mut problems)?;
    if base_output != output {
        return Err(Error::input(
            "comparing the two links",
            format!("base links {}, patched {}", base_output.display(), output.display()),
        )
        .hint("name one output with --link"));
    }
    Ok(Versions { base, patched, output, problems })
}

fn version(
    case: &Case,
    name: &'static str,
    work: &Work,
    progress: &Progress,
    problems: &mut Vec<String>,
) -> Result<(Version, PathBuf)> {
    let slot = work.slot();
    let populated = link::populate_slot(&tree(case, name), &slot)?;
    problems.extend(populated.submodules.iter().map(|s| format!("the submodule {s} is not checked out")));
    let at = populated.commit.map_or_else(String::new, |c| format!(" ({})", c.get(..12).unwrap_or(&c)));
    progress.step(&format!("building {name}{at}: {}", case.build));
    let capture = link::capture(&Request {
        build: Build::Shell(case.build.clone()),
        dir: slot,
        store: work.capture(name),
        link: case.link.clone(),
        stop: None,
    })
    .map_err(|e| Error { doing: format!("building {name}: {}", e.doing), ..e })?;
    problems.extend(capture.problems.iter().map(|p| format!("building {name}: {p}")));
    open_version(&capture, case, name, progress)
}

fn open_version(capture: &Capture, case: &Case, name: &'static str, progress: &Progress) -> Result<(Version, PathBuf)> {
    let link = capture.select(case.link.as_deref())?;
    let captured = link.captured();
    let output = capture.root.join(&captured.name);
    progress.step(&format!("captured the link of {}: {} inputs", captured.name, captured.inputs.len()));
    let scratch = tempfile::tempdir_in(&capture.store)
        .map_err(|e| Error::io(format!("making a scratch folder in {}", capture.store.display()), e))?;
    link.prove_pass_through(scratch.path())?;
    let program = Program::open(&link, scratch.path())?;
    let linked = link.original()?;
    Ok((Version { name, link, program, linked }, output))
}

fn tree(case: &Case, name: &str) -> Tree {
    match &case.trees {
        Trees::Folders { base, patched } => Tree::Folder(if name == "base" { base.clone() } else { patched.clone() }),
        Trees::Git { repo, base, patched } => {
            let rev = if name == "base" { base.clone() } else { patched.clone() };
            Tree::Git { repo: repo.clone(), rev }
        }
    }
}

/// What the two builds differ in, before anything is varied.
pub struct Difference {
    pub suspects: Vec<diff::Suspect>,
    /// What is loaded is the same: there is nothing to measure.
    pub identical: bool,
}

impl Versions {
    /// What moved between the two as built, and whether what is loaded is the same. A stripped link has no symbols to
    /// compare; it can be varied all the same.
    pub fn compare(&mut self) -> Result<Difference> {
        let base = Image::parse(&self.base.linked, "base")?;
        let patched = Image::parse(&self.patched.linked, "patched")?;
        let identical = diff::loaded_content_equal(&base, &patched);
        let suspects = match diff::diff(&base, &patched, None) {
            Ok(difference) => diff::suspects(&difference),
            Err(error) => {
                self.problems.push(format!("what moved is not known: {}", error.problem));
                Vec::new()
            }
        };
        Ok(Difference { suspects, identical })
    }
}

/// The hash of a linked file, for the record.
pub fn hash(path: &Path) -> Result<String> {
    Ok(blake3::hash(&open::map(path)?).to_hex().to_string())
}
