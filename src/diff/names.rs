//! What an address names, in one image: an object and how far into it, a label, or nothing.

use std::collections::BTreeSet;

use crate::code::{Reader, To};
use crate::image::{Home, SymbolKind, Target};
use crate::layout::Lines;
use crate::objects::{Kind, Space, stem};

/// An object, by its index among those of its kind.
pub(super) type Ref = (Kind, u32);

/// All objects together may cover the file so many times.
const MOST_READ: u64 = 4;

/// Labels of one place that are looked at.
const MOST_LABELS: usize = 64;

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning<'i> {
    Object {
        object: Ref,
        offset: u64,
    },
    Name {
        name: &'i str,
        addend: i64,
    },
    /// In a section, and at no object.
    Bare {
        section: u32,
        address: u64,
    },
    /// Says nothing by itself.
    Nothing,
    Part(u64),
    Unknown,
}

/// Objects, labels and tables of addresses of one image.
pub(super) struct Names<'r, 'i> {
    pub(super) reader: &'r Reader<'i, 'i>,
    pub(super) data: &'r Lines<'i>,
    pub(super) code: &'r Lines<'i>,
    /// By space and start: space, start, end, object. Parts of other objects are left out.
    spans: Vec<(Option<u32>, u64, u64, Ref)>,
    /// Objects that are not read, by kind and index: see [`Names::heavy`].
    heavy: BTreeSet<Ref>,
    /// Names of places that are no objects: section, address, name.
    labels: Vec<(u32, u64, &'i str)>,
    /// All names but those of files and sections in the one space of a linked image, by address.
    named: Vec<(u64, &'i str)>,
}

impl<'r, 'i> Names<'r, 'i> {
    pub(super) fn of(reader: &'r Reader<'i, 'i>, data: &'r Lines<'i>, code: &'r Lines<'i>) -> Names<'r, 'i> {
        let mut spans = Vec::with_capacity(data.objects.len() + code.objects.len());
        for (kind, lines) in [(Kind::Data, data), (Kind::Function, code)] {
            for (index, o) in (0u32..).zip(&lines.objects) {
                let space = match o.space {
                    Space::Shared => None,
                    Space::Section(section) => Some(section),
                    Space::Thread => continue,
                };
                spans.push((space, o.span.start.0, o.span.end(), (kind, index)));
            }
        }
        spans.sort_unstable_by_key(|&(space, start, end, _)| (space, start, std::cmp::Reverse(end)));
        let mut reached = (None, 0);
        spans.retain(|&(space, _, end, _)| {
            let apart = reached.0 != space || end > reached.1;
            if apart {
                reached = (space, end);
            }
            apart
        });
        let image = reader.image;
        let named = image.symbols.iter().filter(|s| !matches!(s.kind, SymbolKind::File | SymbolKind::Section));
        let labels = named.filter(|s| s.size == 0 || s.kind == SymbolKind::Untyped).filter_map(|s| match s.home {
            Home::Section(section) if !s.name.is_empty() => Some((section, s.value, stem(&s.name))),
            _ => None,
        });
        let mut labels: Vec<_> = labels.collect();
        labels.sort_unstable();
        let anywhere = |s: &&crate::image::Symbol<'_>| match s.home {
            Home::Section(_) | Home::Absolute => s.size == 0 && !s.name.is_empty() && s.value > 0,
            _ => false,
        };
        let linked = !image.kind.relocatable();
        let named = image.symbols.iter().filter(|_| linked).filter(anywhere);
        let named = named.filter(|s| !matches!(s.kind, SymbolKind::File | SymbolKind::Section));
        let mut named: Vec<_> = named.map(|s| (s.value, stem(&s.name))).collect();
        named.sort_unstable();
        let mut left = MOST_READ.saturating_mul(image.file_size());
        let mut heavy = BTreeSet::new();
        for (kind, lines) in [(Kind::Data, data), (Kind::Function, code)] {
            for (index, object) in (0u32..).zip(&lines.objects) {
                left = left.saturating_sub(object.span.size);
                if left == 0 {
                    heavy.insert((kind, index));
                }
            }
        }
        Names { reader, data, code, spans, labels, named, heavy }
    }

    /// Whether an object's bytes are left unread: in a damaged file, every symbol can cover all of it.
    pub(super) fn heavy(&self, object: Ref) -> bool {
        self.heavy.contains(&object)
    }

    pub(super) fn unread(&self) -> u64 {
        self.heavy.len() as u64
    }

    /// Of an object, without what compilers append.
    pub(super) fn name(&self, (kind, index): Ref) -> Option<&'i str> {
        let lines = if kind == Kind::Data { self.data } else { self.code };
        lines.object(index).map(|o| stem(o.name))
    }

    pub(super) fn meaning(&self, to: To<'i>) -> Meaning<'i> {
        match to {
            To::Place { section, address } => self.at(section, address, true),
            To::Name { name, addend } => Meaning::Name { name: stem(name.split('@').next().unwrap_or(name)), addend },
            To::Part(part) => Meaning::Part(part),
            To::Page => Meaning::Nothing,
            To::Unknown => Meaning::Unknown,
        }
    }

    fn at(&self, space: Option<u32>, address: u64, follow: bool) -> Meaning<'i> {
        if let Some((object, offset)) = self.object(space, address) {
            return Meaning::Object { object, offset };
        }
        let Some(section) = space.or_else(|| self.reader.section_at(address)) else { return Meaning::Unknown };
        let table = self.reader.image.section(section).map(|s| s.name.as_ref()).unwrap_or_default();
        let linked = follow && space.is_none();
        let through = match table {
            name if linked && name.starts_with(".got") => self.entry(section, address),
            name if linked && (name.starts_with(".plt") || name == ".iplt") => self.stub(section, address),
            _ => None,
        };
        through.unwrap_or(Meaning::Bare { section, address })
    }

