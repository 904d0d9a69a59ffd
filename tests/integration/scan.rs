//! `scan` on images that gcc builds here from sources whose layout is stated beside them.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use straddle::finding::Finding;
use straddle::image::{Image, SymbolsFrom, TypesFrom};
use straddle::objects::Objects;
use straddle::rules::{self, Scan};
use straddle::types::{Files, Source, Want};

/// Compiles assembly or C; `arguments` after the source. The folder lives as long as the result.
pub struct Built {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn build(name: &str, source: &str, arguments: &[&str]) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let (from, path) = (folder.path().join(name), folder.path().join("image"));
    std::fs::write(&from, source).unwrap();
    let gcc = Command::new("gcc").arg("-o").arg(&path).args(arguments).arg(&from).current_dir(folder.path()).output();
    let gcc = gcc.expect("gcc is needed");
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    Built { folder, path }
}

/// As the command does: with types where the image has debug information.
pub fn scan(path: &Path) -> Scan {
    scan_as(path, &rules::Ask::default())
}

/// With types, and more asked than by default.
pub fn scan_as(path: &Path, ask: &rules::Ask<'_>) -> Scan {
    let bytes = straddle::open::map(path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let source = Source::of(&image, Want::Auto, Files::default()).unwrap();
    rules::scan(&image, Some(&source.read(&image).unwrap()), ask).unwrap()
}

pub fn of<'s>(scan: &'s Scan, rule: &str) -> Vec<&'s Finding> {
    scan.findings.iter().filter(|f| f.rule == rule).collect()
}

/// All names on the line that a finding is about.
pub fn names(finding: &Finding) -> HashSet<&str> {
    std::iter::once(&finding.subject).chain(&finding.others).map(|s| s.name.as_str()).collect()
}

pub const NOTHING: &[&str] = &["-nostdlib", "-static", "-Wl,-e,0"];

/// Case A16: two counters of 8 and 4 bytes at …18 and …20 of .bss. There is a gap after the second, so a size taken from
/// the next symbol would be wrong.
const TWO_COUNTERS: &str = "
    .bss
    .balign 64
    .skip 0x18
    .globl memory_allocated, sockets_allocated, far
    .type memory_allocated, @object; .size memory_allocated, 8
    memory_allocated: .skip 8
    .type sockets_allocated, @object; .size sockets_allocated, 4
    sockets_allocated: .skip 4
    .skip 100
    .type far, @object; .size far, 1
    far: .skip 1
";

#[test]
fn two_counters_share_a_line() {
    let built = build("a.s", TWO_COUNTERS, NOTHING);
    let scan = scan(&built.path);
    let shared = of(&scan, "shared-line");
    assert_eq!(shared.len(), 1);
    assert_eq!(names(shared[0]), HashSet::from(["memory_allocated", "sockets_allocated"]));
    let (subject, other) = (&shared[0].subject, &shared[0].others[0]);
    assert_eq!((subject.name.as_str(), subject.size, subject.phase.0), ("sockets_allocated", 4, 0x20));
    assert_eq!((other.size, other.phase.0), (8, 0x18));
    assert_eq!((shared[0].readers, shared[0].writers), (None, None));
}

#[test]
fn aligned_counters_do_not() {
    let source = "
        __attribute__((aligned(64))) long memory_allocated; __attribute__((aligned(64))) int sockets_allocated;
        __attribute__((aligned(64))) char next;
        void _start(void) { }";
    let scan = scan(&build("a.c", source, &["-nostdlib", "-static"]).path);
    assert_eq!(scan.totals.counts.objects, 3);
    assert_eq!(of(&scan, "shared-line"), Vec::<&Finding>::new());
    assert_eq!(scan.totals.counts.lines_shared, 0);
}

