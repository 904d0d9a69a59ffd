//! The readers, against a real perf.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use straddle::formats::{Format, Place, Sample, Samples};
use straddle::image::Image;
use straddle::rules::Scan;

use super::super::scan::build;
use super::writer::*;
use super::{PLAIN, profiled};

fn perf(arguments: &[&str]) -> Output {
    Command::new("perf").args(arguments).stdin(std::process::Stdio::null()).output().expect("perf is needed")
}

pub fn text(arguments: &[&str]) -> String {
    let out = perf(arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The first inputs of a fuzz target, where scripts/check.sh asks for them.
pub fn seed(name: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("STRADDLE_SEEDS") {
        std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
}

const FIELDS: &str = "comm,pid,tid,cpu,time,event,addr,data_src,weight,ip,sym,symoff,dso";

fn read(bytes: &[u8]) -> Vec<Sample<'_>> {
    let samples = Samples::open(bytes, "it").unwrap();
    let mut all = Vec::new();
    let told = samples.each(&mut |sample| all.push(sample)).unwrap();
    assert_eq!((told.skipped.len(), told.problems), (0, Vec::<String>::new()));
    all
}

/// All that both forms of a sample tell. perf shows microseconds.
fn told<'a>(samples: &'a [Sample<'_>]) -> Vec<impl PartialEq + std::fmt::Debug + 'a> {
    let one = |s: &'a Sample<'_>| {
        let code = match (s.code_address, s.code) {
            (Some(address), _) | (None, Some(Place::Address(address))) => address,
            _ => 0,
        };
        let time = s.time.unwrap() / 1000;
        (code, s.data, s.does, s.cpu, (s.process, s.thread), time, s.cycles, s.hitm)
    };
    samples.iter().map(one).collect()
}

/// Every optional field in front of those that are wanted, and both kinds of weight.
fn recordings() -> Vec<Recording> {
    let before = READ | CALLCHAIN | RAW | BRANCH_STACK | REGS_USER | STACK_USER;
    let crowded = (MEMORY | before | WEIGHT_STRUCT) & !WEIGHT;
    let event = |fields| vec![Event { name: "cpu/mem-loads,ldlat=30/P", kind: 4, fields }];
    let mut all = vec![Recording::memory(), Recording::new(event(crowded), false), Recording::new(event(MEMORY), true)];
    all.push(Recording::new(event(MEMORY & !IDENTIFIER | ID), false));
    for recording in &mut all {
        recording.comm(PROCESS, "my worker:1", true, 1);
        recording.map(PROCESS, (0x40_1000, 0x2000, 0x1000), true, "/no/such/image", 2);
        for n in 0..40u64 {
            let source = [LOAD, STORE, HITM, LOAD | LOCKED, HITM | LOCKED][n as usize % 5];
            recording.sample(Access {
                event: 0,
                ip: 0x40_1100 + n,
                pid: PROCESS,
                tid: PROCESS + (n % 3) as u32,
                time: 1_000_000 + n * 1000,
                addr: 0x7f00_0000_1000 + n * 8,
                cpu: (n % 2) as u32,
                weight: 3 + n,
                source,
            });
        }
    }
    all
}

const PROCESS: u32 = 100;

/// perf itself reads what the tests write, and tells of it what is read here.
#[test]
fn perf_script_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (number, recording) in recordings().into_iter().enumerate() {
        let (path, bytes) = (folder.path().join(number.to_string()), recording.bytes());
        std::fs::write(&path, &bytes).unwrap();
        let script = text(&["script", "-F", FIELDS, "-G", "-i", path.to_str().unwrap()]);
        seed(&format!("data-{number}"), &bytes);
        seed(&format!("script-{number}"), script.as_bytes());
        let (own, perfs) = (read(&bytes), read(script.as_bytes()));
        assert_eq!(own.len(), 40);
        assert_eq!(format!("{:?}", told(&own)), format!("{:?}", told(&perfs)), "recording {number}\n{script}");
    }
}

const HOT: &str = "
    #define OWN __attribute__((noinline, used, visibility(\"hidden\"))) void
    __attribute__((aligned(64))) volatile long counter; volatile long limit;
    __attribute__((aligned(64))) volatile long table[64];
    OWN count(void) { for (long i = 0; i < 60000000; i++) counter++; }
    OWN look(void) { for (long i = 0; i < 60000000; i++) if (limit > i) break; else if (i > 59999998) limit = 0; }
    OWN walk(void) { for (long i = 0; i < 60000000; i++) table[i & 63]; }
    int main(void) { limit = -1; count(); look(); walk(); return 0; }";

fn recorded(path: &Path, data: &Path, more: &[&str]) -> Vec<u8> {
    let arguments =
        [&["record", "-q", "-e", "cpu-clock", "-o", data.to_str().unwrap()], more, &[path.to_str().unwrap()]];
    let out = perf(&arguments.concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(data).unwrap()
}

/// Software events of a program at fixed addresses and of one that is moved: nearly all samples of its own code are
/// attributed, and the text of them, with its mappings or without, comes to the same. How many fall into the kernel is
/// the machine's affair.
#[test]
fn samples_of_a_software_event_are_attributed() {
    for link in [["-no-pie", "-fno-pie"], ["-pie", "-fpie"]] {
        let built = build("a.c", HOT, &[&["-g", "-O1", "-fno-toplevel-reorder"], &link[..]].concat());
        let data = built.folder.path().join("perf.data");
        let bytes = recorded(&built.path, &data, &["-F", "2000", "--sample-cpu"]);
        let scan = profiled(&built.path, &[&bytes]);
        let profile = &scan.profiles[0];
        assert_eq!(profile.format, Format::PerfData);
        assert!(profile.samples > 100, "{profile:?}");
        let outside: u64 =
            ["in the kernel", "in another program or library"].iter().filter_map(|w| profile.elsewhere.get(*w)).sum();
        assert!(profile.objects as f64 >= 0.95 * (profile.samples - outside) as f64, "{profile:?}");
        assert_eq!(profile.objects + profile.elsewhere.values().sum::<u64>(), profile.samples);
        let counts = |scan: &Scan| -> BTreeMap<String, u64> {
            let all = scan.findings.iter().flat_map(|f| &f.accesses).filter(|u| u.cpus.is_some());
            all.map(|u| (u.object.clone(), u.count)).collect()
        };
        assert!(counts(&scan).contains_key("counter"), "{:?}", scan.findings);
        let path = data.to_str().unwrap();
        for arguments in [&["script", "-i", path][..], &["script", "-i", path, "--show-mmap-events"]] {
            let script = text(arguments);
            let of_text = profiled(&built.path, &[script.as_bytes()]);
            assert_eq!(of_text.profiles[0].samples, profile.samples);
            assert!(
                of_text.profiles[0].objects.abs_diff(profile.objects) * 100 < profile.samples,
                "{:?}",
                of_text.profiles
            );
            assert_eq!(counts(&of_text).keys().collect::<Vec<_>>(), counts(&scan).keys().collect::<Vec<_>>());
        }
    }
}

/// A child runs what its parent had mapped; after `exec` it does not. What was begun by another build is not believed.
#[test]
fn places_are_those_of_the_process_at_the_time() {
    let built = build("a.c", "long x = 1; void _start(void) { x++; }", PLAIN);
    let bytes = straddle::open::map(&built.path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let text = image.segments().into_iter().find(|s| s.executable).unwrap();
    let address = |name: &str| image.symbols.iter().find(|s| s.name == name).unwrap().value;
    let bias = 0x1234_5000;
    let at = |pid, time| Access {
        event: 0,
        ip: address("_start") + bias,
        pid,
        tid: pid,
        time,
        addr: address("x") + bias,
        cpu: 0,
        weight: 0,
        source: LOAD,
    };
    let map = (text.address + bias, 0x1000, text.offset);
    let mut recording = Recording::memory();
    recording.map(1, map, true, "/somewhere/image", 10);
    recording.fork(2, 1, 20);
    recording.comm(2, "other", true, 40);
    recording.map(2, (0x1000, 0x1000, 0), true, "/bin/other", 41);
    recording.map2(3, map, Some(&[7; 20]), "/somewhere/image");
    for access in [at(1, 5), at(1, 15), at(2, 30), at(2, 50), at(3, 60), at(4, 60)] {
        recording.sample(access);
    }
    recording.sample(Access { addr: 0x1010, ..at(2, 50) });
    recording.sample(Access { addr: 0, ..at(1, 50) });
    let scan = profiled(&built.path, &[&recording.bytes()]);
    let profile = &scan.profiles[0];
    assert_eq!((profile.samples, profile.objects), (8, 2), "{profile:?}");
    let reasons: Vec<u64> = profile.elsewhere.values().copied().collect();
    assert_eq!(reasons.len(), 4, "{profile:?}");
    for (reason, count) in [("another build", 1), ("another program", 1), ("no mapping", 3), ("without an address", 1)]
    {
        let of_reason = profile.elsewhere.iter().find(|(told, _)| told.contains(reason));
        assert_eq!(of_reason.map(|(_, n)| *n), Some(count), "{reason}: {profile:?}");
    }
    assert!(profile.problems.iter().any(|p| p.contains("0707")), "{profile:?}");
}

#[test]
fn what_cannot_be_read_is_one_line() {
    let refused = |bytes: &[u8]| Samples::open(bytes, "it").unwrap_err().to_string();
    let mut spe = Recording::memory();
    spe.raw(70, &[4, 0]);
    assert!(refused(&spe.bytes()).contains("Arm SPE"));
    let mut packed = Recording::memory();
    packed.raw(81, &[0]);
    assert!(refused(&packed.bytes()).contains("compressed"));
    let whole = recordings().remove(0).bytes();
    let all = read(&whole).len();
    for cut in (8..whole.len()).step_by(7) {
        match Samples::open(&whole[..cut], "it") {
            Ok(samples) => {
                let mut count = 0;
                let told = samples.each(&mut |_| count += 1).unwrap();
                assert!(count <= all && (count == all || !told.problems.is_empty()), "cut at {cut}: {count} samples");
            }
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        if let Ok(samples) = Samples::open(&damaged, "it") {
            samples.each(&mut |_| {}).unwrap();
        }
    }
}
