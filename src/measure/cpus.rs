//! Which CPUs a workload runs on: by default two hardware threads of two cores.
//!
//! Two, because effects between two threads exist only while both really run, and because a set that is small and
//! always the same takes the scheduler's choice out of the comparison. Programs with more workers name a set.

use std::fs;
use std::str::FromStr;

use crate::error::{Error, Result};

/// More CPUs than Linux can be built for (CONFIG_NR_CPUS is at most 8192).
pub const MAX_CPUS: usize = 8192;

/// How many CPUs are used when the user names none and no more workers.
const DEFAULT_COUNT: usize = 2;

/// A set of CPUs by number, sorted, none twice, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet(Vec<u32>);

/// Where a CPU sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub cpu: u32,
    pub package: u32,
    /// The lowest CPU number of its SMT siblings: names the core.
    pub core: u32,
}

impl CpuSet {
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// The mask that sched_setaffinity(2) takes.
    #[must_use]
    pub fn mask(&self) -> Vec<u64> {
        let mut mask = vec![0u64; self.0.last().map_or(1, |&l| l as usize / 64 + 1)];
        for &cpu in &self.0 {
            if let Some(word) = mask.get_mut(cpu as usize / 64) {
                *word |= 1 << (cpu % 64);
            }
        }
        mask
    }

    /// What this process may use (sched_getaffinity(2)).
    pub fn allowed() -> Result<CpuSet> {
        let mut mask = vec![0u64; MAX_CPUS / 64];
        let bytes = std::mem::size_of_val(mask.as_slice());
        // SAFETY: the buffer is as long as the call is told.
        if unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) } < 0 {
            return Err(Error::io("asking which CPUs may be used", std::io::Error::last_os_error()));
        }
        let bit = |cpu: &u32| mask.get(*cpu as usize / 64).is_some_and(|w| w >> (cpu % 64) & 1 == 1);
        Ok(CpuSet((0..MAX_CPUS as u32).filter(bit).collect()))
    }

    /// The set to run on: the user's, which must be allowed, or [`choose`]'s for so many workers.
    pub fn resolve(wanted: Option<&str>, workers: u32) -> Result<CpuSet> {
        let allowed = CpuSet::allowed()?;
        let Some(text) = wanted else {
            let seats: Vec<Seat> = allowed.0.iter().map(|&cpu| seat(cpu)).collect();
            return Ok(choose(&seats, (workers as usize).max(DEFAULT_COUNT)));
        };
        let set: CpuSet = text.parse()?;
        match set.0.iter().find(|c| !allowed.0.contains(c)) {
            None => Ok(set),
            Some(cpu) => Err(Error::input(
                format!("reading the CPU set `{text}`"),
                format!("CPU {cpu} may not be used here; allowed are {allowed}"),
            )),
        }
    }
}

/// So many threads of as many cores, of one package first; not CPU 0's core where there are enough others, since most
/// interrupts go there. SMT siblings come last.
#[must_use]
pub fn choose(allowed: &[Seat], count: usize) -> CpuSet {
    let mut cores: Vec<Seat> = Vec::new();
    for &seat in allowed {
        if !cores.iter().any(|c| c.core == seat.core) {
            cores.push(seat);
        }
    }
    if cores.len() > count {
        cores.retain(|c| c.core != 0);
    }
    // The package with the most free cores, the first of equals.
    let room = |c: &Seat| cores.iter().filter(|o| o.package == c.package).count();
    let best = cores.iter().rev().max_by_key(|c| room(c)).map(|c| c.package);
    let mut chosen: Vec<u32> =
        cores.iter().filter(|c| Some(c.package) == best).chain(&cores).chain(allowed).map(|c| c.cpu).collect();
    let mut known = std::collections::BTreeSet::new();
    chosen.retain(|&cpu| known.insert(cpu));
    chosen.truncate(count);
    chosen.sort_unstable();
    CpuSet(chosen)
}

fn seat(cpu: u32) -> Seat {
    let read = |name: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}")).ok();
    let core = read("thread_siblings_list").and_then(|t| t.trim().parse::<CpuSet>().ok());
    Seat {
        cpu,
        package: read("physical_package_id").and_then(|t| t.trim().parse().ok()).unwrap_or(0),
        core: core.and_then(|set| set.0.first().copied()).unwrap_or(cpu),
    }
}

impl FromStr for CpuSet {
    type Err = Error;

    /// `0,2-5`: the kernel's list format.
    fn from_str(text: &str) -> Result<CpuSet> {
        let bad = |problem: String| Error::input(format!("reading the CPU set `{text}`"), problem).hint("0,1 or 2-5");
        let mut all = Vec::new();
        for part in text.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let number = |t: &str| t.trim().parse::<u32>().map_err(|_| bad(format!("`{t}` is no CPU number")));
            let (low, high) = (number(low)?, number(high)?);
            if low > high || high as usize >= MAX_CPUS {
                return Err(bad(format!("`{part}` is no range below {MAX_CPUS}")));
            }
            all.extend(low..=high);
        }
        all.sort_unstable();
        all.dedup();
        Ok(CpuSet(all))
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, cpu) in self.0.iter().enumerate() {
            write!(f, "{}{cpu}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(all: &[(u32, u32, u32)]) -> Vec<Seat> {
        all.iter().map(|&(cpu, package, core)| Seat { cpu, package, core }).collect()
    }

    #[test]
    fn two_cores_of_one_package_with_idle_siblings() {
        assert_eq!(choose(&seats(&[(0, 0, 0)]), 2).numbers(), [0]);
        assert_eq!(choose(&seats(&[(0, 0, 0), (1, 0, 1)]), 2).numbers(), [0, 1]);
        // Two cores of two threads each.
        assert_eq!(choose(&seats(&[(0, 0, 0), (1, 0, 0), (2, 0, 2), (3, 0, 2)]), 2).numbers(), [0, 2]);
        // Four cores: CPU 0 is left to interrupts.
        assert_eq!(choose(&seats(&[(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3)]), 2).numbers(), [1, 2]);
        // Two sockets whose numbers alternate.
        let two = [(0, 0, 0), (1, 1, 1), (2, 0, 2), (3, 1, 3)];
        assert_eq!(choose(&seats(&two), 2).numbers(), [1, 3]);
        assert_eq!(choose(&seats(&two), 3).numbers(), [1, 2, 3]);
        // Siblings only where all cores are taken.
        let smt = seats(&[(0, 0, 0), (1, 0, 0), (2, 0, 2), (3, 0, 2)]);
        assert_eq!([3, 9].map(|n| choose(&smt, n).numbers().len()), [3, 4]);
        assert_eq!(choose(&smt, 3).numbers(), [0, 1, 2]);
    }

    #[test]
    fn sets_are_read_as_the_kernel_writes_them() {
        let set: CpuSet = "3,0-1,1".parse().unwrap();
        assert_eq!(set.numbers(), [0, 1, 3]);
        assert_eq!(set.mask(), [0b1011]);
        assert_eq!("70".parse::<CpuSet>().unwrap().mask(), [0, 64]);
        for bad in ["", "a", "3-1", "0-4000000000", "-1", "8192"] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad}");
        }
    }
}
