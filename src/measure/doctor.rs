//! Can this machine measure? Facts of the host, a probe of its noise, and for each what to change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use super::cpus::CpuSet;
use super::gauges::{Gauges, tick};
use super::host;

/// The schema of [`Checkup`].
pub const SCHEMA: &str = "straddle.doctor/1";

/// `straddle.doctor/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Checkup {
    pub schema: &'static str,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    /// The worst first.
    pub checks: Vec<Check>,
    pub probe: Option<Probe>,
    pub host: Map<String, Value>,
}

/// How a fact bears on measuring, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing measured here means anything.
    Hopeless,
    /// It costs time or certainty, and can be changed.
    Worse,
    Unknown,
    Good,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    /// What it does to a measurement; empty where it is good.
    pub why: &'static str,
    /// The command that changes it; empty where there is none.
    pub fix: String,
}

/// Equal pieces of work on one CPU, for some seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probe {
    pub seconds: f64,
    pub cpu: u32,
    pub pieces: usize,
    /// Of a piece, in seconds.
    pub piece_seconds: f64,
    /// Robust SD (1.4826 × the median) of the difference of neighbours, over √2: what is left when pairs are compared.
    pub noise_percent: f64,
    /// From the 5th to the 95th percentile of all pieces: what one who does not pair has to live with.
    pub range_percent: f64,
    /// CPU time that was had of the time that passed.
    pub had_percent: f64,
    /// Of all CPUs; `null` where the kernel does not count it.
    pub steal_percent: Option<f64>,
    /// Time in which some task of the machine waited for a CPU.
    pub waited_percent: Option<f64>,
}

impl Checkup {
    /// Whether measuring is pointless.
    #[must_use]
    pub fn hopeless(&self) -> bool {
        self.checks.iter().any(|c| c.state == State::Hopeless)
    }
}

/// Looks at the host, and probes its noise for so long; not at all for no time.
#[must_use]
pub fn examine(cpus: &CpuSet, time: Duration) -> Checkup {
    let host = host::facts(cpus, super::spawn::may_fix_addresses());
    let probe = if time.is_zero() { None } else { probe(cpus, time) };
    let mut checks = checks(&host, &Permissions::of_this_process());
    match &probe {
        Some(probe) => checks.extend(of_probe(probe)),
        None => checks.push(check("noise", State::Unknown, "not probed", "", "--probe 10s")),
    }
    checks.sort_by_key(|c| c.state);
    Checkup { schema: SCHEMA, problems: Vec::new(), skipped: BTreeMap::new(), checks, probe, host }
}

fn check(
    name: &'static str,
    state: State,
    found: impl Into<String>,
    why: &'static str,
    fix: impl Into<String>,
) -> Check {
    let good = state == State::Good;
    Check {
        name,
        state,
        found: found.into(),
        why: if good { "" } else { why },
        fix: if good { String::new() } else { fix.into() },
    }
}

/// What this process may do.
#[derive(Clone, Debug, Default)]
struct Permissions {
    /// `/proc/sys/kernel/perf_event_paranoid`.
    paranoid: Option<i64>,
    /// Whether the CPU's cycle counter can be opened, or the error.
    counters: Option<Result<(), String>>,
    /// CPUs that a control group grants, as a share of one.
    quota: Option<f64>,
    isolated: Option<String>,
}

impl Permissions {
    fn of_this_process() -> Permissions {
        let read = host::read;
        Permissions {
            paranoid: read("/proc/sys/kernel/perf_event_paranoid").and_then(|t| t.parse().ok()),
            counters: cycle_counter(),
            quota: read("/sys/fs/cgroup/cpu.max").as_deref().and_then(quota),
            isolated: read("/sys/devices/system/cpu/isolated"),
        }
    }
}

/// cgroup v2's `cpu.max`: `MICROSECONDS PERIOD`, or `max PERIOD`.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|p| *p > 0.0)?)
}

/// Opens and closes a counter of cycles, of this process in user mode: the least that perf_event_open(2) can be asked.
fn cycle_counter() -> Option<Result<(), String>> {
    // struct perf_event_attr of its first version (PERF_ATTR_SIZE_VER0, 64 bytes), as words.
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    // Type 0 (hardware) with the size in its upper half; config 0 is cycles.
    let attr: [u64; 8] = [64 << 32, 0, 0, 0, 0, DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR, 0, 0];
    // SAFETY: the kernel reads 64 bytes of `attr`, as it says itself.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 0) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        return Some(Err(match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => "this machine has none".to_string(),
            Some(libc::EACCES | libc::EPERM) => "not permitted".to_string(),
            _ => error.to_string(),
        }));
    }
    // SAFETY: the descriptor was opened above and is nobody else's.
    unsafe { libc::close(i32::try_from(fd).unwrap_or(-1)) };
    Some(Ok(()))
}

