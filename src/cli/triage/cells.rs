//! Which binaries a look needs: blocks of four links, layouts of two, the aligned pair and the twin.
//!
//! Every draw has a stream of its own, by kind and number, so that one more block changes no other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::versions::{Version, Versions};
use super::work::clear;
use crate::error::{Error, Result};
use crate::link;
use crate::measure::campaign::{CellRef, GroupCells};
use crate::measure::record::{Cell, Group, Matched};
use crate::triage::{Linked, Linker};
use crate::variant::{self, Aim, Common, Landed, Lead, Lines, Plan, Targets, Unmatched, Variant};

/// Steps of the stack offset in bytes: what the ABI aligns the stack to.
const STACK_STEP: u32 = 16;
/// Stack offsets are below one page: there, phases repeat. (With a whole page among them, phase 0 came twice as often.)
const STACK_PERIOD: u32 = 4096;

/// Makes the cells of a campaign.
pub struct Cells<'a> {
    versions: &'a Versions,
    common: Common,
    on_base: Targets,
    on_patched: Targets,
    /// Landings of a full phase cycle; then layouts are cycles, one after the other.
    cycle: Option<u32>,
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

/// Whose landing.
#[derive(Clone, Copy)]
enum Side {
    Base,
    Patched,
}

/// One cell to be made: whose code, and where it shall land.
struct Wanted<'a> {
    cell: Cell,
    version: &'a Version,
    kind: &'static str,
    targets: &'a Targets,
    lead: &'a Lead,
    lines: Lines,
}

impl<'a> Cells<'a> {
    #[must_use]
    pub fn new(versions: &'a Versions, folder: PathBuf, seed: u64) -> Cells<'a> {
        let (base, patched) = (&versions.base.program, &versions.patched.program);
        let common = variant::common(base, patched);
        let of_common =
            |targets: Targets| -> Targets { targets.into_iter().filter(|(key, _)| common.has(key)).collect() };
        let on_base = of_common(variant::targets_as_built(base));
        let on_patched = of_common(variant::targets_as_built(patched));
        let mut cells = Cells { versions, common, on_base, on_patched, cycle: None, folder, seed };
        if cells.common.inside.iter().all(|unit| cells.paddable(&unit.key)) {
            cells.cycle = variant::cycle(&cells.common).map(|n| n as u32);
        }
        cells
    }

    fn paddable(&self, key: &variant::UnitKey) -> bool {
        let both = [&self.versions.base.program, &self.versions.patched.program];
        both.iter().all(|program| program.unit(key).is_some_and(|u| u.class.paddable()))
    }

    /// Layouts of a full phase cycle of what moved inside its object, if there is such a thing here.
    #[must_use]
    pub fn cycle(&self) -> Option<u32> {
        self.cycle
    }

    /// Whether what was to be turned through its phases stands on them in all of these. What has nothing in front of it
    /// that can be padded does not turn; then layouts are drawn as if there were no cycle.
    pub fn turns(&mut self, made: &[Made]) -> bool {
        let inside = |key: &variant::UnitKey| self.common.inside.iter().any(|unit| unit.key == *key);
        let layouts = made.iter().filter(|m| m.group.group == Group::Layout);
        let still = layouts.flat_map(|m| &m.missed).any(|(key, _)| inside(key));
        if still {
            self.cycle = None;
        }
        !still
    }

    /// Blocks and layouts of those numbers, linked in parallel.
    pub fn groups(&self, blocks: Range<u32>, layouts: Range<u32>) -> Result<Vec<Made>> {
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
        let mut made = Made::empty(Group::Block, number);
        for side in [Side::Base, Side::Patched] {
            self.side(side, number, &lead, stack, &mut made)?;
        }
        // The order in which a block's cells are listed everywhere.
        made.group.cells.sort_by_key(|c| c.cell);
        Ok(made)
    }

    /// One landing of a block: the code that was built there, and the other version's code, which follows it.
    fn side(&self, side: Side, number: u32, lead: &Lead, stack: u32, made: &mut Made) -> Result<()> {
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let (home, guest, targets, cells, place) = match side {
            Side::Base => (base, patched, &self.on_base, (Cell::B0, Cell::PB), "base's landing"),
            Side::Patched => (patched, base, &self.on_patched, (Cell::P0, Cell::BP), "patched's landing"),
        };
        // Its own distances need no help: with its own targets, only the lead is padded.
        let lines = Lines::new();
        let want = Wanted { cell: cells.0, version: home, kind: "placebo", targets, lead, lines };
        let first = self.cell(Group::Block, number, want, stack, made)?;
        let lines = variant::lines_of(&home.program, &first.places, &self.common);
        let want = Wanted { cell: cells.1, version: guest, kind: "transplant", targets, lead, lines };
        let second = self.cell(Group::Block, number, want, stack, made)?;
        let (b, p) = match side {
            Side::Base => (&first, &second),
            Side::Patched => (&second, &first),
        };
        self.compare(b, p, place, made);
        Ok(())
    }

    /// Both versions on one drawn landing. In a cycle, all of its layouts are one draw, turned on step by step.
    fn layout(&self, number: u32) -> Result<Made> {
        let (draw, turn) = self.cycle.map_or((number, 0), |of| (number / of, number % of));
        let mut rng = self.rng(Group::Layout, draw);
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let lead = Lead::new();
        let mut joint = variant::random_joint(&base.program, &patched.program, &self.common, &mut rng);
        if turn > 0 {
            // What cannot be padded follows from what can.
            joint.targets.retain(|key, _| self.paddable(key));
            let turned = variant::turned(&self.common, &joint.targets, u64::from(turn));
            joint = variant::together(&base.program, &patched.program, &self.common, &turned, &lead);
        }
        let stack = stack_offset(&mut rng);
        let mut made = Made::empty(Group::Layout, number);
        let want = |cell, version, lines| Wanted {
            cell,
            version,
            kind: "matched",
            targets: &joint.targets,
            lead: &lead,
            lines,
        };
        let b = self.cell(Group::Layout, number, want(Cell::B0, base, joint.lines.clone()), stack, &mut made)?;
        let p = self.cell(Group::Layout, number, want(Cell::P0, patched, joint.lines.clone()), stack, &mut made)?;
        self.compare(&b, &p, "a drawn landing", &mut made);
        Ok(made)
    }

    /// Names what differs between two cells that are to stand on one landing, by the linked files.
    fn compare(&self, base: &Variant, patched: &Variant, place: &str, made: &mut Made) {
        let (b, p) = (&self.versions.base.program, &self.versions.patched.program);
        let found = variant::differences((b, &base.places), (p, &patched.places), &self.common);
        made.missed.extend(found.into_iter().map(|(key, why)| (key, format!("on {place}, {why}"))));
    }

    /// Base linked a second time, beside itself: what the machine and this tool make of no difference at all.
    pub fn twin(&self) -> Result<Made> {
        let base = &self.versions.base;
        self.planned(Group::Twin, [(Cell::B0, base, Plan::no_op()), (Cell::P0, base, Plan::no_op())])
    }

    /// Both versions with everything aligned: beside the estimate, never in it, so a campaign can do without.
    pub fn aligned(&self) -> Result<Made> {
        let (base, patched) = (&self.versions.base, &self.versions.patched);
        let plan = |version: &Version| variant::align_all(&version.program, 64, 64);
        self.planned(Group::Aligned, [(Cell::B0, base, plan(base)), (Cell::P0, patched, plan(patched))])
    }

    /// `matched 412 of 415 units`, from what block 0 and the first layouts missed.
    #[must_use]
    pub fn matched<'m>(&self, made: impl Iterator<Item = &'m Made> + Clone) -> Matched {
        let missed: Vec<&[Unmatched]> = made.clone().map(|m| m.missed.as_slice()).collect();
        let mut matched = variant::matched_report(&self.common, &missed);
        let drawn: Vec<&[Unmatched]> =
            made.filter(|m| m.group.group == Group::Layout).map(|m| m.missed.as_slice()).collect();
        matched.rigid.extend(variant::held_apart(&self.versions.base.program, &drawn));
        matched
    }

