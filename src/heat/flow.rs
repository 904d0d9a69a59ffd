//! What one function does: its instructions followed along all paths that are seen, with what each register holds.
//!
//! A register holds an address, an argument of the function plus a number, or nothing that is known. Paths that join
//! keep what they agree on; this is repeated until nothing changes. Blocks that no jump leads to (targets of jump
//! tables) begin with nothing known.

use std::collections::{BTreeMap, HashSet};

use super::Kind;
use super::atlas::Atlas;
use super::ops::{Abi, Base, Instructions, Op, Place};

/// What one function does to objects, and what it does to what it is handed.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) own: Vec<Own>,
    /// Addresses of objects that are handed to a function.
    pub(super) passed: Vec<Passed>,
    /// What it does to the bytes that its arguments point to, by argument.
    pub(super) reaches: Vec<(u8, Reach)>,
    pub(super) forwards: Vec<Forward>,
    pub(super) skipped: BTreeMap<&'static str, u64>,
}

/// An access to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    /// Of its instruction.
    pub(super) at: u64,
    /// The instruction (or its pair) names the address: it is not taken from what a register was seen to hold.
    pub(super) named: bool,
    /// An object without a size lies there too, and may be meant: no access.
    pub(super) doubtful: bool,
    pub(super) object: u32,
    pub(super) reach: Reach,
}

/// An access relative to an address: of an object, or one that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reach {
    pub(super) offset: i64,
    pub(super) width: u32,
    pub(super) kind: Kind,
    pub(super) indexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) object: u32,
    pub(super) offset: u64,
    /// From `offset` to the end of the object.
    pub(super) rest: u64,
    pub(super) loose: bool,
    pub(super) callee: u32,
    pub(super) argument: u8,
}

/// An argument (plus a number) that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Forward {
    pub(super) parameter: u8,
    pub(super) offset: i32,
    pub(super) loose: bool,
    pub(super) callee: u32,
    pub(super) argument: u8,
}

/// How far from an argument an access is believed to be of the same object, in bytes.
const FAR: i64 = 1 << 20;
/// Passes until paths must agree. Each register of each join changes at most twice, so that this many are not needed
/// but by damaged or invented code.
const MOST_PASSES: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Unknown,
    Fixed { place: Place, loose: bool },
    Page(u64),
    Argument { number: u8, offset: i32, loose: bool },
}

/// Registers; and, as bits, those that a call in between may have changed: not read if it did, and no argument of the
/// next call unless set again.
#[derive(Clone, PartialEq, Eq)]
struct State([Value; 32], u32);

impl State {
    const UNKNOWN: State = State([Value::Unknown; 32], 0);

    fn entry(abi: &Abi) -> State {
        let mut state = State::UNKNOWN;
        for (number, &register) in (0u8..).zip(abi.arguments) {
            state.set(register, Value::Argument { number, offset: 0, loose: false });
        }
        state
    }

    fn get(&self, register: u8) -> Value {
        self.0.get(usize::from(register)).copied().unwrap_or(Value::Unknown)
    }

    fn set(&mut self, register: u8, value: Value) {
        if let Some(slot) = self.0.get_mut(usize::from(register)) {
            *slot = value;
            self.1 &= !(1 << register);
        }
    }

    fn clobber(&mut self, mut registers: u32) {
        while registers != 0 {
            if let Some(slot) = self.0.get_mut(registers.trailing_zeros() as usize) {
                *slot = Value::Unknown;
            }
            registers &= registers - 1;
        }
    }

    /// Keeps what both agree on; whether that is less.
    fn meet(&mut self, other: &State) -> bool {
        let mut changed = self.1 | other.1 != self.1;
        self.1 |= other.1;
        for (own, theirs) in self.0.iter_mut().zip(&other.0) {
            if *own != Value::Unknown && own != theirs {
                *own = Value::Unknown;
                changed = true;
            }
        }
        changed
    }
}

