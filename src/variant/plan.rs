//! What one variant does to its objects, and what it promises.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::program::{Program, Unit};
use super::{Targets, UnitKey};
use crate::error::{Error, Result};
use crate::units::Phase;

/// Pads and alignments by unit, and the landing that they promise. Serialises as a readable list, one unit an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PlanFile", into = "PlanFile")]
pub struct Plan {
    /// How it came about: `no-op`, `matched`, `transplant`, `align-all`, …
    pub kind: String,
    pub seed: u64,
    /// Bytes appended to the unit's tail.
    pub pads: BTreeMap<UnitKey, u64>,
    /// The unit's alignment raised to so many bytes.
    pub aligns: BTreeMap<UnitKey, u64>,
    /// A variant that misses one of these is refused.
    pub targets: Targets,
    /// The build's own objects in another order ([`crate::link::Link::reordered`]); none: as built.
    pub order: Vec<String>,
}

impl Plan {
    /// The baseline is a variant too: the same path through the tool, nothing changed.
    #[must_use]
    pub fn no_op() -> Plan {
        Plan { kind: "no-op".into(), ..Plan::default() }
    }

    /// The plan with every entry that gives no index on the one unit that it means. Fails, with the entry's name, where
    /// an entry means none or several.
    pub fn fit(self, program: &Program) -> Result<Plan> {
        let fitted = |key: UnitKey| fit(key, program);
        Ok(Plan {
            pads: self.pads.into_iter().map(|(k, pad)| Ok((fitted(k)?, pad))).collect::<Result<_>>()?,
            aligns: self.aligns.into_iter().map(|(k, align)| Ok((fitted(k)?, align))).collect::<Result<_>>()?,
            targets: self.targets.into_iter().map(|(k, phase)| Ok((fitted(k)?, phase))).collect::<Result<_>>()?,
            ..self
        })
    }

    /// Whether it leaves every object as it is.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        self.pads.values().all(|&p| p == 0) && self.aligns.is_empty()
    }
}

fn fit(key: UnitKey, program: &Program) -> Result<UnitKey> {
    if key.index != ONLY {
        return Ok(key);
    }
    let is = |u: &&Unit| (&u.key.file, &u.key.member, &u.key.section) == (&key.file, &key.member, &key.section);
    let found: Vec<&Unit> = program.units.iter().filter(is).collect();
    let problem = match found.as_slice() {
        [one] => return Ok(one.key.clone()),
        [] => "the link has no such unit".to_owned(),
        several => format!("{} sections have this name; the entry needs an index", several.len()),
    };
    let name = UnitKey { index: 0, ..key };
    Err(Error::input(format!("reading the plan for {name}"), problem)
        .hint("a plan fits the build that it was made for"))
}

/// The index of an entry that gives none.
const ONLY: u32 = u32::MAX;

const SCHEMA: &str = "straddle.plan/1";

/// JSON keys are strings and its numbers are rounded to 53 bits, so: a list, and the seed in hex. A misspelt key is an
/// error: a plan that a person has edited must not lose an entry in silence.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    schema: String,
    kind: String,
    seed: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    order: Vec<String>,
    units: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    section: String,
    /// Always written; who writes a plan by hand may leave it out where there is one section of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pad: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    align: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
}

impl Entry {
    fn of(unit: &UnitKey) -> Entry {
        let UnitKey { file, member, section, index } = unit.clone();
        let index = (index != ONLY).then_some(index);
        Entry { file, member, section, index, pad: None, align: None, phase: None }
    }
}

impl From<Plan> for PlanFile {
    fn from(plan: Plan) -> PlanFile {
        let mut units: BTreeMap<UnitKey, Entry> = BTreeMap::new();
        let mut entry = |unit: &UnitKey, set: &dyn Fn(&mut Entry)| {
            set(units.entry(unit.clone()).or_insert_with(|| Entry::of(unit)));
        };
        plan.pads.iter().for_each(|(unit, &pad)| entry(unit, &|e| e.pad = Some(pad)));
        plan.aligns.iter().for_each(|(unit, &align)| entry(unit, &|e| e.align = Some(align)));
        plan.targets.iter().for_each(|(unit, &phase)| entry(unit, &|e| e.phase = Some(phase)));
        PlanFile {
            schema: SCHEMA.into(),
            kind: plan.kind,
            seed: format!("{:#x}", plan.seed),
            order: plan.order,
            units: units.into_values().collect(),
        }
    }
}

impl TryFrom<PlanFile> for Plan {
    type Error = String;

    fn try_from(file: PlanFile) -> std::result::Result<Plan, String> {
        if file.schema != SCHEMA {
            return Err(format!("schema {:?} is not {SCHEMA:?}", file.schema));
        }
        let seed = file.seed.strip_prefix("0x").and_then(|s| u64::from_str_radix(s, 16).ok());
        let seed = seed.ok_or("the seed is not 0x and hex digits")?;
        let mut plan = Plan { kind: file.kind, seed, order: file.order, ..Plan::default() };
        let mut seen = std::collections::BTreeSet::new();
        for Entry { file, member, section, index, pad, align, phase } in file.units {
            let unit = UnitKey { file, member, section, index: index.unwrap_or(ONLY) };
            if !seen.insert(unit.clone()) {
                return Err(format!("{unit} is listed twice"));
            }
            plan.pads.extend(pad.map(|pad| (unit.clone(), pad)));
            plan.aligns.extend(align.map(|align| (unit.clone(), align)));
            plan.targets.extend(phase.map(|phase| (unit, phase)));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_file_and_a_wrong_file_says_why() {
        let unit = |section: &str| UnitKey { file: "a.o".into(), member: None, section: section.into(), index: 0 };
        let plan = Plan {
            kind: "matched".into(),
            seed: u64::MAX,
            pads: [(unit(".data"), 8)].into(),
            aligns: [(unit(".bss"), 64)].into(),
            targets: [(unit(".data"), Phase(24)), (unit(".text"), Phase(0))].into(),
            order: vec!["b.o".into(), "a.o".into()],
        };
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
        let twice = json.replace(".bss", ".data");
        assert!(serde_json::from_str::<Plan>(&twice).unwrap_err().to_string().contains("listed twice"));
        let misspelt = json.replace("\"pad\"", "\"pads\"");
        assert!(serde_json::from_str::<Plan>(&misspelt).unwrap_err().to_string().contains("pads"));
    }
}
