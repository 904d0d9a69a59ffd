//! Which moves could matter: the same bytes, on other lines, ranked by who uses them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::functions::{Alignment, LoopMove, may_be_hot};
use super::moves::{Change, Move, Moves};
use super::names::Ref;
use super::pair::Partners;
use crate::finding::Sensitivity;
use crate::heat::{Heat, Users};
use crate::image::Image;
use crate::layout::{Lines, sensitivity};
use crate::objects::{Class, Kind, Object, contended_by_name, stem};
use crate::units::{Align, LineSize, Span};

/// What moved though its bytes are the same, as `straddle.diff/1` and `straddle.verdict/1` print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub name: String,
    /// `data`, `function` or `loop`.
    pub kind: String,
    pub section: String,
    pub base: Place,
    pub patched: Place,
    /// Whether its own content differs between the two (relocated fields masked); `null` is unknown.
    pub bytes_changed: Option<bool>,
    pub evidence: String,
    /// Functions that read and write it; `null` is unknown.
    pub readers: Option<u32>,
    pub writers: Option<u32>,
    /// The variant that would test it, in words.
    pub test: String,
    /// What makes it one: `new-straddle`, `new-neighbour`, `lost-neighbour`, `no-straddle`, `new-phase`, `new-crossing`,
    /// `no-crossing`.
    #[serde(default)]
    pub why: Vec<String>,
    /// Over all places that a change upstream can give it; `null`: unknown.
    #[serde(default)]
    pub sensitivity: Option<Sensitivity>,
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

/// A suspect and how much it matters: more first. The weight orders a list; it claims nothing.
type Ranked = ((u8, Reverse<u64>, u64), Suspect);

fn ordered(mut list: Vec<Ranked>) -> Vec<Suspect> {
    list.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    list.into_iter().map(|(_, suspect)| suspect).collect()
}

/// Data that moved, most suspicious first, and how many objects that moved nobody is seen to use. `heat`: of patched;
/// `None` where its code was not decoded.
pub(super) fn data(moves: &Moves<'_, '_>, partners: &Partners, heat: Option<&Heat<'_>>) -> (Vec<Suspect>, u64) {
    let mut unused = 0;
    let mut list = Vec::new();
    let moved = moves
        .paired()
        .filter(|(m, x, _)| m.change == Change::Moved && (x.class.writable() || x.class == Class::PerCpu));
    for (m, x, y) in moved {
        let seen = Seen { moves, partners, heat, m, x, y };
        match seen.suspect() {
            Some(ranked) => list.push(ranked),
            None => unused += u64::from(seen.unused()),
        }
    }
    (ordered(list), unused)
}

/// One object that moved.
struct Seen<'s, 'r, 'i> {
    moves: &'s Moves<'r, 'i>,
    partners: &'s Partners,
    heat: Option<&'s Heat<'s>>,
    m: &'s Move,
    x: &'s Object<'s>,
    y: &'s Object<'s>,
}

/// Another object on its lines, and how much the two disturb each other.
struct Mate {
    index: u32,
    contest: u64,
}

