//! Code identity: the bytes of a function or a data object with the addresses in them masked, and what each address
//! refers to. Two builds of one source give equal bodies wherever they put things.
//!
//! Where relocations were kept they say which fields are addresses. Elsewhere decoding does: whatever counts from the
//! program counter. In a program that is linked at fixed addresses without them, plain numbers may be addresses too;
//! such fields are marked as not certain.

mod arm64;
mod x86;

use std::collections::HashMap;

use crate::image::{Class, Field, Home, Image, Kind, Relocations, SectionKind, SymbolKind, Target};

/// What an address in code or data refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To<'a> {
    /// `section`: in relocatable files, and of per-CPU and thread-local data, whose addresses count from it. `None`: in
    /// the one space of a linked image.
    Place { section: Option<u32>, address: u64 },
    /// Something of another file, or that only a name tells.
    Name { name: &'a str, addend: i64 },
    /// Part of an address whose rest is not known (arm64, where registers were joined): only itself says what it is.
    Part(u64),
    /// The page of an address: the rest, which another instruction adds, says which.
    Page,
    /// A field that is filled in, by rules that are not read here.
    Unknown,
}

/// A field that holds an address, masked in [`Body::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// From the start of the body, in bytes.
    pub at: u32,
    /// It surely is an address, not a number that looks like one.
    pub certain: bool,
    /// Bytes that the instruction loads or stores there; 0 is unknown.
    pub width: u32,
    pub to: To<'a>,
}

/// Instructions that jump back: from the head to the end of the last jump, from the start of the function, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loop {
    pub head: u32,
    pub end: u32,
}

/// A function or an object, its place aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body<'a> {
    /// With the fields of `links` zeroed.
    pub bytes: Vec<u8>,
    /// In address order.
    pub links: Vec<Link<'a>>,
    /// By head; one for each.
    pub loops: Vec<Loop>,
    /// Of code: its instructions are known here, so that bytes that differ are instructions that differ.
    pub decoded: bool,
}

/// Reads bodies of one image.
#[derive(Debug)]
pub struct Reader<'r, 'a> {
    pub image: &'r Image<'a>,
    pub relocations: &'r Relocations<'a>,
    /// Loaded sections of the one space, by address: start, end, index.
    loaded: Vec<(u64, u64, u32)>,
    /// Per-CPU sections of a kernel, whose addresses may overlap with others.
    per_cpu: Vec<(u64, u64, u32)>,
    /// Where each name is defined; `None`: at several places.
    defined: HashMap<&'r str, Option<(u32, u64)>>,
    /// What has no relocation is no address, unless it counts from the program counter.
    exact: bool,
}

