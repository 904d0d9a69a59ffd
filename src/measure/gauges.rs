//! What the machine did beside the run: idle and stolen time of the CPUs used, and waiting for a CPU.
//!
//! From `/proc/stat` (proc_stat(5)) and `/proc/pressure/cpu` (Documentation/accounting/psi.rst), opened once and
//! re-read in place, before a run and after it, never during it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Open files and a buffer that is reused.
#[derive(Debug)]
pub struct Gauges {
    stat: Option<File>,
    /// Absent where the kernel has no pressure accounting, and where CPUs outside the set could speak in it.
    pressure: Option<File>,
    buffer: Vec<u8>,
    cpus: Vec<u32>,
}

/// Counters since boot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    at: Instant,
    /// Clock ticks, summed over the set: idle and waiting for a disk, stolen by the host.
    ticks: Option<(u64, u64)>,
    cpus: u32,
    /// Microseconds in which some task waited for a CPU.
    waited: Option<u64>,
}

/// What happened between two readings; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outside {
    /// Between the readings, in seconds; a little longer than the run.
    pub span: f64,
    /// How many CPUs the ticks are of.
    pub cpus: u32,
    /// Of the CPUs used, in clock ticks.
    pub idle_ticks: Option<u64>,
    pub steal_ticks: Option<u64>,
    /// Time in which some task waited for a CPU, in seconds.
    pub waited: Option<f64>,
}

impl Gauges {
    /// For a set of CPUs; `whole` if it is all the machine has.
    #[must_use]
    pub fn open(cpus: &[u32], whole: bool) -> Gauges {
        Gauges {
            stat: File::open("/proc/stat").ok(),
            pressure: File::open("/proc/pressure/cpu").ok().filter(|_| whole),
            buffer: vec![0; 4096],
            cpus: cpus.to_vec(),
        }
    }

    pub fn read(&mut self) -> Reading {
        let ticks = self.stat.as_ref().and_then(|f| ticks_of(text(f, &mut self.buffer)?, &self.cpus));
        let waited = self.pressure.as_ref().and_then(|f| some_total(text(f, &mut self.buffer)?));
        Reading { at: Instant::now(), ticks, cpus: self.cpus.len() as u32, waited }
    }
}

impl Reading {
    /// How long ago it was taken.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }

    #[must_use]
    pub fn until(&self, later: &Reading) -> Outside {
        let ticks = self.ticks.zip(later.ticks);
        Outside {
            span: later.at.saturating_duration_since(self.at).as_secs_f64(),
            cpus: self.cpus,
            // Idle time of a CPU may be seen to go back a little (proc_stat(5)).
            idle_ticks: ticks.map(|(a, b)| b.0.saturating_sub(a.0)),
            steal_ticks: ticks.map(|(a, b)| b.1.saturating_sub(a.1)),
            waited: self.waited.zip(later.waited).map(|(a, b)| b.saturating_sub(a) as f64 * 1e-6),
        }
    }
}

/// The start of a file; long enough once the buffer has grown.
fn text<'a>(file: &File, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
    /// 8192 CPUs of 100 bytes each.
    const LARGEST: usize = 1 << 20;
    let mut length = file.read_at(buffer, 0).ok()?;
    while length == buffer.len() && length < LARGEST {
        buffer.resize(length * 2, 0);
        length = file.read_at(buffer, 0).ok()?;
    }
    let bytes = buffer.get(..length)?;
    std::str::from_utf8(bytes).ok()
}

/// Idle + iowait, and steal, over the CPUs of the set.
fn ticks_of(stat: &str, cpus: &[u32]) -> Option<(u64, u64)> {
    let mut sum = (0, 0);
    let mut seen = 0;
    for line in stat.lines().skip(1).map_while(|l| l.strip_prefix("cpu")) {
        let mut fields = line.split_ascii_whitespace();
        let Some(cpu) = fields.next().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if !cpus.contains(&cpu) {
            continue;
        }
        let mut field = |n| fields.nth(n).and_then(|f| f.parse::<u64>().ok());
        // user nice system [idle iowait] irq softirq [steal]
        sum.0 += field(3)? + field(0)?;
        sum.1 += field(2)?;
        seen += 1;
    }
    (seen == cpus.len()).then_some(sum)
}

fn some_total(pressure: &str) -> Option<u64> {
    pressure.strip_prefix("some ")?.lines().next()?.split_once("total=")?.1.trim().parse().ok()
}

/// Seconds in a tick of `/proc/stat`.
#[must_use]
pub fn tick() -> f64 {
    // SAFETY: asks for a constant.
    match unsafe { libc::sysconf(libc::_SC_CLK_TCK) } {
        n if n > 0 => 1.0 / n as f64,
        _ => 0.01,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  74950 0 8445 150840 1089 0 145 194 0 0\n\
                        cpu0 37842 0 3977 75291 587 0 38 98 0 0\n\
                        cpu1 37107 0 4468 75548 501 0 107 96 0 0\nintr 1 2 3\n";

    #[test]
    fn idle_and_steal_of_the_set_alone() {
        assert_eq!(ticks_of(STAT, &[1]), Some((75548 + 501, 96)));
        assert_eq!(ticks_of(STAT, &[0, 1]), Some((75291 + 587 + 75548 + 501, 98 + 96)));
        assert_eq!(ticks_of(STAT, &[0, 2]), None);
        assert_eq!(ticks_of("cpu 1\ncpu0 1 2\n", &[0]), None);
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=1.25 avg60=0.72 avg300=0.57 total=6395603\nfull avg10=0.00 total=0\n";
        assert_eq!(some_total(text), Some(6_395_603));
        assert_eq!(some_total("full avg10=0.00 total=0"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut gauges = Gauges::open(&[0], false);
        gauges.buffer.truncate(16);
        let a = gauges.read();
        assert!(a.until(&gauges.read()).steal_ticks.is_some());
    }
}
