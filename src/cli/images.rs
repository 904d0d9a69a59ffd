//! How every command gets at an image: kinds told apart by content, symbols from wherever they are.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::{self, Image, List, Machine, SymbolsFrom, Unpacked};
use crate::open;

/// The image of `scan` and its kind, and what is named beside it.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageArgs {
    /// A program, library, object, kernel module or vmlinux, or a kernel as it is shipped (vmlinuz, Image, …)
    #[arg(required_unless_present = "running")]
    pub image: Option<PathBuf>,
    #[arg(long, help = "The kernel that runs now, by what it tells of itself in /proc")]
    pub running: bool,
    #[arg(long, value_name = "FILE", conflicts_with = "running")]
    #[arg(help = "Symbols of a kernel that has none: its System.map, or a copy of /proc/kallsyms")]
    pub system_map: Option<PathBuf>,
}

/// What an image is read from; it must outlive the image, which borrows it.
pub struct Source {
    path: String,
    file: Option<Unpacked>,
    /// The text of a list of symbols, its path, and what it is.
    list: Option<(String, String, SymbolsFrom)>,
    notes: Option<open::Bytes>,
}

const PROC_KALLSYMS: &str = "/proc/kallsyms";

impl Source {
    /// What `--running`, `--system-map` and the image's path name.
    pub fn open(args: &ImageArgs) -> Result<Source> {
        match &args.image {
            Some(path) if args.running => {
                let problem = format!("--running takes no image, and there is {}", path.display());
                Err(Error::input("reading the command line", problem).hint("one of the two"))
            }
            None => Source::running(),
            Some(path) => {
                let list = args.system_map.as_deref().map(list).transpose()?;
                Ok(Source { list, ..Source::file(path)? })
            }
        }
    }

    /// A file alone.
    pub fn file(path: &Path) -> Result<Source> {
        let name = path.display().to_string();
        let file = image::unpack(open::map(path)?, &name, image::LARGEST)?;
        Ok(Source { path: name, file: Some(file), list: None, notes: None })
    }

    /// The kernel that runs now. Its symbols are in /proc; there is no file of it that could be trusted to be the same.
    fn running() -> Result<Source> {
        let list = list(Path::new(PROC_KALLSYMS))?;
        // Only the build id is in there: without it the answer is the same.
        let notes = open::small(Path::new("/sys/kernel/notes")).ok();
        Ok(Source { path: "the running kernel".into(), file: None, list: Some(list), notes })
    }

    /// Lets go of the memory of debug information once types were read: most of a kernel's file, and hardly looked at again.
    pub fn forget_debug(&self, image: &Image<'_>) {
        let Some(file) = &self.file else { return };
        let of_debug = image.sections.iter().filter(|s| !s.loaded && s.name.starts_with(".debug"));
        for bytes in of_debug.filter_map(|s| s.bytes) {
            if let Some(from) = bytes.as_ptr().addr().checked_sub(file.bytes.as_ptr().addr()) {
                file.bytes.forget(from..from.saturating_add(bytes.len()));
            }
        }
    }

    /// Reads it.
    pub fn image(&self) -> Result<Image<'_>> {
        let list = self.list.as_ref().map(|(text, path, from)| List::parse(text, path, *from)).transpose()?;
        let mut image = match (&self.file, list) {
            (Some(file), list) => {
                let mut image = Image::parse(&file.bytes, &self.path)?;
                image.packed.clone_from(&file.packed);
                list.map_or(Ok(()), |list| image.take(list))?;
                image
            }
            (None, Some(list)) => Image::without_file(list, machine()?, &self.path)?,
            (None, None) => return Err(Error::input("opening an image", "neither a file nor a running kernel")),
        };
        if let Some(notes) = &self.notes {
            image.take_notes(notes);
        }
        Ok(image)
    }
}

/// A System.map, or what /proc/kallsyms is or was.
fn list(path: &Path) -> Result<(String, String, SymbolsFrom)> {
    let text = open::text(path)?;
    // Only the kernel itself names modules.
    let of_modules = text.lines().next_back().is_some_and(|line| line.ends_with(']'));
    let from =
        if path == Path::new(PROC_KALLSYMS) || of_modules { SymbolsFrom::ProcKallsyms } else { SymbolsFrom::SystemMap };
    Ok((text, path.display().to_string(), from))
}

/// The machine that this program was built for: the kernel that runs it is one of it.
fn machine() -> Result<Machine> {
    let known = Machine::named(std::env::consts::ARCH);
    known.ok_or_else(|| {
        let problem = format!("no ELF machine is known here for {}", std::env::consts::ARCH);
        Error::machine("looking at the running kernel", problem)
    })
}
