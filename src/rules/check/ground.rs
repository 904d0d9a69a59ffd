//! What rules name, in one image: objects at their addresses, types and members at every base that they may have.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::finding::{Alternative, Subject};
use crate::image::{Home as SymbolHome, Image, SymbolKind};
use crate::objects::{Space, demangled, pad_by_name};
use crate::rules::names::{glob, means};
use crate::rules::types::{Mark, group_begun, group_ended, marks, shape};
use crate::rules::{Seen, natural_scalar};
use crate::types::{Definition, Field, Kind, Rows, TypeId, TypeTable, Types};
use crate::units::{Addr, Align, Span};

/// Spots of one name that are judged. More are named by a glob that means something else.
const MOST: usize = 20_000;

/// An alignment beyond every line: an object that has one place.
const FIXED: u64 = 1 << 30;

/// Inside what two places can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Home {
    Image(Space),
    /// One definition of a type.
    Type(usize),
}

/// Something that a rule names, where it lies.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// Which of the rule's names it answers.
    pub(super) target: usize,
    pub(super) home: Home,
    /// In its home.
    pub(super) span: Span,
    /// From one base of its home to the next.
    pub(super) step: Align,
    /// Index of the object.
    pub(super) object: Option<u32>,
    /// A member, not the whole.
    pub(super) member: bool,
    pub(super) subject: Subject,
}

/// One definition of a type that a rule names.
pub(super) struct Layout<'d> {
    pub(super) name: String,
    pub(super) id: TypeId,
    pub(super) size: u64,
    natural: u64,
    pub(super) rows: Rows<'d>,
    pub(super) marks: Vec<Mark>,
    file: Option<String>,
    line: Option<u32>,
}

/// One image, looked at by name.
pub(super) struct Ground<'s, 'i> {
    pub(super) seen: Seen<'s, 'i>,
    named: Option<&'s Types<'s>>,
    /// Names of data objects, aliases too, and indices.
    objects: Vec<(&'s str, u32)>,
    pub(super) layouts: Vec<Layout<'s>>,
    /// By shape.
    known: HashMap<u64, usize>,
    word: u64,
}

impl<'s, 'i> Ground<'s, 'i> {
    pub(super) fn of(image: &'s Image<'_>, seen: Seen<'s, 'i>, named: Option<&'s Types<'s>>) -> Ground<'s, 'i> {
        let objects = names(image, &seen);
        let word = crate::rules::types::allocator(image);
        Ground { seen, named, objects, layouts: Vec::new(), known: HashMap::new(), word }
    }

    /// Everything that a name or glob means; or why nothing is. Objects come before types of the same name, unless an
    /// offset is asked for.
    pub(super) fn spots(
        &mut self,
        (target, name): (usize, &str),
        align: Option<Align>,
        types_first: bool,
    ) -> Result<Vec<Spot>, String> {
        let plain = ["struct ", "union ", "class "].iter().find_map(|word| name.strip_prefix(word));
        let mut why = format!("no object and no type is called {name}");
        let mut spots = Vec::new();
        for types in [types_first, !types_first] {
            if spots.is_empty() && types {
                spots = self.of_types(target, plain.unwrap_or(name), align, &mut why);
            } else if spots.is_empty() && plain.is_none() {
                spots = self.of_objects(target, name, &mut why);
            }
        }
        if spots.len() > MOST {
            return Err(format!("{name} names {} places: more than are judged", spots.len()));
        }
        if spots.is_empty() { Err(why) } else { Ok(spots) }
    }

    fn of_objects(&self, target: usize, name: &str, why: &mut String) -> Vec<Spot> {
        let whole: Vec<Spot> =
            self.called(name).into_iter().filter_map(|index| self.object(target, index, "", "")).collect();
        if !whole.is_empty() {
            return whole;
        }
        // A name may hold points of its own.
        for (at, _) in name.match_indices(['.', '[']) {
            let (head, rest) = name.split_at(at);
            let found = self.called(head);
            if found.is_empty() {
                continue;
            }
            if found.iter().all(|index| self.seen.type_of(*index).is_none()) {
                *why = format!("the type of {head} is not known here, so its members are not");
            } else {
                *why = format!("{head} has no member or element {rest}");
            }
            let (indices, path) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
            let path = path.strip_prefix('.').unwrap_or(path);
            return found.into_iter().filter_map(|index| self.object(target, index, indices, path)).collect();
        }
        Vec::new()
    }

