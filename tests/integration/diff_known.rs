//! `diff` on two builds whose difference is known by construction: every class is counted exactly.

use std::path::{Path, PathBuf};
use std::process::Command;

use straddle::diff::{self, Change, Diff, Told};
use straddle::image::Image;
use straddle::image::map::Landing;

use super::scan::build;

/// Files compiled one by one and linked in their order.
struct Build<'b> {
    compiler: &'b [&'b str],
    linker: &'b [&'b str],
}

const GCC: Build<'_> = Build { compiler: &["gcc", "-O1", "-fno-toplevel-reorder"], linker: &["gcc"] };
const LLD: Build<'_> = Build { linker: &["gcc", "-fuse-ld=lld"], ..GCC };
/// At fixed addresses, without relocations: what is an address has to be decoded.
const STATIC: Build<'_> =
    Build { compiler: &["gcc", "-O1", "-fno-toplevel-reorder", "-fno-pie"], linker: &["gcc", "-no-pie"] };
const ARM64: Build<'_> = Build {
    compiler: &["aarch64-linux-gnu-gcc", "-O1", "-fno-toplevel-reorder", "-ffreestanding"],
    linker: &["aarch64-linux-gnu-gcc", "-nostdlib", "-static", "-Wl,-e,main"],
};

struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn landing(&self) -> Landing {
        Landing::parse(&std::fs::read_to_string(self.folder.path().join("map")).unwrap()).unwrap()
    }
}

