//! Profiles laid over images: files of a real perf, files as a machine with counters would write them, and texts.

mod readers;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;

use straddle::finding::{Evidence, Finding, Severity};
use straddle::formats::{Format, Samples};
use straddle::heat;
use straddle::image::{Image, Relocations};
use straddle::objects::Objects;
use straddle::rules::{Ask, Scan};

use super::scan::{Built, build, names, of, scan, scan_as};
use writer::{Access, HITM, LOAD, LOCKED, Recording, STORE};

/// Objects in the order of the source, at fixed addresses.
const PLAIN: &[&str] = &["-g", "-O2", "-fno-toplevel-reorder", "-nostdlib", "-static", "-fno-pie", "-no-pie"];

/// A program, where its functions and objects are, and what was recorded of it.
struct Run {
    built: Built,
    symbols: BTreeMap<String, u64>,
    /// Of the instruction of a function that names an object.
    references: Vec<(u64, String)>,
    recording: Recording,
    time: u64,
}

const PROCESS: u32 = 100;

impl Run {
    fn new(source: &str) -> Run {
        let built = build("a.c", source, PLAIN);
        let bytes = straddle::open::map(&built.path).unwrap();
        let image = Image::parse(&bytes, "image").unwrap();
        let symbols = image.symbols.iter().map(|s| (s.name.to_string(), s.value)).collect();
        let objects = Objects::data(&image).list;
        let references = heat::references(&image, &objects, &Relocations::default());
        let references = references.iter().map(|r| (r.at, objects[r.object as usize].name.to_string())).collect();
        let mut recording = Recording::memory();
        recording.comm(PROCESS, "worker", true, 1);
        for segment in image.segments().iter().filter(|s| s.size > 0) {
            let (from, to) = (segment.address & !0xfff, (segment.address + segment.size + 0xfff) & !0xfff);
            let map = (from, to - from, segment.offset & !0xfff);
            recording.map(PROCESS, map, segment.executable, built.path.to_str().unwrap(), 2);
        }
        Run { built, symbols, references, recording, time: 1_000_000 }
    }

    /// So many accesses of a CPU, each of its own thread, by the function's instruction for `object`.
    fn access(&mut self, count: u64, cpu: u32, function: &str, (object, offset): (&str, u64), source: u64) {
        let start = self.symbols[function];
        let end = self.symbols.values().filter(|s| **s > start).min().unwrap();
        let own = self.references.iter().filter(|(at, name)| (start..*end).contains(at) && name == object);
        let ip = own.map(|(at, _)| *at).next().unwrap_or(start);
        let addr = self.symbols[object] + offset;
        let event = usize::from(source & 4 != 0);
        for _ in 0..count {
            self.time += 1000;
            let (time, tid) = (self.time, 1000 + cpu);
            self.recording.sample(Access { event, ip, pid: PROCESS, tid, time, addr, cpu, weight: 50, source });
        }
    }

    fn scan(self) -> Scan {
        let bytes = self.recording.bytes();
        profiled(&self.built.path, &[&bytes])
    }
}

fn profiled(path: &Path, profiles: &[&[u8]]) -> Scan {
    let profiles: Vec<Samples<'_>> = profiles.iter().map(|bytes| Samples::open(bytes, "it").unwrap()).collect();
    scan_as(path, &Ask { profiles: &profiles, ..Ask::default() })
}

fn found<'s>(scan: &'s Scan, name: &str) -> Vec<&'s Finding> {
    scan.findings.iter().filter(|f| f.subject.name == name).collect()
}

