//! BTF, against our reader of DWARF (which the compilers' `sizeof` and `offsetof` check), against pahole's, and as
//! bytes of our own that are right or wrong on purpose.

mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use proptest::prelude::*;
use straddle::image::{Image, TypesFrom};
use straddle::types::{Bits, Btf, Contention, DebugSections, Kind, TypeId, TypeTable, Types};

use crate::types::{C, compile, open};
use writer::{FLAG, Writer};

fn pahole(arguments: &[&str], folder: &Path) -> Output {
    let out = Command::new("pahole").args(arguments).current_dir(folder).output();
    let out = out.expect("pahole is needed (Debian: dwarves)");
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// One struct or union of a name.
fn structure(table: &TypeTable<'_>, name: &str) -> TypeId {
    let mut found = table.named(name).filter(|(_, t)| matches!(t.kind, Kind::Struct(_) | Kind::Union(_)));
    found.next().unwrap_or_else(|| panic!("{name} is a struct in {table:#?}")).0
}

/// A member: its path, offset and size. BTF has no word for an array without a length, DWARF has two.
type Place = (String, u64, u64);

fn places(table: &TypeTable<'_>, id: TypeId) -> Vec<Place> {
    let fields = table.levels(id).into_iter().flatten();
    fields.map(|f| (f.path.join("."), f.offset, f.size.unwrap_or(0))).collect()
}

/// The members themselves, anonymous ones too: offset, and bits where they are a field.
fn bits(table: &TypeTable<'_>, id: TypeId) -> Vec<(u64, Option<Bits>)> {
    let (Kind::Struct(members) | Kind::Union(members)) = &table.get(id).unwrap().kind else { return Vec::new() };
    members.iter().map(|m| (m.offset, m.bits)).collect()
}

/// Layouts of C as gcc and clang see it, once from DWARF and once from what pahole made of it.
#[test]
fn every_struct_is_as_in_dwarf() {
    // pahole 1.24 does not know `_Atomic`.
    let source = C.replace("_Atomic ", "");
    let compilers = [&["gcc", "-g"][..], &["gcc", "-g", "-m32"], &["gcc", "-gdwarf-4", "-O2"], &["clang", "-g"]];
    for compiler in compilers {
        let all = [compiler, &["-nostdlib", "-static", "-fno-pie"]].concat();
        let Some((folder, path)) = compile(&all, "a.c", &source) else {
            assert_eq!(compiler[0], "clang", "gcc is needed");
            continue;
        };
        pahole(&["-J", "image"], folder.path());
        let bytes = open(&path);
        let image = Image::parse(&bytes, "image").unwrap();
        let sections = DebugSections::of(&image).unwrap();
        let dwarf = sections.read();
        let btf = Btf::parse(&bytes, "image").unwrap().types(None, Some(&image)).unwrap();
        assert_eq!((btf.from, &btf.skipped), (Some(TypesFrom::Btf), &BTreeMap::new()));
        let mut compared = 0;
        for (id, own) in dwarf.table.iter().filter(|(_, t)| matches!(t.kind, Kind::Struct(_) | Kind::Union(_))) {
            let Some(name) = own.name else { continue };
            let other = structure(&btf.table, name);
            assert_eq!(dwarf.table.size(id), btf.table.size(other), "{compiler:?} {name}");
            assert_eq!(places(&dwarf.table, id), places(&btf.table, other), "{compiler:?} {name}");
            assert_eq!(bits(&dwarf.table, id), bits(&btf.table, other), "{compiler:?} {name}");
            compared += 1;
        }
        assert!(compared >= 4, "{compiler:?}: {compared}");
        let names = |types: &Types<'_>, id| {
            let Kind::Struct(members) = &types.table.get(id).unwrap().kind else { panic!("{id:?}") };
            members.iter().map(|m| types.table.name(m.type_id)).collect::<Vec<_>>()
        };
        let [there, here] = [&dwarf, &btf].map(|types| names(types, structure(&types.table, "whole")));
        // An array without a length has none of either's words; a qualifier that says nothing is kept by both.
        assert_eq!(there, here, "{compiler:?}");
    }
}