/// Case A18: three objects of 32 bytes at phases 0, 32 and 40: only the last lies on two lines, and its size aligns it.
#[test]
fn half_a_line_at_phase_40_straddles() {
    let source = "
        .data
        .balign 64
        .irp n, 0, 32, 40
        .balign 64
        .skip \\n
        .globl at\\n
        .type at\\n, @object; .size at\\n, 32
        at\\n: .fill 32, 1, 1
        .endr";
    let scan = scan(&build("a.s", source, NOTHING).path);
    let found = of(&scan, "straddle");
    assert_eq!(found.iter().map(|f| f.subject.name.as_str()).collect::<Vec<_>>(), ["at40"]);
    assert!(found[0].advice.contains("aligned(32)"), "{}", found[0].advice);
    // From phase 40 to 64.
    assert_eq!(found[0].cost_bytes, Some(24));
    assert_eq!((scan.totals.counts.small, scan.totals.counts.straddling), (3, 1));
}

pub const TYPED: &[&str] = &["-g", "-nostdlib", "-static"];

/// What a change upstream would do: half a line at a good place today, and two that are apart by luck.
#[test]
fn the_most_fragile_come_first() {
    let source = "
        typedef struct { int counter; } atomic_t;
        __attribute__((aligned(64))) char first_pad[60] = {1}; atomic_t users = {1}; atomic_t next = {1};
        __attribute__((aligned(64))) atomic_t alone = {1};
        __attribute__((aligned(64))) char last = 1;
        void _start(void) { }";
    let built = build("a.c", source, &[TYPED, &["-fno-toplevel-reorder"]].concat());
    let fragile = rules::Ask { fragile: true, ..rules::Ask::default() };
    let scan = scan_as(&built.path, &fragile);
    let found: BTreeMap<&str, straddle::finding::Sensitivity> =
        of(&scan, "fragile").into_iter().map(|f| (f.subject.name.as_str(), f.sensitivity.unwrap())).collect();
    // Today on two lines; at 15 of 16 places on one.
    assert_eq!((found["users"].meets, found["users"].of), (15, 16));
    assert!(found.contains_key("next") && !found.contains_key("alone"), "{found:?}");
    let shares: Vec<_> = scan.findings.iter().filter_map(|f| f.sensitivity).map(|s| s.share()).collect();
    assert!(shares.windows(2).all(|w| w[0].cmp_exact(w[1]).is_ge()), "{shares:?}");
    assert!(of(&scan_as(&built.path, &rules::Ask::default()), "fragile").is_empty());
}