/// Four CPUs that take a lock, work on what it guards, and update a counter.
fn contended() -> Run {
    let mut run = Run::new(
        "#define OWN __attribute__((noinline, used))
        struct page_counter { _Atomic long usage; long min; struct page_counter *parent; };
        __attribute__((aligned(64))) struct page_counter root;
        __attribute__((aligned(64))) struct chunk { int free_bytes; int contig; void *base_addr; } chunk;
        __attribute__((aligned(64))) int lock;
        __attribute__((aligned(64))) char last;
        OWN void charge(long by) { root.usage += by; }
        OWN struct page_counter *up(void) { return root.parent; }
        OWN void take(int *it) { __asm__ volatile(\"taken: xchg %%eax, (%0)\" : : \"r\"(it) : \"eax\", \"memory\"); }
        OWN void allocate(int by) { take(&lock); chunk.free_bytes -= by; }
        OWN void *address(void) { return chunk.base_addr; }
        void _start(void) { }",
    );
    for cpu in 0..4 {
        run.access(550, cpu, "taken", ("lock", 0), HITM | LOCKED);
        run.access(10, cpu, "allocate", ("chunk", 0), STORE);
        run.access(40, cpu, "address", ("chunk", 8), HITM);
        run.access(2, cpu, "charge", ("root", 0), LOAD | LOCKED);
        run.access(3, cpu, "up", ("root", 16), LOAD);
    }
    run
}

/// Case A3: a counter that every CPU updates beside a pointer that every CPU reads. Case A12: where most samples are in a
/// lock, the lock is true sharing, and the line to mend is that of what it guards.
#[test]
fn the_line_is_found_that_a_lock_hides() {
    let scan = contended().scan();
    let profile = &scan.profiles[0];
    assert_eq!(
        (profile.samples, profile.objects, profile.members, profile.cpus),
        (2420, 2420, Some(220), 4),
        "{profile:?}"
    );
    let first: Vec<&str> = scan.findings.iter().take(2).map(|f| f.subject.name.as_str()).collect();
    assert_eq!(first, ["chunk.free_bytes", "root.usage"]);
    let [chunk, root] = [&scan.findings[0], &scan.findings[1]];
    assert_eq!((chunk.rule, chunk.severity, chunk.evidence), ("write-beside-read", Severity::High, Evidence::Measured));
    assert_eq!(chunk.others.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["chunk.base_addr"]);
    let measured = chunk.measured.unwrap();
    // 40 writes, 160 reads, less those of the same CPU; the writes among themselves are of one datum.
    assert_eq!((measured.conflict, measured.true_sharing), (Some(40 * 160 - 4 * 10 * 40), 6 * 10 * 10));
    assert_eq!((measured.samples, measured.cpus, measured.hitm), (200, Some(4), 160));
    let uses: Vec<(&str, &str, u64, Option<u32>)> =
        chunk.accesses.iter().map(|u| (u.function.as_str(), u.kind, u.count, u.cpus)).collect();
    assert_eq!(uses, [("allocate", "read-write", 40, Some(4)), ("address", "read", 160, Some(4))]);
    assert_eq!(root.measured.unwrap().conflict, Some(8 * 12 - 4 * 2 * 3));
    assert!(root.advice.contains("root.parent at least 64 bytes away"), "{}", root.advice);
    let lock = found(&scan, "lock");
    assert_eq!(lock.len(), 1);
    assert_eq!((lock[0].rule, lock[0].severity), ("true-sharing", Severity::Info));
}

/// Case A17: what reaches over two lines, by how often it was seen to.
#[test]
fn a_split_lock_that_runs_comes_first() {
    let mut run = Run::new(
        "struct at { char before[60]; unsigned bits[4]; };
        __attribute__((aligned(64))) struct at idle;
        __attribute__((aligned(64))) struct at busy;
        #define SET(it, bit) __asm__ volatile(\"lock btsq %1, %0\" : \"+m\"(*(volatile long *)(it)) : \"r\"(bit) : \"memory\")
        __attribute__((used)) void a(long bit) { SET(idle.bits, bit); }
        __attribute__((used)) void b(long bit) { SET(busy.bits, bit); }
        void _start(void) { }",
    );
    run.access(30, 0, "b", ("busy", 60), LOAD | LOCKED);
    let scan = run.scan();
    let split: Vec<(&str, Evidence, Option<u64>)> = of(&scan, "split-access")
        .iter()
        .map(|f| (f.subject.name.as_str(), f.evidence, f.measured.map(|m| m.samples)))
        .collect();
    assert_eq!(split, [("busy", Evidence::Measured, Some(30)), ("idle", Evidence::Decoded, None)]);
}

/// Case D1: one datum that all write. Case D4: what lies together, and one thread alone writes; it moves between CPUs.
#[test]
fn true_sharing_and_a_single_writer_are_no_matter_of_layout() {
    let source = "
        #define OWN __attribute__((noinline, used))
        __attribute__((aligned(64))) int allow_customize;
        __attribute__((aligned(64))) long length_; long list_;
        __attribute__((aligned(64))) char last;
        OWN void malloc_(void) { allow_customize = 0; }
        OWN void grow(long n) { __atomic_fetch_add(&length_, n, __ATOMIC_RELAXED); }
        OWN void shrink(long n) { __atomic_fetch_sub(&length_, n, __ATOMIC_RELAXED); }
        OWN long list(void) { return list_; }
        OWN long more(void) { return list_ + 1; }
        void _start(void) { }";
    let mut run = Run::new(source);
    // Code alone has to take the two for neighbours that disturb each other.
    assert_eq!(found(&scan(&run.built.path), "length_")[0].severity, Severity::Medium);
    for cpu in 0..8 {
        run.access(100, cpu, "malloc_", ("allow_customize", 0), STORE);
    }
    for cpu in [3, 5] {
        let (grow, list, length, start) =
            (run.symbols["grow"], run.symbols["list"], run.symbols["length_"], run.symbols["list_"]);
        for (ip, addr, source) in [(grow, length, STORE), (list, start, LOAD)] {
            let access = Access { event: 0, ip, pid: PROCESS, tid: 7, time: 5_000_000, addr, cpu, weight: 1, source };
            (0..20).for_each(|_| run.recording.sample(access));
        }
    }
    let scan = run.scan();
    assert!(scan.findings.iter().all(|f| f.severity == Severity::Info || f.measured.is_none()), "{:?}", scan.findings);
    let shared = found(&scan, "allow_customize");
    assert_eq!((shared.len(), shared[0].rule), (1, "true-sharing"));
    let measured = shared[0].measured.unwrap();
    assert_eq!((measured.conflict, measured.true_sharing, measured.cpus), (Some(0), 28 * 100 * 100, Some(8)));
    let quiet = found(&scan, "length_");
    assert_eq!((quiet.len(), quiet[0].severity, quiet[0].evidence), (1, Severity::Info, Evidence::Measured));
    assert!(names(quiet[0]).contains("list_") && quiet[0].advice.starts_with("nothing to do"), "{}", quiet[0].advice);
}

/// Names with weights and marks, of objects and of members of every object of a type; two lists count together.
#[test]
fn lists_of_names_are_profiles_too() {
    let source = "
        struct ring { long head; long tail; };
        __attribute__((aligned(64))) struct outer { int before; struct ring ring; } outer;
        __attribute__((aligned(64))) struct ring alone;
        __attribute__((aligned(64))) long hot; long flag;
        __attribute__((aligned(64))) char last;
        void _start(void) { }";
    let built = build("a.c", source, PLAIN);
    let list = b"hot w 300\nring.head w 50\nring.tail r 20\nno_such_name w\n";
    let table = b"ring struct fast path usage breakdown\n\nType Name fastpath_tx_access fastpath_rx_access comment\n\
        long tail read_mostly      -\nlong head                   read_write\n";
    let scan = profiled(&built.path, &[list, b"flag r 7\n"]);
    let [first, second] = scan.profiles.as_slice() else { panic!("{:?}", scan.profiles) };
    assert_eq!((first.samples, first.objects, second.objects), (371, 370, 7));
    assert_eq!(first.elsewhere, [("of names that no object, member or type has".to_string(), 1)].into());
    let told: BTreeMap<&str, (Severity, Evidence, Option<u64>)> = scan
        .findings
        .iter()
        .filter(|f| f.rule == "write-beside-read")
        .map(|f| (f.subject.name.as_str(), (f.severity, f.evidence, f.measured.unwrap().conflict)))
        .collect();
    let (medium, sampled) = (Severity::Medium, Evidence::Sampled);
    assert_eq!(
        told,
        BTreeMap::from([
            ("hot", (medium, sampled, Some(2100))),
            ("outer.ring.head", (medium, sampled, Some(1000))),
            ("alone.head", (medium, sampled, Some(1000))),
        ])
    );
    let scan = profiled(&built.path, &[table]);
    let told: Vec<(&str, Severity, Evidence)> = scan
        .findings
        .iter()
        .filter(|f| f.measured.is_some_and(|m| m.conflict > Some(0)))
        .map(|f| (f.subject.name.as_str(), f.severity, f.evidence))
        .collect();
    let (low, typed) = (Severity::Low, Evidence::Typed);
    assert_eq!(told, [("outer.ring.head", low, typed), ("alone.head", low, typed)], "what is said once is a word");
}

/// What perf makes of the same samples: no CPUs, no bytes but those of a line.
#[test]
fn reports_of_perf_lead_to_the_same_line() {
    let run = contended();
    let data = run.built.folder.path().join("perf.data");
    std::fs::write(&data, run.recording.clone().bytes()).unwrap();
    let file = data.to_str().unwrap();
    let c2c = readers::text(&["c2c", "report", "--stdio", "-i", file]);
    let mem = readers::text(&["mem", "-i", file, "report", "--stdio"]);
    let few = readers::text(&["mem", "-i", file, "report", "--stdio", "--sort=sym,symbol_daddr,dso_daddr,locked"]);
    for (name, text) in [("c2c", &c2c), ("mem", &mem), ("few", &few)] {
        readers::seed(name, text.as_bytes());
    }
    // The others have no line that another cache had modified, and perf tells nothing of them.
    for (text, format, placed) in
        [(&c2c, Format::PerfC2c, 2400), (&mem, Format::PerfMem, 2420), (&few, Format::PerfMem, 2420)]
    {
        let scan = profiled(&run.built.path, &[text.as_bytes()]);
        let profile = &scan.profiles[0];
        let told = (profile.format, profile.samples, profile.objects, profile.cpus);
        assert_eq!(told, (format, placed, placed, 0), "{profile:?}\n{text}");
        let first = &scan.findings[0];
        assert_eq!((first.subject.name.as_str(), first.rule), ("chunk.free_bytes", "write-beside-read"), "{text}");
        assert_eq!((first.severity, first.measured.unwrap().conflict), (Severity::High, Some(40 * 160)));
        let uses: Vec<&str> = first.accesses.iter().map(|u| u.function.as_str()).collect();
        assert_eq!(uses, ["allocate", "address"]);
        // Without CPUs, only lines that another cache had modified tell that the lock is shared.
        let shared: Vec<&str> = found(&scan, "lock").iter().map(|f| f.rule).collect();
        assert_eq!(
            shared,
            if text.contains("Snoop") || format == Format::PerfC2c { vec!["true-sharing"] } else { vec![] }
        );
    }
    let statistics = readers::text(&["c2c", "report", "--stdio", "--stats", "-i", file]);
    let scan = profiled(&run.built.path, &[statistics.as_bytes()]);
    assert!(scan.profiles[0].problems[0].contains("statistics only"), "{:?}", scan.profiles);
}

/// A kernel that was moved: its slide is in the profile, bases of per-CPU data are learnt from instructions that name it, and
/// what is unknown is said.
#[test]
fn a_kernel_is_found_where_it_was_moved() {
    let source = "
        #define OWN __attribute__((noinline, used))
        __asm__(\".text; .globl _text; _text:\");
        __attribute__((aligned(64))) long allocated; long limit;
        __attribute__((aligned(64))) char last;
        __attribute__((section(\".data..percpu\"))) long first = 1, hits = 1, misses = 1;
        __attribute__((section(\".init.text\"))) OWN void setup(void) { allocated = 1; }
        OWN void grow(long n) { __atomic_fetch_add(&allocated, n, __ATOMIC_RELAXED); }
        OWN long over(void) { return limit; }
        OWN void hit(void) { __asm__ volatile(\"counted: incq %%gs:hits\" ::: \"memory\"); }
        OWN void other(long *it) { __asm__ volatile(\"followed: incq (%0)\" : : \"r\"(it) : \"memory\"); }
        void _start(void) { }";
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("kernel.ld");
    let sections = "SECTIONS { . = 0xffffffff81000000; .text : { *(.text*) } .init.text : { *(.init.text) }
        .data : { *(.data) } .bss : { *(.bss) } .notes : { *(.note.gnu.build-id) }
        .data..percpu 0 : AT(0x2000000) { *(.data..percpu) } }";
    std::fs::write(&script, sections).unwrap();
    let kernel = ["-mcmodel=kernel", "-Wl,--build-id", "-T", script.to_str().unwrap()];
    let built = build("a.c", source, &[PLAIN, &kernel].concat());
    let bytes = straddle::open::map(&built.path).unwrap();
    let image = Image::parse(&bytes, "vmlinux").unwrap();
    let at = |name: &str| image.symbols.iter().find(|s| s.name == name).unwrap().value;
    let slide = 0x1e00_0000;
    let (text, id) = (at("_text") + slide, image.build_id.clone().unwrap());
    let id: Vec<u8> = (0..id.len() / 2).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16).unwrap()).collect();
    let bases = [0xffff_8881_0000_0000u64, 0xffff_8881_0008_0000];
    let record = |id: &[u8]| {
        let mut recording = Recording::memory();
        recording.build_id(id, "[kernel.kallsyms]");
        recording.map(u32::MAX, (text & !0xfff, 0x10_0000, text), true, "[kernel.kallsyms]_text", 0);
        recording.map(u32::MAX, (0xffff_ffff_c000_0000, 0x1000, 0), true, "[nf_tables]", 0);
        let mut sample = |ip: u64, addr: u64, cpu: u32, source: u64| {
            let access = Access { event: 0, ip, pid: 0, tid: cpu, time: 1, addr, cpu, weight: 1, source };
            recording.sample(access);
        };
        for cpu in 0..2 {
            for _ in 0..5 {
                sample(at("grow") + slide, at("allocated") + slide, cpu, LOAD | LOCKED);
                sample(at("over") + slide, at("limit") + slide, cpu, LOAD);
                sample(at("counted") + slide, bases[cpu as usize] + at("hits"), cpu, STORE);
            }
            sample(at("followed") + slide, bases[cpu as usize] + at("misses"), cpu, STORE);
        }
        sample(at("followed") + slide, 0xffff_8881_0010_0000 + at("misses"), 2, STORE);
        sample(0xffff_ffff_c000_0010, 0xffff_ffff_c000_0800, 0, LOAD);
        sample(0x40_1000, 0x7fff_0000_1000, 0, LOAD);
        recording.bytes()
    };
    let scan = profiled(&built.path, &[&record(&id)]);
    let profile = &scan.profiles[0];
    assert_eq!((profile.samples, profile.objects, profile.cpus), (35, 32, 2), "{profile:?}");
    for (reason, count) in [("in user space", 1), ("another program", 1), ("whose base is not known", 1)] {
        let of_reason = profile.elsewhere.iter().find(|(told, _)| told.contains(reason));
        assert_eq!(of_reason.map(|(_, n)| *n), Some(count), "{reason}: {profile:?}");
    }
    let first = &scan.findings[0];
    assert_eq!((first.subject.name.as_str(), first.evidence), ("allocated", Evidence::Measured), "{:?}", scan.findings);
    assert_eq!((first.others[0].name.as_str(), first.measured.unwrap().conflict), ("limit", Some(50)));
    assert!(scan.findings.iter().all(|f| !names(f).contains("hits")), "every CPU has its own: {:?}", scan.findings);
    let scan = profiled(&built.path, &[&record(&[9; 20])]);
    let profile = &scan.profiles[0];
    assert_eq!(profile.objects, 0, "{profile:?}");
    assert!(profile.problems.iter().any(|p| p.contains("build id 0909")), "{profile:?}");
}

/// A large one, beside the program it is of, in the folder `STRADDLE_BIG_PROFILE` (scripts/bench.sh profile): a tenth of its
/// accesses are to objects, the others to the heap.
#[test]
fn a_large_recording_is_written_where_it_is_asked_for() {
    let Some(folder) = std::env::var_os("STRADDLE_BIG_PROFILE").map(std::path::PathBuf::from) else { return };
    let megabytes: usize = std::env::var("STRADDLE_BIG_MB").unwrap().parse().unwrap();
    let mut run = contended();
    let (ip, objects) = (run.symbols["taken"], ["lock", "root", "chunk"].map(|name| run.symbols[name]));
    let maps = run.recording.take();
    let block = |number: usize| {
        let mut recording = run.recording.clone();
        for n in 0..100_000u64 {
            let time = 10_000_000 + (number as u64 * 100_000 + n) * 100;
            let heap = 0x7f00_0000_0000 + n * 64;
            let addr = if n % 10 == 0 { objects[n as usize / 10 % 3] + n % 2 * 8 } else { heap };
            let source = if n % 4 == 0 { STORE } else { HITM };
            let cpu = (n % 16) as u32;
            let event = usize::from(n % 4 == 0);
            recording.sample(Access {
                event,
                ip,
                pid: PROCESS,
                tid: 1000 + cpu,
                time,
                addr,
                cpu,
                weight: n % 300,
                source,
            });
        }
        recording.end_round();
        recording.take()
    };
    let blocks = (megabytes * 1_000_000).div_ceil(block(0).len());
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("big.data")).unwrap());
    run.recording.write(&mut file, &maps, blocks, block).unwrap();
    std::fs::copy(&run.built.path, folder.join("image")).unwrap();
}