impl Seen<'_, '_, '_> {
    fn users(&self, index: u32) -> Users {
        let size = self.moves.patched.1.object(index).map_or(0, |o| o.span.size);
        self.heat.map_or_else(Users::default, |heat| heat.users(index, 0..size, true))
    }

    fn unused(&self) -> bool {
        self.heat.is_some() && !self.users(self.m.b).touch() && (self.m.new_neighbours || self.m.newly_straddling)
    }

    /// Functions that write one, times those that use the other without it; atomic writes count twice.
    fn contest(&self, own: &Users, other: u32) -> u64 {
        let theirs = self.users(other);
        if self.moves.patched.1.object(other).is_some_and(|o| once(o.name)) {
            return 0;
        }
        let side = |a: &Users, b: &Users| {
            let apart = b.of_content().into_iter().filter(|f| !a.has(*f)).count() as u64;
            (a.writers.len() + a.atomics.len()) as u64 * apart
        };
        side(own, &theirs) + side(&theirs, own)
    }

    /// Who came onto its lines, and who left them. Neighbours on a CPU's own copy of a line disturb nobody.
    fn mates(&self, own: &Users) -> (Vec<Mate>, Vec<Mate>) {
        if !self.x.class.writable() {
            return Default::default();
        }
        let partner = |i: u32| self.partners.get(Ref::from((Kind::Data, i)));
        let before: BTreeSet<u32> = self.moves.base.1.mates(self.m.a).filter_map(partner).collect();
        let after: BTreeSet<u32> = self.moves.patched.1.mates(self.m.b).collect();
        let mate = |&index: &u32| Mate { index, contest: self.contest(own, index) };
        (after.difference(&before).map(mate).collect(), before.difference(&after).map(mate).collect())
    }

    fn suspect(&self) -> Option<Ranked> {
        let (m, x, y) = (self.m, self.x, self.y);
        let own = self.users(m.b);
        let named = contended_by_name(x.name);
        // A lock that is reached through pointers only is used all the same.
        let used = own.touch() || (named && !own.takers.is_empty());
        if self.heat.is_some() && !used || once(x.name) {
            return None;
        }
        let (came, went) = self.mates(&own);
        let known = self.heat.is_some();
        let worth = |mates: &[Mate]| mates.iter().map(|m| m.contest).sum::<u64>();
        let split = m.newly_straddling || m.no_longer_straddling;
        let use_of_it = (own.of_content().len() + 3 * own.atomics.len()) as u64 * if named { 2 } else { 1 };
        let large = m.rephased && y.span.size > self.moves.patched.1.line.bytes();
        let why = [
            (m.newly_straddling, "new-straddle"),
            (m.no_longer_straddling, "no-straddle"),
            (came.iter().any(|m| !known || m.contest > 0), "new-neighbour"),
            (went.iter().any(|m| known && m.contest > 0), "lost-neighbour"),
            (m.rephased && (!known || large), "new-phase"),
        ];
        let why: Vec<String> = why.iter().filter(|(holds, _)| *holds).map(|(_, why)| (*why).to_string()).collect();
        if why.is_empty() {
            return None;
        }
        let tier = match () {
            () if m.newly_straddling || came.iter().any(|m| m.contest > 0) => 0,
            () if m.no_longer_straddling || worth(&went) > 0 || (!known && m.new_neighbours) => 1,
            () => 2,
        };
        let score = worth(&came) + worth(&went) / 2 + if split { use_of_it } else { 0 };
        let score = if known { score } else { u64::from(named) + 2 * u64::from(m.newly_straddling) };
        let rank = (tier, Reverse(score), x.span.start.0);
        Some((rank, self.written(&own, why, (&came, &went))))
    }

    fn written(&self, own: &Users, why: Vec<String>, (came, went): (&[Mate], &[Mate])) -> Suspect {
        let (m, x, y) = (self.m, self.x, self.y);
        let line = self.moves.base.1.line;
        let name = |mate: &Mate| self.moves.patched.1.object(mate.index).map_or("?", |o| o.name);
        let worst = |mates: &[Mate]| {
            let worst = mates.iter().filter(|m| m.contest > 0).max_by_key(|m| (m.contest, Reverse(m.index)));
            worst.map(|w| name(w).to_string())
        };
        let told = [
            m.newly_straddling.then(|| "newly straddles a line".to_string()),
            m.no_longer_straddling.then(|| "no longer straddles a line".to_string()),
            worst(came).map(|n| format!("now beside {n}")),
            worst(went).map(|n| format!("no longer beside {n}")),
            (self.heat.is_none() && m.new_neighbours).then(|| "other objects on its lines".to_string()),
            why.iter().any(|w| w == "new-phase").then(|| "another phase".to_string()),
        ];
        let told: Vec<String> = told.into_iter().flatten().collect();
        let count = |set: &BTreeSet<u32>| self.heat.and_then(|_| u32::try_from(set.len()).ok());
        let tier = if self.heat.is_some() { "decoded" } else { "static" };
        let spans = came.iter().filter(|m| m.contest > 0).filter_map(|m| self.moves.patched.1.object(m.index));
        let spans: Vec<Span> = spans.map(|o| o.span).collect();
        Suspect {
            name: x.name.to_string(),
            kind: "data".to_string(),
            section: section(self.moves.base.0, x),
            base: place(self.moves.base.1, m.a, x),
            patched: place(self.moves.patched.1, m.b, y),
            bytes_changed: Some(false),
            evidence: format!("{tier}: {}", told.join(", ")),
            readers: count(&own.readers),
            writers: count(&own.writers),
            test: format!(
                "patched with {} back at phase {}, on the lines it had in base",
                x.name,
                line.phase_of(x.span.start)
            ),
            why,
            sensitivity: Some(sensitivity(y.span, &spans, self.step(), line)),
        }
    }

    /// In what steps it moves, as its place and size show it: a word at most.
    fn step(&self) -> Align {
        let (image, y) = (self.moves.patched.0, self.y);
        let shown = y.span.start.0 | y.span.size | image.class.pointer_size();
        let section = image.section(y.section).map_or(Align::ONE, |s| s.align);
        Align::new(1 << shown.trailing_zeros()).unwrap_or_default().min(section)
    }
}