/// `--hot`, `--object`, `[[allow]]` and metadata on request.
#[test]
fn what_is_asked_for_is_shown() {
    let built = build("a.s", TWO_COUNTERS, NOTHING);
    let hot = rules::Names::parse("far*, nobody");
    let scan = scan_as(&built.path, &rules::Ask { hot: Some(&hot), ..rules::Ask::default() });
    assert_eq!((scan.findings.len(), scan.skipped["findings about nothing that --hot names"]), (0, 1));
    assert!(scan.problems.iter().any(|p| p.ends_with("is called nobody")), "{:?}", scan.problems);
    let hot = rules::Names::parse("*_allocated");
    assert_eq!(scan_as(&built.path, &rules::Ask { hot: Some(&hot), ..rules::Ask::default() }).findings.len(), 1);
    let allow = [rules::Allow { rule: "shared-line".to_string(), name: "memory_allocated".to_string() }];
    assert_eq!(scan_as(&built.path, &rules::Ask { allow: &allow, ..rules::Ask::default() }).findings.len(), 0);
    let object = rules::Ask { object: Some("sockets_allocated"), ..rules::Ask::default() };
    let scan = scan_as(&built.path, &object);
    let [line] = &scan.maps[..] else { panic!("{:?}", scan.maps) };
    let on: Vec<_> = line.objects.iter().map(|o| (o.object.name.as_str(), o.from, o.to, o.asked)).collect();
    assert_eq!(on, [("memory_allocated", 0x18, 0x20, false), ("sockets_allocated", 0x20, 0x24, true)]);
    assert_eq!(line.address.0 % 64, 0);
    let mut page = Vec::new();
    straddle::report::table::write(
        &straddle::report::scan::page(&scan, straddle::report::page::View::Screen),
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("  ........ ........ ........ aaaaaaaa bbbb.... ........"), "{page}");
    let table = "
        __attribute__((section(\"my_table\"), used)) static char skip[60];
        __attribute__((section(\"my_table\"), used)) static long entry __attribute__((aligned(4)));
        extern int __start_my_table, __stop_my_table;
        int main(void) { return &__stop_my_table - &__start_my_table; }";
    let built = build("a.c", table, &["-O1"]);
    let metadata =
        |metadata| of(&scan_as(&built.path, &rules::Ask { metadata, ..rules::Ask::default() }), "straddle").len();
    assert!(metadata(true) > metadata(false), "{} {}", metadata(true), metadata(false));
}

/// What is stripped of debug information is read as it was. An object's types are known, and that it is not placed is
/// said.
#[test]
fn without_types_nothing_is_claimed_of_them() {
    let source = "_Atomic long io_reads[8]; int near; void _start(void) { }";
    let plain = scan(&build("a.c", source, &["-nostdlib", "-static"]).path);
    assert_eq!(plain.image.types_from, None);
    assert!(of(&plain, "shared-elements").is_empty());
    let object = scan(&build("a.c", source, &["-g", "-c"]).path);
    assert_eq!(object.image.types_from, Some(TypesFrom::Dwarf));
    let reads = of(&object, "shared-elements")[0];
    assert_eq!((reads.subject.name.as_str(), reads.subject.line), ("io_reads", Some(1)));
    assert!(object.problems[0].starts_with("not linked yet: "), "{:?}", object.problems);
}

/// Case A28: every CPU has its own copy, so that sharing is wanted; a straddle still costs. `.data` beside it shows that
/// the rule is awake.
#[test]
fn per_cpu_objects_share_freely() {
    let objects = |section: &str, a: &str, b: &str| {
        format!(
            ".section {section}, \"aw\", @progbits
            .balign 64
            .type {a}, @object; .size {a}, 8
            {a}: .quad 1
            .type {b}, @object; .size {b}, 8
            {b}: .quad 1
            "
        )
    };
    let source = objects(".data..percpu", "cpu_a", "cpu_b") + &objects(".data", "a", "b");
    // The default script would merge it into .data, the kernel's does not.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.ld");
    std::fs::write(&script, "SECTIONS { .data..percpu 0 : { *(.data..percpu) } } INSERT AFTER .data;").unwrap();
    let script = format!("-Wl,-T,{}", script.display());
    let linked: Vec<&str> = NOTHING.iter().copied().chain([script.as_str()]).collect();
    for arguments in [&linked, &vec!["-c"]] {
        let scan = scan(&build("a.s", &source, arguments).path);
        let shared = of(&scan, "shared-line");
        assert_eq!(shared.len(), 1, "{shared:?}");
        assert_eq!(names(shared[0]), HashSet::from(["a", "b"]));
        assert_eq!(scan.totals.classes["per-cpu"], 2);
        assert_eq!(scan.totals.counts.lines_shared, 2, "they are counted all the same");
    }
}

/// What is never written while running is no false sharing, and what tools leave behind is no object of the program.
#[test]
fn read_only_and_metadata_are_counted_not_reported() {
    let source = "
        const int a[2] = {1, 2}, b[2] = {3, 4};
        __attribute__((section(\"my_table\"), used)) static int entry1 = 1;
        __attribute__((section(\"my_table\"), used)) static int entry2 = 2;
        extern int __start_my_table, __stop_my_table;
        int main(void) { return *a + *b + (&__stop_my_table - &__start_my_table); }";
    let scan = scan(&build("a.c", source, &["-O1"]).path);
    assert_eq!(of(&scan, "shared-line"), Vec::<&Finding>::new());
    assert_eq!(scan.totals.classes["metadata: linker tables"], 2);
    assert!(scan.totals.classes["metadata: startup files"] >= 2, "{:?}", scan.totals.classes);
    assert_eq!(scan.totals.classes.values().sum::<u64>(), scan.totals.counts.objects);
}

#[test]
fn aliases_are_one_object() {
    let source = "long x = 1; extern long y __attribute__((alias(\"x\"))); int main(void) { return y; }";
    let built = build("a.c", source, &[]);
    let bytes = straddle::open::map(&built.path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let objects = Objects::data(&image);
    let found: Vec<_> =
        objects.list.iter().filter(|o| matches!(o.name, "x" | "y")).map(|o| (o.name, o.aliases)).collect();
    assert_eq!(found, [("x", 1)]);
}

/// Independent of how `scan` reads: what readelf prints of the symbols, counted the slow way, line by line.
fn by_readelf(path: &Path) -> BTreeMap<u32, [u64; 4]> {
    let readelf = Command::new("readelf").arg("-sW").arg(path).output().expect("readelf is needed");
    let text = String::from_utf8(readelf.stdout).unwrap();
    let mut sizes: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for line in text.split("Symbol table").find(|t| t.starts_with(" '.symtab'")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, value, size, "OBJECT" | "TLS" | "COMMON", _, _, index, ..] = words[..] else { continue };
        let (Ok(index), Ok(size)) = (index.parse(), size.parse::<u64>()) else { continue };
        let slot = sizes.entry((index, u64::from_str_radix(value, 16).unwrap())).or_default();
        *slot = (*slot).max(size);
    }
    let mut counts: BTreeMap<u32, [u64; 4]> = BTreeMap::new();
    let mut touched: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((index, value), size) in sizes.into_iter().filter(|(_, size)| *size > 0) {
        let (first, last) = (value / 64, (value + size - 1) / 64);
        let [objects, small, straddling, _] = counts.entry(index).or_default();
        *objects += 1;
        *small += u64::from(size <= 64);
        *straddling += u64::from(size <= 64 && first != last);
        (first..=last).for_each(|line| *touched.entry((index, line)).or_default() += 1);
    }
    for ((index, _), _) in touched.into_iter().filter(|(_, n)| *n > 1) {
        counts.get_mut(&index).unwrap()[3] += 1;
    }
    counts
}

#[test]
fn counts_are_those_of_readelf() {
    let mut source = String::from("#include <stdio.h>\n#include <threads.h>\n");
    for i in 0..200 {
        let size = i * 7 % 90 + 1;
        source += &match i % 5 {
            0 => format!("char d{i}[{size}] = {{1}};\n"),
            1 => format!("static char b{i}[{size}]; void *use{i}(void) {{ return b{i}; }}\n"),
            2 => format!("const short r{i}[{size}] = {{1}};\n"),
            3 => format!("thread_local char t{i}[{size}] = {{1}};\n"),
            _ => format!("struct {{ char a[{size}]; }} *p{i} = (void *)&d0;\n"),
        };
    }
    source += "int main(void) { return puts(d0); }\n";
    for arguments in [&["-O1"][..], &["-O1", "-no-pie"], &["-O1", "-fdata-sections", "-c"], &["-O1", "-static", "-g"]] {
        let built = build("a.c", &source, arguments);
        let scan = scan(&built.path);
        let ours: BTreeMap<u32, [u64; 4]> = scan
            .sections
            .iter()
            .map(|s| (s.index, [s.counts.objects, s.counts.small, s.counts.straddling, s.counts.lines_shared]))
            .collect();
        assert_eq!(ours, by_readelf(&built.path), "{arguments:?}");
    }
}

/// One clear line each, that names the file and what to do.
#[test]
fn bad_input_is_one_line() {
    let program = build("a.c", "long counter = 1; int main(void) { return counter; }", &["-g"]);
    let whole = std::fs::read(&program.path).unwrap();
    let object = std::fs::read(build("b.c", "int x;", &["-c", "-flto"]).path).unwrap();
    let stripped = program.path.with_extension("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&program.path).status().unwrap();
    assert!(strip.success());
    let mut wrong_machine = whole.clone();
    wrong_machine[18..20].copy_from_slice(&3u16.to_le_bytes());
    let mut wrong_class = whole.clone();
    wrong_class[4] = 7;
    let mut core = whole.clone();
    core[16] = 4;
    let cases: &[(&[u8], &str)] = &[
        (b"\x1f\x8b\x08 compressed", "gzip"),
        (b"!<arch>\nfoo.o/", "static archive"),
        (b"BC\xc0\xde", "bitcode"),
        (b"#!/bin/sh\n", "script"),
        (b"int main(void) {}\n", "text file"),
        (b"\x00\x01\x02", "not an ELF file"),
        (b"\x7fELF", "cut short"),
        (&whole[..40], "cut-short"),
        (&whole[..whole.len() - 100], "cut short: the section table"),
        (&wrong_machine, "i386 has no 64-bit"),
        (&wrong_class, "ELF class 7"),
        (&core, "core dump"),
        (&object, "LTO object"),
    ];
    for (bytes, want) in cases {
        let error = Image::parse(bytes, "some/file")
            .and_then(|image| rules::scan(&image, None, &rules::Ask::default()))
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(want) && text.contains("some/file") && !text.contains('\n'), "{want}: {text}");
        assert_eq!(error.exit(), straddle::error::Exit::Input);
    }
    // What is left in .dynsym names nothing that lies here, or little.
    let bytes = std::fs::read(&stripped).unwrap();
    let image = Image::parse(&bytes, "stripped").unwrap();
    assert_eq!(image.symbols_from, SymbolsFrom::Dynsym);
    match rules::scan(&image, None, &rules::Ask::default()) {
        Ok(scan) => assert!(scan.totals.counts.objects < 3),
        Err(error) => assert!(error.to_string().contains("no symbols (stripped)"), "{error}"),
    }
    for (path, want) in [
        (program.folder.path().to_path_buf(), "is a directory"),
        (program.path.with_extension("absent"), "no such file"),
        (empty(program.folder.path()), "the file is empty"),
    ] {
        let text = straddle::open::map(&path).unwrap_err().to_string();
        assert!(text.contains(want) && text.contains(path.to_str().unwrap()), "{text}");
    }
}

fn empty(folder: &Path) -> PathBuf {
    let path = folder.join("empty");
    std::fs::write(&path, "").unwrap();
    path
}

/// A section table that a 600 MB file could not hold, a symbol as long as the address space: neither time nor memory.
#[test]
fn a_huge_size_costs_nothing() {
    let source = "
        .bss
        .type huge, @object; .size huge, 0x7fffffffffffff00
        huge: .skip 8
        .type next, @object; .size next, 8
        next: .skip 8";
    let scan = scan(&build("a.s", source, &["-c"]).path);
    assert_eq!(scan.totals.counts.objects, 1);
    assert_eq!(scan.skipped["not inside its section"], 1);
}

fn sample() -> &'static [u8] {
    static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let source =
            "long a[3] = {1}; static int b; const char *c[] = {\"x\"}; int main(void) { return b++ + a[0] + **c; }";
        std::fs::read(build("a.c", source, &["-Wl,--emit-relocs"]).path).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Nothing in a file can make a panic: cut anywhere, with any bytes overwritten, headers more often than the rest.
    #[test]
    fn damaged_files_are_read_or_refused(
        cut in 0usize..=sample().len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::ANY, any::<[u8; 4]>()), 0..12),
    ) {
        let mut bytes = sample().to_vec();
        let table = usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap())).unwrap();
        for (at, in_table, value) in edits {
            let at = if in_table { table + at.index(bytes.len() - table - 4) } else { at.index(bytes.len() - 4) };
            bytes[at..at + 4].copy_from_slice(&value);
        }
        for bytes in [&bytes[..], &bytes[..cut]] {
            if let Ok(image) = Image::parse(bytes, "damaged") {
                let _ = rules::scan(&image, None, &rules::Ask::default());
                let whole = Image::parse(sample(), "whole").unwrap();
                let _ = straddle::diff::diff(&whole, &image, &straddle::diff::Ask::default());
            }
        }
    }
}
