//! Files that go with an image, found, checked and kept open while types borrow from them.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::open::{Bytes, companions};
use crate::types::DebugSections;

/// What was found, each looked for once.
#[derive(Debug, Default)]
pub(super) struct Companions {
    debug: OnceCell<Option<Opened>>,
    supplement: OnceCell<Option<Opened>>,
    split: OnceCell<Vec<Opened>>,
    /// What to tell of files that were named and are not used.
    told: RefCell<Vec<String>>,
}

type Opened = (Bytes, PathBuf);

/// Files that are kept open at once. A process may have some 65,000 mappings.
const MOST_SPLIT: usize = 1 << 15;

impl Companions {
    pub(super) fn told(&self) -> Vec<String> {
        self.told.borrow().clone()
    }

    fn tell(&self, text: String) {
        self.told.borrow_mut().push(text);
    }

    /// The debug file of an image that has no debug information of its own. `given`: which the user names; `remote`:
    /// whether servers are asked.
    ///
    /// # Errors
    /// When the file that the user names is not this image's.
    pub(super) fn debug<'a>(
        &'a self,
        image: &Image<'_>,
        given: Option<&'a (Bytes, String)>,
        remote: bool,
    ) -> Result<Option<Image<'a>>> {
        if let Some((bytes, path)) = given {
            let debug = Image::parse(bytes, path)?;
            return match stranger(image, &debug, bytes) {
                Some(problem) => Err(Error::input(format!("reading {path}"), problem).hint("another --debug-file")),
                None => Ok(Some(debug)),
            };
        }
        let (bytes, path) = match self.debug.get_or_init(|| self.look(image, remote)) {
            Some(found) => found,
            None => return Ok(None),
        };
        Image::parse(bytes, &path.display().to_string()).map(Some)
    }

    fn look(&self, image: &Image<'_>, remote: bool) -> Option<Opened> {
        let (path, link) = (Path::new(&image.path), image.debug_link());
        let mut tried = Vec::new();
        let id = image.build_id.as_deref();
        let mut places: Vec<PathBuf> = id.and_then(companions::by_build_id).into_iter().collect();
        places.extend(link.map_or_else(Vec::new, |link| companions::by_link(path, link.name)));
        for place in places {
            let Some((bytes, place)) = companions::first(vec![place], &mut tried) else { continue };
            let name = place.display().to_string();
            match Image::parse(&bytes, &name).map(|debug| stranger(image, &debug, &bytes)) {
                Ok(None) => return Some((bytes, place)),
                Ok(Some(why)) => tried.push(format!("{name} ({why})")),
                Err(error) => tried.push(format!("{name} ({})", error.problem)),
            }
        }
        let found = id.filter(|_| remote).and_then(|id| companions::debuginfod(id, &mut tried));
        let asked = link.is_some() || tried.iter().any(|t| t.contains("debuginfod"));
        if found.is_none() && asked {
            self.tell(format!("debug information is in another file, which was not found: tried {}", tried.join(", ")));
        }
        found
    }

    /// Adds what some debug information says is in other files. `image` is what it was read from, `at` the image that
    /// the user named.
    pub(super) fn complete<'a>(&'a self, sections: &mut DebugSections<'a>, image: &Image<'_>, at: &Image<'_>) {
        let found = self.supplement.get_or_init(|| self.look_for_supplement(image));
        if let Some((bytes, path)) = found
            && let Ok(supplement) = Image::parse(bytes, &path.display().to_string())
        {
            sections.add_supplement(&supplement);
        }
        for (bytes, path) in self.split.get_or_init(|| self.look_for_split(sections, image, at)) {
            match Image::parse(bytes, &path.display().to_string()) {
                Ok(split) => sections.add_split(&split),
                Err(error) => self.tell(error.to_string()),
            }
        }
    }

    fn look_for_supplement(&self, image: &Image<'_>) -> Option<Opened> {
        let named = image.supplement()?;
        let mut tried = Vec::new();
        for place in companions::by_supplement(Path::new(&image.path), named.path, &named.build_id) {
            let Some((bytes, place)) = companions::first(vec![place], &mut tried) else { continue };
            let name = place.display().to_string();
            let id = Image::parse(&bytes, &name).ok().and_then(|supplement| supplement.supplement_id());
            match id.as_ref() == Some(&named.build_id) {
                true => return Some((bytes, place)),
                false => tried.push(format!("{name} (another build id)")),
            }
        }
        let found = companions::debuginfod(&named.build_id, &mut tried);
        if found.is_none() {
            self.tell(format!("types that dwz moved to {} are not known: tried {}", named.path, tried.join(", ")));
        }
        found
    }

    fn look_for_split(&self, sections: &DebugSections<'_>, image: &Image<'_>, at: &Image<'_>) -> Vec<Opened> {
        let named = sections.split_units();
        if named.is_empty() {
            return Vec::new();
        }
        let mut tried = Vec::new();
        let packages = [&at.path, &image.path].map(|path| companions::package(Path::new(path)));
        if let Some(package) = companions::first(packages.into(), &mut tried) {
            return vec![package];
        }
        let mut found: Vec<Opened> = Vec::new();
        let (mut missing, mut first) = (0, None);
        for (folder, name) in named {
            let mut tried = Vec::new();
            let places = companions::by_split(Path::new(&image.path), folder, name);
            match companions::first(places, &mut tried).filter(|_| found.len() < MOST_SPLIT) {
                Some(split) => found.push(split),
                None => {
                    missing += 1;
                    first.get_or_insert(tried);
                }
            }
        }
        if missing > 0 {
            tried.dedup();
            tried.extend(first.unwrap_or_default());
            self.tell(format!("{missing} .dwo files not found: of the first, tried {}", tried.join(", ")));
        }
        found
    }
}

/// Why a file is not the debug file of an image.
fn stranger(image: &Image<'_>, debug: &Image<'_>, bytes: &[u8]) -> Option<String> {
    if (debug.machine, debug.class, debug.big_endian) != (image.machine, image.class, image.big_endian) {
        return Some("it is for another machine".to_string());
    }
    if !DebugSections::present(debug) {
        return Some("it has no debug information (DWARF)".to_string());
    }
    match (&image.build_id, &debug.build_id) {
        (Some(own), Some(other)) if own == other => None,
        (Some(own), Some(other)) => Some(format!("it has build id {other}, the image {own}")),
        _ => {
            let link = image.debug_link()?;
            (crc32fast::hash(bytes) != link.crc).then(|| "its checksum is not the one that the image names".to_string())
        }
    }
}
