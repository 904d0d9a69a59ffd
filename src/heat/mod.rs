//! Heat: who reads and who writes which bytes. Decoded from the image alone: every instruction of every function that
//! touches a named object, and what functions do with an address that they are handed (a lock is mostly touched through
//! calls). Measured accesses have the same shape.
//!
//! What decoding cannot tell: how often a function runs and on how many CPUs; which object a pointer means that was
//! loaded from memory; which element an index picks ([`Access::indexed`]); what a callee does that is reached through a
//! pointer or a linkage table, or lies in another file (then only [`Kind::Address`] is known); code that is patched in at run time. Where
//! jump tables join paths, a register is believed to hold what it holds on the paths that are seen.

mod arm64;
mod atlas;
mod flow;
mod functions;
mod handed;
mod measured;
mod named;
mod ops;
mod users;
mod x86;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::error::Result;
use crate::finding::Evidence;
use crate::formats::Samples;
use crate::image::{Image, Relocations};
use crate::objects::Object;

use atlas::Atlas;
use flow::Found;
use functions::Code;
use measured::{Ground, References};
use ops::{Decoder, Instructions};

pub use functions::Function;
pub use measured::{Known, Named, Profile};
pub use named::Naming;
pub use users::Users;

/// What an access does. Of two that several functions make, the one further down weighs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its address is taken: compared, stored, or handed to a function that is not known or does not touch it.
    Address,
    Read,
    Write,
    /// Read, changed and written, not as one.
    ReadWrite,
    /// As one: `lock`-prefixed, exchanged, or the store of an exclusive pair.
    Atomic,
}

impl Kind {
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::ReadWrite | Kind::Atomic)
    }

    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::ReadWrite | Kind::Atomic)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Address => "address",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::ReadWrite => "read-write",
            Kind::Atomic => "atomic",
        }
    }
}

/// Equal accesses of one function to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// Index into the objects that were given.
    pub object: u32,
    /// From the object's start, in bytes.
    pub offset: u64,
    /// In bytes; 0 is unknown (and of [`Kind::Address`]).
    pub width: u32,
    pub kind: Kind,
    /// An index that is not known adds to `offset`: any element from there on.
    pub indexed: bool,
    /// Index into [`Heat::functions`], or [`NOBODY`].
    pub function: u32,
    /// The function that is handed the address and makes the access.
    pub through: Option<u32>,
    pub evidence: Evidence,
    /// Which one made it; `None`: not known, as of all that is decoded.
    pub cpu: Option<u32>,
    /// `None`: not known, or several.
    pub thread: Option<u32>,
    /// Instructions where decoded; samples or weights where measured.
    pub count: u64,
    /// Of those, how many found the line modified in the cache of another CPU.
    pub hitm: u64,
}

/// The function of an access of which none is known.
pub const NOBODY: u32 = u32::MAX;

/// Who reads and writes which bytes of the objects of an image.
#[derive(Clone, Debug, Default)]
pub struct Heat<'i> {
    /// By address.
    pub functions: Vec<Function<'i>>,
    /// By object, then offset.
    pub accesses: Vec<Access>,
    /// What could not be decoded or placed, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// What became of each profile.
    pub profiles: Vec<Profile>,
}

/// One reference from code, for comparing with another reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Of its instruction; in a relocatable file an offset into `section`.
    pub at: u64,
    pub section: u32,
    pub object: u32,
    pub kind: Kind,
}