const PER_CPU: &str = r#"
    #define PER_CPU __attribute__((used, section(".data..percpu")))
    struct lock { int owner; char held; };
    typedef struct { struct lock raw; } spinlock_t;
    PER_CPU __attribute__((aligned(64))) struct lock plain[6] = {{1}};
    PER_CPU static spinlock_t locks[3] = {{{1}}};
    struct whole { char tag; struct lock guard; long wide; int short_of[]; } whole = {1};
    void _start(void) { locks[0].raw.held = whole.tag; }
"#;

/// Variables of BTF are those of the sections that the kernel's build names; a program's own linker script makes one.
#[test]
fn variables_are_placed_by_their_section() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.ld"), "SECTIONS { .data..percpu : { *(.data..percpu) } } INSERT AFTER .data;")
        .unwrap();
    let script = format!("-Wl,-T,{}", folder.path().join("x.ld").display());
    let linked = ["gcc", "-g", "-nostdlib", "-static", &script];
    for compiler in [&linked[..], &["gcc", "-g", "-c"]] {
        let (folder, path) = compile(compiler, "a.c", PER_CPU).unwrap();
        pahole(&["-J", "image"], folder.path());
        let bytes = open(&path);
        let image = Image::parse(&bytes, "image").unwrap();
        let types = Btf::parse(&bytes, "image").unwrap().types(None, Some(&image)).unwrap();
        for name in ["plain", "locks"] {
            let symbol = image.symbols.iter().find(|s| s.name == name).unwrap();
            let found = types.variables.iter().find(|v| v.name == Some(name)).unwrap();
            assert_eq!(found.address.0, symbol.value, "{name}");
            assert_eq!(types.table.size(found.type_id.unwrap()), Some(symbol.size));
        }
        assert_eq!(types.variables.len(), 2);
        let scan = straddle::rules::scan(&image, Some(&types), &Default::default()).unwrap();
        assert_eq!(scan.image.types_from, Some(TypesFrom::Btf));
        let found = scan.findings.iter().find(|f| f.rule == "straddle").expect("the locks lie on two lines");
        assert_eq!((found.subject.name.as_str(), found.subject.type_name.as_deref()), ("locks", Some("spinlock_t[3]")));
        assert_eq!(scan.skipped["objects whose type BTF does not tell: few of its variables are named"], 1);
    }
}

/// What newer kernels have, every global variable, given in a file beside an image that has no types.
#[test]
fn types_of_a_file_beside_the_image() {
    let source =
        "struct lock { int raw; } locks[8] = {{1}}; static int lonely = 1; int _start(void) { return lonely; }";
    let (folder, path) = compile(&["gcc", "-nostdlib", "-static"], "a.c", source).unwrap();
    let image_bytes = open(&path);
    let image = Image::parse(&image_bytes, "image").unwrap();
    let symbol = image.symbols.iter().find(|s| s.name == "locks").unwrap();
    let data = image.sections.iter().find(|s| s.name == ".data").unwrap();
    let mut w = Writer::new(false);
    let int = w.int("int", 4);
    let lock = w.structure(writer::STRUCT, "spinlock", 4, &[("raw", int, 0)]);
    let locks = w.add(writer::ARRAY, "", 0, 0, &[lock, int, 8]);
    let variable = w.add(writer::VAR, "locks", 0, locks, &[1]);
    let at = u32::try_from(symbol.value - data.address).unwrap();
    w.add(writer::DATASEC, ".data", 1, 36, &[variable, at, 32]);
    w.add(writer::DATASEC, ".nowhere", 2, 8, &[variable, 0, 4, variable, 4, 4]);
    std::fs::write(folder.path().join("raw"), w.bytes()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
        command.args(["scan", "--format", "json", "image"]).args(arguments).current_dir(folder.path());
        let out = command.output().unwrap();
        let json = serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap_or_default();
        (out.status.code(), json, String::from_utf8(out.stderr).unwrap())
    };
    let typed = |json: &serde_json::Value| {
        let all = json["findings"].as_array().unwrap();
        let elements = |f: &&serde_json::Value| f["rule"] == "shared-elements" && f["evidence"] == "typed";
        all.iter().filter(elements).map(|f| f["subject"]["name"].clone()).collect::<Vec<_>>()
    };
    let (code, json, _) = run(&["--btf", "raw", "-j", "1"]);
    assert_eq!((code, &json["image"]["types_from"], typed(&json)), (Some(0), &"btf".into(), vec!["locks".into()]));
    assert_eq!(json["skipped"]["variables of BTF in sections that the image has not"], 2);
    for tier in ["none", "auto"] {
        let (code, json, _) = run(&["--types", tier]);
        assert_eq!((code, &json["image"]["types_from"], typed(&json)), (Some(0), &serde_json::Value::Null, vec![]));
    }
    for (arguments, problem) in [
        (&["--types", "dwarf"][..], "there is no debug information (DWARF) in it"),
        (&["--types", "btf"], "the file has no section .BTF"),
        (&["--btf", "a.c"], "reading the BTF of a.c: this is no BTF"),
        (&["--btf", "gone"], "opening gone: no such file"),
        (&["--btf", "raw", "--types", "none"], "--btf and --types none exclude each other"),
    ] {
        let (code, _, stderr) = run(arguments);
        assert!(code == Some(2) && stderr.lines().count() == 1 && stderr.contains(problem), "{arguments:?}: {stderr}");
    }
}

