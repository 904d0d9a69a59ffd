//! Functions, and the code that is theirs.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::atlas::{self, Atlas};
use super::ops::{Decoder, Instructions, Op};
use crate::image::{Home, Image, SymbolKind};
use crate::objects::Objects;

/// One function, or a section of code without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Function<'i> {
    pub name: &'i str,
    /// Run at start or at exit only, split off as unlikely (`.init.text`, `x.cold`), or patched away.
    pub cold: bool,
    #[serde(skip)]
    pub(super) section: u32,
    /// In the atlas.
    #[serde(skip)]
    pub(super) start: u64,
    #[serde(skip)]
    pub(super) size: u64,
}

/// All code that a symbol covers.
pub(super) struct Code<'i> {
    image: &'i Image<'i>,
    /// By start; one for each start.
    pub(super) functions: Vec<Function<'i>>,
    /// What is each function's own: less what others that begin inside it cover. By function and start.
    pieces: Vec<Piece>,
    by_start: Vec<Piece>,
    /// `None` where several have it.
    by_name: HashMap<&'i str, Option<u32>>,
    /// In bytes.
    pub(super) unnamed: u64,
}

/// A function's own bytes, in the atlas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    function: u32,
    start: u64,
    end: u64,
}

/// In bytes. What only returns is shorter, with all that hardens it.
const TINY: u64 = 64;

impl<'i> Code<'i> {
    pub(super) fn of(image: &'i Image<'_>) -> Code<'i> {
        let mut functions = functions(image);
        functions.sort_unstable_by_key(|f| (f.section, f.start, std::cmp::Reverse(f.size)));
        functions.dedup_by_key(|f| (f.section, f.start));
        let mut pieces = pieces(&functions);
        pieces.sort_unstable();
        let covered: u64 = pieces.iter().map(|p| p.end - p.start).sum();
        let all = image.sections.iter().filter(|s| s.loaded && s.executable).map(|s| s.size).sum::<u64>();
        let mut by_start = pieces.clone();
        by_start.sort_unstable_by_key(|p| p.start);
        let mut by_name = HashMap::with_capacity(functions.len());
        for (index, function) in (0u32..).zip(&functions) {
            by_name.entry(function.name).and_modify(|f| *f = None).or_insert(Some(index));
        }
        Code { image, functions, pieces, by_start, by_name, unnamed: all.saturating_sub(covered) }
    }

    /// The function whose own an address is.
    pub(super) fn covering(&self, address: u64) -> Option<u32> {
        let at = self.by_start.partition_point(|p| p.start <= address).checked_sub(1)?;
        self.by_start.get(at).filter(|p| address < p.end).map(|p| p.function)
    }

    /// The function of a name that only one has.
    pub(super) fn called(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied().flatten()
    }

    /// Those of one function, in place of what `out` holds.
    pub(super) fn instructions(&self, function: u32, atlas: &Atlas<'_, '_>, decoder: Decoder, out: &mut Instructions) {
        out.ops.clear();
        out.unknown = 0;
        let from = self.pieces.partition_point(|p| p.function < function);
        let Some(own) = self.functions.get(function as usize) else { return };
        for piece in self.pieces.iter().skip(from).take_while(|p| p.function == function) {
            let (start, end) = (atlas::local(piece.start), atlas::local(piece.end - 1) + 1);
            let Some(code) = self.image.content(own.section, start, end - start) else { continue };
            let fields = atlas.relocations(own.section, start, end);
            decoder.decode(code, piece.start, fields, atlas, out);
        }
    }

    /// The functions that change no register: they only return, or jump to one that does (`__fentry__` and its like at
    /// the start of every function of a kernel). By index.
    pub(super) fn preserving(&self, atlas: &Atlas<'_, '_>, decoder: Decoder) -> HashSet<u32> {
        let mut instructions = Instructions::default();
        let mut candidates: HashMap<u32, Vec<u64>> = HashMap::new();
        for (index, _) in (0u32..).zip(&self.functions).filter(|(_, f)| f.size <= TINY) {
            self.instructions(index, atlas, decoder, &mut instructions);
            if let Some(jumps) = only_leaves(&instructions) {
                candidates.insert(index, jumps);
            }
        }
        let mut preserving: HashSet<u32> = HashSet::new();
        loop {
            let leads = |jump: &u64| atlas.function(*jump).is_some_and(|f| preserving.contains(&f));
            let more = candidates.iter().filter(|(_, jumps)| jumps.iter().all(leads)).map(|(index, _)| *index);
            let more: Vec<u32> = more.filter(|index| !preserving.contains(index)).collect();
            if more.is_empty() {
                return preserving;
            }
            preserving.extend(more);
        }
    }
}