/// Facts → what they mean.
fn checks(host: &Map<String, Value>, may: &Permissions) -> Vec<Check> {
    use State::{Good, Unknown, Worse};
    let text = |key: &str| host.get(key).and_then(Value::as_str);
    let switch = |key: &str| host.get(key).and_then(Value::as_bool);
    let number = |key: &str| host.get(key).and_then(Value::as_f64);
    let state = |good: Option<bool>| match good {
        Some(true) => Good,
        Some(false) => Worse,
        None => Unknown,
    };
    let on = |on: Option<bool>| on.map_or("unknown", |on| if on { "on" } else { "off" });
    let used = text("cpus_used").unwrap_or_default();

    let governor = text("governor");
    let shared_cores = text("smt_siblings").map(|siblings| siblings.contains([',', '-']));
    let aslr = switch("aslr_off_in_runs");
    let isolated = may.isolated.as_deref().filter(|i| !i.is_empty());
    let mut all = vec![
        check(
            "governor",
            // Where there is none, the host or the firmware decides.
            governor.map_or(Unknown, |g| state(Some(g == "performance"))),
            governor.unwrap_or("none is told"),
            "the clock follows the load, and the load is the measurement",
            "cpupower frequency-set -g performance",
        ),
        check(
            "turbo",
            state(switch("turbo").map(|on| !on)),
            on(switch("turbo")),
            "the clock depends on heat and on what the other cores do",
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost, or echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo",
        ),
        check(
            "smt",
            match (switch("smt_active"), shared_cores) {
                (Some(false), _) | (_, Some(false)) => Good,
                (Some(true), _) => Worse,
                (None, _) => Unknown,
            },
            on(switch("smt_active")),
            "a sibling's work takes execution units of the core that is measured",
            "echo off > /sys/devices/system/cpu/smt/control, or --cpus with one thread a core",
        ),
        check(
            "isolation",
            if isolated.is_some() { Good } else { Worse },
            isolated.unwrap_or("no CPU is isolated"),
            "other tasks and interrupts run on the CPUs that are measured; pairs and marks take care of most of it",
            format!("boot with isolcpus={used} nohz_full={used}, then --cpus {used}"),
        ),
        check(
            "address randomisation",
            state(aslr),
            if aslr == Some(false) { "cannot be switched off here" } else { "off in every run" },
            "where the stack begins becomes noise of the run; phases in a page are kept",
            "run outside of this container, or allow personality(2) in its seccomp profile",
        ),
        check(
            "huge pages",
            match text("transparent_hugepages") {
                Some("always") => Worse,
                Some(_) => Good,
                None => Unknown,
            },
            text("transparent_hugepages").unwrap_or("unknown"),
            "whether memory gets huge pages is luck of the moment",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        check(
            "autogroup",
            state(switch("autogroup").map(|on| !on)),
            on(switch("autogroup")),
            "another terminal's tasks get as much time as all of this one's, whatever nice says",
            "echo 0 > /proc/sys/kernel/sched_autogroup_enabled",
        ),
    ];
    let cores = host.get("cpus_online").and_then(Value::as_str).and_then(|t| t.parse::<CpuSet>().ok());
    let cores = cores.map_or(1.0, |set| set.numbers().len() as f64);
    if let Some(load) = number("load_1m") {
        all.push(check(
            "load",
            state(Some(load < 0.5 * cores)),
            format!("{load:.2} on {cores:.0} CPUs"),
            "something else runs: what shares a CPU with it is marked and run again, or never settles",
            "ps -eo pcpu,comm --sort=-pcpu | head",
        ));
    }
    all.push(match &may.counters {
        Some(Ok(())) => check("counters", Good, "the cycle counter can be read", "", ""),
        Some(Err(problem)) if problem == "not permitted" => check(
            "counters",
            Worse,
            format!(
                "not permitted (perf_event_paranoid is {})",
                may.paranoid.map_or("unknown".into(), |p| p.to_string())
            ),
            "profiles and counters are not to be had; verdicts do not need them",
            "sysctl kernel.perf_event_paranoid=1; in a container, --cap-add PERFMON",
        ),
        Some(Err(problem)) => check(
            "counters",
            Unknown,
            problem.clone(),
            "profiles and counters are not to be had; verdicts do not need them",
            "",
        ),
        None => check("counters", Unknown, "not asked", "", ""),
    });
    all.push(match may.quota {
        Some(quota) => check(
            "control group",
            state(Some(quota >= cores)),
            format!("{quota:.2} CPUs"),
            "a group that has used up its time is stopped for the rest of the period, in the middle of a run",
            "run without a CPU limit (docker: no --cpus)",
        ),
        None => check("control group", Good, "no CPU limit", "", ""),
    });
    if switch("hypervisor") == Some(true) {
        all.push(check(
            "virtual machine",
            Worse,
            "yes",
            "the host's other guests come and go, unseen but for steal; quote ratios of one run, never times",
            "",
        ));
    }
    all
}

/// Beyond this, a pair of runs of some tenths of a second differs by more than any layout effect that one looks for.
const HOPELESS_NOISE: f64 = 25.0;
const MUCH_NOISE: f64 = 3.0;

fn of_probe(probe: &Probe) -> Vec<Check> {
    let noise = match probe.noise_percent {
        n if n > HOPELESS_NOISE => State::Hopeless,
        n if n > MUCH_NOISE => State::Worse,
        _ => State::Good,
    };
    let had = match probe.had_percent {
        h if h < 50.0 => State::Hopeless,
        h if h < 97.0 => State::Worse,
        _ => State::Good,
    };
    let percent = |p: Option<f64>| p.map_or_else(|| "unknown".into(), |p| format!("{p:.1} %"));
    let steal = probe.steal_percent.map_or(State::Unknown, |s| if s > 1.0 { State::Worse } else { State::Good });
    vec![
        check(
            "noise",
            noise,
            format!("{:.2} % between neighbours, {:.1} % in all", probe.noise_percent, probe.range_percent),
            "smaller effects need many runs, or are out of reach",
            "stop what else runs, or take a quieter machine",
        ),
        check(
            "CPU time",
            had,
            format!("{:.1} % of CPU {}", probe.had_percent, probe.cpu),
            "somebody else has the rest",
            "--cpus with others, or stop what runs there",
        ),
        check("steal", steal, percent(probe.steal_percent), "the host gives this machine's CPUs to others", ""),
    ]
}

/// About this long is a piece: long against a timer tick, short against what drifts.
const PIECE: Duration = Duration::from_millis(20);

fn probe(cpus: &CpuSet, time: Duration) -> Option<Probe> {
    let cpu = cpus.numbers().first().copied()?;
    let before = CpuSet::allowed().ok();
    pin(&cpu.to_string().parse().ok()?);
    let whole = CpuSet::allowed().is_ok_and(|all| all == *cpus);
    let mut gauges = Gauges::open(&[cpu], whole);
    let rounds = calibrated();
    let (from, reading) = (Instant::now(), gauges.read());
    let had = cpu_time();
    let mut pieces = Vec::new();
    while from.elapsed() < time {
        let start = Instant::now();
        std::hint::black_box(work(rounds));
        pieces.push(start.elapsed().as_secs_f64());
    }
    let outside = reading.until(&gauges.read());
    let had = cpu_time()? - had?;
    if let Some(all) = before {
        pin(&all);
    }
    let seconds = from.elapsed().as_secs_f64();
    let share = |s: f64| 100.0 * s / outside.span.max(1e-9);
    Some(Probe {
        seconds,
        cpu,
        pieces: pieces.len(),
        piece_seconds: quantile(&pieces, 0.5)?,
        noise_percent: neighbours(&pieces)?,
        range_percent: 100.0 * (quantile(&pieces, 0.95)? / quantile(&pieces, 0.05)? - 1.0),
        had_percent: 100.0 * had / seconds,
        steal_percent: outside.steal_ticks.map(|t| share(t as f64 * tick())),
        waited_percent: outside.waited.map(share),
    })
}

/// Arithmetic that depends on itself: no memory, no branch that could be guessed.
fn work(rounds: u64) -> u64 {
    (0..rounds).fold(0x9e37_79b9_7f4a_7c15, |x, i| (x ^ i).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(17))
}

/// As many rounds as take about [`PIECE`].
fn calibrated() -> u64 {
    let mut rounds = 1 << 16;
    loop {
        let start = Instant::now();
        std::hint::black_box(work(rounds));
        let took = start.elapsed();
        if took >= PIECE || rounds > 1 << 40 {
            return rounds;
        }
        rounds *= 2;
    }
}

fn pin(cpus: &CpuSet) {
    let mask = cpus.mask();
    // A probe that may not pin itself has the noise of moving about, which is true of it. SAFETY: as long as it says.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
}

/// Of this thread, in seconds.
fn cpu_time() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (done == 0).then_some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * (sorted.len().checked_sub(1)? as f64)).round() as usize;
    sorted.get(at).copied()
}

