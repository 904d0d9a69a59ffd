//! Where types come from: flags of every command that looks into an image.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::open::{self, Bytes};
use crate::types::{Files, Source, Want};

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
}

impl TypesArgs {
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
        let file = |path: &Option<PathBuf>| path.as_deref().map(named).transpose();
        Ok(Opened { want, btf: file(&self.btf)?, base: file(&self.base_btf)? })
    }
}

fn named(path: &Path) -> Result<(Bytes, String)> {
    Ok((open::map(path)?, path.display().to_string()))
}

impl Opened {
    /// # Errors
    /// As [`Source::of`].
    pub fn source<'a>(&'a self, image: &Image<'a>) -> Result<Source<'a>> {
        fn file(opened: &Option<(Bytes, String)>) -> Option<(&[u8], &str)> {
            opened.as_ref().map(|(bytes, name)| (&**bytes, name.as_str()))
        }
        Source::of(image, self.want, Files { btf: file(&self.btf), base: file(&self.base) })
    }
}