    fn called(&self, pattern: &str) -> Vec<u32> {
        let is = |name: &str| {
            means(pattern, name)
                || match demangled(name) {
                    Cow::Borrowed(_) => false,
                    Cow::Owned(plain) => means(pattern, &plain),
                }
        };
        let mut found: Vec<u32> = if pattern.contains(['*', '?', ':', '<']) {
            self.objects.iter().filter(|(name, _)| is(name)).map(|(_, index)| *index).collect()
        } else {
            let from = self.objects.partition_point(|(name, _)| *name < pattern);
            let rest = self.objects.get(from..).unwrap_or_default();
            rest.iter().take_while(|(name, _)| *name == pattern).map(|(_, index)| *index).collect()
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// An object, an element of it, or a member.
    fn object(&self, target: usize, index: u32, indices: &str, path: &str) -> Option<Spot> {
        let object = self.seen.lines.object(index)?;
        let subject = if indices.is_empty() && path.is_empty() {
            self.seen.subject(index)?
        } else {
            let (table, id) = self.seen.type_of(index)?;
            let field = element_and_member(table, (id, object.span.size), indices, path)?;
            let mut subject = self.seen.member(index, &field)?;
            let separator = if path.is_empty() { "" } else { "." };
            subject.name = format!("{}{indices}{separator}{path}", object.name);
            subject
        };
        let loose = self.seen.image.kind.relocatable() || object.space == Space::Thread;
        let section = self.seen.image.section(object.section).map_or(Align::ONE, |s| s.align);
        Some(Spot {
            target,
            home: Home::Image(object.space),
            span: Span { start: subject.address, size: subject.size },
            step: if loose { section } else { Align::new(FIXED).unwrap_or_default() },
            object: Some(index),
            member: !(indices.is_empty() && path.is_empty()),
            subject,
        })
    }

    fn of_types(&mut self, target: usize, name: &str, align: Option<Align>, why: &mut String) -> Vec<Spot> {
        let Some(types) = self.named.filter(|t| t.from.is_some()) else {
            if why.starts_with("no object") {
                *why = format!("no object is called {name}, and the image has no type information");
            }
            return Vec::new();
        };
        // The name of a template may hold points.
        let splits = std::iter::once((name, "")).chain(name.match_indices('.').filter_map(|(at, _)| {
            let (head, rest) = name.split_at_checked(at)?;
            Some((head, rest.strip_prefix('.')?))
        }));
        for (head, path) in splits {
            let called = |d: &&Definition<'s>| {
                let own = types.table.get(d.type_id).and_then(|t| t.name);
                means(head, &d.name) || own.is_some_and(|own| means(head, own))
            };
            let found: Vec<&Definition<'s>> = types.definitions.iter().filter(called).take(MOST).collect();
            if found.is_empty() {
                continue;
            }
            *why = format!("{head} has no member, element or group {path}");
            let mut layouts: Vec<usize> = found.into_iter().filter_map(|d| self.layout(&types.table, d)).collect();
            layouts.sort_unstable();
            layouts.dedup();
            return layouts.into_iter().flat_map(|at| self.of_layout(&types.table, target, at, path, align)).collect();
        }
        Vec::new()
    }

    fn of_layout(
        &self,
        table: &TypeTable<'s>,
        target: usize,
        at: usize,
        path: &str,
        align: Option<Align>,
    ) -> Vec<Spot> {
        let Some(layout) = self.layouts.get(at) else { return Vec::new() };
        let found: Vec<(String, u64, u64, Option<TypeId>)> = if path.is_empty() {
            vec![(String::new(), 0, layout.size, Some(layout.id))]
        } else if path.contains(['*', '?']) {
            let rows = layout.rows.list.iter().map(|row| (row.field.path.join("."), row));
            let named = rows.filter(|(own, _)| glob(path, own));
            named.map(|(own, r)| (own, r.field.offset, r.field.size.unwrap_or(0), Some(r.field.type_id))).collect()
        } else {
            let own = member_of(table, layout.id, path);
            let own = own.map(|f| (path.to_string(), f.offset, f.size.unwrap_or(0), Some(f.type_id)));
            let group = || {
                let group = layout.groups().into_iter().find(|g| g.name == path)?;
                Some((path.to_string(), group.span.start.0, group.span.size, None))
            };
            own.or_else(group).into_iter().collect()
        };
        let step = Align::new(align.map_or(self.word, Align::bytes).max(layout.natural)).unwrap_or_default();
        let spot = |(path, offset, size, type_id): (String, u64, u64, Option<TypeId>)| {
            let name = if path.is_empty() { layout.name.clone() } else { format!("{}.{path}", layout.name) };
            let first: Vec<&str> = path.split('.').take(1).filter(|p| !p.is_empty()).collect();
            Spot {
                target,
                home: Home::Type(at),
                span: Span { start: Addr(offset), size },
                step,
                object: None,
                member: !path.is_empty(),
                subject: Subject {
                    name,
                    section: String::new(),
                    address: Addr(offset),
                    size,
                    phase: self.seen.lines.line.phase_of(Addr(offset)),
                    type_name: type_id.map(|id| table.name(id)),
                    file: layout.file.clone(),
                    line: table.declared_line(layout.id, &first).or(layout.line),
                },
            }
        };
        found.into_iter().map(spot).collect()
    }

    /// Each shape once.
    fn layout(&mut self, table: &TypeTable<'s>, definition: &Definition<'s>) -> Option<usize> {
        let id = definition.type_id;
        let size = table.size(id)?;
        let rows = table.rows(id);
        let shape = shape(table, id, &definition.name, &rows);
        if let Some(at) = self.known.get(&shape) {
            return Some(*at);
        }
        let marks = marks(table, &rows);
        self.known.insert(shape, self.layouts.len());
        self.layouts.push(Layout {
            name: definition.name.clone(),
            id,
            size,
            natural: table.natural_align(id, natural_scalar(self.seen.image)),
            rows,
            marks,
            file: definition.file.map(|f| f.to_string()),
            line: definition.line,
        });
        Some(self.layouts.len() - 1)
    }

    /// Every definition that has groups, with the groups as spots.
    pub(super) fn groups(&mut self) -> Vec<Vec<Spot>> {
        let Some(types) = self.named else { return Vec::new() };
        let begins = |d: &&Definition<'s>| match types.table.bare(d.type_id).map(|t| &t.kind) {
            Some(Kind::Struct(members)) => members.iter().any(|m| m.name.is_some_and(|n| group_begun(n).is_some())),
            _ => false,
        };
        let with: Vec<&Definition<'s>> = types.definitions.iter().filter(begins).take(MOST).collect();
        let mut layouts: Vec<usize> = with.into_iter().filter_map(|d| self.layout(&types.table, d)).collect();
        layouts.sort_unstable();
        layouts.dedup();
        let of = |at: usize| {
            let names: Vec<String> =
                self.layouts.get(at).into_iter().flat_map(Layout::groups).map(|g| g.name).collect();
            let spots = names.iter().enumerate();
            spots.flat_map(|(n, name)| self.of_layout(&types.table, n, at, name, None)).collect()
        };
        layouts.into_iter().map(of).collect()
    }

