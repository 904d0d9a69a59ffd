//! What the rules of `scan` find, and do not, in images that are built here.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;

use straddle::finding::{Evidence, Severity};
use straddle::image::TypesFrom;
use straddle::rules::{self, Scan};

use crate::scan::{NOTHING, TYPED, build, names, of, scan, scan_as};

/// Names and costs of what a rule found.
fn found(scan: &Scan, rule: &str) -> BTreeMap<String, Option<u64>> {
    of(scan, rule).into_iter().map(|f| (f.subject.name.clone(), f.cost_bytes)).collect()
}

/// Case C4: an array that several threads write, by its elements' type. The fix of 2024 aligns the start, and the
/// finding stays; the one of 2026 aligns the elements, and it goes (case C7b). Plain integers say nothing.
#[test]
fn an_aligned_array_still_shares_its_lines() {
    let source = "
        typedef struct { int counter; } atomic_t;
        struct queue { long length; atomic_t users; };
        #define LINE __attribute__((aligned(64)))
        struct apart { _Atomic long count; } LINE;
        LINE _Atomic long io_reads[8];
        LINE char before[8]; _Atomic long unaligned[8];
        LINE atomic_t kernel[16];
        LINE volatile short flags[4];
        LINE struct queue queues[2];
        LINE struct server { int id; _Atomic char inside[3]; int plain[2]; } server;
        LINE _Atomic int rows[3][16];
        LINE struct apart apart[8];
        LINE long plain[8];
        LINE _Atomic long one[1];
        LINE const _Atomic long fixed[4] = {1, 2, 3, 4};
        LINE char last;
        void _start(void) { }";
    let built = build("a.c", source, TYPED);
    let scan = scan(&built.path);
    assert_eq!(scan.image.types_from, Some(TypesFrom::Dwarf));
    let mut found = found(&scan, "shared-elements");
    // Where the compiler puts it decides how far it is to the next line.
    let unaligned = found.remove("unaligned").unwrap().unwrap();
    let gap = of(&scan, "shared-elements").iter().find(|f| f.subject.name == "unaligned").unwrap().subject.phase.0;
    assert_eq!(unaligned, 8 * 56 + u64::from((64 - gap) % 64));
    let costs = [("io_reads", 8 * 56), ("kernel", 16 * 60), ("flags", 4 * 62), ("queues", 2 * 48)];
    let want = costs.into_iter().chain([("server.inside", 3 * 63 + 60)]);
    assert_eq!(found, want.map(|(name, cost)| (name.to_string(), Some(cost))).collect());
    let finding = of(&scan, "shared-elements").into_iter().find(|f| f.subject.name == "io_reads").unwrap();
    assert!(finding.advice.contains("8 elements of 8 bytes, 8 on one line; an aligned start does not separate them"));
    assert!(finding.advice.contains("costs 448 bytes"), "{}", finding.advice);
    let subject = &finding.subject;
    assert_eq!((subject.type_name.as_deref(), subject.file.as_deref()), (Some("_Atomic long int[8]"), Some("a.c")));
    assert_eq!(subject.line, Some(6));
    // One line for all of it would be the opposite advice.
    assert!(of(&scan, "straddle").iter().all(|f| f.subject.name != "unaligned"));
}

#[test]
fn atomics_of_cpp_and_rust_are_known_by_their_types() {
    let cpp = "
        #include <atomic>
        alignas(64) std::atomic<long> reads[8]; alignas(64) long plain[8]; alignas(64) char last;
        extern \"C\" void _start() { }";
    let scanned = scan(&build("a.cc", cpp, TYPED).path);
    assert_eq!(found(&scanned, "shared-elements"), BTreeMap::from([("reads".to_string(), Some(448))]));
    let rust = "
        use std::sync::atomic::AtomicU64;
        #[repr(align(64))] pub struct Line([AtomicU64; 4]);
        #[unsafe(no_mangle)] #[used] pub static reads: Line = Line([const { AtomicU64::new(0) }; 4]);
        #[unsafe(no_mangle)] #[used] pub static plain: [u64; 4] = [1; 4];
        fn main() { }";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.rs"), rust).unwrap();
    let rustc = ["-g", "-Anon_upper_case_globals", "-Adead_code", "a.rs"];
    assert!(Command::new("rustc").args(rustc).current_dir(folder.path()).status().unwrap().success());
    let scanned = scan(&folder.path().join("a"));
    assert_eq!(found(&scanned, "shared-elements"), BTreeMap::from([("reads.__0".to_string(), Some(4 * 56))]));
}

