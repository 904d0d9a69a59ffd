//! Every entry of a unit in turn, and which of them names are written behind: namespaces, and types that hold types.

use gimli::{Abbreviation, AttributeSpecification, AttributeValue, DwLang, EntriesRaw, UnitOffset};

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

/// What a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    Variables,
    Types,
}

/// Passes every entry of a unit that may hold what is looked for. `each` must read or skip the attributes; `None` from it
/// ends the walk as damage does.
pub(super) fn walk<'d>(
    dwarf: &Dwarf<'d>,
    number: u32,
    looks: Looks,
    each: impl FnMut(&mut Cursor<'_, 'd>, At, &Abbreviation) -> Option<()>,
) -> Walked {
    let mut walked = Walked::default();
    walked.whole = through(dwarf, number, looks, &mut walked.scopes, each).is_some();
    walked
}

fn through<'d>(
    dwarf: &Dwarf<'d>,
    number: u32,
    looks: Looks,
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
    // The depth that the cursor counts from.
    let mut lifted = 0;
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), lifted + entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            if scoped && let Some((_, scope)) = open.pop_if(|(inside, _)| depth == *inside) {
                scopes.close(scope, offset);
            }
            continue;
        };
        if scoped && abbreviation.has_children() && holds_names(abbreviation.tag()) {
            open.push((depth + 1, scopes.open(offset, open.last().map(|(_, scope)| *scope))));
        }
        let attributes = checked(abbreviation.attributes())?;
        if abbreviation.has_children() && barren(abbreviation.tag(), looks, scoped) {
            if let Some(next) = sibling(&mut entries, attributes)? {
                entries = unit.header.entries_raw(&unit.abbreviations, Some(next)).ok()?;
                lifted = depth;
            }
            continue;
        }
        each(&mut entries, At { unit: number, offset }, abbreviation)?;
    }
    Some(())
}

/// Whether nothing that is looked for can be inside: types that are no structs, and the calls of optimised code, which
/// are a large part of all entries. A struct of C holds no variable.
fn barren(tag: gimli::DwTag, looks: Looks, scoped: bool) -> bool {
    match tag {
        gimli::DW_TAG_enumeration_type
        | gimli::DW_TAG_array_type
        | gimli::DW_TAG_subroutine_type
        | gimli::DW_TAG_call_site
        | gimli::DW_TAG_GNU_call_site => true,
        _ => looks == Looks::Variables && !scoped && open_type(tag),
    }
}

/// Passes the attributes of an entry. `Some(None)`: where the next one beside it stands is not told.
fn sibling(entries: &mut Cursor<'_, '_>, attributes: &[AttributeSpecification]) -> Option<Option<UnitOffset>> {
    let Some(place) = attributes.iter().position(|a| a.name() == gimli::DW_AT_sibling) else {
        entries.skip_attributes(attributes).ok()?;
        return Some(None);
    };
    let (before, rest) = attributes.split_at_checked(place)?;
    let (own, after) = rest.split_first()?;
    entries.skip_attributes(before).ok()?;
    let value = entries.read_attribute(*own).ok()?.value();
    entries.skip_attributes(after).ok()?;
    // Only forward: damage must not make a walk without end.
    Some(match value {
        AttributeValue::UnitRef(next) => Some(next).filter(|next| *next > entries.next_offset()),
        _ => None,
    })
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
        if self.0.is_empty() {
            return None;
        }
        // What is defined outside of its scope, as in a type unit, is declared in it.
        let declared = dwarf.entry(at).and_then(|entry| entry.attr_value(gimli::DW_AT_specification));
        let declared = declared.and_then(|value| dwarf.target(at.unit, &value)).filter(|to| to.unit == at.unit);
        let mut parts = Vec::new();
        let mut scope = self.around(declared.unwrap_or(at).offset);
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
