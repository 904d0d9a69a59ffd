//! Who disturbs whom: pairs of a write and an access by another CPU. Two accesses to bytes of one datum disturb each other
//! wherever it lies (true sharing); two that only have a line in common do so because of the layout.

use std::collections::HashMap;

/// Accesses to one datum, summed by who made them.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    all: Sum,
    by_cpu: HashMap<u32, Sum>,
    by_thread: HashMap<u32, Sum>,
    /// Both are known.
    by_both: HashMap<(u32, u32), Sum>,
    /// Neither is.
    nobody: Sum,
}

/// Accesses, and those of them that write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    writes: u64,
}

impl Sum {
    fn add(&mut self, count: u64, writes: bool) {
        self.count = self.count.saturating_add(count);
        self.writes = self.writes.saturating_add(if writes { count } else { 0 });
    }

    /// Pairs of which one writes at least.
    fn pairs(self, other: Sum) -> u128 {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        product(self.writes, other.count) + product(self.count - self.writes, other.writes)
    }
}

impl Touches {
    pub fn add(&mut self, cpu: Option<u32>, thread: Option<u32>, count: u64, writes: bool) {
        self.all.add(count, writes);
        if let Some(cpu) = cpu {
            self.by_cpu.entry(cpu).or_default().add(count, writes);
        }
        if let Some(thread) = thread {
            self.by_thread.entry(thread).or_default().add(count, writes);
        }
        match cpu.zip(thread) {
            Some(both) => self.by_both.entry(both).or_default().add(count, writes),
            None if cpu.is_none() && thread.is_none() => self.nobody.add(count, writes),
            None => {}
        }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.all.count
    }

    #[must_use]
    pub fn writes(&self) -> u64 {
        self.all.writes
    }

    /// CPUs that are known to touch it, and those that write it.
    #[must_use]
    pub fn cpus(&self) -> (usize, usize) {
        (self.by_cpu.len(), self.by_cpu.values().filter(|s| s.writes > 0).count())
    }

    /// Threads that are known to touch it alone, each on one CPU.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.by_thread.len()
    }

    /// Pairs of a write and another's access, one to each of two data. Whoever is not known may be another.
    #[must_use]
    pub fn pairs(&self, other: &Touches) -> u64 {
        let same = common(&self.by_cpu, &other.by_cpu) + common(&self.by_thread, &other.by_thread);
        let twice = common(&self.by_both, &other.by_both);
        clamp((self.all.pairs(other.all) + twice).saturating_sub(same))
    }

    /// The same of one datum. Of what is not known by whom it is nothing is said.
    #[must_use]
    pub fn own_pairs(&self) -> u64 {
        let same = common(&self.by_cpu, &self.by_cpu) + common(&self.by_thread, &self.by_thread);
        let unknown = self.nobody.pairs(self.all) + self.all.pairs(self.nobody);
        let twice = common(&self.by_both, &self.by_both) + self.nobody.pairs(self.nobody);
        clamp((self.all.pairs(self.all) + twice).saturating_sub(same + unknown) / 2)
    }
}

fn common<K: Eq + std::hash::Hash>(a: &HashMap<K, Sum>, b: &HashMap<K, Sum>) -> u128 {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    few.iter().filter_map(|(who, sum)| Some(sum.pairs(*many.get(who)?))).sum()
}

fn clamp(pairs: u128) -> u64 {
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CPU, thread, whether it writes.
    type One = (Option<u32>, Option<u32>, bool);

    fn touches(all: &[One]) -> Touches {
        let mut touches = Touches::default();
        all.iter().for_each(|&(cpu, thread, writes)| touches.add(cpu, thread, 1, writes));
        touches
    }

    fn disturb(a: &One, b: &One) -> bool {
        let same = |a: Option<u32>, b: Option<u32>| a.is_some() && a == b;
        (a.2 || b.2) && !same(a.0, b.0) && !same(a.1, b.1)
    }

    fn one() -> impl Strategy<Value = One> {
        (prop::option::of(0u32..3), prop::option::of(0u32..3), any::<bool>())
    }

    #[test]
    fn one_thread_that_moves_disturbs_nobody() {
        let a = touches(&[(Some(0), Some(7), true), (Some(1), Some(7), true)]);
        assert_eq!((a.own_pairs(), a.pairs(&a)), (0, 0));
    }

    proptest! {
        /// Against the obvious way: every pair.
        #[test]
        fn pairs_are_what_every_pair_says(a in prop::collection::vec(one(), 0..12), b in prop::collection::vec(one(), 0..12)) {
            let want = a.iter().flat_map(|x| b.iter().map(move |y| u64::from(disturb(x, y)))).sum::<u64>();
            prop_assert_eq!(touches(&a).pairs(&touches(&b)), want);
            prop_assert_eq!(touches(&b).pairs(&touches(&a)), want);
            let known = |x: &One| x.0.is_some() || x.1.is_some();
            let own = (0..a.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
            let own = own.filter(|&(i, j)| known(&a[i]) && known(&a[j]) && disturb(&a[i], &a[j])).count() as u64;
            prop_assert_eq!(touches(&a).own_pairs(), own);
        }
    }
}
