//! Which binaries a look needs: blocks of four links, layouts of two, the aligned pair and the twin.
//!
//! Every draw has a stream of its own, by kind and number, so that one more block changes no other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::versions::{Version, Versions, hash};
use crate::error::{Error, Result};
use crate::measure::campaign::{CellRef, GroupCells};
use crate::measure::record::{Cell, Group, Matched};
use crate::variant::{self, Aim, Common, Landed, Lead, Plan, Targets, Unmatched};

/// Steps of the stack offset in bytes: what the ABI aligns the stack to.
const STACK_STEP: u32 = 16;
/// The largest stack offset: one page, after which phases repeat.
const STACK_MOST: u32 = 4096;

/// Makes the cells of a campaign.
pub struct Cells<'a> {
    versions: &'a Versions,
    common: Common,
    on_base: Targets,
    on_patched: Targets,
    folder: PathBuf,
    seed: u64,
}

/// A group that is linked and proven, and what it could not match.
pub struct Made {
    pub group: GroupCells,
    pub missed: Vec<Unmatched>,
    /// Variant name → blake3.
    pub hashes: BTreeMap<String, String>,
}

/// One cell to be made: whose code, and where it shall land.
struct Wanted<'a> {
    cell: Cell,
    version: &'a Version,
    kind: &'static str,
    targets: &'a Targets,
    lead: &'a Lead,
}

impl<'a> Cells<'a> {
    #[must_use]
    pub fn new(versions: &'a Versions, folder: PathBuf, seed: u64) -> Cells<'a> {
        let (base, patched) = (&versions.base.program, &versions.patched.program);
        let common = variant::common(base, patched);
        let of_common = |targets: Targets| -> Targets {
            targets.into_iter().filter(|(key, _)| common.units.contains(key)).collect()
        };
        let on_base = of_common(variant::targets_as_built(base));
        let on_patched = of_common(variant::targets_as_built(patched));
        Cells { versions, common, on_base, on_patched, folder, seed }
    }

    /// Blocks and layouts of those numbers, linked in parallel.
    pub fn groups(&self, blocks: std::ops::Range<u32>, layouts: std::ops::Range<u32>) -> Result<Vec<Made>> {
        let wanted: Vec<(Group, u32)> =
            blocks.map(|k| (Group::Block, k)).chain(layouts.map(|l| (Group::Layout, l))).collect();
        wanted
            .into_par_iter()
            .map(|(group, number)| match group {
                Group::Block => self.block(number),
                _ => self.layout(number),
            })
            .collect()
    }

    /// The four cells of block `number`; 0 is as built, the others are re-rolled in all that is not the landing.
    fn block(&self, number: u32) -> Result<Made> {
        let mut rng = self.rng(Group::Block, number);
        let (lead, stack) = match number {
            0 => (Lead::new(), 0),
            _ => (variant::random_lead(&self.versions.base.program, &mut rng), stack_offset(&mut rng)),
        };
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let cells = [
            (Cell::B0, base, "placebo", &self.on_base),
            (Cell::PB, patched, "transplant", &self.on_base),
            (Cell::BP, base, "transplant", &self.on_patched),
            (Cell::P0, patched, "placebo", &self.on_patched),
        ];
        let wanted = cells.map(|(cell, version, kind, targets)| Wanted { cell, version, kind, targets, lead: &lead });
        self.group(Group::Block, number, &wanted, stack)
    }

    /// Both versions on one drawn landing.
    fn layout(&self, number: u32) -> Result<Made> {
        let mut rng = self.rng(Group::Layout, number);
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let targets = variant::random_targets(&base.program, &patched.program, &mut rng);
        let stack = stack_offset(&mut rng);
        let lead = Lead::new();
        let wanted = [(Cell::B0, base), (Cell::P0, patched)].map(|(cell, version)| Wanted {
            cell,
            version,
            kind: "matched",
            targets: &targets,
            lead: &lead,
        });
        self.group(Group::Layout, number, &wanted, stack)
    }

    /// The aligned pair and the twin: beside the estimate, never in it.
    pub fn beside(&self) -> Result<Vec<Made>> {
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let plan = |version: &Version| variant::align_all(&version.program, 64, 64);
        let aligned =
            self.planned(Group::Aligned, [(Cell::B0, base, plan(base)), (Cell::P0, patched, plan(patched))])?;
        let twin = self.planned(Group::Twin, [(Cell::B0, base, Plan::no_op()), (Cell::P0, base, Plan::no_op())])?;
        Ok(vec![aligned, twin])
    }

    /// `matched 412 of 415 units`, from what block 0 and the first layouts missed.
    #[must_use]
    pub fn matched<'m>(&self, made: impl Iterator<Item = &'m Made>) -> Matched {
        let missed: Vec<&[Unmatched]> = made.map(|m| m.missed.as_slice()).collect();
        variant::matched_report(&self.common, &missed)
    }

