//! Every entry of a unit in turn, and which of them names are written behind: namespaces, and types that hold types.

use gimli::{Abbreviation, DwLang, EntriesRaw, UnitOffset};

use super::sections::Slice;
use super::units::{At, Dwarf, Unit, checked};
use crate::types::DEEPEST;

/// Where the walk is: `each` of [`walk`] reads or passes the attributes there.
pub(super) type Cursor<'u, 'd> = EntriesRaw<'u, Slice<'d>>;

/// The entries of one unit that hold named ones, in their order.
#[derive(Debug, Default)]
pub(super) struct Scopes(Vec<Scope>);

#[derive(Debug)]
struct Scope {
    start: UnitOffset,
    /// Past its last child.
    end: UnitOffset,
    parent: Option<u32>,
}

/// What a walk saw.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) scopes: Scopes,
    /// It came to the unit's end.
    pub(super) whole: bool,
}

/// Passes every entry of a unit. `each` must read or skip the attributes; `None` from it ends the walk as damage does.
pub(super) fn walk<'d>(
    dwarf: &Dwarf<'d>,
    number: u32,
    each: impl FnMut(&mut Cursor<'_, 'd>, At, &Abbreviation) -> Option<()>,
) -> Walked {
    let mut walked = Walked::default();
    walked.whole = through(dwarf, number, &mut walked.scopes, each).is_some();
    walked
}

fn through<'d>(
    dwarf: &Dwarf<'d>,
    number: u32,
    scopes: &mut Scopes,
    mut each: impl FnMut(&mut Cursor<'_, 'd>, At, &Abbreviation) -> Option<()>,
) -> Option<()> {
    let unit = dwarf.unit(number)?;
    if !unit.live {
        return Some(());
    }
    let scoped = scoped(unit);
    let mut open: Vec<(isize, u32)> = Vec::new();
    let mut entries = unit.header.entries_raw(&unit.abbreviations, None).ok()?;
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            if scoped && let Some((_, scope)) = open.pop_if(|(inside, _)| depth == *inside) {
                scopes.close(scope, offset);
            }
            continue;
        };
        if scoped && abbreviation.has_children() && holds_names(abbreviation.tag()) {
            open.push((depth + 1, scopes.open(offset, open.last().map(|(_, scope)| *scope))));
        }
        checked(abbreviation.attributes())?;
        each(&mut entries, At { unit: number, offset }, abbreviation)?;
    }
    Some(())
}

/// C has one scope for all types, also for those that are written inside another one.
fn scoped(unit: &Unit<'_>) -> bool {
    const DW_LANG_C17: DwLang = DwLang(0x2c);
    let c = [gimli::DW_LANG_C, gimli::DW_LANG_C89, gimli::DW_LANG_C99, gimli::DW_LANG_C11, DW_LANG_C17];
    !unit.language.is_some_and(|language| c.contains(&language))
}

fn holds_names(tag: gimli::DwTag) -> bool {
    tag == gimli::DW_TAG_namespace || tag == gimli::DW_TAG_module || open_type(tag)
}

/// A type whose members are laid out one by one.
pub(super) fn open_type(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_union_type
    )
}

impl Scopes {
    fn open(&mut self, start: UnitOffset, parent: Option<u32>) -> u32 {
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push(Scope { start, end: UnitOffset(usize::MAX), parent });
        number
    }

    fn close(&mut self, scope: u32, end: UnitOffset) {
        if let Some(scope) = self.0.get_mut(scope as usize) {
            scope.end = end;
        }
    }

    /// The innermost scope around an entry.
    fn around(&self, offset: UnitOffset) -> Option<&Scope> {
        let mut next = self.0.partition_point(|s| s.start < offset).checked_sub(1);
        for _ in 0..DEEPEST {
            let scope = self.0.get(next?)?;
            if offset < scope.end {
                return Some(scope);
            }
            next = scope.parent.map(|p| p as usize);
        }
        None
    }

    /// What a name at an entry is written behind: `ns::Outer`.
    pub(super) fn name(&self, dwarf: &Dwarf<'_>, at: At) -> Option<String> {
        let mut parts = Vec::new();
        let mut scope = self.around(at.offset);
        while let Some(here) = scope.filter(|_| parts.len() < DEEPEST) {
            let entry = dwarf.entry(At { unit: at.unit, offset: here.start })?;
            match dwarf.name(at.unit, &entry) {
                Some(name) if name.len() <= LONGEST_PART => parts.push(name),
                Some(_) => parts.push("…"),
                None if entry.tag() == gimli::DW_TAG_namespace => parts.push("(anonymous namespace)"),
                // The members of an anonymous struct are its holder's.
                None => {}
            }
            scope = here.parent.and_then(|p| self.0.get(p as usize));
        }
        parts.reverse();
        (!parts.is_empty()).then(|| parts.join("::"))
    }
}

/// In bytes. The names of all types behind one namespace repeat its name.
const LONGEST_PART: usize = 200;
