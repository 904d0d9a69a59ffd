//! Whether two objects or functions are the same, addresses aside: their bytes with every address masked, and what the
//! addresses refer to. Two references are the same if they lead to objects that are the same one by their identity, or
//! to one name; what has none is compared by its content.

use super::names::{Meaning, Names};
use super::pair::Partners;
use crate::code::{Body, Link};
use crate::image::SectionKind;
use crate::objects::{Kind, Object};

/// The answer of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sameness {
    Equal,
    Undecided,
    Different,
}

/// An object and its index.
pub(super) type Numbered<'o, 'i> = (u32, &'o Object<'i>);

/// What a comparison of bodies found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub sameness: Sameness,
    /// References to places without a name whose content could not be told to be the same.
    pub untold: u32,
}

/// Compares objects of two images.
pub(super) struct Compare<'r, 'i> {
    pub base: &'r Names<'r, 'i>,
    pub patched: &'r Names<'r, 'i>,
    pub partners: &'r Partners,
}

impl<'i> Compare<'_, 'i> {
    /// Both must be of one size. With the body of the first, where it has one.
    pub(super) fn objects(&self, (i, a): Numbered<'_, '_>, (j, b): Numbered<'_, '_>) -> (Found, Option<Body<'i>>) {
        let found = |sameness| Found { sameness, untold: 0 };
        let (x, y) = (body(self.base, (i, a)), body(self.patched, (j, b)));
        let zero = |names: &Names<'_, '_>, o: &Object<'_>| {
            names.reader.image.section(o.section).is_some_and(|s| s.kind == SectionKind::NoBits)
        };
        let (x, y) = match (x, y) {
            (Some(x), Some(y)) => (x, y),
            (None, None) if zero(self.base, a) && zero(self.patched, b) => return (found(Sameness::Equal), None),
            (Some(bytes), None) if zero(self.patched, b) => return (found(all_zero(&bytes)), None),
            (None, Some(bytes)) if zero(self.base, a) => return (found(all_zero(&bytes)), None),
            _ => return (found(Sameness::Undecided), None),
        };
        (self.bodies(a.kind, &x, &y), Some(x))
    }

    fn bodies(&self, kind: Kind, x: &Body<'i>, y: &Body<'i>) -> Found {
        let places = |body: &Body<'_>| body.links.iter().map(|l| l.at).collect::<Vec<_>>();
        let mut found = Found { sameness: Sameness::Equal, untold: 0 };
        if x.bytes != y.bytes || places(x) != places(y) {
            // Relative branches that the assembler resolved have no relocation: only decoding can tell.
            let told = kind == Kind::Data || x.decoded;
            found.sameness = if told { Sameness::Different } else { Sameness::Undecided };
            return found;
        }
        for (p, q) in x.links.iter().zip(&y.links) {
            found.sameness = found.sameness.max(self.links(p, q, &mut found.untold));
            if found.sameness == Sameness::Different {
                break;
            }
        }
        found
    }

    fn links(&self, p: &Link<'i>, q: &Link<'i>, untold: &mut u32) -> Sameness {
        use Meaning::{Bare, Name, Nothing, Object, Part, Unknown};
        let (a, b) = (self.base.meaning(p.to), self.patched.meaning(q.to));
        let is = |equal: bool| if equal { Sameness::Equal } else { Sameness::Different };
        let sameness = match (a, b) {
            (Object { object: x, offset: m }, Object { object: y, offset: n }) => is(m == n && self.partners.are(x, y)),
            (Name { name: x, addend: m }, Name { name: y, addend: n }) => is(x == y && m == n),
            (Bare { section: s, address: m }, Bare { section: t, address: n }) => {
                self.bare((s, m), (t, n), p.width.min(q.width), untold)
            }
            (Nothing, Nothing) => Sameness::Equal,
            (Part(x), Part(y)) if x == y => Sameness::Equal,
            (Part(_), Part(_)) => Sameness::Undecided,
            (Unknown, Unknown) if p.to == q.to => Sameness::Undecided,
            // Defined in one file and not in the other.
            (Name { name, addend }, Object { object, offset }) => {
                is(self.patched.name(object) == Some(name) && i64::try_from(offset) == Ok(addend))
            }
            (Object { object, offset }, Name { name, addend }) => {
                is(self.base.name(object) == Some(name) && i64::try_from(offset) == Ok(addend))
            }
            _ => Sameness::Different,
        };
        match sameness {
            Sameness::Equal => sameness,
            _ if self.beside(p, q) => Sameness::Equal,
            _ if !self.base.exactly_at(p.to).is_disjoint(&self.patched.exactly_at(q.to)) => Sameness::Equal,
            // The number itself did not change, and may be none.
            Sameness::Different if !p.certain && !q.certain && p.to == q.to => Sameness::Undecided,
            _ => sameness,
        }
    }

    /// Both count from the same object, and refer to the same distance before or behind it.
    fn beside(&self, p: &Link<'i>, q: &Link<'i>) -> bool {
        let (a, b) = (self.base.beside(p.to), self.patched.beside(q.to));
        a.into_iter().zip(b).any(|pair| match pair {
            (Some((x, m)), Some((y, n))) => m == n && self.partners.are(x, y),
            _ => false,
        })
    }

    /// Places without an object: by the label before them, or by what they hold.
    fn bare(&self, a: (u32, u64), b: (u32, u64), width: u32, untold: &mut u32) -> Sameness {
        let names = (self.base, self.patched);
        let section = |n: &Names<'_, '_>, s: u32| n.reader.image.section(s).map(|s| (s.name.to_string(), s.kind));
        if section(names.0, a.0) != section(names.1, b.0) {
            return Sameness::Different;
        }
        let (x, y) = (content(names.0, a), content(names.1, b));
        let writable = names.0.reader.image.section(a.0).is_none_or(|s| s.writable || s.executable);
        if let (Some(x), Some(y), false) = (x, y, writable) {
            if let Some((x, y)) = x.get(..width as usize).zip(y.get(..width as usize)).filter(|_| width > 0) {
                return if x == y { Sameness::Equal } else { Sameness::Different };
            }
            match (text(x), text(y)) {
                (Some(x), Some(y)) => return if x == y { Sameness::Equal } else { Sameness::Different },
                (None, None) => {}
                _ => return Sameness::Different,
            }
        }
        // The linker's own labels may come to lie at the same place: one name in common is enough.
        match (names.0.labels(a.0, a.1), names.1.labels(b.0, b.1)) {
            (Some((x, m)), Some((y, n))) if m == n && !x.is_disjoint(&y) => Sameness::Equal,
            (Some((_, 0)), Some((_, 0))) => Sameness::Different,
            _ => {
                *untold += 1;
                Sameness::Equal
            }
        }
    }
}

