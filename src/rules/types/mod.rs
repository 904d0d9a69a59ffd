//! Types on their lines: which members straddle one, which share one, and what is empty. Where an object of the type will
//! begin is the allocator's affair, so that what holds at some bases only is said as so many of so many.

mod findings;
mod members;
mod reorder;
mod suggest;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

use serde::Serialize;

use super::names::means;
use super::{Allow, Names, natural_scalar};
use crate::error::{Error, Result};
use crate::finding::{Finding, Sensitivity, Severity};
use crate::image::{Facts, Image, TypesFrom};
use crate::types::{Contention, Definition, Kind, Rows, TypeId, TypeTable, Types};
use crate::units::{Addr, Align, LineSize, Phase, Span};

pub use members::{Hole, Meets, MemberView, Occupancy};
pub(super) use members::{Mark, group_begun, group_ended, marks};
pub use suggest::Reorder;

/// The schema of [`TypeReport`].
pub const SCHEMA: &str = "straddle.type/1";

/// What is asked of [`types`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TypeAsk<'a> {
    /// Overrides the line of the image's machine.
    pub line: Option<LineSize>,
    pub double_line: bool,
    /// `TYPE`, a glob, or `TYPE.member[3].member`; without it: all types that have findings.
    pub name: Option<&'a str>,
    /// The phase of the object's first byte, in bytes.
    pub at: Option<u32>,
    /// To what the allocator aligns objects.
    pub align: Option<Align>,
    pub hot: Option<&'a Names>,
    pub allow: &'a [Allow],
}

impl<'a> TypeAsk<'a> {
    /// The type, and the path to a member in it.
    fn parts(&self) -> (Option<&'a str>, Option<&'a str>) {
        match self.name.and_then(|n| n.split_once('.')) {
            Some((name, path)) => (Some(name), Some(path)),
            None => (self.name, None),
        }
    }

    /// Whether a type of this name is asked for.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.parts().0.is_none_or(|pattern| means(pattern, name))
    }

    /// Whether a type of this name may have been meant.
    #[must_use]
    pub fn near(&self, name: &str) -> bool {
        let stem = self.name.and_then(|n| n.split(['.', '*', '?', '[', '<']).next()).unwrap_or_default();
        !stem.is_empty() && name.contains(stem)
    }
}

/// `straddle.type/1`.
#[derive(Clone, Debug, Serialize)]
pub struct TypeReport {
    pub schema: &'static str,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    pub image: Facts,
    /// By name; those with findings first where no name was given, contended and worst first.
    pub types: Vec<TypeView>,
}

/// One definition of a type.
#[derive(Clone, Debug, Serialize)]
pub struct TypeView {
    pub name: String,
    /// `struct` or `union`.
    pub kind: &'static str,
    /// In bytes.
    pub size: u64,
    /// What it needs, in bytes, as far as its members and the source tell.
    pub align: u64,
    /// The file that a definition stands in; `null` is unknown.
    pub unit: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Equal definitions that this one stands for, itself too.
    pub copies: u64,
    pub base: Base,
    /// Lines that an object touches, at the phase that is assumed.
    pub lines: u64,
    /// Holds a lock, an atomic or something volatile.
    pub contended: Option<Contention>,
    /// Of an object as a whole; only where it fits a line.
    pub sensitivity: Option<Sensitivity>,
    /// In the order of their declaration, each followed by what it holds.
    pub members: Vec<MemberView>,
    /// Bytes between members that none takes; `null` where not all members are known.
    pub holes: Option<Vec<Hole>>,
    /// Bytes after the last member.
    pub padding: u64,
    /// Worst first.
    pub findings: Vec<Finding>,
    /// Another order that makes it smaller; `null`: none was found.
    pub reorder: Option<Reorder>,
}

/// Where objects of a type begin: assumed, and said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Base {
    /// The phase that offsets are counted from, in bytes; `null`: any multiple of `align`, and lines are shown for 0.
    pub phase: Option<Phase>,
    /// To what objects are aligned, in bytes.
    pub align: u64,
    /// How many phases they may have.
    pub phases: u64,
}

/// Types that are looked at: ten times what a kernel has.
const MOST: usize = 1 << 20;

/// Members of all types together. All 9,000 of a kernel have a few hundred thousand.
const MOST_ROWS: usize = 1 << 22;

