//! Types read from debug information, against the compilers' own `sizeof` and `offsetof`: each program carries them in
//! an array, which is read from its image by symbol. Nothing is run, so that other machines' layouts can be checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use straddle::image::{Class, Image};
use straddle::objects::Objects;
use straddle::open::Bytes;
use straddle::types::{Contention, DebugSections, Field, Types, Variable};

/// Compiles with any compiler; `None` when it is not there.
pub fn compile(compiler: &[&str], name: &str, source: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), source).unwrap();
    let (program, arguments) = compiler.split_first().unwrap();
    let out = Command::new(program).args(arguments).args(["-o", "image", name]).current_dir(folder.path()).output();
    let out = out.ok()?;
    assert!(out.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&out.stderr));
    let path = folder.path().join("image");
    Some((folder, path))
}

pub fn open(path: &Path) -> Bytes {
    straddle::open::map(path).unwrap()
}

/// Every value of the object `facts`, an array of machine words.
fn facts(image: &Image<'_>) -> Vec<u64> {
    let objects = Objects::data(image);
    let object = objects.list.iter().find(|o| o.name == "facts").expect("facts are in the image");
    let word = if image.class == Class::Elf64 { 8 } else { 4 };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    object.content(image).unwrap().chunks(word).map(number).collect()
}

fn variable<'t>(types: &'t Types<'t>, name: &str) -> &'t Variable<'t> {
    let mut found = types.variables.iter().filter(|v| v.name == Some(name) || v.linkage_name == Some(name));
    let first = found.next().unwrap_or_else(|| panic!("{name} is declared in {:#?}", types.variables));
    assert!(found.all(|other| other.address == first.address), "{name} is declared twice");
    first
}

/// All members by their whole path: `outer.inner`.
fn members<'t>(types: &'t Types<'t>, variable: &Variable<'_>) -> BTreeMap<String, Field<'t>> {
    let levels = types.table.levels(variable.type_id.unwrap());
    levels.into_iter().flatten().map(|f| (f.path.join("."), f)).collect()
}

/// Symbols are the oracle for addresses, `facts` for sizes and offsets: `wanted` names what each pair of them means,
/// an object (its size and alignment) or a member (its offset and size).
fn check(path: &Path, wanted: &[&str]) {
    let bytes = open(path);
    let image = Image::parse(&bytes, "image").unwrap();
    let sections = DebugSections::of(&image).unwrap();
    let types = sections.read();
    let objects = Objects::data(&image);
    let facts = facts(&image);
    assert_eq!(facts.len(), 2 * wanted.len());
    for (name, fact) in wanted.iter().zip(facts.chunks(2)) {
        let (object, member) = name.split_once('.').unwrap_or((name, ""));
        let variable = variable(&types, object);
        // Mangled names hold the plain one.
        let symbol = objects.list.iter().find(|o| o.name.contains(object)).expect("the variable has a symbol");
        assert_eq!(variable.address, symbol.span.start, "{name}");
        if member.is_empty() {
            let id = variable.type_id.unwrap();
            assert_eq!(types.table.size(id), Some(fact[0]), "size of {name}: {:?}", types.table.name(id));
            let asked = types.table.asked_align(variable.align, id);
            assert!(asked.is_none_or(|a| a == fact[1]), "alignment of {name}: {asked:?}, not {}", fact[1]);
            assert!(asked.is_some() || !matches!(*name, "padded" | "apart"), "{name} is aligned");
        } else {
            let members = members(&types, variable);
            let field = members.get(member).unwrap_or_else(|| panic!("{name} is none of {:?}", members.keys()));
            assert_eq!((field.offset, field.size), (fact[0], Some(fact[1])), "{name}");
        }
    }
}

