//! Types: Image → [`Types`], which variables an image declares and how their types are laid out, as its debug
//! information says, DWARF or BTF. Names borrow from it; nothing is copied.
//!
//! Of DWARF only what a variable at a fixed address contains is read: what it points to is named, not followed. A
//! kernel's is hundreds of megabytes, and the types of its variables are a small part of it. Of BTF every type is read.

mod btf;
mod contended;
mod dwarf;
mod flatten;
mod rows;
mod source;
mod weight;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde::Serialize;

use crate::image::TypesFrom;
use crate::units::Addr;

pub use btf::Btf;
pub use contended::Contention;
pub use dwarf::DebugSections;
pub use flatten::Field;
pub use rows::{Row, Rows};
pub use source::{Files, Source, Want};
pub use weight::Weights;

/// What debug information declares.
#[derive(Debug, Default)]
pub struct Types<'d> {
    /// `None`: nothing was read.
    pub from: Option<TypesFrom>,
    pub table: TypeTable<'d>,
    /// By section and address.
    pub variables: Vec<Variable<'d>>,
    /// What was asked for by name, by name; several of one name differ.
    pub definitions: Vec<Definition<'d>>,
    /// What could not be read, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl<'d> Types<'d> {
    /// The variables declared at a place (see [`Variable::section`]): one, or one for each unit that has a copy of an
    /// inline variable.
    #[must_use]
    pub fn at(&self, section: Option<u32>, address: Addr) -> &[Variable<'d>] {
        let from = self.variables.partition_point(|v| (v.section, v.address) < (section, address));
        let rest = self.variables.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|v| (v.section, v.address) == (section, address))).unwrap_or_default()
    }
}

/// A global or static variable at a fixed address.
#[derive(Clone, Debug, Serialize)]
pub struct Variable<'d> {
    pub name: Option<&'d str>,
    /// The symbol's name, where it differs: C++ and Rust.
    pub linkage_name: Option<&'d str>,
    /// Of a file that is not linked: the index of the section that `address` counts from. `None`: of a linked one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<u32>,
    pub address: Addr,
    pub file: Option<SourceFile<'d>>,
    pub line: Option<u32>,
    /// Asked for in the source, in bytes; `None` is its type's own.
    pub align: Option<u64>,
    #[serde(rename = "type")]
    pub type_id: Option<TypeId>,
}

/// A struct, a class or a union, or a typedef of one.
#[derive(Clone, Debug, Serialize)]
pub struct Definition<'d> {
    /// With what it is written behind: `ns::Outer`.
    pub name: String,
    #[serde(rename = "type")]
    pub type_id: TypeId,
    /// The source file that was compiled, of the first of equal ones.
    pub unit: Option<&'d str>,
    pub file: Option<SourceFile<'d>>,
    pub line: Option<u32>,
    /// Equal definitions, itself too.
    pub copies: u64,
}

/// Where a declaration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFile<'d> {
    /// `None`: the folder that the compiler ran in.
    pub folder: Option<&'d str>,
    pub name: &'d str,
}

impl fmt::Display for SourceFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.folder.filter(|_| !self.name.starts_with('/')) {
            Some(folder) => write!(f, "{folder}/{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// An index into a [`TypeTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TypeId(u32);

/// Types by [`TypeId`]. Equal types of two compilation units are two types. Damaged debug information can make cycles
/// (a typedef of itself), so that every walk here has a bound.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct TypeTable<'d> {
    list: Vec<Type<'d>>,
}

/// One type.
#[derive(Clone, Debug, Serialize)]
pub struct Type<'d> {
    /// `None`: anonymous, or made of another type's name (`int *`, `char [8]`): see [`TypeTable::name`].
    pub name: Option<&'d str>,
    /// What the name is written behind: `ns::Outer`.
    pub scope: Option<Box<str>>,
    /// In bytes, where it is written down: [`TypeTable::size`] works out the others.
    pub size: Option<u64>,
    /// Asked for in the source, in bytes.
    pub align: Option<u64>,
    pub kind: Kind<'d>,
}

/// What a type is made of.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind<'d> {
    Base,
    Enum,
    Function,
    /// And references. `to` is a name; `None` is `void` or a type that has no name.
    Pointer {
        to: Option<Cow<'d, str>>,
    },
    /// And classes.
    Struct(Vec<Member<'d>>),
    Union(Vec<Member<'d>>),
    Array {
        element: TypeId,
        /// Outermost dimension first; `None` is not known (`int a[]`).
        counts: Vec<Option<u64>>,
        /// From an innermost element to the next, in bytes, where it is not the element's size.
        stride: Option<u64>,
    },
    /// The same bytes as another type; `of` is `None` for `void`.
    Alias {
        how: Alias,
        of: Option<TypeId>,
    },
    /// Only declared, in another file, damaged, or of a kind that is not known here.
    Unknown,
}

/// How an alias differs from its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Alias {
    Typedef,
    /// And `restrict`: nothing that changes the layout or who may write.
    Const,
    Volatile,
    Atomic,
}

/// A member of a struct, or a base class of it.
#[derive(Clone, Debug, Serialize)]
pub struct Member<'d> {
    /// `None`: an anonymous struct or union, or a base class.
    pub name: Option<&'d str>,
    /// From the start of the struct, in bytes; of a bit field, of the byte that holds its first bit.
    pub offset: u64,
    /// Asked for in the source, in bytes.
    pub align: Option<u64>,
    pub bits: Option<Bits>,
    /// Of its declaration, in the file of the struct's.
    #[serde(skip)]
    pub line: Option<NonZeroU32>,
    #[serde(rename = "type")]
    pub type_id: TypeId,
}

