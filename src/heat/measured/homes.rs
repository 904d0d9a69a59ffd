//! From an address of a running system to one of the image: by what the profile says was mapped, or, where it is a text
//! that does not, by the symbols that it names beside their addresses.

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::formats::{Map, Maps, Place, Sample, Samples};
use crate::image::{Home as SymbolHome, Image, Kind, Segment, SymbolKind};

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In the image, at this of its addresses.
    Image(u64),
    Elsewhere(&'static str),
}

const ANOTHER_FILE: &str = "in another program or library";
const ANOTHER_BUILD: &str = "in another build of the image";
const USER_SPACE: &str = "in user space";
const KERNEL: &str = "in the kernel";
const KERNEL_MEMORY: &str =
    "in kernel memory outside the image (heap, stack, a CPU's copy whose base is not known, modules)";
const STACK: &str = "on a stack";
const HEAP: &str = "on the heap";
const ANONYMOUS: &str = "in memory without a file (heap or stack)";
const UNMAPPED: &str = "where no mapping is told (heap, stack, or recorded without --data)";
const NO_SLIDE: &str = "at addresses of which the profile does not tell where the image was loaded";
const UNPLACED: &str = "at addresses, and this file is not placed: its names would do";

/// Addresses of the upper half are the kernel's, on every 64-bit machine that is known here.
const UPPER_HALF: u64 = 1 << 63;
/// What is loaded is moved by whole pages.
const PAGE: u64 = 4096;

pub(super) struct Homes<'m, 'a> {
    image: Kind,
    file: &'m str,
    build_id: Option<&'m str>,
    segments: Vec<Segment>,
    /// The addresses of the image that can be touched.
    low: u64,
    high: u64,
    maps: &'m Maps<'a>,
    /// What each mapping is to the image, by its number; and what is added to the image's addresses there.
    known: Vec<(Relation, Option<u64>)>,
    /// Of a kernel; `None`: not told.
    slide: Option<u64>,
    /// By process, or thread where that is all that is told; what was learnt from symbols.
    learnt: HashMap<Option<u32>, u64>,
    pub(super) problems: Vec<String>,
}

/// What a mapping's file is to the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Itself,
    AnotherBuild,
    Other,
}

impl<'m, 'a> Homes<'m, 'a> {
    pub(super) fn of(image: &'m Image<'_>, samples: &'m Samples<'a>) -> Result<Homes<'m, 'a>> {
        let segments = image.segments();
        let loaded = || image.sections.iter().filter(|s| s.loaded && s.size > 0 && s.address > 0 && !s.tls);
        let (low, high) = match image.kind {
            Kind::Vmlinux => (
                loaded().map(|s| s.address).filter(|a| *a >= UPPER_HALF).min(),
                loaded().map(|s| s.address.saturating_add(s.size)).max(),
            ),
            _ => (
                segments.iter().map(|s| s.address).min(),
                segments.iter().map(|s| s.address.saturating_add(s.size)).max(),
            ),
        };
        let mut homes = Homes {
            image: image.kind,
            file: base(&image.path),
            build_id: image.build_id.as_deref(),
            segments,
            low: low.unwrap_or(0),
            high: high.unwrap_or(0),
            maps: &samples.maps,
            known: Vec::new(),
            slide: None,
            learnt: HashMap::new(),
            problems: Vec::new(),
        };
        let mut known: Vec<_> = samples.maps.all().map(|m| (m.number, homes.compare(m), homes.bias(m))).collect();
        known.sort_unstable_by_key(|k| k.0);
        homes.known = known.into_iter().map(|(_, relation, bias)| (relation, bias)).collect();
        homes.slide = homes.kernel_slide(image);
        let known = homes.slide.is_some() || samples.maps.all().any(|m| homes.relation(m) != Relation::Other);
        if !known && !image.kind.relocatable() && samples.format.has_addresses() {
            homes.learnt = learn(image, samples, &homes)?;
        }
        homes.tell_builds();
        Ok(homes)
    }