pub const C: &str = r"
    typedef unsigned long word;
    struct lock { int owner; char held; };
    typedef struct lock lock_t;
    struct node { struct node *next; void (*call)(struct node *); };
    union both { char small; double large; };
    struct whole {
        char tag;
        __attribute__((aligned(64))) lock_t guard;
        short after;
        struct { int x; union { long y; char z[3]; }; };
        struct { struct lock inner; int deep; } named;
        volatile int flags : 3, more : 7;
        const char *text;
        struct node list[3];
        union both either;
        enum { RED, GREEN } colour;
        _Atomic int count;
        word rest[];
    };
    #define KEEP __attribute__((used))
    KEEP struct whole whole = { .tag = 1 };
    KEEP static struct node table[2][3];
    KEEP __attribute__((aligned(64))) char padded[5];
    KEEP long long wide = 1;
    KEEP struct tight { char a; int b; } __attribute__((packed)) tight;
    word *use(void) { KEEP static _Atomic word hidden; table[1][2].next = 0; hidden++; return &whole.rest[padded[1]]; }
    void _start(void) { use(); }
    #define WORD(x) (word)(x)
    #define OBJECT(x) WORD(sizeof(x)), WORD(__alignof__(x)),
    #define MEMBER(t, m) WORD(__builtin_offsetof(struct t, m)), WORD(sizeof(((struct t *)0)->m)),
    KEEP const word facts[] = {
        OBJECT(whole) OBJECT(table) OBJECT(padded) OBJECT(wide) OBJECT(tight)
        MEMBER(whole, tag) MEMBER(whole, guard) MEMBER(whole, guard.held) MEMBER(whole, after) MEMBER(whole, x)
        MEMBER(whole, y) MEMBER(whole, z) MEMBER(whole, named) MEMBER(whole, named.inner.held)
        MEMBER(whole, named.deep) MEMBER(whole, text) MEMBER(whole, list) MEMBER(whole, either.large)
        MEMBER(whole, colour) MEMBER(whole, count) MEMBER(tight, b)
    };
";

const C_NAMES: &[&str] = &[
    "whole",
    "table",
    "padded",
    "wide",
    "tight",
    "whole.tag",
    "whole.guard",
    "whole.guard.held",
    "whole.after",
    "whole.x",
    "whole.y",
    "whole.z",
    "whole.named",
    "whole.named.inner.held",
    "whole.named.deep",
    "whole.text",
    "whole.list",
    "whole.either.large",
    "whole.colour",
    "whole.count",
    "tight.b",
];

/// What the matrix of `oracles` has not: type units, old and wide DWARF, `_Atomic`, which pahole does not know.
#[test]
fn c_layouts_are_the_compilers() {
    let mut compilers = vec![
        vec!["gcc", "-g", "-gdwarf-4", "-fdebug-types-section"],
        vec!["gcc", "-g", "-fdebug-types-section", "-gz"],
        vec!["gcc", "-g", "-O2", "-flto"],
        vec!["gcc", "-g", "-gdwarf-2", "-gno-strict-dwarf"],
        vec!["gcc", "-g", "-gdwarf64"],
        vec!["clang", "-g", "-fdebug-types-section", "-gz"],
    ];
    for compiler in &mut compilers {
        compiler.extend(["-nostdlib", "-static", "-fno-pie"]);
        match compile(compiler, "a.c", C) {
            Some((_folder, path)) => check(&path, C_NAMES),
            None => assert_eq!(compiler[0], "clang", "gcc is needed"),
        }
    }
}

/// Where each stands, a function's own too; a bit field's bits; what a flexible array's size is worked out from.
#[test]
fn declarations_have_a_file_and_a_line() {
    // Version 2 has another way to place bit fields and to number files.
    for version in ["-gdwarf-5", "-gdwarf-2"] {
        let (_folder, path) = compile(&["gcc", version, "-nostdlib", "-static"], "a.c", C).unwrap();
        declared(&path);
    }
}

/// A bit field's unit is as large as its type where DWARF does not say how large it is.
#[test]
fn the_unit_of_a_bit_field_is_its_types() {
    let (_folder, path) = compile(&["gcc", "-gdwarf-4", "-nostdlib", "-static"], "a.c", C).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // In abbreviations: DW_AT_byte_size and DW_AT_bit_size, a byte each. No attribute has the number 14.
    let sizes = [0x0b, 0x0b, 0x0d, 0x0b];
    let found: Vec<usize> = bytes.windows(4).enumerate().filter(|(_, b)| *b == sizes).map(|(at, _)| at).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| bytes[at] = 14);
    std::fs::write(&path, bytes).unwrap();
    declared(&path);
}