/// Which bits of its bytes a bit field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bits {
    /// From the first bit of `Member::offset`, in the order of the machine's memory.
    pub first: u64,
    pub count: u64,
}

/// How long a chain of aliases or nested types is followed.
const DEEPEST: usize = 32;

impl<'d> TypeTable<'d> {
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<&Type<'d>> {
        self.list.get(id.0 as usize)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Every type that was read.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Type<'d>)> {
        (0..).map(TypeId).zip(&self.list)
    }

    /// The types that have this name of their own: a struct, and perhaps a typedef beside it; from DWARF one for each
    /// unit.
    pub fn named(&self, name: &str) -> impl Iterator<Item = (TypeId, &Type<'d>)> {
        self.iter().filter(move |(_, t)| t.name == Some(name))
    }

    /// The type behind typedefs and qualifiers.
    #[must_use]
    pub fn bare(&self, id: TypeId) -> Option<&Type<'d>> {
        self.chain(id).last().filter(|t| !matches!(t.kind, Kind::Alias { .. }))
    }

    /// A type and what it is an alias of, outermost first.
    fn chain(&self, id: TypeId) -> impl Iterator<Item = &Type<'d>> {
        let next = |t: &&Type<'d>| match t.kind {
            Kind::Alias { of: Some(of), .. } => self.get(of),
            _ => None,
        };
        std::iter::successors(self.get(id), next).take(DEEPEST)
    }

    /// In bytes; `None` where it is not known (`int a[]`, a type that is only declared).
    #[must_use]
    pub fn size(&self, id: TypeId) -> Option<u64> {
        self.size_within(id, DEEPEST)
    }

    fn size_within(&self, id: TypeId, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let kind = self.get(id)?;
        match &kind.kind {
            _ if kind.size.is_some() => kind.size,
            Kind::Alias { of: Some(of), .. } => self.size_within(*of, depth),
            Kind::Array { element, counts, stride } => {
                let stride = stride.or_else(|| self.size_within(*element, depth))?;
                counts.iter().try_fold(stride, |size, count| size.checked_mul((*count)?))
            }
            _ => None,
        }
    }

    /// The elements of an array's outermost dimension: how many, how far from one to the next in bytes, and of which
    /// type the innermost are. `whole` is the size of the array, where its type does not say (`int a[]`).
    #[must_use]
    pub fn elements(&self, id: TypeId, whole: Option<u64>) -> Option<Elements> {
        let Kind::Array { element, counts, stride } = &self.bare(id)?.kind else { return None };
        let (outer, inner) = counts.split_first()?;
        let innermost = stride.or_else(|| self.size(*element))?;
        let stride = inner.iter().try_fold(innermost, |size, count| size.checked_mul((*count)?))?;
        let count = outer.or_else(|| whole?.checked_div(stride))?;
        Some(Elements { count, stride, of: *element })
    }

    /// The alignment that the source asks for, on a variable or member of this type or on one of its typedefs.
    #[must_use]
    pub fn asked_align(&self, own: Option<u64>, id: TypeId) -> Option<u64> {
        own.into_iter().chain(self.chain(id).filter_map(|t| t.align)).max()
    }

    /// As a declaration would write it, at most a few hundred characters: `_Atomic long[8]`.
    #[must_use]
    pub fn name(&self, id: TypeId) -> String {
        let mut name = self.name_within(id, DEEPEST);
        if let Some((at, _)) = name.char_indices().nth(LONGEST_NAME) {
            name.truncate(at);
            name.push('…');
        }
        name
    }

    fn name_within(&self, id: TypeId, depth: usize) -> String {
        let (Some(depth), Some(own)) = (depth.checked_sub(1), self.get(id)) else { return "?".to_string() };
        if let Some(name) = own.name {
            let name = name.chars().take(LONGEST_NAME + 1);
            let scope = own.scope.iter().flat_map(|scope| [scope, "::"]).flat_map(str::chars);
            return scope.chain(name).collect();
        }
        match &own.kind {
            Kind::Pointer { to } => {
                format!("{} *", to.as_deref().unwrap_or("void").chars().take(LONGEST_NAME).collect::<String>())
            }
            Kind::Array { element, counts, .. } => {
                let dimensions = counts.iter().map(|c| c.map_or_else(|| "[]".to_string(), |c| format!("[{c}]")));
                self.name_within(*element, depth) + &dimensions.collect::<String>()
            }
            Kind::Alias { how, of } => {
                let of = of.map_or_else(|| "void".to_string(), |of| self.name_within(of, depth));
                let how = match how {
                    Alias::Typedef => return of,
                    Alias::Const => "const",
                    Alias::Volatile => "volatile",
                    Alias::Atomic => "_Atomic",
                };
                format!("{how} {of}")
            }
            Kind::Struct(_) => "struct {…}".to_string(),
            Kind::Union(_) => "union {…}".to_string(),
            Kind::Enum => "enum {…}".to_string(),
            Kind::Function => "function".to_string(),
            Kind::Base | Kind::Unknown => "?".to_string(),
        }
    }
}

/// In characters. Names of C++ templates can be pages long.
const LONGEST_NAME: usize = 200;

/// See [`TypeTable::elements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    pub count: u64,
    /// In bytes.
    pub stride: u64,
    /// The innermost type.
    pub of: TypeId,
}