    fn kernel_slide(&self, image: &Image<'_>) -> Option<u64> {
        if self.image != Kind::Vmlinux {
            return None;
        }
        let own = self.maps.kernel().iter().filter(|m| m.file.starts_with("[kernel"));
        let mut slides = own.filter(|m| self.relation(m) == Relation::Itself).filter_map(|map| {
            let (_, symbol) = map.file.split_once(']')?;
            let linked = image.symbols.iter().find(|s| s.name == symbol && matches!(s.home, SymbolHome::Section(_)))?;
            Some(map.offset.wrapping_sub(linked.value))
        });
        slides.next()
    }

    fn tell_builds(&mut self) {
        let other = self.maps.all().find(|m| self.relation(m) == Relation::AnotherBuild);
        if let Some(id) = other.and_then(|m| m.build_id) {
            let own = self.build_id.unwrap_or("none");
            self.problems
                .push(format!("it was recorded with another build: build id {}, of the image {own}", in_hex(id)));
        }
    }

    fn relation(&self, map: &Map<'_>) -> Relation {
        self.known.get(map.number).map_or(Relation::Other, |k| k.0)
    }

    fn compare(&self, map: &Map<'_>) -> Relation {
        let same = self.build_id.zip(map.build_id).map(|(own, theirs)| own == in_hex(theirs));
        match (same, self.is_file(map.file)) {
            (Some(true), _) | (None, true) => Relation::Itself,
            (Some(false), true) => Relation::AnotherBuild,
            (_, false) => Relation::Other,
        }
    }

    /// Whether this is what a profile calls the image.
    pub(super) fn is_file(&self, file: &str) -> bool {
        let name = base(file.strip_suffix(" (deleted)").unwrap_or(file));
        match self.image {
            Kind::Vmlinux => file.starts_with("[kernel") || name.starts_with("vmlinux") || file == "[k]",
            Kind::Module => module(name) == module(self.file),
            _ => name == self.file,
        }
    }

    /// What is loaded to where a mapping of the image is, less where the image has it.
    fn bias(&self, map: &Map<'_>) -> Option<u64> {
        let holds = |s: &&Segment| {
            let start = s.offset & !(PAGE - 1);
            map.offset >= start && map.offset < s.offset.saturating_add(s.file_size.max(1))
        };
        let fits = |s: &&Segment| map.executable.is_none_or(|x| x == s.executable);
        let mut all = self.segments.iter().filter(holds);
        let segment = all.clone().find(fits).or_else(|| all.next())?;
        Some(map.start.wrapping_sub(segment.address.wrapping_sub(segment.offset).wrapping_add(map.offset)))
    }

    fn inside(&self, address: u64, bias: u64) -> Option<u64> {
        let own = address.wrapping_sub(bias);
        (self.low..self.high).contains(&own).then_some(own)
    }

    /// Where an address lies that a sample names.
    pub(super) fn home(&self, address: u64, sample: &Sample<'_>) -> Home {
        let kernel = address >= UPPER_HALF;
        if self.image.relocatable() {
            return Home::Elsewhere(UNPLACED);
        }
        match (self.image == Kind::Vmlinux, kernel) {
            (true, false) => Home::Elsewhere(USER_SPACE),
            (false, true) => Home::Elsewhere(KERNEL),
            (true, true) => self.in_kernel(address),
            (false, false) => self.in_process(address, sample),
        }
    }

    fn in_kernel(&self, address: u64) -> Home {
        let slide = self.slide.or_else(|| self.learnt.get(&None).copied());
        let Some(slide) = slide else {
            let other = self.maps.kernel().iter().any(|m| self.relation(m) == Relation::AnotherBuild);
            return Home::Elsewhere(if other { ANOTHER_BUILD } else { NO_SLIDE });
        };
        let module = || self.maps.kernel().iter().any(|m| !self.is_file(m.file) && (m.start..m.end).contains(&address));
        match self.inside(address, slide) {
            Some(own) => Home::Image(own),
            None if module() => Home::Elsewhere(ANOTHER_FILE),
            None => Home::Elsewhere(KERNEL_MEMORY),
        }
    }

