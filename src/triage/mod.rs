//! From look to look: links → rounds → verdict, until the verdict is settled.
//!
//! ```text
//! Linked ─▶ rounds into a Record ─▶ Verdict ─▶ settled, or
//!   ▲                                            │
//!   └──────────── Linker: the next look ─────────┘
//! ```
//!
//! The world is behind two traits: [`Runner`] runs a variant, [`Linker`] makes the variants of a look.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::measure::campaign::{self, Campaign, Ended, GroupCells};
use crate::measure::record::{Group, LookNote, Pilot};
use crate::measure::run::Runner;
use crate::measure::stop::StopToken;
use crate::verdict::looks::{self, Look};
use crate::verdict::rounds::{MOST_ROUNDS, PILOT_ROUNDS};
use crate::verdict::{self, Cost, verdict};

/// A top-up ends after so many times the rounds of a cell, clean or not: then the machine is too busy, or a group can
/// never be clean, and the verdict says what is missing.
const SPARE: u32 = 2;

/// Groups that can run, and which files they are.
#[derive(Clone, Debug, Default)]
pub struct Linked {
    pub groups: Vec<GroupCells>,
    /// Variant name → blake3.
    pub hashes: BTreeMap<String, String>,
}

/// Makes the variants of a look. Its fake is in the tests of this room.
pub trait Linker {
    /// Blocks and layouts of those numbers, linked and proven.
    fn link(&mut self, blocks: Range<u32>, layouts: Range<u32>) -> Result<Linked>;

    /// The look is over: these groups do not run again.
    fn remove(&mut self, groups: &[GroupCells]);
}

/// Told between groups and looks, never during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// `left`: seconds of runs until the next look.
    Round { progress: campaign::Progress, left: f64 },
    /// What the rest will take.
    Pilot(Pilot),
    /// A look has not settled it; the next one is linked now.
    Undecided { blocks: usize },
}

/// A campaign that is led from look to look.
pub struct Triage<'a, R, L> {
    pub campaign: Campaign<R>,
    pub linker: &'a mut L,
    pub stop: StopToken,
    pub cost: Cost,
    pub tell: &'a mut dyn FnMut(Event),
}

impl<R: Runner, L: Linker> Triage<'_, R, L> {
    /// Rounds until the verdict is settled, the looks are used up, or somebody stops it. `first` are the groups of the
    /// first look with the arms beside it.
    ///
    /// # Errors
    /// When a run or a later link cannot be made. What was measured before is in the record, and may well decide.
    pub fn run(mut self, first: &[GroupCells]) -> Result<Ended> {
        if self.campaign.record().header.quick {
            return self.quick(first);
        }
        // A pilot that is stopped has chosen nothing yet.
        if let stopped @ Ended::Stopped(_) = self.rounds_of(first, PILOT_ROUNDS)? {
            return Ok(stopped);
        }
        let rounds = self.pilot()?;
        let mut ended = self.top_up(first, rounds)?;
        let mut look = looks::FIRST;
        loop {
            let record = self.campaign.record();
            let next = looks::after(Some(look), record.header.max_blocks as usize);
            let (Ended::Done, false, Some(next)) = (ended, verdict(record).settled(), next) else { return Ok(ended) };
            (self.tell)(Event::Undecided { blocks: look.blocks });
            ended = self.look(look, next, rounds)?;
            look = next;
        }
    }

    /// One block, so many rounds, one look.
    fn quick(&mut self, first: &[GroupCells]) -> Result<Ended> {
        let rounds = looks::QUICK_ROUNDS as u32;
        match self.rounds_of(first, rounds)? {
            Ended::Done => self.top_up(first, rounds),
            stopped => Ok(stopped),
        }
    }

    /// B, chosen once from the pilot; a record that is resumed knows it.
    fn pilot(&mut self) -> Result<u32> {
        let record = self.campaign.record();
        let price = (self.cost.link / self.cost.run).ceil() as u32;
        let rounds = verdict::rounds_wanted(record, price);
        let left = self.stop.remaining().map(|d| d.as_secs_f64());
        let pilot = self.campaign.note_pilot(verdict::forecast(record, rounds, self.cost, left))?;
        (self.tell)(Event::Pilot(pilot));
        Ok(pilot.rounds)
    }

    /// The blocks and layouts that the next look has more than the last: linked, run, and removed.
    fn look(&mut self, last: Look, next: Look, rounds: u32) -> Result<Ended> {
        let cycle = self.campaign.record().header.cycle;
        let (first, end) = (last.in_cycles(cycle), next.in_cycles(cycle));
        let (blocks, layouts) = (first.blocks as u32..end.blocks as u32, first.layouts as u32..end.layouts as u32);
        let groups = if self.campaign.record().looks().any(|l| l.blocks > blocks.end) {
            // A later look was begun, so the record holds this one whole.
            let past = |group| move |number| GroupCells::of_the_past(group, number);
            blocks.map(past(Group::Block)).chain(layouts.map(past(Group::Layout))).collect()
        } else {
            let look = LookNote { blocks: blocks.end, layouts: layouts.end, hashes: BTreeMap::new() };
            let Linked { groups, hashes } = self.linker.link(blocks, layouts)?;
            self.campaign.note_look(LookNote { hashes, ..look })?;
            groups
        };
        let mut ended = self.rounds_of(&groups, PILOT_ROUNDS)?;
        if ended == Ended::Done {
            ended = self.top_up(&groups, rounds)?;
        }
        self.linker.remove(&groups);
        Ok(ended)
    }

    /// More rounds for those of the groups that lack clean ones.
    fn top_up(&mut self, groups: &[GroupCells], rounds: u32) -> Result<Ended> {
        let names: Vec<(Group, u32)> = groups.iter().map(|g| (g.group, g.number)).collect();
        let end = self.campaign.next_round().saturating_add(rounds.max(MOST_ROUNDS).saturating_mul(SPARE));
        while self.campaign.next_round() < end {
            let lacking = verdict::lacking(self.campaign.record(), &names, rounds);
            let Some(most) = lacking.iter().map(|l| l.rounds).max() else { break };
            let lacks = |g: &&GroupCells| lacking.iter().any(|l| (l.group, l.number) == (g.group, g.number));
            let short: Vec<GroupCells> = groups.iter().filter(lacks).cloned().collect();
            let ended = self.rounds_of(&short, most.min(PILOT_ROUNDS))?;
            if ended != Ended::Done {
                return Ok(ended);
            }
        }
        Ok(Ended::Done)
    }

    fn rounds_of(&mut self, groups: &[GroupCells], rounds: u32) -> Result<Ended> {
        let start = self.campaign.next_round();
        let cells: usize = groups.iter().map(|g| g.cells.len()).sum();
        let (tell, seconds) = (&mut *self.tell, self.cost.run);
        let mut progress = |progress: campaign::Progress| {
            let share = progress.groups_done as f64 / progress.groups.max(1) as f64;
            let left = (f64::from(progress.rounds_end - progress.round) - share) * cells as f64 * seconds;
            tell(Event::Round { progress, left });
        };
        self.campaign.rounds(groups, start..start + rounds, &self.stop, &mut progress)
    }
}

#[cfg(test)]
mod tests;