fn declared(path: &Path) {
    let bytes = open(path);
    let image = Image::parse(&bytes, "image").unwrap();
    let sections = DebugSections::of(&image).unwrap();
    let types = sections.read();
    let line = |text: &str| u32::try_from(C.lines().position(|l| l.contains(text)).unwrap() + 1).unwrap();
    for (name, text) in
        [("table", "static struct node table"), ("whole", "struct whole whole ="), ("hidden", "hidden;")]
    {
        let found = variable(&types, name);
        assert_eq!((found.file.unwrap().to_string().as_str(), found.line), ("a.c", Some(line(text))));
    }
    let table = &types.table;
    assert_eq!(table.name(variable(&types, "table").type_id.unwrap()), "node[2][3]");
    let whole = table.bare(variable(&types, "whole").type_id.unwrap()).unwrap();
    let straddle::types::Kind::Struct(all) = &whole.kind else { panic!("{whole:?}") };
    let bits = |name| all.iter().find(|m| m.name == Some(name)).and_then(|m| m.bits).unwrap();
    assert_eq!((bits("flags").first, bits("flags").count, bits("more").first, bits("more").count), (0, 3, 3, 7));
    let elements = table.elements(variable(&types, "table").type_id.unwrap(), None).unwrap();
    assert_eq!((elements.count, elements.stride), (2, 48));
    assert_eq!(types.skipped, BTreeMap::new());
}

#[test]
fn cpp_layouts_are_the_compilers() {
    let source = r"
        #include <atomic>
        #include <mutex>
        struct Base { int id; std::mutex own; };
        struct Rocks : Base { long a; alignas(64) std::mutex mutex_; int tracer; static std::atomic<long> shared[4]; };
        std::atomic<long> Rocks::shared[4];
        namespace deep { Rocks rocks; static std::atomic<int> counts[8]; }
        std::atomic<int> *use() { static std::atomic_flag local; local.test_and_set(); return &deep::counts[1]; }
        extern `C` void _start() { use(); }
        typedef unsigned long word;
        extern const word facts[];
        const word facts[] = {
            sizeof deep::rocks, alignof(Rocks), sizeof Rocks::shared, 8, sizeof deep::counts, 4,
            __builtin_offsetof(Rocks, a), sizeof(long), __builtin_offsetof(Rocks, mutex_), sizeof(std::mutex),
            __builtin_offsetof(Rocks, tracer), sizeof(int), __builtin_offsetof(Rocks, own), sizeof(std::mutex),
        };"
    .replace('`', "\"");
    let wanted = ["rocks", "shared", "counts", "rocks.a", "rocks.mutex_", "rocks.tracer", "rocks.own"];
    for compiler in [&["g++", "-g"][..], &["clang++", "-g", "-O1"]] {
        let arguments = ["-nostdlib", "-static", "-Wno-invalid-offsetof", "-fno-threadsafe-statics"];
        let all: Vec<&str> = compiler.iter().copied().chain(arguments).collect();
        let Some((_folder, path)) = compile(&all, "a.cc", &source) else {
            assert_eq!(compiler[0], "clang++", "g++ is needed");
            continue;
        };
        check(&path, &wanted);
        let bytes = open(&path);
        let image = Image::parse(&bytes, "image").unwrap();
        let sections = DebugSections::of(&image).unwrap();
        let types = sections.read();
        let how = |name| types.table.contention(variable(&types, name).type_id.unwrap());
        assert_eq!(how("rocks"), Some(Contention::Lock));
        assert_eq!((how("shared"), how("local")), (Some(Contention::Atomic), Some(Contention::Atomic)));
        assert_eq!(how("facts"), None);
    }
}