impl<'i> Heat<'i> {
    /// Decodes all code of an image. `objects`: its data, by space and address. Uses the threads of the current pool.
    #[must_use]
    pub fn decoded(image: &'i Image<'_>, objects: &[Object<'_>]) -> Heat<'i> {
        // Without a profile nothing can be wrong.
        Heat::profiled(image, objects, &[], None).unwrap_or_default()
    }

    /// With what profiles tell. `known`: what the names in them mean.
    ///
    /// # Errors
    /// A profile that cannot be read to its end.
    pub fn profiled(
        image: &'i Image<'_>,
        objects: &[Object<'_>],
        profiles: &[Samples<'_>],
        known: Option<&dyn Known>,
    ) -> Result<Heat<'i>> {
        let relocations = image.code_relocations();
        let mut heat = Heat::default();
        let code = Code::of(image);
        let atlas = Atlas::of(image, objects, &relocations, &code.functions);
        let all = decode(image, &code, &atlas, &mut heat.skipped);
        let handed = handed::resolve(&all);
        let accesses = (0u32..).zip(&all).map(|(function, found)| handed.accesses(function, found));
        heat.accesses = accesses.flatten().collect();
        if let Some(known) = known {
            let (decoder, references) = (Decoder::of(image), References::of(&all));
            let ground = Ground { image, objects, code: &code, atlas: &atlas, decoder, references };
            for samples in profiles {
                let (accesses, profile) = measured::measure(&ground, samples, known)?;
                heat.accesses.extend(accesses);
                heat.profiles.push(profile);
            }
        }
        heat.functions = code.functions;
        merge(&mut heat.accesses);
        Ok(heat)
    }

    /// The accesses of one object, by offset.
    #[must_use]
    pub fn of(&self, object: u32) -> &[Access] {
        let from = self.accesses.partition_point(|a| a.object < object);
        let to = self.accesses.partition_point(|a| a.object <= object);
        self.accesses.get(from..to).unwrap_or_default()
    }

    #[must_use]
    pub fn function(&self, index: u32) -> Option<&Function<'i>> {
        self.functions.get(index as usize)
    }
}

/// The references that instructions themselves name, by instruction: without what registers hold and what callees do.
/// With `relocations` empty, only what the instructions say is believed.
#[must_use]
pub fn references(image: &Image<'_>, objects: &[Object<'_>], relocations: &Relocations<'_>) -> Vec<Reference> {
    let code = Code::of(image);
    let atlas = Atlas::of(image, objects, relocations, &code.functions);
    let all = decode(image, &code, &atlas, &mut BTreeMap::new());
    let functions = code.functions.iter().zip(all);
    let mut out: Vec<Reference> = functions
        .flat_map(|(function, found)| {
            let section = function.section;
            let named = found.own.into_iter().filter(|own| own.named);
            named.map(move |own| Reference {
                at: atlas::local(own.at),
                section,
                object: own.object,
                kind: own.reach.kind,
            })
        })
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// What each function does, by function; nothing of a machine that is not decoded.
fn decode(
    image: &Image<'_>,
    code: &Code<'_>,
    atlas: &Atlas<'_, '_>,
    skipped: &mut BTreeMap<&'static str, u64>,
) -> Vec<Found> {
    let Some(decoder) = Decoder::of(image) else {
        skipped.insert("code of this machine is not decoded", 1);
        return Vec::new();
    };
    let preserving = code.preserving(atlas, decoder);
    // Functions are as uneven as they get: a thousand pieces let two threads end together.
    let piece = code.functions.len() / 1024 + 1;
    let indices = (0..u32::try_from(code.functions.len()).unwrap_or(u32::MAX)).into_par_iter();
    let one = |instructions: &mut Instructions, function: u32| {
        code.instructions(function, atlas, decoder, instructions);
        flow::follow(instructions, atlas, &preserving, decoder.abi())
    };
    let found: Vec<Found> = indices.with_max_len(piece).map_init(Instructions::default, one).collect();
    for (reason, count) in found.iter().flat_map(|f| &f.skipped) {
        *skipped.entry(reason).or_insert(0) += count;
    }
    if code.unnamed > 0 {
        skipped.insert("bytes of code that no symbol covers", code.unnamed);
    }
    found
}

/// Equal accesses become one, their counts added.
fn merge(accesses: &mut Vec<Access>) {
    accesses.par_sort_unstable();
    accesses.dedup_by(|later, kept| {
        let same = later.cpu == kept.cpu && later.is_same_as(kept);
        if same {
            kept.thread = kept.thread.filter(|_| kept.thread == later.thread);
            kept.count = kept.count.saturating_add(later.count);
            kept.hitm = kept.hitm.saturating_add(later.hitm);
        }
        same
    });
}