/// Lays types on lines.
///
/// # Errors
/// When the image has no types, or none of that name.
///
/// `types`: read by name, of those that are asked for ([`TypeAsk::wants`]).
pub fn types(image: &Image<'_>, types: &Types<'_>, ask: &TypeAsk<'_>) -> Result<TypeReport> {
    let doing = || match ask.name {
        Some(name) => format!("looking for the type `{name}` in {}", image.path),
        None => format!("reading the types of {}", image.path),
    };
    if types.from.is_none() {
        let error = Error::input(doing(), "it has no type information");
        return Err(error.hint("build it with -g, or --btf FILE"));
    }
    let line = ask.line.unwrap_or_else(|| image.line_size());
    if let Some(at) = ask.at.filter(|at| u64::from(*at) >= 2 * line.bytes()) {
        let problem = format!("no base has phase {at}: two lines are {} bytes", 2 * line.bytes());
        return Err(Error::input(doing(), problem).hint("--at 0"));
    }
    let (_, path) = ask.parts();
    let wanted = Wanted { line, ask, path, scalar: natural_scalar(image), word: allocator(image) };
    let mut skipped: BTreeMap<String, u64> = types.skipped.iter().map(|(r, n)| ((*r).to_string(), *n)).collect();
    let (mut views, any) = wanted.views(types, &mut skipped);
    if ask.name.is_some() && views.is_empty() {
        return Err(not_found(&types.definitions, &doing(), ask, path.is_some() && any));
    }
    let mut problems: Vec<String> = if ask.line.is_none() { image.line_problem() } else { None }.into_iter().collect();
    if types.from == Some(TypesFrom::Btf) {
        problems.push("BTF does not say what alignment the source asks for: it is taken from the members alone".into());
    }
    if ask.name.is_none() {
        let worst = |v: &TypeView| v.findings.first().map_or(Severity::Info, |f| f.severity);
        views.sort_by_key(|v| (v.contended.is_none(), worst(v), std::cmp::Reverse(v.findings.len()), v.name.clone()));
    } else {
        views.sort_by(|a, b| a.name.cmp(&b.name).then(b.copies.cmp(&a.copies)).then(a.size.cmp(&b.size)));
    }
    let facts = Facts { types_from: types.from, ..Facts::of(image, line) };
    Ok(TypeReport { schema: SCHEMA, problems, skipped, image: facts, types: views })
}

/// To what the smallest allocations are aligned, in bytes: the kernel's slabs to 8 (an architecture or a cache may ask for
/// more), malloc to two words.
pub(super) fn allocator(image: &Image<'_>) -> u64 {
    if image.kind.kernel() { 8 } else { 2 * image.class.pointer_size() }
}

/// Two definitions with one shape are one: the same name and the same members of the same names, types and places.
pub(super) fn shape(table: &TypeTable<'_>, id: TypeId, name: &str, rows: &Rows<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, table.size(id), matches!(table.bare(id).map(|t| &t.kind), Some(Kind::Union(_)))).hash(&mut hasher);
    for row in &rows.list {
        let field = &row.field;
        (&field.path, field.offset, field.size, field.align, row.parent).hash(&mut hasher);
        (row.bits.map(|b| (b.first, b.count)), table.name(field.type_id)).hash(&mut hasher);
    }
    hasher.finish()
}

fn not_found(known: &[Definition<'_>], doing: &str, ask: &TypeAsk<'_>, no_member: bool) -> Error {
    if no_member {
        return Error::input(doing, "the type has no such member or element").hint("the type's name alone lists them");
    }
    let mut near: Vec<&str> = known.iter().map(|d| d.name.as_str()).filter(|name| ask.near(name)).collect();
    near.sort_unstable_by_key(|n| (n.len(), *n));
    near.dedup();
    near.truncate(3);
    let error = Error::input(doing, "no struct or union that is known here is called so");
    if near.is_empty() { error.hint("no name at all lists those with findings") } else { error.hint(near.join(", ")) }
}

/// What is the same for every type of one question.
struct Wanted<'a> {
    line: LineSize,
    ask: &'a TypeAsk<'a>,
    path: Option<&'a str>,
    scalar: u64,
    word: u64,
}

/// One type at the places that its objects may have.
struct Place<'a, 'd> {
    table: &'a TypeTable<'d>,
    id: TypeId,
    name: &'a str,
    /// Where it is declared, and at which line.
    file: Option<&'a str>,
    declared: Option<u32>,
    rows: &'a Rows<'d>,
    line: LineSize,
    /// The phase that is assumed.
    at: u64,
    /// From one base to the next; a pair of lines or more: there is only one.
    step: Align,
    double_line: bool,
}

impl Place<'_, '_> {
    fn span(&self, offset: u64, size: u64) -> Span {
        Span { start: Addr(offset.saturating_add(self.at)), size }
    }

    /// Every object has the same phase in its line.
    fn known(&self) -> bool {
        self.step.bytes() >= self.line.bytes()
    }
}