    fn object(&self, space: Option<u32>, address: u64) -> Option<(Ref, u64)> {
        let at = self.spans.partition_point(|&(s, start, ..)| (s, start) <= (space, address)).checked_sub(1)?;
        let &(own, start, end, object) = self.spans.get(at)?;
        (own == space && address < end).then(|| (object, address - start))
    }

    /// The object that ends at an address or shortly before it, and the one that begins there or shortly behind it: code
    /// that counts from one or up to its end refers to a place that is another object's, or nobody's.
    pub(super) fn beside(&self, to: To<'i>) -> [Option<(Ref, i64)>; 2] {
        const NEAR: u64 = 256;
        let To::Place { section: space, address } = to else { return [None; 2] };
        let at = self.spans.partition_point(|&(s, start, ..)| (s, start) <= (space, address));
        let here = |at: Option<usize>| at.and_then(|at| self.spans.get(at)).filter(|s| s.0 == space);
        let holds = here(at.checked_sub(1)).is_some_and(|&(_, _, end, _)| address < end);
        let before = here(at.checked_sub(if holds { 2 } else { 1 })).and_then(|&(_, _, end, object)| {
            let over = address.checked_sub(end).filter(|over| *over < NEAR)?;
            Some((object, over.cast_signed()))
        });
        let after = here(Some(at)).and_then(|&(_, start, _, object)| {
            let short = start.checked_sub(address).filter(|short| *short < NEAR)?;
            Some((object, -short.cast_signed()))
        });
        [before, after]
    }

    /// The labels exactly at a place: what a linker script calls the end of one thing is often the start of another.
    pub(super) fn exactly_at(&self, to: To<'i>) -> BTreeSet<&'i str> {
        let To::Place { section, address } = to else { return BTreeSet::new() };
        if let Some(section) = section {
            return self.labels(section, address).filter(|(_, behind)| *behind == 0).map(|l| l.0).unwrap_or_default();
        }
        let from = self.named.partition_point(|(at, _)| *at < address);
        let here = self.named.iter().skip(from).take_while(|(at, _)| *at == address);
        here.take(MOST_LABELS).map(|(_, name)| *name).collect()
    }

    /// The labels nearest to a place in its section, at or before it, and how far behind them it lies.
    pub(super) fn labels(&self, section: u32, address: u64) -> Option<(BTreeSet<&'i str>, u64)> {
        let end = self.labels.partition_point(|&(s, at, _)| (s, at) <= (section, address));
        let &(own, at, _) = self.labels.get(end.checked_sub(1)?)?;
        let start = self.labels.partition_point(|&(s, a, _)| (s, a) < (own, at));
        let here = self.labels.get(start..end)?.iter().take(MOST_LABELS).map(|&(_, _, name)| name);
        (own == section).then(|| (here.collect(), address - at))
    }

    /// What an entry of the global offset table leads to.
    fn entry(&self, section: u32, address: u64) -> Option<Meaning<'i>> {
        let reader = self.reader;
        let field = reader.relocations.within(section, address, address.saturating_add(1)).first();
        match field.map(|f| &f.target) {
            Some(Target::Address { address, .. }) => Some(self.at(None, *address, false)),
            Some(Target::Symbol { name, addend }) => {
                Some(self.meaning(self.reader.target(field?, None, 0)).or_name(name, *addend))
            }
            Some(Target::Unknown) => None,
            None => {
                let width = reader.image.class.pointer_size();
                let word = reader.word(reader.image.content(section, address, width)?);
                reader.holds(word).then(|| self.at(None, word, false))
            }
        }
    }

    /// What a stub of the procedure linkage table jumps to, by the entry of the offset table that it reads.
    fn stub(&self, section: u32, address: u64) -> Option<Meaning<'i>> {
        let image = self.reader.image;
        let home = image.section(section)?;
        let rest = home.address.saturating_add(home.size).checked_sub(address)?;
        let code = image.content(section, address, rest.min(16))?;
        let slot = match image.machine.0 {
            62 => {
                // endbr64 or a prefix may come first.
                let at = code.windows(2).take(6).position(|w| w == [0xff, 0x25])?;
                let by = code.get(at + 2..at + 6)?.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
                address.wrapping_add(at as u64 + 6).wrapping_add_signed(by.cast_signed().into())
            }
            183 => {
                let words: Vec<u32> =
                    code.chunks_exact(4).map(|c| c.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))).collect();
                let at = words.iter().position(|w| w & 0x9f00_001f == 0x9000_0010)?;
                let (page, load) = (*words.get(at)?, *words.get(at + 1)?);
                let pages = ((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3) << 11;
                let from = address.wrapping_add(4 * at as u64) & !0xfff;
                from.wrapping_add_signed(i64::from(pages.cast_signed() >> 11) << 12)
                    .wrapping_add(u64::from(load >> 10 & 0xfff) << 3)
            }
            _ => return None,
        };
        let table = self.reader.section_at(slot)?;
        self.entry(table, slot)
    }
}

impl<'i> Meaning<'i> {
    fn or_name(self, name: &'i str, addend: i64) -> Meaning<'i> {
        match self {
            Meaning::Object { .. } => self,
            _ => Meaning::Name { name: stem(name.split('@').next().unwrap_or(name)), addend },
        }
    }
}