/// Loops that now lie on two lines, or no longer do, the shortest first; then functions that start at another phase,
/// those with the most loops first. `alignment`: where all functions start on a line, none did.
pub(super) fn code(moves: &Moves<'_, '_>, alignment: &Alignment) -> Vec<Suspect> {
    let line = moves.base.1.line;
    let mut list = Vec::new();
    let step = Align::new(alignment.patched.all.clamp(1, line.bytes())).unwrap_or_default();
    let moved = moves.paired().filter(|(m, x, _)| {
        let home = moves.base.0.section(x.section).map_or("", |s| s.name.as_ref());
        matches!(m.change, Change::Moved | Change::Undecided) && may_be_hot(x, home)
    });
    for (m, x, y) in moved {
        let crossing = LoopMove::all(m, x, y).filter(|l| l.newly_crosses(line) || l.no_longer_crosses(line));
        for own in crossing {
            let newly = own.newly_crosses(line);
            let at = own.base.start.0.saturating_sub(x.span.start.0);
            let rank = (u8::from(!newly), Reverse(u64::MAX - own.base.size), x.span.start.0.saturating_add(at));
            list.push((rank, of_loop(moves, x, &own, at, step, line)));
        }
        if m.rephased {
            let rank = (2, Reverse(m.loops.len() as u64), x.span.start.0);
            list.push((rank, of_function(moves, m, x, y, step, line)));
        }
    }
    ordered(list)
}

fn of_loop(moves: &Moves<'_, '_>, x: &Object<'_>, own: &LoopMove, at: u64, step: Align, line: LineSize) -> Suspect {
    let newly = own.newly_crosses(line);
    let (before, after) = own.phases(line);
    let bare = |span: Span, phase: u32| Place { address: span.start.to_string(), phase, with: Vec::new() };
    let what = if newly { "now crosses a line" } else { "no longer crosses a line" };
    Suspect {
        name: format!("{}+{at:#x}", x.name),
        kind: "loop".to_string(),
        section: section(moves.base.0, x),
        base: bare(own.base, before.0),
        patched: bare(own.patched, after.0),
        bytes_changed: Some(false),
        evidence: format!("decoded: a loop of {} bytes {what}", own.base.size),
        readers: None,
        writers: None,
        test: format!("patched with {} back at phase {}", x.name, line.phase_of(x.span.start)),
        why: vec![if newly { "new-crossing" } else { "no-crossing" }.to_string()],
        sensitivity: Some(sensitivity(own.patched, &[], step, line)),
    }
}

fn of_function(
    moves: &Moves<'_, '_>,
    m: &Move,
    x: &Object<'_>,
    y: &Object<'_>,
    step: Align,
    line: LineSize,
) -> Suspect {
    let loops = match m.loops.len() {
        0 => String::new(),
        n => format!(", {n} loops in it"),
    };
    let decided = m.change == Change::Moved;
    let tier = if decided { "decoded" } else { "static" };
    Suspect {
        name: x.name.to_string(),
        kind: "function".to_string(),
        section: section(moves.base.0, x),
        base: place(moves.base.1, m.a, x),
        patched: place(moves.patched.1, m.b, y),
        bytes_changed: decided.then_some(false),
        evidence: format!("{tier}: starts at another phase{loops}"),
        readers: None,
        writers: None,
        test: format!("patched with {} back at phase {}", x.name, line.phase_of(x.span.start)),
        why: vec!["new-phase".to_string()],
        sensitivity: (y.span.size <= line.bytes()).then(|| sensitivity(y.span, &[], step, line)),
    }
}

/// What a kernel's `WARN_ONCE` and its like write a single time.
fn once(name: &str) -> bool {
    matches!(stem(name), "__already_done" | "___done" | "__warned" | "__print_once" | "___once_key")
}

fn section(image: &Image<'_>, object: &Object<'_>) -> String {
    image.section(object.section).map_or_else(String::new, |s| s.name.to_string())
}

/// Neighbours of a function matter little; those of data are the point.
fn place(lines: &Lines<'_>, index: u32, object: &Object<'_>) -> Place {
    let with = match object.kind {
        Kind::Data => lines.mates(index).filter_map(|i| lines.object(i)).map(|o| o.name.to_string()).collect(),
        Kind::Function => Vec::new(),
    };
    Place { address: object.span.start.to_string(), phase: lines.line.phase_of(object.span.start).0, with }
}