/// Case C2: a mutex of 40 bytes, aligned to a line, and what is placed behind it, in a struct and by the linker. To
/// align both, or to fill the line, is silent.
#[test]
fn an_aligned_lock_shares_its_tail() {
    let source = "
        #include <pthread.h>
        #define LINE __attribute__((aligned(64)))
        struct padded { pthread_mutex_t lock; char rest[24]; };
        struct db {
            long name;
            LINE pthread_mutex_t mutex_; int block_cache_tracer_;
            LINE pthread_mutex_t alone; LINE int next;
            LINE struct padded full; int behind;
            LINE char text[40]; int letter;
        };
        struct db db;
        LINE pthread_mutex_t lock = {.__data = {0, 1}}; int reader = 1;
        LINE struct padded filled = {.rest = \"x\"}; int behind = 1;
        LINE char text[40] = \"x\"; int letter = 1;
        void _start(void) { }";
    let built = build("a.c", source, &[TYPED, &["-fno-toplevel-reorder"]].concat());
    let scan = scan(&built.path);
    assert_eq!(
        found(&scan, "shared-tail"),
        BTreeMap::from([("db.mutex_".to_string(), Some(24)), ("lock".to_string(), Some(24))])
    );
    let both = of(&scan, "shared-tail");
    let others: Vec<&str> = both.iter().flat_map(|f| &f.others).map(|s| s.name.as_str()).collect();
    assert_eq!(others, ["reader", "db.block_cache_tracer_"]);
    for finding in &both {
        assert!(finding.advice.starts_with("tail line still shared with"), "{}", finding.advice);
        assert_eq!((finding.subject.phase.0, finding.subject.size, finding.others[0].phase.0), (0, 40, 40));
        assert_eq!(finding.subject.type_name.as_deref(), Some("pthread_mutex_t"));
    }
    // Said once; the neighbours whose type is no lock are told as before.
    let lines: Vec<_> = of(&scan, "shared-line").into_iter().map(names).collect();
    assert!(lines.contains(&HashSet::from(["text", "letter"])), "{lines:?}");
    assert!(lines.iter().all(|l| !l.contains("lock")), "{lines:?}");
}

/// Case A16 with types: two contended counters matter more than one beside another file's data, and that more than a
/// lock beside what may be its own.
#[test]
fn types_rank_neighbours() {
    let source = "
        typedef struct { int counter; } atomic_t;
        #define LINE __attribute__((aligned(64)))
        LINE char pad_1[8] = {1}; atomic_t memory_allocated = {1}; atomic_t sockets_allocated = {1};
        LINE char pad_2[8] = {1}; atomic_t lock = {1}; int guarded = 1;
        LINE int plain = 1; int more = 1;
        LINE int end = 1;
        void _start(void) { }";
    let built = build("a.c", source, &[TYPED, &["-fno-toplevel-reorder"]].concat());
    let scan = scan(&built.path);
    let found: BTreeMap<&str, (Severity, Evidence)> =
        of(&scan, "shared-line").into_iter().map(|f| (f.subject.name.as_str(), (f.severity, f.evidence))).collect();
    assert_eq!(found["memory_allocated"], (Severity::Medium, Evidence::Typed));
    assert_eq!(found["lock"], (Severity::Info, Evidence::Typed));
    assert_eq!(found["plain"], (Severity::Info, Evidence::Static));
}

/// Case C7b: the linker gave an object less than its declaration asks for; its elements lie on lines of their own all the
/// same, so that nothing is shared.
#[test]
fn a_misaligned_base_is_no_sharing() {
    let source = "
        struct counter { _Atomic long n; char rest[56]; };
        char first = 1;
        __attribute__((aligned(64))) struct counter counters[4] = {{1}};
        void _start(void) { }";
    let script =
        "SECTIONS { .text 0x1000 : { *(.text) } .data 0x2000 : SUBALIGN(8) { *(.data.first) *(.data.counters) } }";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.ld");
    std::fs::write(&path, script).unwrap();
    let script = format!("-Wl,-T,{}", path.display());
    let built = build("a.c", source, &[TYPED, &["-fdata-sections", &script]].concat());
    let scan = scan(&built.path);
    let found = of(&scan, "misaligned");
    let counters = &found[0];
    assert_eq!((found.len(), counters.subject.name.as_str(), counters.severity), (1, "counters", Severity::Info));
    assert_eq!(counters.subject.phase.0, 8);
    assert!(counters.advice.contains("declared aligned(64), yet 8 bytes past"), "{}", counters.advice);
    assert!(of(&scan, "shared-elements").is_empty());
    // The byte in front of it is on its line; that is no element's neighbour.
    assert!(
        scan.findings.iter().all(|f| f.severity == Severity::Info || f.rule == "shared-line"),
        "{:?}",
        scan.findings
    );
}

/// An atomic on two lines is a split lock; an alignment below it is what a source can ask for.
#[test]
fn an_atomic_on_two_lines_is_worst() {
    let lone = "
        typedef struct { int counter; } __attribute__((packed)) atomic_t;
        __attribute__((aligned(64))) char head[62] = {1}; atomic_t split = {1};
        void _start(void) { }";
    let built = build("a.c", lone, &[TYPED, &["-fno-toplevel-reorder"]].concat());
    let scan = scan(&built.path);
    let [finding] = of(&scan, "straddle")[..] else { panic!("{:?}", scan.findings) };
    assert_eq!((finding.subject.name.as_str(), finding.severity), ("split", Severity::High));
    assert!(finding.advice.contains("split lock"), "{}", finding.advice);
}

/// Case A2 for objects: a pair is told only when asked for, and only of lines 2N and 2N+1.
#[test]
fn pairs_of_lines_are_told_when_asked_for() {
    let objects = |name: &str, at: u32| {
        format!(
            ".balign 128
            .skip {at}
            .globl {name}_lock, {name}_count
            .type {name}_lock, @object; .size {name}_lock, 8
            {name}_lock: .quad 1
            .type {name}_count, @object; .size {name}_count, 8
            {name}_count: .quad 1
            "
        )
    };
    let source = format!(".data\n{}{}", objects("pair", 56), objects("two", 120));
    let built = build("a.s", &source, NOTHING);
    let found = |double_line| {
        let scan = scan_as(&built.path, &rules::Ask { double_line, ..rules::Ask::default() });
        of(&scan, "adjacent-lines")
            .into_iter()
            .map(|f| (f.subject.name.clone(), f.others[0].name.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(false), Vec::<(String, String)>::new());
    assert_eq!(found(true), [("pair_lock".to_string(), "pair_count".to_string())]);
}