    fn cell(&self, group: Group, number: u32, want: Wanted, stack: u32, made: &mut Made) -> Result<Variant> {
        let path = self.path(group, number, want.cell)?;
        let (program, link) = (&want.version.program, &want.version.link);
        let Landed { variant, unmatched } = if number == 0 && group == Group::Block && want.kind == "placebo" {
            // As built: the same path through the tool, nothing changed.
            Landed { variant: variant::make(program, link, &Plan::no_op(), &path)?, unmatched: Vec::new() }
        } else {
            let aim = Aim {
                kind: want.kind.to_string(),
                seed: self.seed,
                targets: want.targets.clone(),
                lead: want.lead.clone(),
                lines: want.lines,
                ..Aim::default()
            };
            variant::land(program, link, &aim, &path)
                .map_err(|e| Error { doing: format!("{} of {}", e.doing, want.version.name), ..e })?
        };
        made.missed.extend(unmatched);
        made.add(want.cell, variant.path.clone(), stack)?;
        Ok(variant)
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
        let folder = self.folder.join(format!("{}-{number}", group.name()));
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(format!("creating {}", folder.display()), e))?;
        Ok(folder.join(format!("{cell:?}")))
    }

    fn rng(&self, group: Group, number: u32) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(((group as u64) << 32) | u64::from(number));
        rng
    }
}

impl Linker for &Cells<'_> {
    fn link(&mut self, blocks: Range<u32>, layouts: Range<u32>) -> Result<Linked> {
        let mut linked = Linked::default();
        for made in self.groups(blocks, layouts)? {
            linked.groups.push(made.group);
            linked.hashes.extend(made.hashes);
        }
        Ok(linked)
    }

    fn remove(&mut self, groups: &[GroupCells]) {
        for cell in groups.iter().filter_map(|g| g.cells.first()) {
            // What stays behind goes with the folder of all variants.
            cell.path.parent().into_iter().for_each(|folder| drop(clear(folder)));
        }
    }
}

impl Made {
    fn empty(group: Group, number: u32) -> Made {
        let group = GroupCells { group, number, cells: Vec::new() };
        Made { group, missed: Vec::new(), hashes: BTreeMap::new() }
    }

    fn add(&mut self, cell: Cell, path: PathBuf, stack_offset: u32) -> Result<()> {
        let name = format!("{}-{}/{cell:?}", self.group.group.name(), self.group.number);
        self.hashes.insert(name, link::hash_file(&path)?);
        self.group.cells.push(CellRef { cell, path, stack_offset });
        Ok(())
    }
}

fn stack_offset(rng: &mut impl Rng) -> u32 {
    rng.random_range(0..STACK_PERIOD / STACK_STEP) * STACK_STEP
}
