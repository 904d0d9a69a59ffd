//! Types on their lines: which members straddle one, which share one, and what is empty. Where an object of the type will
//! begin is the allocator's affair, so that what holds at some bases only is said as so many of so many.

mod findings;
mod members;
mod reorder;
mod suggest;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};

use serde::Serialize;

use super::names::glob;
use super::{Allow, Names, natural_scalar};
use crate::error::{Error, Result};
use crate::finding::{Finding, Sensitivity, Severity};
use crate::image::{Facts, Image};
use crate::types::{Contention, Kind, Rows, TypeId, TypeTable, Types};
use crate::units::{Addr, Align, LineSize, Phase, Span};

pub use members::{Hole, Meets, MemberView, Occupancy};
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

/// Lays types on lines.
///
/// # Errors
/// When the image has no types, or none of that name.
pub fn types(image: &Image<'_>, types: &Types<'_>, ask: &TypeAsk<'_>) -> Result<TypeReport> {
    let doing = || match ask.name {
        Some(name) => format!("looking for the type `{name}` in {}", image.path),
        None => format!("reading the types of {}", image.path),
    };
    if types.table.is_empty() {
        let error = Error::input(doing(), "it has no type information");
        return Err(error.hint("build it with -g, or --btf FILE"));
    }
    let line = ask.line.unwrap_or_else(|| image.line_size());
    if let Some(at) = ask.at.filter(|at| u64::from(*at) >= 2 * line.bytes()) {
        let problem = format!("no base has phase {at}: two lines are {} bytes", 2 * line.bytes());
        return Err(Error::input(doing(), problem).hint("--at 0"));
    }
    let (pattern, path) = match ask.name.and_then(|n| n.split_once('.')) {
        Some((name, path)) => (Some(name), Some(path)),
        None => (ask.name, None),
    };
    let wanted = Wanted { line, ask, path, scalar: natural_scalar(image), word: allocator(image) };
    let mut skipped: BTreeMap<String, u64> = types.skipped.iter().map(|(r, n)| ((*r).to_string(), *n)).collect();
    let mut views: Vec<TypeView> = Vec::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
    let mut shapes: Vec<u64> = Vec::new();
    for (id, name) in candidates(&types.table, pattern).take(MOST) {
        if ask.hot.is_some_and(|hot| !hot.matches(name)) {
            continue;
        }
        let rows = types.table.rows(id);
        let shape = shape(&types.table, id, name, &rows);
        *copies.entry(shape).or_insert(0) += 1;
        if !seen.insert(shape) {
            continue;
        }
        if rows.cut {
            *skipped.entry("types with more members than are read".to_string()).or_insert(0) += 1;
        }
        let Some(view) = wanted.view(&types.table, id, name, &rows, &mut skipped) else { continue };
        if ask.name.is_some() || !view.findings.is_empty() {
            views.push(view);
            shapes.push(shape);
        }
    }
    for (view, shape) in views.iter_mut().zip(&shapes) {
        view.copies = copies.get(shape).copied().unwrap_or(1);
    }
    if let Some(name) = ask.name.filter(|_| views.is_empty()) {
        return Err(not_found(&types.table, &doing(), name, path.is_some() && !seen.is_empty()));
    }
    let problems = if ask.line.is_none() { image.line_problem() } else { None }.into_iter().collect();
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
fn allocator(image: &Image<'_>) -> u64 {
    if image.kind.kernel() { 8 } else { 2 * image.class.pointer_size() }
}

/// Structs and unions, by the name that a user would write: their own, or that of a typedef. With a pattern, those that
/// it matches; a typedef of something that has a name of its own counts only then.
fn candidates<'t>(table: &'t TypeTable<'_>, pattern: Option<&'t str>) -> impl Iterator<Item = (TypeId, &'t str)> {
    let wild = pattern.is_some_and(|p| p.contains(['*', '?']));
    table.iter().filter_map(move |(id, own)| {
        let name = own.name?;
        let open = |kind: &Kind<'_>| matches!(kind, Kind::Struct(_) | Kind::Union(_));
        let alias = matches!(own.kind, Kind::Alias { .. });
        let fits = match pattern {
            Some(pattern) if wild => glob(pattern, name),
            Some(exact) => exact == name,
            None => true,
        };
        let bare = if fits && alias { table.bare(id) } else { None };
        let named_itself = bare.is_some_and(|b| b.name.is_some());
        let is_it = if alias { bare.is_some_and(|b| open(&b.kind)) } else { open(&own.kind) };
        let once = !named_itself || (!wild && pattern.is_some());
        (fits && is_it && once).then_some((id, name))
    })
}

/// Two definitions with one shape are one: the same name and the same members of the same names, types and places.
fn shape(table: &TypeTable<'_>, id: TypeId, name: &str, rows: &Rows<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, table.size(id), matches!(table.bare(id).map(|t| &t.kind), Some(Kind::Union(_)))).hash(&mut hasher);
    for row in &rows.list {
        let field = &row.field;
        (&field.path, field.offset, field.size, field.align, row.parent).hash(&mut hasher);
        (row.bits.map(|b| (b.first, b.count)), table.name(field.type_id)).hash(&mut hasher);
    }
    hasher.finish()
}

fn not_found(table: &TypeTable<'_>, doing: &str, name: &str, no_member: bool) -> Error {
    if no_member {
        return Error::input(doing, "the type has no such member or element").hint("the type's name alone lists them");
    }
    let stem = name.split(['.', '*', '?', '[']).next().unwrap_or_default();
    let mut near: Vec<&str> =
        candidates(table, None).map(|(_, n)| n).filter(|n| !stem.is_empty() && n.contains(stem)).collect();
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
    fn view(
        &self,
        table: &TypeTable<'_>,
        id: TypeId,
        name: &str,
        rows: &Rows<'_>,
        skipped: &mut BTreeMap<String, u64>,
    ) -> Option<TypeView> {
        let size = table.size(id)?;
        let align = table.natural_align(id, self.scalar);
        let step = self.ask.align.map_or(self.word, Align::bytes).max(align);
        let line = self.line.bytes();
        let base = match self.ask.at {
            Some(at) => Base { phase: Some(Phase(at)), align: step, phases: 1 },
            None if step >= line => Base { phase: Some(Phase(0)), align: step, phases: 1 },
            None => Base { phase: None, align: step, phases: line / step },
        };
        let place = Place {
            table,
            id,
            name,
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
        let (holes, padding) = members::holes(&place, size);
        Some(TypeView {
            name: name.to_string(),
            kind: if matches!(table.bare(id)?.kind, Kind::Union(_)) { "union" } else { "struct" },
            size,
            align,
            unit: None,
            file: None,
            line: None,
            copies: 1,
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