/// Whether it holds what one without bytes in the file holds.
fn all_zero(body: &Body<'_>) -> Sameness {
    let zero = body.links.is_empty() && body.bytes.iter().all(|b| *b == 0);
    if zero { Sameness::Equal } else { Sameness::Different }
}

/// An object's or function's body; `None` where it has no bytes in the file.
pub(super) fn body<'i>(names: &Names<'_, 'i>, (index, object): Numbered<'_, '_>) -> Option<Body<'i>> {
    if names.heavy((object.kind, index)) {
        return None;
    }
    let (reader, size) = (names.reader, object.span.size);
    let address = object.address(reader.image);
    match object.kind {
        Kind::Function => reader.function(object.section, address, size),
        Kind::Data => reader.data(object.section, address, size),
    }
}

/// What a section holds from an address on.
fn content<'i>(names: &Names<'_, 'i>, (section, address): (u32, u64)) -> Option<&'i [u8]> {
    let image = names.reader.image;
    let home = image.section(section)?;
    let rest = home.address.saturating_add(home.size).checked_sub(address)?;
    image.content(section, address, rest)
}

/// A string up to its end, if it is one that people can read.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    const LONGEST: usize = 4096;
    let end = bytes.iter().take(LONGEST).position(|b| *b == 0)?;
    let text = bytes.get(..end)?;
    let plain = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x1b | 0x20..=0x7e | 0x80..=0xff | 1..=7);
    (!text.is_empty() && text.iter().all(plain)).then_some(text)
}