fn run(command: &[&str], more: &[&str], folder: &Path) {
    let output = Command::new(command[0]).args(&command[1..]).args(more).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{} is needed: {e}", command[0]));
    assert!(output.status.success(), "{command:?} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Build<'_> {
    fn make(&self, files: &[(&str, String)]) -> Made {
        let folder = tempfile::tempdir().unwrap();
        let mut objects = Vec::new();
        for (name, source) in files {
            std::fs::write(folder.path().join(name), source).unwrap();
            let object = format!("{name}.o");
            run(self.compiler, &["-c", name, "-o", &object], folder.path());
            objects.push(object);
        }
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        run(self.linker, &[&["-Wl,-Map,map", "-o", "image"], &objects[..]].concat(), folder.path());
        Made { folder }
    }
}

fn compare_with(base: &Made, patched: &Made, maps: bool) -> Diff {
    let (a, b) = (std::fs::read(base.path()).unwrap(), std::fs::read(patched.path()).unwrap());
    let landings = maps.then(|| (base.landing(), patched.landing()));
    let ask = diff::Ask { maps: landings.as_ref().map(|(a, b)| (a, b)), ..diff::Ask::default() };
    let diff = diff::diff(&Image::parse(&a, "base").unwrap(), &Image::parse(&b, "patched").unwrap(), &ask).unwrap();
    let (d, f) = (&diff.data, &diff.functions);
    assert_eq!((d.undecided, f.undecided), (0, 0), "{:?} {:?}", diff.objects, diff.functions_changed);
    let moved: u64 = diff.cause.iter().map(|c| c.objects).sum::<u64>() + diff.without_cause;
    assert_eq!(moved, d.moved + f.moved, "causes add up: {:?}", diff.cause);
    diff
}

fn compare(base: &Made, patched: &Made) -> Diff {
    compare_with(base, patched, false)
}

/// Twelve counters of a word with something before them that grows; and functions that use each of them.
fn counters(grown: u32) -> Vec<(&'static str, String)> {
    let grows = format!("long before = 1; __attribute__((aligned(8))) long grows[{grown}] = {{1}};\n");
    let counters: String =
        (0..12).map(|n| format!("long counter{n} = {n} + 1; void count{n}(void) {{ counter{n}++; }}\n")).collect();
    vec![("main.c", grows + "int main(void) { return 0; }\n"), ("counters.c", counters)]
}

#[test]
fn an_object_that_grows_moves_those_behind_it_and_changes_no_code() {
    for build in [&GCC, &LLD, &STATIC, &ARM64] {
        let base = build.make(&counters(2));
        for grown in [8u64, 16, 48] {
            let diff = compare(&base, &build.make(&counters(2 + grown as u32 / 8)));
            let (d, f) = (&diff.data, &diff.functions);
            let context = format!("{:?} +{grown}: {:?}", build.compiler, diff.objects);
            assert_eq!((d.resized, d.content_changed, d.undecided, d.added, d.removed), (1, 0, 0, 0, 0), "{context}");
            assert_eq!(d.moved, d.rephased, "{context}");
            let moved = |name: &str| diff.objects.iter().any(|o| o.name == name && o.change == Change::Moved);
            assert!((0..12).all(|n| moved(&format!("counter{n}"))) && !moved("before"), "{context}");
            assert_eq!((f.changed, f.moved, f.undecided), (0, 0, 0), "{context} {:?}", diff.functions_changed);
            let cause = diff.cause.iter().find(|c| c.section == ".data").expect(&context);
            assert_eq!((cause.bytes, cause.data), (grown as i64, 12), "{context} {:?}", diff.cause);
            assert_eq!(cause.what, format!("grows grew by {grown} bytes"));
        }
    }
}

/// The map names the object also where every symbol is global.
#[test]
fn a_link_map_names_the_object_that_grew() {
    for build in [&GCC, &LLD] {
        let diff = compare_with(&build.make(&counters(2)), &build.make(&counters(8)), true);
        let cause = diff.cause.iter().find(|c| c.section == ".data").unwrap();
        assert_eq!((cause.unit.as_deref(), cause.bytes, cause.data), (Some("main.c.o"), 48, 12), "{:?}", diff.cause);
        assert_eq!(cause.what, "its .data +48 bytes");
    }
}

#[test]
fn a_function_that_gains_instructions_is_the_only_one_that_changed() {
    let source = |nops: &str| {
        let mut text: String = (0..10)
            .map(|n| format!("int f{n}(int x) {{ for (int i = 0; i < x; i++) asm volatile(\"\"); return x + {n}; }}\n"))
            .collect();
        text += &format!("int grows(int x) {{ asm volatile(\"{nops}\"); return f3(x); }}\n");
        text += &(0..10).map(|n| format!("int g{n}(int x) {{ return grows(x) + f{n}(x); }}\n")).collect::<String>();
        vec![("main.c", text + "int main(void) { return g1(1); }\n")]
    };
    for build in [&GCC, &LLD, &STATIC, &ARM64] {
        let diff = compare(&build.make(&source("nop")), &build.make(&source(&["nop"; 9].join(";"))));
        let changed: Vec<_> = diff.functions_changed.iter().map(|f| (f.name.as_str(), f.change)).collect();
        assert_eq!(changed, [("grows", Change::Resized)], "{:?}", build.compiler);
        let f = diff.functions;
        assert_eq!((f.changed, f.added, f.removed, f.undecided), (1, 0, 0, 0));
        // Those before keep their places; ten functions and main follow, and crt's own where there is one.
        assert!((11..=14).contains(&f.moved), "{f:?}");
        // Same size, another instruction.
        let diff = compare(&build.make(&source("nop")), &build.make(&source("nop").map_first("+ 7", "+ 8")));
        let changed: Vec<_> = diff.functions_changed.iter().map(|f| (f.name.as_str(), f.change)).collect();
        assert_eq!(changed, [("f7", Change::ContentChanged)], "{:?}", build.compiler);
        assert_eq!((diff.functions.moved, diff.data.moved), (0, 0));
    }
}

trait MapFirst {
    fn map_first(self, from: &str, to: &str) -> Self;
}

impl MapFirst for Vec<(&'static str, String)> {
    fn map_first(mut self, from: &str, to: &str) -> Self {
        assert!(self[0].1.contains(from));
        self[0].1 = self[0].1.replacen(from, to, 1);
        self
    }
}

/// Calls of other functions, by a branch that the assembler resolved: the bytes are masked, what they name is not.
#[test]
fn another_callee_is_another_function() {
    let source = |callee: &str| {
        let functions = "static __attribute__((noinline)) int one(int x) { asm volatile(\"\"); return x + 1; }
            static __attribute__((noinline)) int two(int x) { asm volatile(\"\"); return x + 2; }
            int (*keep[])(int) = {one, two};\n";
        vec![(
            "main.c",
            format!("{functions} int calls(int x) {{ return {callee}(x) * 3; }} int main(void) {{ return 0; }}"),
        )]
    };
    for build in [&GCC, &STATIC, &ARM64] {
        let diff = compare(&build.make(&source("one")), &build.make(&source("two")));
        let changed: Vec<_> = diff.functions_changed.iter().map(|f| (f.name.as_str(), f.change)).collect();
        assert_eq!(changed, [("calls", Change::ContentChanged)], "{:?}", build.compiler);
    }
}

#[test]
fn a_static_that_is_renamed_stays_itself() {
    let source = |data: &str, zero: &str, function: &str| {
        vec![(
            "main.c",
            format!(
                "static long first = 3; static long {data}[3] = {{0x1234567, 5, 7}}; static long last = 9;
                 static long a; static long {zero}[5]; static long b;
                 static __attribute__((noinline)) long {function}(long x) {{ asm volatile(\"\"); return x * 12345 + {zero}[1]++; }}
                 int main(int n, char **v) {{ {data}[n] += n; a += n; b -= a; first += b; last -= n;
                     return {function}(n) + {data}[n] + first + last; }}"
            ),
        )]
    };
    let old = source("old_data", "old_zero", "old_function");
    for build in [&GCC, &STATIC, &ARM64] {
        let diff = compare(&build.make(&old), &build.make(&source("new_data", "new_zero", "new_function")));
        let (d, f) = (&diff.data, &diff.functions);
        let context = format!("{:?}: {:?} {:?}", build.compiler, diff.objects, diff.functions_changed);
        assert_eq!((d.renamed, d.added, d.removed, d.moved, d.content_changed), (2, 0, 0, 0, 0), "{context}");
        assert_eq!((f.renamed, f.added, f.removed, f.changed), (1, 0, 0, 0), "{context}");
        let told = |name: &str| diff.objects.iter().find(|o| o.name == name).map(|o| (o.told, o.renamed.as_deref()));
        assert_eq!(told("old_data"), Some((Some(Told::Content), Some("new_data"))), "{context}");
        assert_eq!(told("old_zero"), Some((Some(Told::Neighbours), Some("new_zero"))), "{context}");
    }
}

/// `x.0` and `x.1` are another one each, once their functions change places.
#[test]
fn two_statics_of_one_name_are_told_apart_by_what_they_hold() {
    let one = "long f(void) { static long x = 111; return x++; }\n";
    let two = "long g(void) { static long x = 222; return x--; }\n";
    let source = |first: &str, second: &str| {
        vec![("main.c", format!("{first}{second} int main(void) {{ return f() + g(); }}\n"))]
    };
    for build in [&GCC, &STATIC, &ARM64] {
        let diff = compare(&build.make(&source(one, two)), &build.make(&source(two, one)));
        let (d, f) = (&diff.data, &diff.functions);
        let context = format!("{:?}: {:?} {:?}", build.compiler, diff.objects, diff.functions_changed);
        assert_eq!((d.moved, d.content_changed, d.added, d.removed, d.resized), (2, 0, 0, 0, 0), "{context}");
        assert_eq!((f.moved, f.changed), (2, 0), "{context}");
    }
}

/// An initialiser that is gone moves an object to another section; it is still the same one.
#[test]
fn an_object_that_changed_its_section_is_found() {
    let source = |value: &str| {
        vec![("main.c", format!("long moves{value}; long stays = 2; int main(void) {{ return moves + stays; }}"))]
    };
    let diff = compare(&GCC.make(&source(" = 1")), &GCC.make(&source("")));
    let moved = diff.objects.iter().find(|o| o.name == "moves").unwrap();
    assert_eq!((moved.section.as_str(), moved.moved_to.as_deref()), (".data", Some(".bss")));
    assert_eq!((moved.told, moved.change), (Some(Told::NameElsewhere), Change::ContentChanged));
    assert_eq!((diff.data.added, diff.data.removed, diff.functions.changed), (0, 0, 0));
}

/// Case B5: the same crate in two link orders. Nothing changed, all of it moved.
#[test]
fn rust_in_another_order_only_moves() {
    let unit = |n: usize, functions: usize| {
        let next = (n + 1) % 3;
        let list: String = (0..functions)
            .map(|f| {
                format!(
                    "#[no_mangle] pub extern \"C\" fn f{n}_{f}(x: u64) -> u64 {{
                        S{n}.fetch_add(x, Ordering::Relaxed) ^ unsafe {{ f{next}_0(x / {}) }} }}\n",
                    f + 2
                )
            })
            .collect();
        format!(
            "#![no_std]\nuse core::sync::atomic::{{AtomicU64, Ordering}};\nstatic S{n}: AtomicU64 = AtomicU64::new({n} + 1);
             extern \"C\" {{ fn f{next}_0(x: u64) -> u64; }}\n{list}"
        )
    };
    let rust = Build {
        compiler: &["rustc", "--crate-type=lib", "--emit=obj", "-O", "-Cpanic=abort", "-Cdebuginfo=0", "-Awarnings"],
        linker: &["gcc", "-nostdlib", "-static", "-Wl,-e,0"],
    };
    let files = [("a.rs", unit(0, 13)), ("b.rs", unit(1, 12)), ("c.rs", unit(2, 12))];
    let made = |order: [usize; 3]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, source) in &files {
            std::fs::write(folder.path().join(name), source).unwrap();
            run(rust.compiler, &[name, "-o", &format!("{name}.o")], folder.path());
        }
        let objects: Vec<String> = order.iter().map(|n| format!("{}.o", files[*n].0)).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        run(rust.linker, &[&["-o", "image"], &objects[..]].concat(), folder.path());
        Made { folder }
    };
    let (base, same, shuffled) = (made([0, 1, 2]), made([0, 1, 2]), made([2, 0, 1]));
    let diff = compare(&base, &shuffled);
    let f = diff.functions;
    assert_eq!((f.moved, f.changed, f.added, f.removed, f.undecided), (37, 0, 0, 0, 0), "{:?}", diff.functions_changed);
    assert_eq!((diff.data.moved, diff.data.content_changed), (3, 0), "{:?}", diff.objects);
    nothing(&compare(&base, &same));
}

fn nothing(diff: &Diff) {
    let (d, f) = (&diff.data, &diff.functions);
    assert_eq!((d.moved, d.content_changed, d.resized, d.undecided, d.added, d.removed), (0, 0, 0, 0, 0, 0));
    assert_eq!((f.moved, f.changed, f.undecided, f.added, f.removed), (0, 0, 0, 0, 0));
    assert_eq!((diff.suspects.len(), diff.cause.len(), diff.objects.len()), (0, 0, 0));
}

#[test]
fn a_rebuild_changes_nothing() {
    let cpp = "#include <map>\n#include <string>\nstatic std::map<std::string, long> table;
        template <class T> struct Box { static T held; T get() { return held++; } };
        template <class T> T Box<T>::held = 5; template struct Box<int>; template struct Box<long>;
        int main() { table[\"a\"] += Box<int>().get(); return table.size() + Box<long>().get(); }";
    let files = [("main.cc", cpp.to_string())];
    let gxx = Build { compiler: &["g++", "-O1"], linker: &["g++"] };
    let base = gxx.make(&files);
    let diff = compare(&base, &gxx.make(&files));
    nothing(&diff);
    assert!(diff.statements.iter().any(|s| s.starts_with("nothing in these images")), "{:?}", diff.statements);
    // One more static, of a template too, is all that is told to be new.
    let more = [(
        "main.cc",
        cpp.replace("template struct Box<long>;", "template struct Box<long>; template struct Box<short>;"),
    )];
    let diff = compare(&base, &gxx.make(&more));
    assert_eq!((diff.data.added, diff.data.removed, diff.data.resized, diff.functions.added), (1, 0, 0, 1));
    assert_eq!(
        (diff.functions.changed, diff.data.content_changed),
        (0, 0),
        "{:?} {:?}",
        diff.functions_changed,
        diff.objects
    );
}

/// Any number of threads writes the same bytes, and a gate is exit code 1.
#[test]
fn the_command_is_deterministic_and_has_gates() {
    let (base, patched) = (GCC.make(&counters(2)), GCC.make(&counters(4)));
    let command = |arguments: &[&str]| {
        let straddle = Command::new(env!("CARGO_BIN_EXE_straddle"))
            .arg("diff")
            .args([base.path(), patched.path()])
            .args(arguments)
            .output()
            .unwrap();
        (straddle.status.code().unwrap(), straddle.stdout, String::from_utf8(straddle.stderr).unwrap())
    };
    let (code, one, _) = command(&["--format", "json", "-j", "1"]);
    assert_eq!((code, &one), (0, &command(&["--format", "json", "-j", "4"]).1));
    assert_eq!(command(&["--fail-on", "changed"]).0, 1);
    assert_eq!(command(&["--fail-on", "new-straddle:hot,type-changed"]).0, 0);
    assert_eq!(command(&["--fail-on", "new-neighbour:hot"]).0, 1);
    let (code, out, error) = command(&["--fail-on", "no-such"]);
    assert!(code == 2 && out.is_empty() && error.contains("new-straddle"), "{error}");
    let maps = format!("{0}/map,{0}/map", base.folder.path().display());
    assert_eq!(command(&["--map", &maps]).0, 0);
    let (code, _, error) = command(&["--map", "one.map"]);
    assert!(code == 2 && error.contains("maps of both"), "{error}");
}

/// What was seen on base is put on patched: two that come together there, and would not at one of eight shifts.
#[test]
fn a_profile_of_base_says_what_patched_would_share() {
    let source = "
        .data; .balign 64
        .globl lock; .type lock, @object; .size lock, 8
        lock: .quad 1
        .ifndef PATCHED
        .balign 64
        .endif
        .globl ticks; .type ticks, @object; .size ticks, 8
        ticks: .quad 2
        .ifndef PATCHED
        .globl gone; .type gone, @object; .size gone, 8
        gone: .quad 3
        .endif
        .text; .globl f; .type f, @function; .size f, 1
        f: ret\n";
    let base = build("a.s", source, &["-nostdlib", "-static", "-Wl,-e,0"]);
    let patched = build("a.s", source, &["-nostdlib", "-static", "-Wl,-e,0", "-Wa,--defsym,PATCHED=1"]);
    let profile = base.folder.path().join("seen");
    std::fs::write(&profile, "lock w 1000\nticks r 500\ngone r 7\n").unwrap();
    let paths = [&base.path, &patched.path, &profile].map(|p| p.to_str().unwrap());
    let out = Command::new(env!("CARGO_BIN_EXE_straddle"))
        .args(["diff", paths[0], paths[1], "--profile", paths[2], "--shifts", "--format", "json"])
        .output()
        .unwrap();
    let diff: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    let told = &diff["rebinned"];
    assert_eq!((&told["accesses"], &told["lost"]), (&1507.into(), &7.into()), "{told}");
    assert_eq!((&told["conflict_base"], &told["conflict_patched"]), (&0.into(), &500_000.into()));
    let changes = told["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["data"]), (1, &serde_json::json!(["lock", "ticks"])));
    let shifts = &told["shifts"][0];
    let want: Vec<(u64, u64)> = (0..8).map(|n| (8 * n, if n == 7 { 0 } else { 500_000 })).collect();
    assert_eq!((&shifts["section"], &shifts["conflict"]), (&".data".into(), &serde_json::json!(want)));
}