/// A module's types continue the kernel's; with another kernel's they would be nonsense, which must be seen.
#[test]
fn split_types_need_their_own_base() {
    let (kernel, base) = compile(&["gcc", "-g", "-nostdlib", "-static"], "a.c", PER_CPU).unwrap();
    pahole(&["-J", "image"], kernel.path());
    let source =
        "struct lock { int owner; char held; }; struct deep { char c; struct lock inner; struct deep *next; } deep;";
    let (module, path) = compile(&["gcc", "-g", "-c"], "b.c", source).unwrap();
    pahole(&["-J", "--btf_base", base.to_str().unwrap(), "image"], module.path());
    let (bytes, base) = (open(&path), open(&base));
    let split = Btf::parse(&bytes, "b.ko").unwrap();
    assert!(split.is_split() && split.needs_base());
    let alone = split.types(None, None).unwrap_err().to_string();
    assert!(alone.contains("reading the BTF of b.ko: it is split") && alone.contains("--base-btf"), "{alone}");
    let whole = Btf::parse(&base, "a").unwrap();
    let types = split.types(Some(&whole), None).unwrap();
    let deep = structure(&types.table, "deep");
    let wanted = [("c", 0, 1), ("inner", 4, 8), ("next", 16, 8), ("inner.owner", 4, 4), ("inner.held", 8, 1)];
    assert_eq!(places(&types.table, deep), wanted.map(|(n, at, size)| (n.to_string(), at, size)));
    assert_eq!(types.skipped, BTreeMap::new());
    // What stands alone does so beside a base, too.
    assert_eq!(
        whole.types(Some(&whole), None).unwrap().table.iter().count(),
        whole.types(None, None).unwrap().table.iter().count()
    );

    let mut other = Writer::new(false);
    other.int("a name in which those of the other base begin, and the next, and the next, and so on", 4);
    let other = other.bytes();
    let wrong = split.types(Some(&Btf::parse(&other, "other").unwrap()), None).unwrap_err().to_string();
    assert!(wrong.contains("it was made with another one"), "{wrong}");
    let wrong = split.types(Some(&split), None).unwrap_err().to_string();
    assert!(wrong.contains("its base is split itself"), "{wrong}");
}

/// clang writes both byte orders for its BPF targets, without pahole.
#[test]
fn byte_orders_agree() {
    let mut seen = Vec::new();
    for target in ["bpfel", "bpfeb"] {
        let Some((_folder, path)) = compile(&["clang", "-target", target, "-g", "-c"], "a.c", PER_CPU) else { return };
        let bytes = open(&path);
        let types = Btf::parse(&bytes, "image").unwrap().types(None, None).unwrap();
        assert_eq!(types.skipped, BTreeMap::new());
        let whole = structure(&types.table, "whole");
        assert_eq!(types.table.size(whole), Some(24));
        seen.push(places(&types.table, whole));
    }
    assert_eq!(seen[0].len(), 6);
    assert_eq!(seen[0], seen[1]);
}

