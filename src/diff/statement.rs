//! What is to be known of two images before all else.

use super::functions::Alignment;
use super::suspect::Suspect;
use super::types::TypeDiff;
use crate::image::{Image, Kind, Section};

/// Legal, and perhaps the most useful answer.
const NOTHING: &str = "nothing in these images explains a layout effect on hot data";
const RANDOMISED: &str = "the layout was randomised between these builds: offsets are not comparable";

pub(super) fn statements(
    (base, patched): (&Image<'_>, &Image<'_>),
    equal: bool,
    suspects: &[Suspect],
    types: Option<&TypeDiff>,
    alignment: &Alignment,
) -> Vec<String> {
    let mut statements = Vec::new();
    let seeds = (seed(base), seed(patched));
    let shuffled = types.is_some_and(|t| t.randomised);
    if shuffled || matches!(&seeds, (Some(a), Some(b)) if a != b) {
        statements.push(RANDOMISED.to_string());
    }
    if equal {
        statements.push("what is loaded is the same, byte for byte (build id aside)".to_string());
    }
    let members = types.is_some_and(|t| t.counts.came_together + t.counts.separated > 0);
    if !members && !suspects.iter().any(|s| s.kind == "data") {
        statements.push(NOTHING.to_string());
    }
    if alignment.starts_excluded {
        let bytes = alignment.base.all.min(alignment.patched.all);
        statements.push(format!(
            "every function starts on a line in both ({bytes}-byte alignment): where functions start explains nothing"
        ));
    }
    if base.kind.relocatable() {
        let when = if base.kind == Kind::Module { "loaded" } else { "linked" };
        statements.push(format!(
            "phases hold within a section only: where each section will begin is not known before it is {when}"
        ));
    }
    statements
}

/// A kernel whose structs were shuffled names the hash of its seed in its version magic.
fn seed(image: &Image<'_>) -> Option<Vec<u8>> {
    const MARK: &[u8] = b"RANDSTRUCT_";
    let named = |s: &&Section<'_>| s.name == ".modinfo" || s.name.starts_with(".rodata");
    let sections = image.sections.iter().filter(|_| image.kind.kernel()).filter(named);
    let found = sections.filter_map(|s| {
        let bytes = s.bytes?;
        let at = bytes.windows(MARK.len()).position(|w| w == MARK)?;
        let seed = bytes.get(at + MARK.len()..)?.iter().take_while(|b| b.is_ascii_hexdigit());
        Some(seed.copied().collect::<Vec<u8>>()).filter(|s| s.len() >= 8)
    });
    found.into_iter().next()
}