#[test]
fn rust_layouts_are_the_compilers() {
    let source = r"
        use std::{mem::{align_of, offset_of, size_of}, sync::{Mutex, atomic::*}};
        pub struct Whole { pub small: u8, pub count: AtomicU64, pub inner: Inner, pub name: &'static str }
        pub struct Inner { pub flag: bool, pub big: u32 }
        #[repr(align(64))] pub struct Apart(pub AtomicUsize);
        #[unsafe(no_mangle)] #[used]
        pub static whole: Whole = Whole { small: 1, count: AtomicU64::new(2), inner: Inner { flag: true, big: 3 }, name: `` };
        #[unsafe(no_mangle)] #[used] pub static counters: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
        #[unsafe(no_mangle)] #[used] pub static apart: [Apart; 3] = [const { Apart(AtomicUsize::new(0)) }; 3];
        #[unsafe(no_mangle)] #[used] pub static lock: Mutex<u16> = Mutex::new(1);
        #[unsafe(no_mangle)] #[used] pub static facts: [usize; 18] = [
            size_of::<Whole>(), align_of::<Whole>(), 32, 4, 192, 64, size_of::<Mutex<u16>>(), align_of::<Mutex<u16>>(),
            offset_of!(Whole, small), 1, offset_of!(Whole, count), 8, offset_of!(Whole, inner.flag), 1,
            offset_of!(Whole, inner.big), 4, offset_of!(Whole, name), size_of::<&str>(),
        ];
        fn main() { counters[whole.inner.flag as usize].fetch_add(apart[0].0.load(Ordering::Relaxed) as u32, Ordering::Relaxed); }"
        .replace('`', "\"");
    let wanted = [
        "whole",
        "counters",
        "apart",
        "lock",
        "whole.small",
        "whole.count",
        "whole.inner.flag",
        "whole.inner.big",
        "whole.name",
    ];
    let compiler = ["rustc", "-g", "-Anon_upper_case_globals"];
    let (_folder, path) = compile(&compiler, "a.rs", &source).expect("rustc is needed");
    check(&path, &wanted);
    let bytes = open(&path);
    let image = Image::parse(&bytes, "image").unwrap();
    let sections = DebugSections::of(&image).unwrap();
    let types = sections.read();
    let how = |name| types.table.contention(variable(&types, name).type_id.unwrap());
    for name in ["whole", "counters", "apart", "lock"] {
        assert_eq!(how(name), Some(Contention::Atomic), "{name}");
    }
    assert_eq!(how("facts"), None);
}

/// A typedef of itself, a struct that holds itself, an array of itself, a pointer to nowhere, and a declaration that
/// completes itself: walks end, and what has no size has none.
const CYCLES: &str = r#"
    .data
    .balign 64
    .irp n, a, b, c, d, e
    .globl \n
    .type \n, @object; .size \n, 8
    \n: .quad 1
    .endr
    .section .debug_abbrev, "", @progbits
    .macro abbreviation code, tag, children
        .uleb128 \code, \tag; .byte \children
    .endm
    abbreviation 1, 0x11, 1; .uleb128 0, 0
    abbreviation 2, 0x34, 0; .uleb128 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
    abbreviation 3, 0x16, 0; .uleb128 0x03, 0x08, 0x49, 0x13, 0, 0
    abbreviation 4, 0x13, 1; .uleb128 0x03, 0x08, 0, 0
    abbreviation 5, 0x0d, 0; .uleb128 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0
    abbreviation 6, 0x01, 1; .uleb128 0x49, 0x13, 0, 0
    abbreviation 7, 0x21, 0; .uleb128 0x37, 0x0b, 0, 0
    abbreviation 8, 0x0f, 0; .uleb128 0x49, 0x13, 0, 0
    abbreviation 9, 0x34, 0; .uleb128 0x47, 0x13, 0x02, 0x18, 0, 0
    .uleb128 0
    .section .debug_info, "", @progbits
unit:
    .long end - begin
begin:
    .value 4; .long 0; .byte 8
    .uleb128 1
    .macro variable name, type
        .uleb128 2; .asciz "\name"; .long \type - unit; .byte 9, 3; .quad \name
    .endm
    variable a, loop
    variable b, struct
    variable c, array
    variable d, pointer
again:
    .uleb128 9; .long again - unit; .byte 9, 3; .quad e
loop:
    .uleb128 3; .asciz "loop"; .long loop - unit
struct:
    .uleb128 4; .asciz "holds_itself"
    .uleb128 5; .asciz "self"; .long struct - unit; .byte 0
    .uleb128 5; .asciz "twice"; .long struct - unit; .byte 8
    .uleb128 0
array:
    .uleb128 6; .long array - unit
    .uleb128 7; .byte 200
    .uleb128 0
pointer:
    .uleb128 8; .long 0x7fffffff
    .uleb128 0
end:
"#;