pub(super) fn follow(
    instructions: &Instructions,
    atlas: &Atlas<'_, '_>,
    preserving: &HashSet<u32>,
    abi: &'static Abi,
) -> Found {
    let mut labels = labels(&instructions.ops);
    let mut walk = Walk { atlas, preserving, abi, found: None, unreached: false, at: 0 };
    if !labels.is_empty() {
        for blocks_without_path in [false, true] {
            if blocks_without_path && !walk.unreached {
                break;
            }
            let mut passes = 0;
            while walk.pass(&instructions.ops, &mut labels, blocks_without_path) {
                passes += 1;
                if passes > MOST_PASSES {
                    labels.iter_mut().for_each(|l| l.state = Some(State::UNKNOWN));
                }
            }
        }
    }
    walk.found = Some(Found::default());
    walk.pass(&instructions.ops, &mut labels, true);
    let mut found = walk.found.unwrap_or_default();
    if instructions.unknown > 0 {
        *found.skipped.entry("instructions that the decoder does not know").or_insert(0) += instructions.unknown;
    }
    found.reaches.sort_unstable();
    found.reaches.dedup();
    found.forwards.sort_unstable();
    found.forwards.dedup();
    // Those of all functions are kept until the last one is followed.
    found.own.shrink_to_fit();
    found.passed.shrink_to_fit();
    found.reaches.shrink_to_fit();
    found.forwards.shrink_to_fit();
    found
}

/// A place in the function that a jump leads to, and what all paths to it agree on; `None` until one is seen.
struct Label {
    address: u64,
    state: Option<State>,
}

fn labels(ops: &[Op]) -> Vec<Label> {
    let addresses = || ops.iter().filter_map(|op| if let Op::At(at) = op { Some(*at) } else { None });
    let (Some(first), Some(last)) = (addresses().next(), addresses().next_back()) else { return Vec::new() };
    let target = |op: &Op| match op {
        Op::Jump { target, .. } if (first..=last).contains(target) => Some(*target),
        _ => None,
    };
    let mut targets: Vec<u64> = ops.iter().filter_map(target).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.into_iter().map(|address| Label { address, state: None }).collect()
}

struct Walk<'w, 'h, 'i> {
    atlas: &'w Atlas<'h, 'i>,
    preserving: &'w HashSet<u32>,
    abi: &'static Abi,
    /// `None` while paths are still followed.
    found: Option<Found>,
    /// A block was met that no path leads to.
    unreached: bool,
    at: u64,
}