/// In percent; see [`Probe::noise_percent`].
fn neighbours(pieces: &[f64]) -> Option<f64> {
    let pairs = pieces.as_chunks::<2>().0.iter();
    // Neighbours differ by nothing but noise: no centre is taken off.
    let apart: Vec<f64> = pairs.map(|[a, b]| (b / a).ln().abs()).collect();
    Some(100.0 * 1.4826 * quantile(&apart, 0.5)? / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state_of(checks: &[Check], name: &str) -> State {
        checks.iter().find(|c| c.name == name).unwrap().state
    }

    #[test]
    fn a_quiet_machine_and_a_noisy_one() {
        let facts = |value: Value| value.as_object().unwrap().clone();
        let quiet = facts(json!({
            "governor": "performance", "turbo": false, "smt_active": false, "aslr_off_in_runs": true, "load_1m": 0.1,
            "transparent_hugepages": "madvise", "autogroup": false, "cpus_online": "0-7", "cpus_used": "2,4",
        }));
        let may = Permissions { counters: Some(Ok(())), isolated: Some("2,4".into()), ..Permissions::default() };
        assert!(checks(&quiet, &may).iter().all(|c| c.state == State::Good && c.fix.is_empty()));
        let noisy = facts(json!({
            "governor": "powersave", "turbo": true, "smt_active": true, "smt_siblings": "0-1", "load_1m": 7.0,
            "aslr_off_in_runs": false, "transparent_hugepages": "always", "autogroup": true, "cpus_online": "0-7",
            "cpus_used": "2,4", "hypervisor": true,
        }));
        let may =
            Permissions { counters: Some(Err("not permitted".into())), quota: Some(1.5), ..Permissions::default() };
        let told = checks(&noisy, &may);
        assert!(told.iter().all(|c| c.state == State::Worse && !c.why.is_empty()), "{told:?}");
        assert!(told.iter().any(|c| c.fix.contains("isolcpus=2,4")));
        // What a kernel does not tell is no fault of the machine.
        let told = checks(&Map::new(), &Permissions { isolated: Some("3".into()), ..Permissions::default() });
        assert!(told.iter().all(|c| matches!(c.state, State::Unknown | State::Good)), "{told:?}");
    }

    #[test]
    fn noise_is_of_neighbours_and_not_of_drift() {
        let drifting: Vec<f64> = (0..1000).map(|i| 1.0 + f64::from(i) * 1e-3).collect();
        assert!(neighbours(&drifting).unwrap() < 0.1);
        // Equal pairs apart by ±10 %: the SD of one is 10 % / √2 by 1.4826.
        let apart: Vec<f64> = (0..1000).map(|i| if [0, 3].contains(&(i % 4)) { 1.0 } else { 1.1 }).collect();
        assert!((neighbours(&apart).unwrap() - 9.99).abs() < 0.1, "{:?}", neighbours(&apart));
        let probe = |noise_percent, had_percent| Probe {
            seconds: 10.0,
            cpu: 0,
            pieces: 500,
            piece_seconds: 0.02,
            noise_percent,
            range_percent: 9.0,
            had_percent,
            steal_percent: None,
            waited_percent: None,
        };
        assert_eq!(state_of(&of_probe(&probe(0.4, 99.9)), "noise"), State::Good);
        assert_eq!(state_of(&of_probe(&probe(40.0, 99.9)), "noise"), State::Hopeless);
        assert_eq!(state_of(&of_probe(&probe(0.4, 30.0)), "CPU time"), State::Hopeless);
    }

    #[test]
    fn limits_of_a_control_group() {
        assert_eq!(quota("150000 100000"), Some(1.5));
        assert_eq!(quota("max 100000"), None);
        assert_eq!(quota("1 0"), None);
    }
}