impl Wanted<'_> {
    /// Those that are asked for, each shape once, and whether there is any.
    fn views(&self, types: &Types<'_>, skipped: &mut BTreeMap<String, u64>) -> (Vec<TypeView>, bool) {
        let ask = self.ask;
        let mut views: Vec<TypeView> = Vec::new();
        let mut seen: HashMap<u64, Option<usize>> = HashMap::new();
        let mut left = MOST_ROWS;
        for definition in types.definitions.iter().take(MOST) {
            let (id, name) = (definition.type_id, definition.name.as_str());
            let own = types.table.get(id).and_then(|t| t.name);
            let named = ask.wants(name) || own.is_some_and(|own| ask.wants(own));
            if !named || ask.hot.is_some_and(|hot| !hot.matches(name)) {
                continue;
            }
            if left == 0 {
                *skipped.entry("types left out: together they have too many members".to_string()).or_insert(0) += 1;
                continue;
            }
            let rows = types.table.rows(id);
            left = left.saturating_sub(rows.list.len());
            let shape = shape(&types.table, id, name, &rows);
            if let Some(at) = seen.get(&shape) {
                if let Some(view) = at.and_then(|at| views.get_mut(at)) {
                    view.copies += definition.copies;
                }
                continue;
            }
            if rows.cut {
                *skipped
                    .entry(
                        "types with more members than are told: too many, or of virtual or undefined bases".to_string(),
                    )
                    .or_insert(0) += 1;
            }
            let view = self.view(&types.table, definition, &rows, skipped);
            let view = view.filter(|v| ask.name.is_some() || !v.findings.is_empty());
            seen.insert(shape, view.is_some().then_some(views.len()));
            views.extend(view);
        }
        (views, !seen.is_empty())
    }

    fn view(
        &self,
        table: &TypeTable<'_>,
        definition: &Definition<'_>,
        rows: &Rows<'_>,
        skipped: &mut BTreeMap<String, u64>,
    ) -> Option<TypeView> {
        let (id, name) = (definition.type_id, definition.name.as_str());
        let size = table.size(id)?;
        let align = table.natural_align(id, self.scalar);
        let step = self.ask.align.map_or(self.word, Align::bytes).max(align);
        let line = self.line.bytes();
        let base = match self.ask.at {
            Some(at) => Base { phase: Some(Phase(at)), align: step, phases: 1 },
            None if step >= line => Base { phase: Some(Phase(0)), align: step, phases: 1 },
            None => Base { phase: None, align: step, phases: line / step },
        };
        let file = definition.file.map(|file| file.to_string());
        let place = Place {
            table,
            id,
            name,
            file: file.as_deref(),
            declared: definition.line,
            rows,
            line: self.line,
            at: u64::from(base.phase.unwrap_or_default().0),
            step: Align::new(if self.ask.at.is_some() { 2 * line } else { step }).unwrap_or_default(),
            double_line: self.ask.double_line,
        };
        let marks = members::marks(table, rows);
        let mut members = members::views(&place, &marks);
        let mut findings = findings::find(&place, &marks);
        let before = findings.len();
        findings.retain(|f| !super::names::allowed(self.ask.allow, f, Some(name)));
        if before > findings.len() {
            *skipped.entry(super::ALLOWED.to_string()).or_insert(0) += (before - findings.len()) as u64;
        }
        let detailed = self.ask.name.is_some();
        if let Some(path) = self.path {
            members = members::of_path(&place, members, path)?;
            let inside = |name: &str| {
                let rest = name.strip_prefix(place.name).and_then(|r| r.strip_prefix('.')).unwrap_or(name);
                members.iter().any(|m| m.path == rest)
            };
            findings.retain(|f| inside(&f.subject.name) || f.others.iter().any(|o| inside(&o.name)));
        }
        let whole = place.span(0, size);
        let lines = whole.lines(self.line);
        // Beside one member they are nobody's question.
        let (holes, padding) = if self.path.is_some() { (None, 0) } else { members::holes(&place, size) };
        Some(TypeView {
            name: name.to_string(),
            kind: if matches!(table.bare(id)?.kind, Kind::Union(_)) { "union" } else { "struct" },
            size,
            align,
            unit: definition.unit.map(str::to_string),
            file: file.clone(),
            line: definition.line,
            copies: definition.copies,
            base,
            lines: lines.end() - lines.start() + 1,
            contended: table.contention(id),
            sensitivity: (size > 0 && size <= line)
                .then(|| crate::layout::sensitivity(whole, &[], place.step, self.line)),
            members,
            holes,
            padding,
            findings,
            reorder: if detailed && self.path.is_none() {
                suggest::suggest(&place, size, align, self.scalar)
            } else {
                None
            },
        })
    }
}