/// Where the jumps of a function lead that does nothing else; `None` where it does.
fn only_leaves(instructions: &Instructions) -> Option<Vec<u64>> {
    let mut jumps = Vec::new();
    let mut leaves = false;
    for op in &instructions.ops {
        match op {
            Op::At(_) => {}
            Op::End => leaves = true,
            Op::Jump { target, conditional: false } => {
                jumps.push(*target);
                leaves = true;
            }
            _ => return None,
        }
    }
    (leaves && instructions.unknown == 0).then_some(jumps)
}

fn functions<'i>(image: &'i Image<'_>) -> Vec<Function<'i>> {
    let executable = |section: u32| image.section(section).filter(|s| s.loaded && s.executable);
    let function = |name: &'i str, section: u32, start: u64, size: u64| {
        let home = executable(section)?;
        let start = atlas::code_address(image, section, start);
        Some(Function { name, cold: cold(&home.name, name), section, start, size })
    };
    let typed = Objects::functions(image).list.into_iter();
    let typed = typed.filter_map(|o| function(o.name, o.section, o.span.start.0, o.span.size));
    // Assembly often has a size and no type.
    let untyped = image.symbols.iter().filter(|s| s.kind == SymbolKind::Untyped && s.size > 0);
    let untyped = untyped.filter_map(|s| {
        let Home::Section(section) = s.home else { return None };
        let home = executable(section)?;
        let end = s.value.checked_add(s.size)?;
        let inside = s.value >= home.address && end <= home.address.saturating_add(home.size);
        inside.then(|| function(s.name.as_ref(), section, s.value, s.size)).flatten()
    });
    let mut all: Vec<Function<'i>> = typed.chain(untyped).collect();
    // Code of no symbol at all (what a kernel patches away once it knows its CPU) has its section's name.
    let named: HashSet<u32> = all.iter().map(|f| f.section).collect();
    let sections = (0u32..).zip(&image.sections).filter(|(index, s)| s.size > 0 && !named.contains(index));
    all.extend(sections.filter_map(|(index, s)| function(s.name.as_ref(), index, s.address, s.size)));
    all
}

fn cold(section: &str, name: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| section.starts_with(p));
    starts(&[".init", ".exit", ".fini", ".text.unlikely", ".text.exit", ".head.", ".altinstr"])
        || name.split('.').skip(1).any(|part| part == "cold")
}

/// Disjoint; functions arrive by section and start, the longest first.
fn pieces(functions: &[Function<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(functions.len());
    let mut open: Vec<(u64, u32, u32)> = Vec::new();
    let mut cursor = 0;
    let mut emit = |function: u32, start: u64, end: u64| {
        if end > start {
            pieces.push(Piece { function, start, end });
        }
    };
    let mut close = |open: &mut Vec<(u64, u32, u32)>, cursor: &mut u64, section: u32, start: u64| {
        while let Some(&(end, function, home)) = open.last() {
            if home == section && end > start {
                emit(function, *cursor, start);
                break;
            }
            emit(function, *cursor, end);
            *cursor = end.max(*cursor);
            open.pop();
        }
        *cursor = start;
    };
    for (index, function) in (0u32..).zip(functions) {
        close(&mut open, &mut cursor, function.section, function.start);
        open.push((function.start.saturating_add(function.size), index, function.section));
    }
    close(&mut open, &mut cursor, u32::MAX, u64::MAX);
    pieces
}