impl<'r, 'a: 'r> Reader<'r, 'a> {
    /// `per_cpu`: the sections of which every CPU has a copy.
    #[must_use]
    pub fn of(image: &'r Image<'a>, relocations: &'r Relocations<'a>, per_cpu: &[u32]) -> Reader<'r, 'a> {
        let range = |(i, s): (u32, &crate::image::Section<'_>)| (s.address, s.address.saturating_add(s.size), i);
        let all = || (0u32..).zip(&image.sections).filter(|(_, s)| s.loaded && s.size > 0);
        let shared = |(i, s): &(u32, &crate::image::Section<'_>)| {
            !per_cpu.contains(i) && s.address > 0 && !(s.tls && s.kind == SectionKind::NoBits)
        };
        let mut loaded: Vec<_> = all().filter(shared).map(range).collect();
        loaded.sort_unstable();
        let mut defined: HashMap<&'r str, Option<(u32, u64)>> = HashMap::new();
        let named = image.symbols.iter().filter(|s| !matches!(s.kind, SymbolKind::File | SymbolKind::Section));
        for symbol in named.filter(|_| !relocations.is_empty()) {
            let Home::Section(section) = symbol.home else { continue };
            let here = Some((section, symbol.value));
            defined.entry(symbol.name.as_ref()).and_modify(|o| *o = o.filter(|_| *o == here)).or_insert(here);
        }
        let fixed = matches!(image.kind, Kind::Executable | Kind::Vmlinux);
        let per_cpu = all().filter(|(i, _)| per_cpu.contains(i)).map(range).collect();
        Reader { image, relocations, loaded, per_cpu, defined, exact: !fixed || relocations.in_code }
    }

    /// A function: its instructions are decoded where that is known for the machine. `None`: it has no bytes.
    #[must_use]
    pub fn function(&self, section: u32, address: u64, size: u64) -> Option<Body<'r>> {
        let code = self.image.content(section, address, size)?;
        let fields = self.relocations.within(section, address, address.saturating_add(size));
        let function = Function { reader: self, section, start: address, code, fields };
        Some(match (self.image.machine.0, self.image.class) {
            (3, Class::Elf32) => x86::body(&function, 32),
            (62, Class::Elf64) => x86::body(&function, 64),
            (183, Class::Elf64) if !self.image.big_endian => arm64::body(&function),
            _ => self.filled(code, address, fields),
        })
    }

    /// A data object. `None`: it has no bytes in the file.
    #[must_use]
    pub fn data(&self, section: u32, address: u64, size: u64) -> Option<Body<'r>> {
        let bytes = self.image.content(section, address, size)?;
        let fields = self.relocations.within(section, address, address.saturating_add(size));
        let mut body = self.filled(bytes, address, fields);
        if !self.exact {
            self.pointers(bytes, &mut body);
        }
        Some(body)
    }

    /// What relocations fill in.
    fn filled(&self, bytes: &[u8], start: u64, fields: &'r [Field<'a>]) -> Body<'r> {
        let mut body = Body { bytes: bytes.to_vec(), ..Body::default() };
        for field in fields {
            let Ok(at) = u32::try_from(field.address.wrapping_sub(start)) else { continue };
            let held = body.bytes.get(at as usize..).and_then(|rest| rest.get(..usize::try_from(field.width).ok()?));
            // In a program that is linked at fixed addresses a whole word is final.
            let whole = held.filter(|w| w.len() as u64 == self.image.class.pointer_size());
            let fixed = matches!(self.image.kind, Kind::Executable | Kind::Vmlinux);
            let word = whole.filter(|_| fixed).map(|w| self.word(w)).filter(|w| self.holds(*w));
            let to = self.target(field, word, 0);
            body.mask(at, field.width as usize, Link { at, certain: true, width: 0, to });
        }
        body
    }

    /// Words that hold what is an address here, where no relocation says so.
    fn pointers(&self, bytes: &[u8], body: &mut Body<'r>) {
        let width = self.image.class.pointer_size() as usize;
        let known: Vec<u32> = body.links.iter().map(|l| l.at).collect();
        let near = |at: u32| {
            let next = known.partition_point(|k| *k < at);
            let here = |at: Option<usize>| at.and_then(|at| known.get(at)).copied();
            [here(next.checked_sub(1)), here(Some(next))].into_iter().flatten().any(|k| k.abs_diff(at) < width as u32)
        };
        for (at, word) in (0u32..).step_by(width).zip(bytes.chunks_exact(width)) {
            let address = self.word(word);
            if self.holds(address) && !near(at) {
                let to = To::Place { section: None, address };
                body.mask(at, width, Link { at, certain: false, width: 0, to });
            }
        }
        body.links.sort_by_key(|l| l.at);
    }

    /// Whether an address lies in a loaded section of the one space, or at its end: tables end there.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        let at = self.loaded.partition_point(|&(start, _, _)| start <= address).checked_sub(1);
        at.and_then(|at| self.loaded.get(at)).is_some_and(|&(_, end, _)| address <= end)
    }

    /// The section that holds an address of the one space.
    #[must_use]
    pub fn section_at(&self, address: u64) -> Option<u32> {
        let at = self.loaded.partition_point(|&(start, _, _)| start <= address).checked_sub(1)?;
        self.loaded.get(at).filter(|&&(_, end, _)| address < end).map(|&(_, _, section)| section)
    }

    #[must_use]
    pub fn word(&self, bytes: &[u8]) -> u64 {
        let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        if self.image.big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    }

    /// What a relocated field refers to. `decoded`: the address that a linked image holds there. `rest`: how far a
    /// relative field's instruction ends behind the field; 0 for one that is not relative.
    #[must_use]
    pub fn target(&self, field: &Field<'a>, decoded: Option<u64>, rest: i64) -> To<'r> {
        let relocatable = self.image.kind.relocatable();
        let (section, address) = match field.target {
            Target::Address { section, address } => {
                // A reader of relocations takes a relative field for four bytes at the end of its instruction.
                (section, address.wrapping_add_signed(if rest > 0 { rest - 4 } else { 0 }))
            }
            Target::Symbol { name, addend } => match self.defined.get(name) {
                Some(Some((section, value))) => {
                    let addend = if field.got { 0 } else { addend.wrapping_add(rest) };
                    (*section, value.wrapping_add_signed(addend))
                }
                _ => return To::Name { name, addend: if field.got { 0 } else { addend.wrapping_add(rest) } },
            },
            Target::Unknown => {
                return decoded.filter(|_| !relocatable).map_or(To::Unknown, |address| self.place(address));
            }
        };
        let home = self.image.section(section);
        let own = relocatable || home.is_some_and(|s| s.tls) || self.per_cpu.iter().any(|p| p.2 == section);
        match (own, decoded.filter(|_| !relocatable && !field.got)) {
            (true, _) => To::Place { section: Some(section), address },
            (false, decoded) => To::Place { section: None, address: decoded.unwrap_or(address) },
        }
    }

    /// Of an address that has no relocation.
    #[must_use]
    pub fn place(&self, address: u64) -> To<'r> {
        let per_cpu = || self.per_cpu.iter().find(|&&(start, end, _)| (start..end).contains(&address));
        let section = if self.holds(address) { None } else { per_cpu().map(|p| p.2) };
        To::Place { section, address }
    }
}

/// One function that is read.
struct Function<'f, 'r, 'a> {
    reader: &'f Reader<'r, 'a>,
    section: u32,
    start: u64,
    code: &'f [u8],
    fields: &'r [Field<'a>],
}

impl<'r, 'a: 'r> Function<'_, 'r, 'a> {
    fn inside(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.start).filter(|o| *o < self.code.len() as u64)?;
        u32::try_from(offset).ok()
    }

    /// Of an address without a relocation. In a relocatable file only what lies in the same section is final.
    fn place(&self, address: u64) -> To<'r> {
        match self.reader.image.kind.relocatable() {
            true => To::Place { section: Some(self.section), address },
            false => self.reader.place(address),
        }
    }
}

impl<'a> Body<'a> {
    fn mask(&mut self, at: u32, width: usize, link: Link<'a>) {
        let start = at as usize;
        let end = start.saturating_add(width).min(self.bytes.len());
        if let Some(field) = self.bytes.get_mut(start..end) {
            field.fill(0);
        }
        self.links.push(link);
    }

    fn jump_back(&mut self, head: u32, end: u32) {
        self.loops.push(Loop { head, end });
    }

    /// One loop for each head, to the last jump back to it.
    fn finish(mut self) -> Body<'a> {
        self.loops.sort_unstable_by_key(|l| (l.head, std::cmp::Reverse(l.end)));
        self.loops.dedup_by_key(|l| l.head);
        self
    }
}