    fn group(&self, group: Group, number: u32, wanted: &[Wanted], stack_offset: u32) -> Result<Made> {
        let mut made = Made::empty(group, number);
        for want in wanted {
            let path = self.path(group, number, want.cell)?;
            let Landed { variant, unmatched } = if number == 0 && group == Group::Block && want.kind == "placebo" {
                // As built: the same path through the tool, nothing changed.
                let variant = variant::make(&want.version.program, &want.version.link, &Plan::no_op(), &path)?;
                Landed { variant, unmatched: Vec::new() }
            } else {
                let aim = Aim {
                    kind: want.kind.to_string(),
                    seed: self.seed,
                    targets: want.targets.clone(),
                    lead: want.lead.clone(),
                };
                variant::land(&want.version.program, &want.version.link, &aim, &path)
                    .map_err(|e| Error { doing: format!("{} of {}", e.doing, want.version.name), ..e })?
            };
            made.missed.extend(unmatched);
            made.add(want.cell, variant.path, stack_offset)?;
        }
        Ok(made)
    }

    fn planned(&self, group: Group, cells: [(Cell, &Version, Plan); 2]) -> Result<Made> {
        let mut made = Made::empty(group, 0);
        for (cell, version, plan) in cells {
            let path = self.path(group, 0, cell)?;
            let variant = variant::make(&version.program, &version.link, &plan, &path)?;
            made.add(cell, variant.path, 0)?;
        }
        Ok(made)
    }

    fn path(&self, group: Group, number: u32, cell: Cell) -> Result<PathBuf> {
        let folder = self.folder.join(format!("{}-{number}", group_name(group)));
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(format!("creating {}", folder.display()), e))?;
        Ok(folder.join(format!("{cell:?}")))
    }

    fn rng(&self, group: Group, number: u32) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(((group as u64) << 32) | u64::from(number));
        rng
    }
}

impl Made {
    fn empty(group: Group, number: u32) -> Made {
        let group = GroupCells { group, number, cells: Vec::new() };
        Made { group, missed: Vec::new(), hashes: BTreeMap::new() }
    }

    fn add(&mut self, cell: Cell, path: PathBuf, stack_offset: u32) -> Result<()> {
        let name = format!("{}-{}/{cell:?}", group_name(self.group.group), self.group.number);
        self.hashes.insert(name, hash(&path)?);
        self.group.cells.push(CellRef { cell, path, stack_offset });
        Ok(())
    }

    /// Where its binaries lie.
    pub fn folder(&self) -> Option<&Path> {
        self.group.cells.first().and_then(|c| c.path.parent())
    }
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::Block => "block",
        Group::Layout => "layout",
        Group::Aligned => "aligned",
        Group::Twin => "twin",
    }
}

fn stack_offset(rng: &mut impl Rng) -> u32 {
    rng.random_range(0..=STACK_MOST / STACK_STEP) * STACK_STEP
}