    fn in_process(&self, address: u64, sample: &Sample<'_>) -> Home {
        let who = sample.process.or(sample.thread);
        if self.maps.is_empty() {
            let bias = self.learnt.get(&who);
            return match bias {
                None => Home::Elsewhere(NO_SLIDE),
                Some(bias) => self.inside(address, *bias).map_or(Home::Elsewhere(UNMAPPED), Home::Image),
            };
        }
        let mapped = || who.into_iter().flat_map(|who| self.maps.of(who, sample.time));
        // Pages of data belong to two segments as a rule; those of code to one. What begins as zeros lies behind the
        // file's mapping.
        let inside = |relation| {
            let own = || mapped().filter(|m| self.relation(m) == relation);
            let placing = own().filter(|m| m.executable != Some(false)).chain(own());
            placing.filter_map(|map| self.inside(address, self.known.get(map.number)?.1?)).next()
        };
        if let Some(own) = inside(Relation::Itself) {
            return Home::Image(own);
        }
        if inside(Relation::AnotherBuild).is_some() {
            return Home::Elsewhere(ANOTHER_BUILD);
        }
        let covering = mapped().find(|m| (m.start..m.end).contains(&address));
        Home::Elsewhere(covering.map_or(UNMAPPED, |map| elsewhere(map.file)))
    }
}

/// What the name of a mapping says, where it is not the image's.
pub(super) fn elsewhere(file: &str) -> &'static str {
    match file {
        "[stack]" => STACK,
        "[heap]" => HEAP,
        "//anon" | "" | "[anon]" | "anon" => ANONYMOUS,
        _ if file.starts_with("[kernel") => KERNEL,
        _ => ANOTHER_FILE,
    }
}

/// Where each process has the image, as most of its samples' symbols have it: of the pages that would put a symbol where
/// its address is.
fn learn(image: &Image<'_>, samples: &Samples<'_>, homes: &Homes<'_, '_>) -> Result<HashMap<Option<u32>, u64>> {
    let mut functions: HashMap<&str, (u64, u64)> = HashMap::new();
    for symbol in image.symbols.iter().filter(|s| matches!(s.kind, SymbolKind::Function) && s.size > 0) {
        // A name that several have says nothing.
        functions.entry(symbol.name.as_ref()).and_modify(|f| *f = (0, 0)).or_insert((symbol.value, symbol.size));
    }
    let mut votes: HashMap<Option<u32>, (u64, BTreeMap<u64, u64>)> = HashMap::new();
    samples.each(&mut |sample| {
        let (Some(Place::Symbol { name, offset, file }), Some(address)) = (sample.code, sample.code_address) else {
            return;
        };
        let Some(&(start, size)) = functions.get(name).filter(|(_, size)| *size > offset) else { return };
        if file.is_some_and(|file| !homes.is_file(file)) {
            return;
        }
        let who = if image.kind == Kind::Vmlinux { None } else { sample.process.or(sample.thread) };
        let known = votes.len();
        let Some((all, by_bias)) = (known < MOST).then(|| votes.entry(who).or_default()) else { return };
        *all += 1;
        // Without an offset it may be anywhere in the function.
        let (first, last) = if offset > 0 { (offset, offset) } else { (0, size - 1) };
        let highest = address.wrapping_sub(start.wrapping_add(first));
        let mut bias = highest & !(PAGE - 1);
        while highest.wrapping_sub(bias) <= last - first && by_bias.len() < MOST {
            *by_bias.entry(bias).or_insert(0) += 1;
            bias = bias.wrapping_sub(PAGE);
        }
    })?;
    let chosen = votes.into_iter().filter_map(|(who, (all, by_bias))| {
        let (bias, agree) = by_bias.into_iter().max_by_key(|(_, n)| *n)?;
        (agree.saturating_mul(3) >= all.saturating_mul(2)).then_some((who, bias))
    });
    Ok(chosen.collect())
}

/// Processes and places that are voted on.
const MOST: usize = 1 << 14;

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `[nf_tables]`, `nf_tables.ko`, `nf-tables.ko.xz`.
fn module(name: &str) -> String {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

fn in_hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