/// Every kind, in both byte orders, and what becomes of it.
#[test]
fn every_kind_is_read() {
    for big_endian in [false, true] {
        let mut w = Writer::new(big_endian);
        let long = w.int("unsigned long", 4);
        let int = w.int("int", 4);
        let narrow = w.add(writer::INT, "int", 0, 4, &[1 << 16 | 3]);
        let float = w.add(writer::FLOAT, "double", 0, 8, &[]);
        let small = w.add(writer::ENUM, "colour", 2, 4, &[0, 1, 0, 2]);
        let large = w.add(writer::ENUM64, "", 1, 8, &[0, 1, 2]);
        let row = w.add(writer::ARRAY, "", 0, 0, &[int, int, 3]);
        let rows = w.add(writer::ARRAY, "", 0, 0, &[row, int, 2]);
        let open = w.add(writer::ARRAY, "", 0, 0, &[int, int, 0]);
        let ahead = w.add(writer::FWD, "elsewhere", 0, 0, &[]);
        let tagged = w.add(writer::TYPE_TAG, "user", 0, ahead, &[]);
        let to = w.add(writer::PTR, "", 0, tagged, &[]);
        let fixed = w.add(writer::CONST, "", 0, to, &[]);
        let only = w.add(writer::RESTRICT, "", 0, fixed, &[]);
        let seen = w.add(writer::VOLATILE, "", 0, int, &[]);
        let lock = w.structure(writer::STRUCT, "spinlock", 4, &[("raw", int, 0)]);
        let lock_t = w.add(writer::TYPEDEF, "spinlock_t", 0, lock, &[]);
        let either = w.structure(writer::UNION, "", 8, &[("whole", float, 0), ("part", int, 0)]);
        // An older writer's bit fields are integers of their own, a newer one's are in the offset.
        w.structure(writer::STRUCT, "old", 8, &[("plain", int, 0), ("field", narrow, 37)]);
        w.structure(writer::STRUCT | FLAG, "new", 8, &[("plain", int, 0), ("field", int, 3 << 24 | 38)]);
        let members = [
            ("lock", lock_t, 0),
            ("rows", rows, 32),
            ("", either, 256),
            ("only", only, 320),
            ("seen", seen, 352),
            ("colour", small, 384),
            ("large", large, 416),
            ("long", long, 480),
            ("open", open, 512),
        ];
        let all = w.structure(writer::STRUCT, "all", 64, &members);
        let signature = w.add(writer::FUNC_PROTO, "", 1, int, &[0, int]);
        w.add(writer::FUNC, "all", 1, signature, &[]);
        let variable = w.add(writer::VAR, "one", 0, all, &[1]);
        w.add(writer::DATASEC, ".data..percpu", 1, 64, &[variable, 128, 64]);
        w.add(writer::DECL_TAG, "tag", 0, all, &[0]);
        let bytes = w.bytes();
        let types = Btf::parse(&bytes, "written").unwrap().types(None, None).unwrap();
        assert_eq!(types.skipped, BTreeMap::new());
        let table = &types.table;
        let named: Vec<TypeId> = table.named("all").map(|(id, _)| id).collect();
        assert_eq!(named, [structure(table, "all")], "functions are no types");
        let wanted = [
            ("lock", 0, 4),
            ("rows", 4, 24),
            ("whole", 32, 8),
            ("part", 32, 4),
            ("only", 40, 4),
            ("seen", 44, 4),
            ("colour", 48, 4),
            ("large", 52, 8),
            ("long", 60, 4),
            ("open", 64, 0),
            ("lock.raw", 0, 4),
        ];
        assert_eq!(places(table, named[0]), wanted.map(|(n, at, size)| (n.to_string(), at, size)));
        let Kind::Struct(members) = &table.get(named[0]).unwrap().kind else { panic!() };
        let names = ["spinlock_t", "int[2][3]", "union {…}", "const const elsewhere *", "volatile int", "colour"];
        assert_eq!(members.iter().map(|m| table.name(m.type_id)).take(6).collect::<Vec<_>>(), names);
        assert_eq!(table.contention(members[0].type_id), Some(Contention::Lock));
        assert_eq!(table.contention(members[4].type_id), Some(Contention::Volatile));
        let field = |first, count| (4, Some(Bits { first, count }));
        assert_eq!(bits(table, structure(table, "old")), [(0, None), field(6, 3)]);
        assert_eq!(bits(table, structure(table, "new")), [(0, None), field(6, 3)]);
    }
}

