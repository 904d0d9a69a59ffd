//! Profiles laid over images: files of a real perf, files as a machine with counters would write them, and texts.

mod readers;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;

use straddle::finding::{Evidence, Finding, Severity};
use straddle::formats::Samples;
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
            recording.map(PROCESS, map, segment.executable, "/anywhere/image", 2);
        }
        Run { built, symbols, references, recording, time: 1_000_000 }
    }

    /// So many accesses of a CPU, each of its own thread, by the function's instruction for `object`.
    fn access(&mut self, count: u64, cpu: u32, function: &str, (object, offset): (&str, u64), source: u64) {
        let start = self.symbols[function];
        let own = self.references.iter().filter(|(at, name)| (start..start + 200).contains(at) && name == object);
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

/// Case A3: a counter that every CPU updates beside a pointer that every CPU reads. Case A12: where most samples are in a
/// lock, the lock is true sharing, and the line to mend is that of what it guards.
#[test]
fn the_line_is_found_that_a_lock_hides() {
    let mut run = Run::new(
        "#define OWN __attribute__((noinline, used))
        struct page_counter { _Atomic long usage; long min; struct page_counter *parent; };
        __attribute__((aligned(64))) struct page_counter root;
        __attribute__((aligned(64))) struct chunk { int free_bytes; int contig; void *base_addr; } chunk;
        __attribute__((aligned(64))) int lock;
        __attribute__((aligned(64))) char last;
        OWN void charge(long by) { root.usage += by; }
        OWN struct page_counter *up(void) { return root.parent; }
        OWN void take(int *it) { while (__atomic_exchange_n(it, 1, __ATOMIC_ACQUIRE)) ; }
        OWN void allocate(int by) { take(&lock); chunk.free_bytes -= by; }
        OWN void *address(void) { return chunk.base_addr; }
        void _start(void) { }",
    );
    for cpu in 0..4 {
        run.access(550, cpu, "take", ("lock", 0), HITM | LOCKED);
        run.access(10, cpu, "allocate", ("chunk", 0), STORE);
        run.access(40, cpu, "address", ("chunk", 8), HITM);
        run.access(2, cpu, "charge", ("root", 0), LOAD | LOCKED);
        run.access(3, cpu, "up", ("root", 16), LOAD);
    }
    let scan = run.scan();
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
