//! Two trees → two captured links, ready to be varied: built at the same path, one after the other.

use std::path::PathBuf;

use crate::cli::config::{Case, Trees};
use crate::cli::progress::Progress;
use crate::cli::triage::work::Work;
use crate::diff;
use crate::error::{Error, Result};
use crate::image::{Image, Symbol};
use crate::link::{self, Build, Capture, Link, Request, Tree};
use crate::measure::stop::StopToken;
use crate::open::Bytes;
use crate::variant::Program;

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
    /// The folder that was built in, and that the workload runs in.
    pub folder: PathBuf,
    /// Other programs or shared objects of the builds differ: that these two are the same does not settle it.
    pub others_differ: bool,
    /// What a reader should know about the builds.
    pub problems: Vec<String>,
}

/// A built version, and the capture that its link was chosen from.
struct Built {
    version: Version,
    capture: Capture,
    output: PathBuf,
}

/// Builds both versions in the slot, captures their links, and proves that each can be repeated byte by byte.
pub fn build(case: &Case, work: &Work, progress: &Progress) -> Result<Versions> {
    let mut problems = Vec::new();
    let base = version(case, "base", work, progress, &mut problems)?;
    let mut patched = version(case, "patched", work, progress, &mut problems)?;
    patched.version.program.adopt_names(&base.version.program);
    if base.output != patched.output {
        let links = format!("base links {}, patched {}", base.output.display(), patched.output.display());
        return Err(Error::input("comparing the two links", links).hint("name one output with --link"));
    }
    let chosen = &patched.version.link.captured().name;
    let others = patched.capture.differing(&base.capture, chosen);
    if !others.is_empty() {
        // All cells run in patched's tree.
        problems.push(format!(
            "the builds differ in other linked files too, of which patched's are used: {}",
            others.join(", ")
        ));
    }
    let folder = patched.capture.root.clone();
    let (base, patched, output) = (base.version, patched.version, patched.output);
    Ok(Versions { base, patched, output, folder, others_differ: !others.is_empty(), problems })
}

fn version(
    case: &Case,
    name: &'static str,
    work: &Work,
    progress: &Progress,
    problems: &mut Vec<String>,
) -> Result<Built> {
    let slot = work.slot();
    let populated = link::populate_slot(&tree(case, name), &slot)?;
    problems.extend(populated.submodules.iter().map(|s| format!("{name}: the submodule {s} is not checked out")));
    problems.extend(populated.left_out.iter().map(|p| format!("{name}: {} is no file and left out", p.display())));
    let at = populated.commit.map_or_else(String::new, |c| format!(" ({})", c.get(..12).unwrap_or(&c)));
    progress.step(&format!("building {name}{at}: {}", case.build));
    let capture = link::capture(&Request {
        build: Build::Shell(case.build.clone()),
        dir: slot.join(populated.prefix),
        store: work.capture(name),
        link: case.link.clone(),
        stop: Some(|| StopToken::new(None).reason().is_some()),
    })
    .map_err(|e| Error { doing: format!("building {name}: {}", e.doing), ..e })?;
    problems.extend(capture.problems.iter().map(|p| format!("building {name}: {p}")));
    let link = capture.select(case.link.as_deref())?;
    problems.extend(link.captured().problems());
    let (linked, inputs) = (&link.captured().name, link.captured().inputs.len());
    progress.step(&format!("captured the link of {linked}: {inputs} inputs"));
    let output = capture.root.join(linked);
    let scratch = tempfile::tempdir_in(&capture.store)
        .map_err(|e| Error::io(format!("making a scratch folder in {}", capture.store.display()), e))?;
    link.prove_pass_through(scratch.path())?;
    let program = Program::open(&link, scratch.path())?;
    let linked = link.original()?;
    Ok(Built { version: Version { name, link, program, linked }, capture, output })
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
    /// Whether patched can start threads, by its symbols; `None`: it has none.
    pub threads: Option<bool>,
}

/// Whether the program calls what starts a thread: of libc, of C++'s library, of OpenMP.
fn threads(image: &Image) -> Option<bool> {
    const NAMES: [&str; 3] = ["pthread_create", "thrd_create", "__kmpc_fork_call"];
    const STEMS: [&str; 2] = ["GOMP_parallel", "_ZNSt6thread15_M_start_thread"];
    let starts = |symbol: &Symbol| {
        // The linker appends the version: `pthread_create@GLIBC_2.34`.
        let name = symbol.name.split('@').next().unwrap_or_default();
        NAMES.contains(&name) || STEMS.iter().any(|stem| name.starts_with(stem))
    };
    (!image.symbols.is_empty()).then(|| image.symbols.iter().any(starts))
}

impl Versions {
    /// What moved between the two as built, and whether what is loaded is the same. A stripped link has no symbols to
    /// compare; it can be varied all the same.
    pub fn compare(&mut self) -> Result<Difference> {
        let base = Image::parse(&self.base.linked, "base")?;
        let patched = Image::parse(&self.patched.linked, "patched")?;
        let identical = diff::loaded_content_equal(&base, &patched) && !self.others_differ;
        let suspects = match diff::diff(&base, &patched, &diff::Ask::default()) {
            Ok(difference) => diff::suspects(&difference),
            Err(error) => {
                self.problems.push(format!("what moved is not known: {}", error.problem));
                Vec::new()
            }
        };
        Ok(Difference { suspects, identical, threads: threads(&patched) })
    }
}
