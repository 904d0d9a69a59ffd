//! Two images → what changed, what merely moved, and which moves could matter ([`Suspect`]).

mod content;
mod moves;
mod pair;
mod suspect;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::{Facts, Image, Sizes};
use crate::layout::Lines;
use crate::objects::Objects;
use crate::units::LineSize;

pub use content::{Sameness, loaded_content_equal};
pub use moves::Change;

/// The schema of [`Diff`].
pub const SCHEMA: &str = "straddle.diff/1";

/// What moved though its bytes are the same, as `straddle.diff/1` and `straddle.verdict/1` print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub name: String,
    /// `data` or `function`.
    pub kind: String,
    pub section: String,
    pub base: Place,
    pub patched: Place,
    /// Whether its own content differs between the two (relocated fields masked); `null` is unknown.
    pub bytes_changed: Option<bool>,
    pub evidence: String,
    pub readers: Option<u32>,
    pub writers: Option<u32>,
    /// The variant that would test it, in words.
    pub test: String,
}

/// Where a suspect lies in one of the two images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `"0x…"`.
    pub address: String,
    /// In bytes from the start of its line.
    pub phase: u32,
    /// The other objects on its lines.
    pub with: Vec<String>,
}

/// `straddle.diff/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    pub schema: &'static str,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    pub base: Facts,
    pub patched: Facts,
    /// Everything that is loaded is the same, byte for byte, but the build id.
    pub loaded_content_equal: bool,
    pub data: DataCounts,
    pub functions: FunctionCounts,
    /// `null`: no types were read.
    pub types: Option<()>,
    /// `null`: which units grew is not known without a link map.
    pub cause: Option<()>,
    /// Data objects that are not `same`.
    pub objects: Vec<Changed>,
    /// Functions that changed, were added or removed, or could not be decided.
    pub functions_changed: Vec<Changed>,
    pub types_changed: Option<()>,
    /// Most suspicious first.
    pub suspects: Vec<Suspect>,
}

/// The first five and `removed` sum to all of base; the last four are subsets of `moved` and `undecided`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataCounts {
    pub same: u64,
    pub moved: u64,
    pub resized: u64,
    pub content_changed: u64,
    /// Of equal size, with bytes that differ in what may be addresses: no relocations were kept to tell.
    pub undecided: u64,
    pub added: u64,
    pub removed: u64,
    pub rephased: u64,
    pub new_neighbours: u64,
    pub newly_straddling: u64,
    pub no_longer_straddling: u64,
}

/// `same + moved + changed + undecided + removed` is all of base; `rephased` is a subset of `moved` and `undecided`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionCounts {
    pub same: u64,
    pub moved: u64,
    pub rephased: u64,
    pub changed: u64,
    /// Of equal size, with other bytes: no relocations were kept that would tell a new operand from a new address.
    pub undecided: u64,
    pub added: u64,
    pub removed: u64,
}

/// One object that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub name: String,
    pub section: String,
    pub change: Change,
    /// `null`: added.
    pub base: Option<Spot>,
    /// `null`: removed.
    pub patched: Option<Spot>,
}

/// Where an object lies and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    pub address: crate::units::Addr,
    /// In bytes.
    pub size: u64,
    pub phase: crate::units::Phase,
}

/// Compares two builds of nearly the same program. `line` overrides the line of their machine.
///
/// # Errors
/// When one has no symbols, or the two are not of one machine and class.
pub fn diff(base: &Image<'_>, patched: &Image<'_>, line: Option<LineSize>) -> Result<Diff> {
    base.need_symbols()?;
    patched.need_symbols()?;
    if (base.machine, base.class) != (patched.machine, patched.class) {
        let doing = format!("comparing {} with {}", base.path, patched.path);
        let what = |i: &Image<'_>| format!("{} ({:?})", i.machine.name(), i.class).to_lowercase();
        return Err(Error::input(doing, format!("one is {}, the other {}", what(base), what(patched))));
    }
    let size = line.unwrap_or_else(|| base.line_size());
    let (data_a, data_b) = (Objects::data(base), Objects::data(patched));
    let (code_a, code_b) = (Objects::functions(base), Objects::functions(patched));
    let mut skipped = BTreeMap::new();
    for (version, objects) in [("base", &data_a), ("patched", &data_b), ("base", &code_a), ("patched", &code_b)] {
        for (reason, n) in &objects.skipped {
            *skipped.entry(format!("{version}: {reason}")).or_insert(0) += n;
        }
    }
    for (version, image) in [("base", base), ("patched", patched)] {
        for (reason, n) in &image.skipped {
            skipped.insert(format!("{version}: {reason}"), *n);
        }
    }
    let (content_a, content_b) =
        (content::Reader::of(base, &data_a, &code_a), content::Reader::of(patched, &data_b, &code_b));
    let content = content::Compare { base: &content_a, patched: &content_b };
    let (code_a, code_b) = (Lines::of(code_a, size), Lines::of(code_b, size));
    let (data_a, data_b) = (Lines::of(data_a, size), Lines::of(data_b, size));
    let data = moves::compare(base, &data_a, patched, &data_b, &content);
    let code = moves::compare(base, &code_a, patched, &code_b, &content);

    let mut suspects = suspect::data(&data);
    suspects.extend(suspect::functions(&code, &mut skipped));
    Ok(Diff {
        schema: SCHEMA,
        problems: problems(base, patched, line),
        skipped,
        base: Facts::of(base, size),
        patched: Facts::of(patched, size),
        loaded_content_equal: loaded_content_equal(base, patched),
        data: data.data_counts(),
        functions: code.function_counts(),
        types: None,
        cause: None,
        objects: data.changed(|_| true),
        functions_changed: code.changed(|c| c != Change::Moved),
        types_changed: None,
        suspects,
    })
}

fn problems(base: &Image<'_>, patched: &Image<'_>, line: Option<LineSize>) -> Vec<String> {
    let own = |version: &'static str, image: &Image<'_>| -> Vec<String> {
        image.problems.iter().map(|problem| format!("{version}: {problem}")).collect()
    };
    let mut problems = [own("base", base), own("patched", patched)].concat();
    problems.extend(line.map_or_else(|| base.line_problem(), |_| None));
    if [base, patched].iter().any(|i| i.sizes == Sizes::UpTo) {
        let problem = "symbols without sizes: each is taken to reach to the next one, so a gap that grew or shrank reads as \
                       another size";
        problems.push(problem.to_string());
    }
    problems
}

/// What moved though it did not change, most suspicious first: newly straddling, then new line-mates, then rephased.
#[must_use]
pub fn suspects(diff: &Diff) -> Vec<Suspect> {
    diff.suspects.clone()
}
