//! Where types come from: flags of every command that looks into an image.

use std::path::{Path, PathBuf};

use super::companions::Companions;
use super::images::ImageArgs;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::open::{self, Bytes};
use crate::types::{Btf, DebugSections, Files, Source, Want};

/// The tier of type information, and files for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TypesArgs {
    #[arg(long = "types", value_enum, default_value_t, value_name = "TIER")]
    #[arg(help = "auto: DWARF where the image has it, else BTF, else none; none: symbols alone, the fastest")]
    pub tier: Tier,
    #[arg(long, value_name = "FILE")]
    #[arg(help = "Take types from this BTF, raw or in an ELF file: /sys/kernel/btf/vmlinux")]
    pub btf: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    #[arg(help = "The kernel whose BTF a module's continues: its vmlinux, or /sys/kernel/btf/vmlinux")]
    pub base_btf: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    #[arg(
        help = "Where the image's debug information (DWARF) is [default: in it, or where its build id or link says]"
    )]
    pub debug_file: Option<PathBuf>,
}

/// `--types`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Tier {
    #[default]
    Auto,
    Dwarf,
    Btf,
    None,
}

/// The files, opened; kept alive while types borrow from them.
#[derive(Debug)]
pub struct Opened {
    want: Want,
    btf: Option<(Bytes, String)>,
    base: Option<(Bytes, String)>,
    debug: Option<(Bytes, String)>,
    companions: Companions,
}

/// The types of the kernel that runs now.
const OF_THE_RUNNING: &str = "/sys/kernel/btf/vmlinux";

impl TypesArgs {
    /// Of this image: the running kernel's are in a place of their own, where it tells them.
    #[must_use]
    pub fn of(&self, image: &ImageArgs) -> TypesArgs {
        let wanted = image.running && self.btf.is_none() && matches!(self.tier, Tier::Auto | Tier::Btf);
        let own = Some(PathBuf::from(OF_THE_RUNNING)).filter(|path| wanted && path.exists());
        TypesArgs { btf: self.btf.clone().or(own), ..self.clone() }
    }

    /// # Errors
    /// When a file cannot be read, or is named together with a tier that does not use it.
    pub fn open(&self) -> Result<Opened> {
        let unused = [("--btf", &self.btf), ("--base-btf", &self.base_btf)];
        let unused = unused.iter().find(|(_, file)| file.is_some());
        let want = match self.tier {
            Tier::Auto => Want::Auto,
            Tier::Dwarf => Want::Dwarf,
            Tier::Btf => Want::Btf,
            Tier::None => Want::Names,
        };
        if let (Want::Dwarf | Want::Names, Some((flag, _))) = (want, unused) {
            let tier = if want == Want::Dwarf { "dwarf" } else { "none" };
            let problem = format!("{flag} and --types {tier} exclude each other");
            return Err(Error::input("reading the command line", problem).hint("--types btf"));
        }
        if let (Want::Btf | Want::Names, Some(_)) = (want, &self.debug_file) {
            let problem = "--debug-file is for DWARF, which --types leaves out";
            return Err(Error::input("reading the command line", problem).hint("--types dwarf"));
        }
        let file = |path: &Option<PathBuf>| path.as_deref().map(named).transpose();
        let (btf, base, debug) = (file(&self.btf)?, file(&self.base_btf)?, file(&self.debug_file)?);
        Ok(Opened { want, btf, base, debug, companions: Companions::default() })
    }
}

fn named(path: &Path) -> Result<(Bytes, String)> {
    Ok((open::map(path)?, path.display().to_string()))
}

impl Opened {
    /// What to tell of files that the image names and that are not used.
    pub fn told(&self) -> Vec<String> {
        self.companions.told()
    }

    /// Adds to an error what could explain it.
    pub fn explain(&self, error: Error) -> Error {
        let told = self.told();
        if told.is_empty() { error } else { Error { hint: Some(told.join("; ")), ..error } }
    }

    /// Opens what goes with the image, too. A stripped image takes the symbols of its debug file.
    ///
    /// # Errors
    /// As [`Source::of`], and when the debug file that the user names is another image's.
    pub fn source<'a>(&'a self, image: &mut Image<'a>) -> Result<Source<'a>> {
        fn file(opened: &Option<(Bytes, String)>) -> Option<(&[u8], &str)> {
            opened.as_ref().map(|(bytes, name)| (&**bytes, name.as_str()))
        }
        let wanted = match self.want {
            Want::Dwarf => true,
            Want::Auto => self.btf.is_none() && self.base.is_none(),
            Want::Btf | Want::Names => false,
        };
        let elsewhere = wanted && (self.debug.is_some() || !DebugSections::present(image));
        let debug = match elsewhere {
            true => {
                let remote = self.want == Want::Dwarf || !Btf::present(image);
                self.companions.debug(image, self.debug.as_ref(), remote)?
            }
            false => None,
        };
        if let Some(debug) = &debug {
            image.take_symbols(debug);
        }
        let files = Files { btf: file(&self.btf), base: file(&self.base), debug: debug.as_ref() };
        let mut source = Source::of(image, self.want, files)?;
        if let Source::Dwarf(sections) = &mut source {
            self.companions.complete(sections, debug.as_ref().unwrap_or(image), image);
        }
        Ok(source)
    }
}
