//! [`Landings`] → [`Page`]: a row a variant, then what was left alone and why.

use std::collections::BTreeMap;

use super::page::{Block, Page, Table};
use crate::variant::{Entry, Landings};

/// How many names a note lists.
const NAMES: usize = 4;
const MISSED: usize = 8;

/// `folder`: where the variants were written.
#[must_use]
pub fn page(landings: &Landings, folder: &str) -> Page {
    let links: Vec<&str> = landings.versions.iter().map(|v| v.link.as_str()).collect();
    let mut page = Page {
        title: format!(
            "{}: {}, seed {}, line {} bytes",
            links.join(" and "),
            landings.kind,
            landings.seed,
            landings.line
        ),
        sentence: sentence(landings),
        blocks: vec![Block::Table(table(&landings.variants))],
        ..Page::default()
    };
    page.notes.extend(missed(&landings.variants));
    page.notes.extend(kept(landings));
    page.notes.extend(landings.problems.iter().map(|p| format!("problem: {p}")));
    page.notes.extend(landings.skipped.iter().map(|(why, n)| format!("left out: {n} {why}")));
    page.notes.push(format!("written to {folder}, with a plan for each and landed.json"));
    page
}

fn sentence(landings: &Landings) -> String {
    let n = landings.variants.len();
    let variants = if n == 1 { "1 variant was".to_owned() } else { format!("{n} variants were") };
    let made = format!("{variants} linked and proven");
    match landings.variants.iter().all(|v| v.kind == "placebo" && v.phases_moved == 0) {
        true => format!("{made}; no phase moved: useless for a phase test, right as its control (a placebo)."),
        false => format!("{made}."),
    }
}

fn table(variants: &[Entry]) -> Table {
    let heads = ["variant", ">phases moved", ">only addresses", ">on the promised phase", "build id"];
    let mut table = Table::new("", &heads);
    for v in variants {
        table.rows.push(vec![
            v.file.clone(),
            v.phases_moved.to_string(),
            v.addresses_moved.saturating_sub(v.phases_moved).to_string(),
            format!("{} of {}", v.met, v.promised),
            v.build_id.as_deref().map_or("none", |id| id.get(..16).unwrap_or(id)).to_owned(),
        ]);
    }
    table
}

fn missed(variants: &[Entry]) -> Vec<String> {
    let all: Vec<String> = variants
        .iter()
        .flat_map(|v| v.missed.iter().map(move |m| format!("missed in {}: {}: {}", v.file, m.unit, m.why)))
        .collect();
    let more = all.len().saturating_sub(MISSED);
    let more = (more > 0).then(|| format!("{more} more were missed: landed.json names them"));
    all.into_iter().take(MISSED).chain(more).collect()
}

/// The build's own by reason, most first; what the system and the linker add is kept as well, and only counted.
fn kept(landings: &Landings) -> Vec<String> {
    let own = |unit: &str| !unit.starts_with(['/', '(']);
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut others = 0;
    for kept in landings.versions.iter().flat_map(|v| &v.kept) {
        match own(&kept.unit) {
            true => reasons.entry(&kept.why).or_default().push(&kept.unit),
            false => others += 1,
        }
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, units)| std::cmp::Reverse(units.len()));
    let say = |(why, units): (&str, Vec<&str>)| {
        let mut names: Vec<String> = units.iter().take(NAMES).map(|u| (*u).to_owned()).collect();
        if units.len() > NAMES {
            names.push("…".to_owned());
        }
        format!("kept as they are: {}: {why} ({})", count(units.len()), names.join(", "))
    };
    let others = (others > 0).then(|| format!("kept as they are: {} of the system's and the linker's", count(others)));
    reasons.into_iter().map(say).chain(others).collect()
}

fn count(units: usize) -> String {
    if units == 1 { "1 unit".to_owned() } else { format!("{units} units") }
}
