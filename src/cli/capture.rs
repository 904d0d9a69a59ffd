//! `straddle capture -- BUILD…`: records a build's links so that they can be done again.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use super::format::Format;
use crate::error::{Error, Exit, Result};
use crate::link::{Build, Capture, Captured, Makes, Request, capture};
use crate::measure::stop::{self, StopToken};
use crate::report::page::{Block, Page, Table};

/// Record the links of a build so that they can be done again.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureArgs {
    /// The tree that the build runs in
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// The folder to store the capture in (default: .straddle/capture in the tree)
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// The link that is wanted: a glob on the linked file's path, on its name where it has no slash
    #[arg(long, value_name = "GLOB")]
    pub link: Option<String>,
    #[arg(long, value_enum, default_value_t, help = "How to write the result")]
    pub format: Format,
    /// The build command
    #[arg(last = true, required = true, value_name = "BUILD")]
    pub build: Vec<OsString>,
}

/// Builds, stores, and proves of every link that it can be repeated byte for byte.
pub fn run(args: &CaptureArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("capture", Format::OF_PAGES)?;
    let request = Request {
        build: Build::Words(args.build.clone()),
        dir: args.dir.clone(),
        store: args.store.clone().unwrap_or_else(|| args.dir.join(".straddle").join("capture")),
        link: args.link.clone(),
        stop: Some(interrupted),
    };
    stop::listen();
    let capture = capture(&request)?;
    let proofs: Vec<Result<()>> = capture.links.iter().map(|link| prove(&capture, link)).collect();
    if interrupted() {
        return Err(Error::machine("proving the capture", "interrupted"));
    }
    args.format.write(&capture, || page(&capture, &proofs), out)?;
    let failed = proofs.into_iter().zip(&capture.links).filter_map(|(p, l)| Some((p.err()?, l)));
    let wanted =
        |l: &Captured| args.link.is_none() || capture.select(args.link.as_deref()).is_ok_and(|w| w.captured() == l);
    match failed.filter(|(_, l)| l.lto.is_empty() && wanted(l)).map(|(e, _)| e).next() {
        Some(error) => Err(error),
        None => Ok(Exit::Done),
    }
}

fn interrupted() -> bool {
    StopToken::new(None).reason().is_some()
}

/// After an interruption nothing more is linked.
fn prove(capture: &Capture, link: &Captured) -> Result<()> {
    if interrupted() {
        return Err(Error::machine("proving the capture", "interrupted"));
    }
    let folder = tempfile::tempdir_in(&capture.store).map_err(|e| Error::io("proving the capture", e))?;
    capture.open(link)?.prove_pass_through(folder.path())
}

fn page(capture: &Capture, proofs: &[Result<()>]) -> Page {
    let mut table = Table::new("", &["link", "makes", "linker", ">inputs", ">of the build", "repeated"]);
    for (link, proof) in capture.links.iter().zip(proofs) {
        let own = link.inputs.iter().filter(|s| !s.input.system).count();
        let linker = link.linker.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        table.rows.push(vec![
            link.name.clone(),
            makes(link.makes).to_owned(),
            linker,
            link.inputs.len().to_string(),
            own.to_string(),
            match proof {
                Ok(()) if link.post_processed => "byte for byte, as linked".to_owned(),
                Ok(()) => "byte for byte".to_owned(),
                Err(e) => e.problem.clone(),
            },
        ]);
    }
    let mut notes: Vec<String> =
        capture.unseen.iter().map(|u| format!("not captured: {}: {}", u.path, u.how)).collect();
    notes.extend(capture.links.iter().flat_map(Captured::problems));
    notes.extend(capture.problems.iter().cloned());
    notes.extend(capture.skipped.iter().map(|(why, count)| format!("left out: {count}: {why}")));
    notes.push(format!("stored in {}", capture.store.display()));
    let links = match capture.links.len() {
        1 => "1 link".to_owned(),
        n => format!("{n} links"),
    };
    let sentence = format!("{links} captured from `{}`", capture.command.join(" "));
    Page { sentence, blocks: vec![Block::Table(table)], notes, ..Page::default() }
}

fn makes(makes: Makes) -> &'static str {
    match makes {
        Makes::Program => "program",
        Makes::SharedObject => "shared object",
        Makes::Relocatable => "object (-r)",
    }
}
