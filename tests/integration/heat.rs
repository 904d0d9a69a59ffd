//! Decoded accesses against sources whose accesses are known, and against the relocations that a linker keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use straddle::finding::{Evidence, Severity};
use straddle::heat::{self, Heat, Kind};
use straddle::image::{Image, Relocations, Target};
use straddle::objects::{Objects, Space};
use straddle::rules::Ask;

use super::scan::{Built, build, names, of, scan, scan_as};

/// Each function's accesses stand beside it. Everything is static or hidden from inlining, so that every compiler has to
/// make just these.
const KNOWN: &str = "
    #define OWN __attribute__((noinline, noclone, used, visibility(\"hidden\"))) void
    long plain, counter, updated, guarded, far[16], pair[2];
    int word, lock, small;
    struct { long a; int b; char c; } whole;
    long sink;

    OWN reads(long *to) { *to = plain; }
    OWN writes(void) { counter = 1; }
    OWN updates(long by) { updated += by; }
    OWN atomics(void) { __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST); }
    OWN exchanges(void) { __atomic_exchange_n(&small, 5, __ATOMIC_SEQ_CST); }
    OWN members(void) { whole.b = 2; whole.c = 3; }
    OWN elements(long i, long *to) { *to = far[i]; }
    OWN stores(long i) { far[i] = i; }
    OWN take(int *it) { while (__atomic_exchange_n(it, 1, __ATOMIC_ACQUIRE)) ; }
    OWN give(int *it) { __atomic_store_n(it, 0, __ATOMIC_RELEASE); }
    OWN takes_for(long before, int *it) { take(it); }
    OWN locked(long by) { take(&lock); guarded = by; give(&lock); }
    OWN deeper(void) { takes_for(3, &lock); }
    OWN second(long *it) { it[1] = 7; }
    OWN handed(void) { second(pair); }
    OWN unknown(void (*what)(long *)) { what(pair); }
    __attribute__((section(\".init.text\"))) OWN starts(void) { counter = 9; }
    OWN loops(long *to) {
        long sum = 0;
        for (int i = 0; i < 16; i++) { sum += plain; __asm__ volatile(\"\" ::: \"memory\"); }
        *to = sum;
    }
";

/// Function, object, offset, width, what is done, through whom.
type Known = (&'static str, &'static str, u64, u32, &'static str, Option<&'static str>);
const ACCESSES: &[Known] = &[
    ("reads", "plain", 0, 8, "r", None),
    ("writes", "counter", 0, 8, "w", None),
    ("updates", "updated", 0, 8, "rw", None),
    ("atomics", "word", 0, 4, "a", None),
    ("exchanges", "small", 0, 4, "a", None),
    ("members", "whole", 8, 4, "w", None),
    ("members", "whole", 12, 1, "w", None),
    ("elements", "far", 0, 8, "r", None),
    ("stores", "far", 0, 8, "w", None),
    ("locked", "lock", 0, 4, "a", Some("take")),
    ("locked", "lock", 0, 4, "w", Some("give")),
    ("locked", "guarded", 0, 8, "w", None),
    ("deeper", "lock", 0, 4, "a", Some("takes_for")),
    ("handed", "pair", 8, 8, "w", Some("second")),
    ("unknown", "pair", 0, 0, "&", None),
    ("starts", "counter", 0, 8, "w", None),
    ("loops", "plain", 0, 8, "r", None),
];

type Row = (String, String, u64, u32, String, Option<String>);

/// What was decoded, in the words of [`ACCESSES`]. Whether reading and writing is one instruction is the machine's choice,
/// and so is the read of an exclusive pair; that an address is taken is told only where nothing else is.
fn decoded(path: &Path) -> BTreeSet<Row> {
    let bytes = straddle::open::map(path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let objects = Objects::data(&image).list;
    let heat = Heat::decoded(&image, &objects);
    let mut kinds: BTreeMap<_, BTreeSet<Kind>> = BTreeMap::new();
    for access in &heat.accesses {
        let name = |f: u32| heat.function(f).unwrap().name.to_string();
        let object = objects[access.object as usize].name.to_string();
        assert!(access.width == 0 || access.indexed == (object == "far"), "{access:?}");
        let key = (name(access.function), object, access.offset, access.width, access.through.map(name));
        kinds.entry(key).or_default().insert(access.kind);
    }
    let touched: BTreeSet<(String, String)> =
        kinds.keys().filter(|k| k.3 > 0).map(|k| (k.0.clone(), k.1.clone())).collect();
    let word = |kinds: &BTreeSet<Kind>| match () {
        () if kinds.contains(&Kind::Atomic) => "a",
        () if kinds.iter().any(|k| k.reads()) && kinds.iter().any(|k| k.writes()) => "rw",
        () if kinds.iter().any(|k| k.writes()) => "w",
        () if kinds.iter().any(|k| k.reads()) => "r",
        () => "&",
    };
    let rows =
        kinds.iter().map(|(k, kinds)| (k.0.clone(), k.1.clone(), k.2, k.3, word(kinds).to_string(), k.4.clone()));
    rows.filter(|row| row.4 != "&" || !touched.contains(&(row.0.clone(), row.1.clone()))).collect()
}

fn known() -> BTreeSet<Row> {
    let row = |&(function, object, offset, width, what, through): &Known| {
        (function.into(), object.into(), offset, width, what.into(), through.map(str::to_string))
    };
    ACCESSES.iter().map(row).collect()
}

fn differences(path: &Path, anchors: bool) -> String {
    // The address that several objects are reached from is that of one of them.
    let wanted = |row: &Row| !anchors || row.4 != "&";
    let (mut decoded, mut known) = (decoded(path), known());
    decoded.retain(wanted);
    known.retain(wanted);
    let missing = known.difference(&decoded).map(|r| format!("not decoded: {r:?}"));
    let invented = decoded.difference(&known).map(|r| format!("invented: {r:?}"));
    missing.chain(invented).collect::<Vec<_>>().join("\n")
}

const LINKED: &[&str] = &["-nostdlib", "-Wl,-e,0"];

#[test]
fn known_accesses_on_x86() {
    let kinds: [&[&str]; 5] = [
        &["-static", "-fno-pie", "-no-pie"],
        &["-fpie", "-pie"],
        // Data through the global offset table, functions not through a linkage table.
        &["-fPIC", "-shared"],
        &["-static", "-fno-pie", "-no-pie", "-Wl,--emit-relocs"],
        &["-c", "-fPIC"],
    ];
    for kind in kinds {
        for level in ["-O1", "-O2"] {
            let link = if kind[0] == "-c" { &[] } else { LINKED };
            let arguments = [kind, link, &[level, "-fno-ipa-ra"]].concat();
            let built = build("known.c", KNOWN, &arguments);
            assert_eq!(differences(&built.path, false), "", "{arguments:?}");
        }
    }
}

fn build_arm64(source: &str, arguments: &[&str]) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let (from, path) = (folder.path().join("known.c"), folder.path().join("image"));
    std::fs::write(&from, source).unwrap();
    let gcc = Command::new("aarch64-linux-gnu-gcc").arg("-o").arg(&path).args(arguments).arg(&from).output();
    let gcc = gcc.expect("aarch64-linux-gnu-gcc is needed");
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    Built { folder, path }
}

#[test]
fn known_accesses_on_arm64() {
    let kinds: [&[&str]; 4] =
        [&["-static", "-fno-pie", "-no-pie"], &["-fPIC", "-shared"], &["-c", "-fno-pie"], &["-c", "-fPIC"]];
    for kind in kinds {
        for (machine, anchors) in
            [("-march=armv8.1-a", "-fno-section-anchors"), ("-march=armv8-a", "-fsection-anchors")]
        {
            let link = if kind[0] == "-c" { &[] } else { LINKED };
            let arguments = [kind, link, &["-O2", machine, "-mno-outline-atomics", "-fno-ipa-ra", anchors]].concat();
            let built = build_arm64(KNOWN, &arguments);
            let anchors = anchors == "-fsection-anchors";
            assert_eq!(differences(&built.path, anchors), "", "{arguments:?}");
        }
    }
}

#[test]
fn code_that_runs_once_is_told_apart() {
    let built = build("known.c", KNOWN, &[LINKED, &["-static", "-O2"]].concat());
    let bytes = straddle::open::map(&built.path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let heat = Heat::decoded(&image, &Objects::data(&image).list);
    let cold: Vec<&str> = heat.functions.iter().filter(|f| f.cold).map(|f| f.name).collect();
    assert_eq!(cold, ["starts"]);
}

/// References to shared data in functions, by the relocations of code; those that instructions alone tell too; and why
/// others are missing.
fn against_relocations(path: &Path) -> (usize, usize, BTreeMap<String, usize>) {
    let bytes = straddle::open::map(path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let objects = Objects::data(&image).list;
    let kept = image.code_relocations();
    let decoded = heat::references(&image, &objects, &Relocations::default());
    let mut names: BTreeMap<&str, Option<u32>> = BTreeMap::new();
    for (index, object) in (0u32..).zip(&objects) {
        names.entry(object.name).and_modify(|n| *n = None).or_insert(Some(index));
    }
    let shared: Vec<(u64, u64, u32)> = (0u32..)
        .zip(&objects)
        .filter(|(_, o)| o.space == Space::Shared)
        .map(|(i, o)| (o.span.start.0, o.span.end(), i))
        .collect();
    let at = |address: u64| {
        let at = shared.partition_point(|s| s.0 <= address).checked_sub(1)?;
        (address < shared[at].1).then_some(shared[at].2)
    };
    let functions = Objects::functions(&image).list;
    let (mut all, mut agreed, mut why) = (0, 0, BTreeMap::new());
    for (index, section) in (0u32..).zip(&image.sections).filter(|(_, s)| s.executable) {
        let covered: Vec<(u64, u64)> =
            functions.iter().filter(|f| f.section == index).map(|f| (f.span.start.0, f.span.end())).collect();
        for field in kept.within(index, 0, u64::MAX) {
            // The addend of a relative reference counts from the end of its instruction, up to four bytes on.
            let wanted: Vec<u32> = match field.target {
                Target::Symbol { name, .. } => names.get(name).copied().flatten().into_iter().collect(),
                Target::Address { address, .. } => [0, 1, 2, 4].iter().filter_map(|d| at(address + d)).collect(),
                Target::Unknown => continue,
            };
            let Some(&first) = wanted.first().filter(|o| objects[**o as usize].space == Space::Shared) else {
                continue;
            };
            all += 1;
            let from = decoded.partition_point(|r| (r.section, r.at + 15) < (index, field.address));
            let mut near = decoded[from..].iter().take_while(|r| (r.section, r.at) <= (index, field.address));
            if near.any(|r| wanted.contains(&r.object)) {
                agreed += 1;
                continue;
            }
            let place = covered.partition_point(|c| c.0 <= field.address);
            let inside = place > 0 && field.address < covered[place - 1].1;
            let reason = match () {
                () if !inside => format!("no function in {}", section.name),
                () => format!("{:#x} {}", field.address, objects[first as usize].name),
            };
            *why.entry(reason).or_insert(0) += 1;
        }
    }
    (all, agreed, why)
}

#[test]
fn instructions_tell_what_relocations_tell() {
    for level in ["-O1", "-O2", "-Os"] {
        let built = build("known.c", KNOWN, &[LINKED, &["-static", level, "-Wl,--emit-relocs"]].concat());
        let (all, agreed, why) = against_relocations(&built.path);
        assert!(all >= 15 && agreed == all, "{agreed} of {all}: {why:?}");
    }
}

/// Of a large image, `STRADDLE_HEAT_IMAGE` (scripts/bench.sh heat).
#[test]
fn instructions_tell_what_relocations_tell_of_a_named_image() {
    let Some(path) = std::env::var_os("STRADDLE_HEAT_IMAGE") else { return };
    let (all, agreed, why) = against_relocations(Path::new(&path));
    println!("{agreed} of {all} references agree; others: {why:#?}");
    assert!(all > 0 && agreed * 1000 >= all * 995, "{agreed} of {all}");
}

/// Objects in the order of the source.
const PLAIN: &[&str] = &["-O2", "-fno-toplevel-reorder", "-nostdlib", "-static", "-fno-pie", "-no-pie"];

fn typed() -> Vec<&'static str> {
    [PLAIN, &["-g"]].concat()
}

/// Cases A3 and A12: a counter that is updated beside a pointer that others only read. A12's profile shows the lock; the
/// line is that of what it guards.
#[test]
fn a_counter_beside_what_others_read() {
    let source = "
        #define OWN __attribute__((noinline, used))
        struct page_counter { _Atomic long usage; long min; struct page_counter *parent; };
        __attribute__((aligned(64))) struct page_counter root;
        __attribute__((aligned(64))) struct chunk { int free_bytes; int contig; void *base_addr; } chunk;
        __attribute__((aligned(64))) int lock;
        __attribute__((aligned(64))) char last;
        OWN void charge(long by) { root.usage += by; }
        OWN void uncharge(long by) { root.usage -= by; }
        OWN struct page_counter *up(void) { return root.parent; }
        OWN int is_top(void) { return root.parent == 0; }
        OWN void take(int *it) { while (__atomic_exchange_n(it, 1, __ATOMIC_ACQUIRE)) ; }
        OWN void give(int *it) { __atomic_store_n(it, 0, __ATOMIC_RELEASE); }
        OWN void allocate(int by) { take(&lock); chunk.free_bytes -= by; give(&lock); }
        OWN void release(int by) { take(&lock); chunk.free_bytes += by; give(&lock); }
        OWN void *address(void) { return chunk.base_addr; }
        OWN int inside(char *what) { return what >= (char *)chunk.base_addr; }
        void _start(void) { }";
    let built = build("a.c", source, &typed());
    let blind = scan_as(&built.path, &Ask { no_heat: true, ..Ask::default() });
    assert!(blind.findings.iter().all(|f| f.evidence != Evidence::Decoded && f.rule != "write-beside-read"));
    let scanned = scan(&built.path);
    let found = of(&scanned, "write-beside-read");
    let told: BTreeSet<(&str, &str)> =
        found.iter().map(|f| (f.subject.name.as_str(), f.others[0].name.as_str())).collect();
    assert_eq!(told, BTreeSet::from([("root.usage", "root.parent"), ("chunk.free_bytes", "chunk.base_addr")]));
    assert!(found.iter().all(|f| f.evidence == Evidence::Decoded && f.severity == Severity::Low));
    let root = found.iter().find(|f| f.subject.name == "root.usage").unwrap();
    assert!(root.advice.contains("root.parent at least 64 bytes away"), "{}", root.advice);
    assert_eq!((root.readers, root.writers), (Some(2), Some(2)));
    let uses: BTreeSet<(&str, &str)> = root.accesses.iter().map(|u| (u.function.as_str(), u.kind)).collect();
    assert_eq!(
        uses,
        BTreeSet::from([("charge", "atomic"), ("uncharge", "atomic"), ("up", "read"), ("is_top", "read")])
    );
    // The lock is alone on its line: all that take it contend for it, wherever it lies.
    assert!(scanned.findings.iter().all(|f| !names(f).contains("lock")), "{:?}", scanned.findings);
}

/// Case A17: words of four bytes that an atomic of eight bytes works on. At phase 60 it reaches over the line; well placed
/// it is luck; aligned to eight it cannot.
#[test]
fn a_bitmap_of_words_and_an_atomic_of_two() {
    let source = |align: &str| {
        format!(
            "struct at {{ char before[60]; unsigned bits[4]; }};
            __attribute__((aligned(64))) struct at split;
            __attribute__((aligned(64))) unsigned lucky[4];
            unsigned {align} third[4];
            #define SET(it, bit) __asm__ volatile(\"lock btsq %1, %0\" : \"+m\"(*(volatile long *)(it)) : \"r\"(bit) : \"memory\")
            __attribute__((used)) void a(long bit) {{ SET(split.bits, bit); }}
            __attribute__((used)) void b(long bit) {{ SET(lucky, bit); }}
            __attribute__((used)) void c(void) {{ __atomic_fetch_or((long *)third, 1, __ATOMIC_SEQ_CST); }}
            void _start(void) {{ }}"
        )
    };
    let scanned = scan(&build("a.c", &source(""), &typed()).path);
    let found: BTreeMap<&str, (Severity, bool)> = of(&scanned, "split-access")
        .iter()
        .map(|f| (f.subject.name.as_str(), (f.severity, f.advice.contains("actual split lock"))))
        .collect();
    // `lucky` asks for an alignment of a line, and so has it for sure.
    assert_eq!(found, BTreeMap::from([("split", (Severity::High, true)), ("third", (Severity::Low, false))]));
    let scanned = scan(&build("a.c", &source("__attribute__((aligned(8)))"), &typed()).path);
    assert_eq!(of(&scanned, "split-access").iter().map(|f| f.subject.name.as_str()).collect::<Vec<_>>(), ["split"]);
}

/// Case D1: one datum that all write is contended wherever it lies; alone on its line it is no matter of layout. Case D4:
/// what lies together and is used together, or is not written while the program runs, is a remark at most.
#[test]
fn true_sharing_and_quiet_neighbours() {
    let source = "
        #define OWN __attribute__((noinline, used))
        __attribute__((aligned(64))) _Atomic int allow_customize;
        __attribute__((aligned(64))) long length_; long list_;
        __attribute__((aligned(64))) long first; long second;
        __attribute__((aligned(64))) char last;
        OWN void malloc_(void) { allow_customize = 0; }
        OWN void realloc_(void) { allow_customize = 0; }
        OWN void free_(void) { allow_customize = 0; }
        OWN long length(void) { return length_; }
        OWN long list(void) { return list_; }
        __attribute__((section(\".init.text\"), used)) void setup(long n) { length_ = n; list_ = n; }
        OWN void together(long n) { first += n; second += n; }
        void _start(void) { }";
    let scanned = scan(&build("a.c", source, &typed()).path);
    assert!(scanned.findings.iter().all(|f| !names(f).contains("allow_customize")), "{:?}", scanned.findings);
    for f in scanned.findings.iter().filter(|f| f.rule != "straddle") {
        assert_eq!((f.severity, f.evidence), (Severity::Info, Evidence::Decoded), "{f:?}");
        assert!(f.advice.starts_with("nothing to do"), "{}", f.advice);
    }
    assert_eq!(of(&scanned, "shared-line").len(), 2);
}

/// Two globals of different functions: a counter that several update beside what others read, and the same two where the
/// counter has its line for itself.
#[test]
fn a_neighbour_on_the_line_and_one_beside_it() {
    let source = |apart: &str| {
        format!(
            "#define OWN __attribute__((noinline, used))
            __attribute__((aligned(64))) long allocated; {apart} long limit; __attribute__((aligned(64))) char last;
            OWN void grow(void) {{ __atomic_fetch_add(&allocated, 1, __ATOMIC_RELAXED); }}
            OWN void shrink(void) {{ __atomic_fetch_sub(&allocated, 1, __ATOMIC_RELAXED); }}
            OWN int over(long n) {{ return n > limit; }}
            OWN int under(long n) {{ return n < limit; }}
            void _start(void) {{ }}"
        )
    };
    // Names alone, as in a file that was built without -g.
    let scanned = scan(&build("a.c", &source(""), PLAIN).path);
    let found = of(&scanned, "write-beside-read");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].severity, found[0].evidence), (Severity::Medium, Evidence::Decoded));
    assert_eq!((found[0].subject.name.as_str(), found[0].others[0].name.as_str()), ("allocated", "limit"));
    let scanned = scan(&build("a.c", &source("__attribute__((aligned(64)))"), PLAIN).path);
    assert!(scanned.findings.is_empty(), "{:?}", scanned.findings);
}