    /// What lies beside a spot that is no padding, as far as it may come onto its lines: name and place in its home.
    pub(super) fn beside(&self, spot: &Spot) -> Vec<(Subject, Span)> {
        let line = self.seen.lines.line.bytes();
        let near = |span: Span| {
            span.start.0 < spot.span.end().saturating_add(line) && spot.span.start.0 < span.end().saturating_add(line)
        };
        let apart = |span: Span| span.end() <= spot.span.start.0 || spot.span.end() <= span.start.0;
        let mut found: Vec<(Subject, Span)> = Vec::new();
        match (spot.home, spot.object) {
            (Home::Type(at), _) => {
                let Some(layout) = self.layouts.get(at) else { return found };
                for (row, mark) in layout.rows.list.iter().zip(&layout.marks) {
                    let span = Span { start: Addr(row.field.offset), size: row.field.size.unwrap_or(0) };
                    if span.size > 0 && mark.tells(row) && near(span) && apart(span) {
                        let name = format!("{}.{}", layout.name, row.field.path.join("."));
                        found.push((
                            Subject { name, address: span.start, size: span.size, ..spot.subject.clone() },
                            span,
                        ));
                    }
                }
            }
            (Home::Image(space), Some(index)) => {
                if spot.member {
                    found.extend(self.members_beside(index, &near, &apart));
                }
                let lines = &self.seen.lines;
                let close = |i: &u32| lines.object(*i).is_some_and(|o| o.space == space && near(o.span));
                let objects = lines.near(index, close).filter_map(|i| Some((i, lines.object(i)?)));
                let others = objects.filter(|(i, o)| *i != index && apart(o.span) && !pad_by_name(o.name));
                found.extend(others.filter_map(|(i, o)| Some((self.seen.subject(i)?, o.span))));
            }
            (Home::Image(_), None) => {}
        }
        found
    }

    fn members_beside(
        &self,
        index: u32,
        near: &dyn Fn(Span) -> bool,
        apart: &dyn Fn(Span) -> bool,
    ) -> Vec<(Subject, Span)> {
        let (Some((table, id)), Some(object)) = (self.seen.type_of(index), self.seen.lines.object(index)) else {
            return Vec::new();
        };
        let rows = table.rows(id);
        let marks = marks(table, &rows);
        let told = rows.list.iter().zip(&marks).filter(|(row, mark)| mark.tells(row));
        let placed = told.filter_map(|(row, _)| {
            let start = Addr(object.span.start.0.saturating_add(row.field.offset));
            let span = Span { start, size: row.field.size.unwrap_or(0) };
            (span.size > 0 && near(span) && apart(span)).then_some(())?;
            Some((self.seen.member(index, &row.field)?, span))
        });
        placed.collect()
    }