/// A newer kernel's file: more members than 16 bits count, and kinds that a reader is told to pass over.
#[test]
fn what_is_newer_is_passed_over_or_counted() {
    let mut w = Writer::new(false);
    let int = w.int("int", 4);
    w.add(100, "", 2, 0, &[7, 1, 2, 3, 4]);
    let many = vec![("", int, 0); 70_000];
    w.structure(writer::STRUCT, "many", 4, &many);
    let read = |w: &Writer| {
        let bytes = w.bytes();
        let types = Btf::parse(&bytes, "newer").unwrap().types(None, None).unwrap();
        let many = types.table.iter().find_map(|(_, t)| match &t.kind {
            Kind::Struct(members) => Some(members.len()),
            _ => None,
        });
        (types.table.iter().count(), many, types.skipped)
    };
    let reason = "BTF that is damaged, or newer than this reader, from some type on";
    assert_eq!(read(&w), (1, None, BTreeMap::from([(reason, 1)])));
    w.layout(100, 4, 8);
    assert_eq!(read(&w), (3, Some(70_000), BTreeMap::new()));
}

/// A module that was built outside of the kernel's tree carries what it needs of it: sizes, no members. With the kernel
/// beside it, the members are the kernel's.
#[test]
fn a_distilled_base_is_completed_by_the_kernel() {
    let mut kernel = Writer::new(false);
    let int = kernel.int("int", 4);
    let long = kernel.int("long", 8);
    kernel.structure(writer::STRUCT, "twice", 4, &[("one", int, 0)]);
    kernel.structure(writer::STRUCT, "twice", 4, &[("other", int, 0)]);
    kernel.structure(writer::STRUCT, "page", 16, &[("flags", long, 0), ("count", int, 64)]);
    let mut distilled = Writer::new(false);
    let page = distilled.add(writer::STRUCT, "page", 0, 16, &[]);
    let twice = distilled.add(writer::STRUCT, "twice", 0, 4, &[]);
    let mut module = Writer::split(&distilled);
    module.structure(writer::STRUCT, "mine", 40, &[("page", page, 64), ("twice", twice, 192), ("gone", 77, 256)]);
    let bytes = elf(&[(".BTF", module.bytes()), (".BTF.base", distilled.bytes())]);
    let kernel = kernel.bytes();
    let own = Btf::parse(&bytes, "mine.ko").unwrap();
    assert!(own.is_split() && !own.needs_base());
    let gone = "types of BTF that are used and not there";
    let bare = "types of which the distilled base of BTF has no members (--base-btf has them)";
    let read = |base: Option<&Btf<'_>>| {
        let types = own.types(base, None).unwrap();
        let all = places(&types.table, structure(&types.table, "mine"));
        (all.into_iter().map(|(name, at, size)| format!("{name} {at} {size}")).collect::<Vec<_>>(), types.skipped)
    };
    let alone = ["page 8 16", "twice 24 4", "gone 32 0"];
    assert_eq!(read(None), (alone.map(String::from).to_vec(), BTreeMap::from([(gone, 1), (bare, 2)])));
    let (members, skipped) = read(Some(&Btf::parse(&kernel, "vmlinux").unwrap()));
    assert_eq!(members, ["page 8 16", "twice 24 4", "gone 32 0", "page.flags 8 8", "page.count 16 4"]);
    assert_eq!(skipped, BTreeMap::from([(gone, 1), (bare, 1)]));
}

/// An object file with these sections.
fn elf(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::new();
    for (at, (name, bytes)) in sections.iter().enumerate() {
        std::fs::write(folder.path().join(at.to_string()), bytes).unwrap();
        let file = folder.path().join(at.to_string());
        source += &format!(".section {name},\"\",@progbits\n.incbin \"{}\"\n", file.display());
    }
    let (_folder, path) = compile(&["gcc", "-c"], "a.s", &source).unwrap();
    std::fs::read(path).unwrap()
}