#[test]
fn types_that_hold_themselves_end() {
    let (_folder, path) = compile(&["gcc", "-nostdlib", "-static", "-Wl,-e,0"], "a.s", CYCLES).unwrap();
    let bytes = open(&path);
    let image = Image::parse(&bytes, "image").unwrap();
    let sections = DebugSections::of(&image).unwrap();
    let types = sections.read();
    let of = |name| variable(&types, name).type_id.unwrap();
    assert_eq!(types.variables.len(), 5);
    assert_eq!((types.table.size(of("a")), types.table.name(of("a"))), (None, "loop".to_string()));
    assert!(types.table.bare(of("a")).is_none());
    assert!(types.table.levels(of("b")).iter().map(Vec::len).sum::<usize>() <= 4096);
    assert_eq!((types.table.contention(of("b")), types.table.size(of("c"))), (None, None));
    assert!(types.table.name(of("c")).starts_with("?[200][200]"));
    assert_eq!((types.table.size(of("d")), types.table.name(of("d"))), (Some(8), "void *".to_string()));
    let scan = straddle::rules::scan(&image, Some(&types), &Default::default()).unwrap();
    assert_eq!(scan.totals.counts.objects, 5);
}

/// An expanded size of a terabyte, a unit cut in two, and split debug information: each is counted, none is believed.
#[test]
fn what_cannot_be_read_is_counted() {
    let flags = ["-nostdlib", "-static"];
    let read = |bytes: &[u8]| {
        let image = Image::parse(bytes, "image").unwrap();
        let sections = DebugSections::of(&image).unwrap();
        let types = sections.read();
        (types.variables.len(), types.skipped)
    };
    let (_folder, path) = compile(&[&["gcc", "-g", "-gz"], &flags[..]].concat(), "a.c", C).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let info = image.sections.iter().find(|s| s.name == ".debug_info").unwrap().bytes.unwrap();
    let at = info.as_ptr() as usize - bytes.as_ptr() as usize;
    // Elf64_Chdr.ch_size.
    bytes[at + 8..at + 16].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let counted = |reason: &'static str| BTreeMap::from([(reason, 1)]);
    assert_eq!(read(&bytes), (0, counted("sections of debug information not expanded: they would become too large")));

    let (_folder, path) = compile(&[&["gcc", "-g"], &flags[..]].concat(), "a.c", C).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let info = image.sections.iter().find(|s| s.name == ".debug_info").unwrap().bytes.unwrap();
    let at = info.as_ptr() as usize - bytes.as_ptr() as usize;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()[..]);
    assert_eq!(read(&bytes), (0, counted("sections of debug information that are damaged from some unit on")));

    let (_folder, path) = compile(&[&["gcc", "-g", "-gsplit-dwarf"], &flags[..]].concat(), "a.c", C).unwrap();
    let split = read(&std::fs::read(&path).unwrap());
    assert_eq!(split, (0, counted("units whose debug information is in a .dwo file that was not found")));
}

/// A program whose debug information is damaged, and where each section of it lies.
fn sample() -> &'static (Vec<u8>, Vec<std::ops::Range<usize>>) {
    static SAMPLE: std::sync::OnceLock<(Vec<u8>, Vec<std::ops::Range<usize>>)> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let compiler = ["gcc", "-g", "-fdebug-types-section", "-nostdlib", "-static"];
        let (_folder, path) = compile(&compiler, "a.c", C).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let image = Image::parse(&bytes, "image").unwrap();
        let debug = image.sections.iter().filter(|s| s.name.starts_with(".debug_")).filter_map(|s| s.bytes);
        let start = |s: &[u8]| s.as_ptr() as usize - bytes.as_ptr() as usize;
        let places = debug.map(|s| start(s)..start(s) + s.len()).collect();
        (bytes, places)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is in the debug information: read or counted, and every walk over what was read ends.
    #[test]
    fn damaged_debug_information_is_read_or_left_out(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..24),
    ) {
        let (bytes, places) = sample();
        let mut bytes = bytes.clone();
        for (place, at, value) in edits {
            let place = &places[place.index(places.len())];
            bytes[place.start + at.index(place.len())] = value;
        }
        let image = Image::parse(&bytes, "damaged").unwrap();
        let sections = DebugSections::of(&image).unwrap();
        let types = sections.read();
        for variable in &types.variables {
            if let Some(id) = variable.type_id {
                let members: usize = types.table.levels(id).iter().map(Vec::len).sum();
                prop_assert!(members <= 4096 && types.table.name(id).chars().count() <= 201);
            }
        }
        let scan = straddle::rules::scan(&image, Some(&types), &Default::default()).unwrap();
        prop_assert_eq!(scan.totals.counts, straddle::rules::scan(&image, None, &Default::default()).unwrap().totals.counts);
    }
}