    /// What it costs to begin something on a line of its own, with what follows on the next: of an element of an array,
    /// in every element.
    pub(super) fn price(&self, spot: &Spot) -> Option<Alternative> {
        let line = self.seen.lines.line.bytes();
        let up = |bytes: u64| bytes.checked_next_multiple_of(line).unwrap_or(bytes);
        let advice = format!("aligned({line}) on {}", spot.subject.name);
        let Home::Type(at) = spot.home else {
            let size = spot.span.size;
            let cost_bytes = up(spot.span.start.0) - spot.span.start.0 + self.seen.rest_of_line(size);
            return (!spot.member).then(|| Alternative { advice, size: up(size), lines: up(size) / line, cost_bytes });
        };
        let (layout, table) = (self.layouts.get(at)?, &self.named?.table);
        let path = spot.subject.name.strip_prefix(&layout.name)?.strip_prefix('.')?;
        let size = match path.split_once('[') {
            Some((array, _)) => {
                let field = member_of(table, layout.id, array)?;
                let elements = table.elements(field.type_id, field.size)?;
                let inside = spot.span.start.0.checked_sub(field.offset)?.checked_rem(elements.stride)?;
                let apart = up(elements.stride.checked_add(up(inside) - inside)?);
                layout.size.checked_add(elements.count.checked_mul(apart - elements.stride)?)?
            }
            None => layout.size.checked_add(up(spot.span.start.0) - spot.span.start.0)?,
        };
        let size = up(size);
        Some(Alternative { advice, size, lines: size / line, cost_bytes: size.saturating_sub(layout.size) })
    }

    /// The bytes around a spot of which it is known what lies there: those of an object of the type, up to where the next
    /// one could begin; those of a section that is not placed yet. `None`: all.
    pub(super) fn bounds(&self, spot: &Spot) -> Option<Range<u64>> {
        match (spot.home, spot.object) {
            (Home::Type(at), _) => Some(0..spot.step.up(self.layouts.get(at)?.size)),
            (Home::Image(_), Some(index)) if self.seen.image.kind.relocatable() => {
                let section = self.seen.image.section(self.seen.lines.object(index)?.section)?;
                Some(section.address..section.address.saturating_add(section.size))
            }
            (Home::Image(_), _) => None,
        }
    }
}

/// Members between two markers.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) span: Span,
}

impl Layout<'_> {
    /// Of the type itself, not of what it holds.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        let mut groups = Vec::new();
        for row in self.rows.list.iter().filter(|row| row.field.path.len() == 1) {
            let Some(name) = row.field.path.last() else { continue };
            if let Some(begun) = group_begun(name) {
                open.insert(begun, row.field.offset);
            } else if let Some(ended) = group_ended(name)
                && let Some(start) = open.remove(ended)
            {
                let span = Span { start: Addr(start), size: row.field.offset.saturating_sub(start) };
                groups.push(Group { name: ended.to_string(), span });
            }
        }
        groups.retain(|g| g.span.size > 0);
        groups
    }
}

/// Data objects by name, aliases too.
fn names<'s>(image: &'s Image<'_>, seen: &Seen<'s, '_>) -> Vec<(&'s str, u32)> {
    let at: HashMap<(u32, u64), u32> =
        (0u32..).zip(&seen.lines.objects).map(|(i, o)| ((o.section, o.span.start.0), i)).collect();
    let data = image.symbols.iter().filter(|s| matches!(s.kind, SymbolKind::Data | SymbolKind::Tls));
    let mut found: Vec<(&str, u32)> = data
        .filter_map(|symbol| match symbol.home {
            SymbolHome::Section(section) => Some((symbol.name.as_ref(), *at.get(&(section, symbol.value))?)),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn member_of<'d>(table: &TypeTable<'d>, id: TypeId, path: &str) -> Option<Field<'d>> {
    let field = table.member(id, path)?;
    // The path is the rule's; what is borrowed from it is not needed.
    Some(Field { path: Vec::new(), offset: field.offset, size: field.size, align: field.align, type_id: field.type_id })
}

/// `[3].lock`, `.lock` or `[3]` of an object.
fn element_and_member<'d>(
    table: &TypeTable<'d>,
    (id, size): (TypeId, u64),
    indices: &str,
    path: &str,
) -> Option<Field<'d>> {
    let whole = Field { path: Vec::new(), offset: 0, size: Some(size), align: None, type_id: id };
    let element = table.element(whole, indices)?;
    if path.is_empty() {
        return Some(element);
    }
    let inner = member_of(table, element.type_id, path)?;
    Some(Field { offset: element.offset.checked_add(inner.offset)?, ..inner })
}
