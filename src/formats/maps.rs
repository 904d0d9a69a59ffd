//! What was mapped where, by process and time: the same address is another place in another process, or after it has
//! begun another program.

use std::collections::BTreeMap;

/// Whose address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Kernel,
    Process(u32),
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<'a> {
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// In the file, of `start`. Of a kernel: the address of the symbol that `file` ends in.
    pub offset: u64,
    /// Of instructions; `None`: not told.
    pub executable: Option<bool>,
    pub file: &'a str,
    /// Of the file, where it is told.
    pub build_id: Option<&'a [u8]>,
    /// In nanoseconds; 0 before all else.
    pub time: u64,
    /// Which one of the profile's it is.
    pub number: usize,
}

/// All mappings of a profile.
#[derive(Clone, Debug, Default)]
pub struct Maps<'a> {
    /// By time.
    of: BTreeMap<Owner, Vec<Map<'a>>>,
    /// When a process was made, and by which.
    parents: BTreeMap<u32, (u64, u32)>,
    /// When a process began another program: what was mapped before is gone.
    programs: BTreeMap<u32, Vec<u64>>,
    count: usize,
}

/// Processes that made one another, which are asked for what a child has from them.
const OLDEST: usize = 64;

impl<'a> Maps<'a> {
    pub(super) fn add(&mut self, owner: Owner, map: Map<'a>) {
        if map.end > map.start {
            self.of.entry(owner).or_default().push(Map { number: self.count, ..map });
            self.count += 1;
        }
    }

    pub(super) fn made(&mut self, child: u32, parent: u32, time: u64) {
        if child != parent {
            self.parents.entry(child).or_insert((time, parent));
        }
    }

    pub(super) fn program(&mut self, process: u32, time: u64) {
        self.programs.entry(process).or_default().push(time);
    }

    pub(super) fn sort(&mut self) {
        self.of.values_mut().for_each(|maps| maps.sort_by_key(|m| m.time));
        self.programs.values_mut().for_each(|times| times.sort_unstable());
    }

    /// Every mapping of the kernel: itself and its modules.
    #[must_use]
    pub fn kernel(&self) -> &[Map<'a>] {
        self.of.get(&Owner::Kernel).map(Vec::as_slice).unwrap_or_default()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Every mapping of every process.
    pub fn all(&self) -> impl Iterator<Item = &Map<'a>> {
        self.of.values().flatten()
    }

    /// What a process has mapped at a time, the latest first; what its parent had when it was made comes last. `time`:
    /// `None` is the end.
    pub fn of(&self, process: u32, time: Option<u64>) -> impl Iterator<Item = &Map<'a>> {
        let mut next = Some((process, time.unwrap_or(u64::MAX)));
        let generations = std::iter::from_fn(move || {
            let (process, until) = next.take()?;
            let times = self.programs.get(&process).map(Vec::as_slice).unwrap_or_default();
            let begun = times.partition_point(|t| *t <= until).checked_sub(1).and_then(|at| times.get(at)).copied();
            if begun.is_none() {
                next = self.parents.get(&process).map(|(time, parent)| (*parent, until.min(*time)));
            }
            Some((process, begun.unwrap_or(0), until))
        });
        generations.take(OLDEST).flat_map(|(process, from, until)| {
            let maps = self.of.get(&Owner::Process(process)).map(Vec::as_slice).unwrap_or_default();
            let known = maps.get(..maps.partition_point(|m| m.time <= until)).unwrap_or_default();
            known.iter().rev().take_while(move |m| m.time >= from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, file: &str, time: u64) -> Map<'_> {
        Map { start, end: start + 0x1000, offset: 0, executable: None, file, build_id: None, time, number: 0 }
    }

    #[test]
    fn a_place_is_what_was_mapped_last() {
        let mut maps = Maps::default();
        maps.add(Owner::Process(1), map(0x1000, "shell", 1));
        maps.made(2, 1, 5);
        maps.add(Owner::Process(1), map(0x5000, "late", 9));
        maps.program(3, 20);
        maps.made(3, 2, 10);
        maps.add(Owner::Process(3), map(0x1000, "worker", 21));
        maps.add(Owner::Process(3), map(0x1000, "again", 30));
        maps.sort();
        let at = |process, time, address: u64| {
            maps.of(process, time).find(|m| (m.start..m.end).contains(&address)).map(|m| m.file)
        };
        assert_eq!(at(2, Some(7), 0x1800), Some("shell"));
        assert_eq!(at(2, None, 0x5000), None, "its parent mapped that after the child was made");
        assert_eq!(at(1, None, 0x5000), Some("late"));
        assert_eq!(at(3, Some(15), 0x1000), Some("shell"), "before it began another program");
        assert_eq!(at(3, Some(20), 0x1000), None);
        assert_eq!(at(3, Some(25), 0x1000), Some("worker"));
        assert_eq!(at(3, None, 0x1000), Some("again"));
        assert_eq!(at(4, None, 0x1000), None);
    }

    #[test]
    fn processes_that_made_each_other_end() {
        let mut maps = Maps::default();
        maps.made(1, 2, 5);
        maps.made(2, 1, 5);
        assert_eq!(maps.of(1, None).count(), 0);
    }
}