/// Each is one line with what is wrong.
#[test]
fn a_wrong_header_is_refused() {
    let mut w = Writer::new(false);
    w.int("int", 4);
    let good = w.bytes();
    let refused = |at: usize, bytes: &[u8]| {
        let mut damaged = good.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let error = Btf::parse(&damaged, "x").unwrap_err().to_string();
        assert!(error.starts_with("reading the BTF of x: ") && !error.contains('\n'), "{error}");
        error
    };
    assert!(refused(0, b"#!").contains("0xeb9f"));
    assert!(refused(2, &[2]).contains("version 2"));
    assert!(refused(4, &[8, 0, 0, 0]).contains("8 bytes, fewer than 24"));
    assert!(refused(4, &[0, 0, 0, 9]).contains("cut short"));
    assert!(refused(8, &[255; 8]).contains("types end"));
    assert!(refused(20, &[255; 4]).contains("types end") || refused(20, &[255; 4]).contains("strings end"));
    assert!(Btf::parse(&good[..9], "x").unwrap_err().to_string().contains("cut short"));
    assert!(Btf::parse(&elf(&[]), "x").unwrap_err().to_string().contains("no section .BTF"));
}

/// Cycles, sizes without end, numbers and names of nothing: read, bounded, and counted where something is missing.
#[test]
fn types_without_an_end_end() {
    let mut w = Writer::new(false);
    let itself = w.add(writer::TYPEDEF, "loop", 0, 1, &[]);
    let holds = w.structure(writer::STRUCT, "holds", 4, &[("self", 2, 0), ("twice", 2, 8), ("", 2, 16)]);
    let of_itself = w.add(writer::ARRAY, "", 0, 0, &[3, 1, u32::MAX]);
    let huge = w.add(writer::ARRAY, "", 0, 0, &[5, 1, u32::MAX]);
    w.add(writer::ARRAY, "", 0, 0, &[7, 1, u32::MAX]);
    w.add(writer::PTR, "", 0, 6, &[]);
    w.int("int", u32::MAX);
    w.structure(writer::STRUCT, "odd", 4, &[("a", 6, 3), ("b", 999, 0), ("c", 0, 0)]);
    let far = w.add(writer::STRUCT, "", 1, 8, &[u32::MAX - 1, 7, 0]);
    let bytes = w.bytes();
    let types = Btf::parse(&bytes, "cycles").unwrap().types(None, None).unwrap();
    let table = &types.table;
    let ids: Vec<TypeId> = table.iter().map(|(id, _)| id).collect();
    let at = |number: u32| ids[number as usize - 1];
    assert!(table.bare(at(itself)).is_none());
    assert!(table.levels(at(holds)).iter().map(Vec::len).sum::<usize>() <= 4096);
    assert_eq!((table.size(at(of_itself)), table.contention(at(holds))), (None, None));
    assert_eq!(table.size(at(huge)), None, "2^96 bytes are no size");
    assert!(table.name(at(huge)).len() < 1000);
    assert_eq!(places(table, at(far)), []);
    let counted = [
        ("types of BTF that are used and not there", 1),
        ("members of BTF at no byte of their struct, or of no type", 2),
        ("names of BTF that are not in its table of strings", 1),
    ];
    assert_eq!(types.skipped, BTreeMap::from(counted));
}

/// BTF of pahole's for a program, to be damaged.
fn sample() -> &'static [u8] {
    static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let (folder, path) = compile(&["gcc", "-g", "-c"], "a.c", PER_CPU).unwrap();
        pahole(&["-J", "image"], folder.path());
        std::fs::read(path).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is in the section: read, refused or counted, and every walk over what was read ends.
    #[test]
    fn damaged_btf_is_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        split in any::<bool>(),
    ) {
        let image = Image::parse(sample(), "image").unwrap();
        let mut bytes = image.sections.iter().find(|s| s.name == ".BTF").unwrap().bytes.unwrap().to_vec();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let Ok(btf) = Btf::parse(&bytes, "damaged") else { return Ok(()) };
        let base = if split { Btf::parse(sample(), "base").ok() } else { None };
        let Ok(types) = btf.types(base.as_ref(), Some(&image)) else { return Ok(()) };
        for (id, _) in types.table.iter() {
            let members: usize = types.table.levels(id).iter().map(Vec::len).sum();
            prop_assert!(members <= 4096 && types.table.name(id).chars().count() <= 201);
        }
        let scan = straddle::rules::scan(&image, Some(&types), &Default::default()).unwrap();
        prop_assert_eq!(scan.totals.counts, straddle::rules::scan(&image, None, &Default::default()).unwrap().totals.counts);
    }
}
