//! Facts of this machine that a reader of the record wants beside the numbers. `null` is unknown.

use std::fs;

use serde_json::{Map, Value, json};

use crate::measure::cpus::CpuSet;

/// For the record's header: the CPUs that are used, and whether addresses are fixed in the runs.
#[must_use]
pub fn facts(cpus: &CpuSet, fixed_addresses: bool) -> Map<String, Value> {
    let cpuinfo = read("/proc/cpuinfo");
    let first = cpus.numbers().first().copied().unwrap_or(0);
    let cpu = |name: &str| read(&format!("/sys/devices/system/cpu/cpu{first}/{name}"));
    let allowed = CpuSet::allowed().ok();
    let mut facts = Map::new();
    let mut put = |key: &str, value: Value| drop(facts.insert(key.to_owned(), value));

    put("machine", json!(std::env::consts::ARCH));
    put("cpu_model", json!(cpuinfo.as_deref().and_then(cpu_model)));
    put("cpus_online", json!(read("/sys/devices/system/cpu/online")));
    put("cpus_allowed", json!(allowed.map(|set| set.to_string())));
    put("cpus_used", json!(cpus.to_string()));
    put("smt_active", json!(switch(read("/sys/devices/system/cpu/smt/active"))));
    put("smt_siblings", json!(cpu("topology/thread_siblings_list")));
    put("line_size", json!(cpu("cache/index0/coherency_line_size").and_then(|t| t.parse::<u64>().ok())));
    put("governor", json!(cpu("cpufreq/scaling_governor")));
    put("turbo", json!(turbo()));
    put("kernel", json!(read("/proc/sys/kernel/osrelease")));
    put("hypervisor", json!(cpuinfo.as_deref().and_then(hypervisor)));
    put("aslr_setting", json!(read("/proc/sys/kernel/randomize_va_space").and_then(|t| t.parse::<u8>().ok())));
    put("aslr_off_in_runs", json!(fixed_addresses));
    put("autogroup", json!(switch(read("/proc/sys/kernel/sched_autogroup_enabled"))));
    put(
        "transparent_hugepages",
        json!(read("/sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(chosen)),
    );
    put("load_1m", json!(read("/proc/loadavg").as_deref().and_then(|t| t.split(' ').next()?.parse::<f64>().ok())));
    put("pressure_10s_percent", json!(read("/proc/pressure/cpu").as_deref().and_then(pressure)));
    facts
}

pub(super) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

/// `0` or `1`.
fn switch(text: Option<String>) -> Option<bool> {
    match text.as_deref() {
        Some("0") => Some(false),
        Some("1") => Some(true),
        _ => None,
    }
}

fn turbo() -> Option<bool> {
    let boost = switch(read("/sys/devices/system/cpu/cpufreq/boost"));
    boost.or_else(|| switch(read("/sys/devices/system/cpu/intel_pstate/no_turbo")).map(|no| !no))
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let value = |l: &'a str| l.split_once(':').filter(|(k, _)| k.trim() == name).map(|(_, v)| v.trim());
    cpuinfo.lines().find_map(value)
}

/// x86 and powerpc have names; arm64 has the implementer's and the part's number.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let named = ["model name", "cpu", "uarch"].into_iter().find_map(|n| field(cpuinfo, n)).map(str::to_owned);
    named.or_else(|| {
        Some(format!("implementer {} part {}", field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?))
    })
}

/// The flag that x86 hypervisors set; unknown elsewhere.
fn hypervisor(cpuinfo: &str) -> Option<bool> {
    field(cpuinfo, "flags").map(|flags| flags.split(' ').any(|f| f == "hypervisor"))
}

/// `always [madvise] never` → `madvise`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

fn pressure(text: &str) -> Option<f64> {
    text.strip_prefix("some avg10=")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_of_two_architectures() {
        let x86 = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu hypervisor lm\n";
        assert_eq!((cpu_model(x86).as_deref(), hypervisor(x86)), (Some("Xeon"), Some(true)));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(hypervisor(arm), None);
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(pressure("some avg10=1.25 avg60=0.72 avg300=0.57 total=1"), Some(1.25));
    }

    #[test]
    fn this_machine_has_the_facts_that_every_linux_has() {
        let set: CpuSet = "0".parse().unwrap();
        let facts = facts(&set, true);
        for key in ["machine", "cpu_model", "cpus_online", "kernel", "load_1m"] {
            assert!(!facts[key].is_null(), "{key}: {facts:?}");
        }
        assert_eq!(facts["cpus_used"], "0");
    }
}