impl Walk<'_, '_, '_> {
    /// Goes over the function once; whether what is known at a label has changed. `blocks_without_path`: those are
    /// followed too, with nothing known at their start.
    fn pass(&mut self, ops: &[Op], labels: &mut [Label], blocks_without_path: bool) -> bool {
        let (mut changed, mut next) = (false, 0);
        let mut state = Some(State::entry(self.abi));
        for op in ops {
            if let Op::At(at) = *op {
                self.at = at;
                while labels.get(next).is_some_and(|l| l.address < at) {
                    next += 1;
                }
                if let Some(label) = labels.get_mut(next).filter(|l| l.address == at) {
                    if let Some(state) = &state {
                        label.join(state);
                    }
                    state.clone_from(&label.state);
                }
                if state.is_none() {
                    self.unreached = true;
                    state = blocks_without_path.then_some(State::UNKNOWN);
                }
                continue;
            }
            let Some(current) = &mut state else { continue };
            match *op {
                Op::Jump { target, conditional } => {
                    match labels.binary_search_by_key(&target, |l| l.address).ok().and_then(|at| labels.get_mut(at)) {
                        // What a label in front knows is used when this pass comes to it.
                        Some(label) => changed |= label.join(current) && target <= self.at,
                        // Out of the function: a call that does not come back here.
                        None => self.call(Some(target), current),
                    }
                    if !conditional {
                        state = None;
                    }
                }
                Op::End => state = None,
                _ => self.step(op, current),
            }
        }
        changed
    }

    fn step(&mut self, op: &Op, state: &mut State) {
        match *op {
            Op::Access { base, width, kind, indexed } => self.access(base, state, (width, kind, indexed)),
            Op::Mention(place) => self.mention(place, false),
            Op::Set { to, from, loose } => {
                let value = self.value(from, loose, state);
                state.set(to, value);
            }
            Op::Load { to, from } => {
                let value = self.loaded(from, state);
                state.set(to, value);
            }
            Op::Page { to, page } => state.set(to, Value::Page(page)),
            Op::Clobber(registers) => state.clobber(registers),
            Op::Call(target) => {
                self.call(target, state);
                let callee = target.and_then(|t| self.atlas.function(t));
                if !callee.is_some_and(|f| self.preserving.contains(&f)) {
                    state.clobber(self.abi.results);
                    state.1 = u32::MAX;
                }
            }
            Op::At(_) | Op::Jump { .. } | Op::End => {}
        }
    }

    fn value(&mut self, from: Base, loose: bool, state: &State) -> Value {
        match from {
            Base::Fixed(place) => {
                self.mention(place, loose);
                Value::Fixed { place, loose }
            }
            Base::Register(register, plus) => match state.get(register) {
                Value::Fixed { place, loose: already } => {
                    Value::Fixed { place: place.plus(plus), loose: loose || already }
                }
                Value::Page(page) => {
                    // Often an anchor that several objects are reached from: no mention of the one at it.
                    let place = Place::at(page.wrapping_add_signed(plus));
                    Value::Fixed { place, loose }
                }
                Value::Argument { number, offset, loose: already } => {
                    let offset = i64::from(offset).saturating_add(plus);
                    let near = i32::try_from(offset).ok().filter(|o| i64::from(*o).abs() <= FAR);
                    near.map_or(Value::Unknown, |offset| Value::Argument { number, offset, loose: loose || already })
                }
                Value::Unknown => Value::Unknown,
            },
        }
    }

    fn loaded(&mut self, from: Base, state: &State) -> Value {
        let address = match from {
            Base::Fixed(place) => place.address,
            Base::Register(register, plus) => match state.get(register) {
                Value::Page(page) => page.wrapping_add_signed(plus),
                _ => return Value::Unknown,
            },
        };
        let Some(place) = self.atlas.table_entry(address) else { return Value::Unknown };
        self.mention(place, false);
        Value::Fixed { place, loose: false }
    }

    fn access(&mut self, base: Base, state: &State, (width, kind, indexed): (u32, Kind, bool)) {
        let (place, named, indexed) = match base {
            Base::Fixed(place) => (place, true, indexed),
            Base::Register(register, plus) => match state.get(register) {
                Value::Fixed { place, loose } => (place.plus(plus), false, indexed || loose),
                Value::Page(page) => (Place::at(page.wrapping_add_signed(plus)), true, indexed),
                Value::Argument { number, offset, loose } => {
                    let offset = i64::from(offset).saturating_add(plus);
                    if let Some(found) = self.found.as_mut().filter(|_| offset.abs() <= FAR) {
                        found.reaches.push((number, Reach { offset, width, kind, indexed: indexed || loose }));
                    }
                    return;
                }
                Value::Unknown => return,
            },
        };
        self.own(place, named, width, kind, indexed);
    }

    fn mention(&mut self, place: Place, loose: bool) {
        self.own(place, true, 0, Kind::Address, loose);
    }

    fn own(&mut self, place: Place, named: bool, width: u32, kind: Kind, indexed: bool) {
        let Some(found) = &mut self.found else { return };
        let Some((object, offset)) = self.atlas.find(place, indexed) else { return };
        let Ok(offset) = i64::try_from(offset) else { return };
        let doubtful = kind == Kind::Address && self.atlas.ambiguous(place);
        found.own.push(Own { at: self.at, named, doubtful, object, reach: Reach { offset, width, kind, indexed } });
    }

    /// What the argument registers hold at a call. More of them may hold an address than the callee has arguments: what
    /// the callee does decides.
    fn call(&mut self, target: Option<u64>, state: &State) {
        if self.found.is_none() {
            return;
        }
        let callee = target.and_then(|t| self.atlas.function(t));
        for (argument, &register) in (0u8..).zip(self.abi.arguments) {
            let value = state.get(register);
            let Some(callee) = callee else {
                let fresh = state.1 >> register & 1 == 0;
                if let (Value::Fixed { place, loose }, true) = (value, fresh) {
                    self.own(place, false, 0, Kind::Address, loose);
                }
                continue;
            };
            let Some(found) = &mut self.found else { return };
            match value {
                Value::Fixed { place, loose } => {
                    let Some((object, offset)) = self.atlas.find(place, loose) else { continue };
                    let rest = self.atlas.size(object).saturating_sub(offset);
                    found.passed.push(Passed { object, offset, rest, loose, callee, argument });
                }
                Value::Argument { number, offset, loose } => {
                    found.forwards.push(Forward { parameter: number, offset, loose, callee, argument });
                }
                Value::Unknown | Value::Page(_) => {}
            }
        }
    }
}

impl Label {
    fn join(&mut self, state: &State) -> bool {
        match &mut self.state {
            Some(own) => own.meet(state),
            None => {
                self.state = Some(state.clone());
                true
            }
        }
    }
}
