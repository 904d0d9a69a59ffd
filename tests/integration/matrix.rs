//! Every linker × every language × every kind of variant: captured, linked anew, proven, run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use straddle::link::{self, Build, Input, Link, Linked, Relink, Request};
use straddle::open::Bytes;
use straddle::units::Phase;
use straddle::variant::{self, Aim, Common, Landed, Plan, Program, Targets, UnitKey, Variant};

const LINKERS: [&str; 5] = ["bfd", "gold", "lld", "mold", "rust-lld"];

/// How a program of two versions is built. `{ld}` stands for the compiler driver's choice of a linker.
struct Language {
    name: &'static str,
    /// Must be installed.
    compiler: &'static str,
    sources: &'static [(&'static str, &'static str)],
    /// What it links: `x`.
    build: &'static str,
    /// What both versions print.
    prints: &'static str,
}

/// In patched: eight bytes and a function in front of the hot data.
const NEW: &str =
    "unsigned long irrelevant_mask = 1; long irrelevant(long x) { return x * 5 + (long)irrelevant_mask; }\n";

const HOT_C: &str = "#include <stddef.h>\n\
    long common_one; long common_four[4]; __thread long tls_set = 3; __thread long tls_zero;\n\
    static long hits; long table[5] __attribute__((aligned(32))) = {1, 2, 3, 4, 5}; static const long odd[3] = {7, 9, 11};\n\
    struct entry { const char *name; long value; };\n\
    static const struct entry one __attribute__((section(\"walked\"), used, retain)) = {\"one\", 1};\n\
    long *const pointers[2] = {&table[1], &table[2]};\n\
    __attribute__((noinline)) long twice(long x) { return x + x; }\n\
    long hot(long x) { hits++; common_one += x; common_four[1]++; tls_zero++; return twice(x) + odd[x & 1] + tls_set + tls_zero + *pointers[x & 1] + hits + common_one; }\n";
const MAIN_C: &str = "#include <stdio.h>\nstruct entry { const char *name; long value; };\n\
    extern const struct entry __start_walked[], __stop_walked[]; long hot(long); long buffer[9] = {4};\n\
    static const struct entry two __attribute__((section(\"walked\"), used, retain)) = {\"two\", 2};\n\
    long work(void) { long n = 0; for (const struct entry *e = __start_walked; e != __stop_walked; e++) n += e->value;\n\
    return hot(1) + hot(2) + buffer[0] + 1000 * n; }\n\
    int main(void) { printf(\"%ld\\n\", work()); return 0; }\n";

const BOX_H: &str = "#include <map>\n#include <stdexcept>\n#include <string>\n\
    template <class T> struct Box { virtual ~Box() = default; virtual T get(T x) { if (x > 3) throw std::range_error(\"big\"); return x; } };\n\
    inline std::map<int, std::string> &names() { static std::map<int, std::string> m{{1, \"a\"}}; return m; }\n\
    struct Counted { long n; Counted() : n(4) {} }; inline thread_local Counted counted; extern thread_local long plain;\n";

const C_OBJECTS: &str =
    "-O1 -fcommon -ffunction-sections -fdata-sections -c main.c hot.c new.c; rm -f libhot.a; ar rcs libhot.a hot.o; ";

const LANGUAGES: [Language; 6] = [
    Language {
        name: "C, gcc",
        compiler: "gcc",
        sources: &[("main.c", MAIN_C), ("hot.c", HOT_C)],
        build: "gcc {objects} gcc {ld} main.o new.o libhot.a -o x",
        prints: "3047\n",
    },
    Language {
        name: "C, clang",
        compiler: "clang",
        sources: &[("main.c", MAIN_C), ("hot.c", HOT_C)],
        build: "clang {objects} clang {ld} -Wl,--gc-sections main.o new.o -L. -lhot -o x",
        prints: "3047\n",
    },
    Language {
        name: "C, static",
        compiler: "gcc",
        sources: &[("main.c", MAIN_C), ("hot.c", HOT_C)],
        build: "gcc {objects} gcc {ld} -static main.o new.o libhot.a -o x",
        prints: "3047\n",
    },
    Language {
        name: "C, shared object",
        compiler: "gcc",
        sources: &[("main.c", MAIN_C), ("hot.c", HOT_C)],
        build: "gcc -fPIC {objects} gcc {ld} -shared -Wl,-soname,x.so main.o new.o hot.o -o x",
        prints: "3047\n",
    },
    Language {
        name: "C++",
        compiler: "g++",
        sources: &[
            ("box.h", BOX_H),
            (
                "a.cc",
                "#include \"box.h\"\nthread_local long plain = 7; long calls = 1;\n\
                 long f(int x) { Box<int> b; calls++; try { return b.get(x) + plain + counted.n; } catch (std::range_error &) { return -1; } }\n",
            ),
            (
                "main.cc",
                "#include \"box.h\"\n#include <cstdio>\nlong f(int); int main() { Box<int> b; names()[2] = \"b\"; plain++;\n\
                 std::printf(\"%ld %ld %ld %d %zu\\n\", f(1), f(5), counted.n, b.get(2), names().size()); }\n",
            ),
        ],
        build: "g++ -O1 -c main.cc a.cc; gcc -c new.c; g++ {ld} main.o new.o a.o -o x",
        prints: "13 -1 4 2 2\n",
    },
    Language {
        name: "Rust",
        compiler: "rustc",
        sources: &[(
            "x.rs",
            "use std::{cell::Cell, collections::BTreeMap, sync::atomic::{AtomicU64, Ordering}};\n\
             static HITS: AtomicU64 = AtomicU64::new(3); static TABLE: [u64; 4] = [1, 2, 3, 4];\n\
             thread_local! { static LOCAL: Cell<u64> = const { Cell::new(5) } }\n\
             mod inner { #[inline(never)] pub fn work(x: u64) -> u64 { super::TABLE[(x & 3) as usize] * x } }\n\
             fn main() { let mut m = BTreeMap::new(); for x in 0..9u64 { m.insert(x, format!(\"{}\", inner::work(x))); }\n\
             LOCAL.with(|l| l.set(l.get() + HITS.fetch_add(1, Ordering::Relaxed)));\n\
             let caught = std::panic::catch_unwind(|| { if HITS.load(Ordering::Relaxed) == 4 { std::panic::panic_any(1u8) } }).is_err();\n\
             println!(\"{} {} {caught}\", m[&7], LOCAL.with(Cell::get)); }\n",
        )],
        build: "rustc -O -C codegen-units=2 -C panic=unwind {ld} x.rs -o x 2>&1",
        prints: "28 8 true\n",
    },
];

/// A version of a program, captured.
struct Version {
    link: Link,
    program: Program,
    scratch: PathBuf,
}

struct Cell {
    dir: tempfile::TempDir,
    language: &'static Language,
    base: Version,
    patched: Version,
    common: Common,
}

fn sh(dir: &Path, script: &str) -> Result<String, String> {
    let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        Ok(said)
    } else {
        Err(format!("{} {said} {}", out.status, String::from_utf8_lossy(&out.stderr)))
    }
}

/// Whether a program is there.
fn have(program: &str) -> bool {
    sh(Path::new("/"), &format!("command -v {program}")).is_ok()
}

/// The folder with rustc's own linker, under the name that compilers look for.
fn gcc_ld() -> Option<String> {
    let root = sh(Path::new("/"), "rustc --print sysroot").ok()?;
    let found = sh(Path::new("/"), &format!("ls -d {}/lib/rustlib/*/bin/gcc-ld", root.trim())).ok()?;
    found.lines().next().map(str::to_owned)
}

/// What the compiler driver is told, or why this cell cannot be.
fn choice(linker: &str, language: &Language) -> Result<String, String> {
    let program = match linker {
        "mold" => "mold".to_owned(),
        "rust-lld" => "rustc".to_owned(),
        _ => format!("ld.{linker}"),
    };
    if let Some(missing) = [program.as_str(), language.compiler].into_iter().find(|p| !have(p)) {
        return Err(missing.to_owned());
    }
    let words = match linker {
        "rust-lld" => format!("-B{} -fuse-ld=lld", gcc_ld().ok_or("rust-lld")?),
        _ => format!("-fuse-ld={linker}"),
    };
    let rust = language.compiler == "rustc";
    if rust && linker == "lld" {
        // gcc would take the lld of rustc, whose folder rustc names first.
        return have("clang")
            .then(|| "-C linker=clang -C link-arg=--ld-path=ld.lld ".to_owned())
            .ok_or("clang".to_owned());
    }
    Ok(words.split(' ').map(|w| if rust { format!("-C link-arg={w} ") } else { format!("{w} ") }).collect())
}

fn version(dir: &Path, language: &Language, choice: &str, patched: bool) -> Result<Version, String> {
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).unwrap();
    for (name, text) in language.sources {
        let mut text = (*text).to_owned();
        if name.ends_with(".rs") && patched {
            text.push_str("#[used] static IRRELEVANT: AtomicU64 = AtomicU64::new(1);\n");
            text.push_str("#[unsafe(no_mangle)] pub extern \"C\" fn irrelevant(x: u64) -> u64 { x * 5 + IRRELEVANT.load(Ordering::Relaxed) }\n");
        }
        fs::write(tree.join(name), text).unwrap();
    }
    fs::write(tree.join("new.c"), if patched { NEW } else { "" }).unwrap();
    let build = language.build.replace("{objects}", C_OBJECTS).replace("{ld}", choice);
    captured(dir, if patched { "patched" } else { "base" }, build)
}

/// Runs `build` in `dir/tree`, and reads the link of `x`, proven to be repeatable.
fn captured(dir: &Path, name: &str, build: String) -> Result<Version, String> {
    let (dir, store) = (dir.to_owned(), dir.join(name));
    let request =
        Request { build: Build::Shell(build), dir: dir.join("tree"), store, link: Some("x".into()), stop: None };
    let said = |e: straddle::error::Error| e.to_string();
    let capture = link::capture(&request).map_err(said)?;
    let link = capture.select(Some("x")).map_err(said)?;
    let scratch = dir.join(format!("{name}-scratch"));
    fs::create_dir(&scratch).unwrap();
    link.prove_pass_through(&scratch).map_err(said)?;
    let program = Program::open(&link, &scratch).map_err(said)?;
    Ok(Version { link, program, scratch })
}

impl Cell {
    fn build(linker: &str, language: &'static Language, choice: &str) -> Result<Cell, String> {
        let dir = tempfile::tempdir().unwrap();
        let base = version(dir.path(), language, choice, false).map_err(|e| format!("base: {e}"))?;
        let mut patched = version(dir.path(), language, choice, true).map_err(|e| format!("patched: {e}"))?;
        patched.program.adopt_names(&base.program);
        let linked_by = base.link.captured().linker.path.to_string_lossy().into_owned();
        let own = linker == "rust-lld";
        if !linked_by.contains(linker.trim_start_matches("rust-")) || linked_by.contains("gcc-ld") != own {
            return Err(format!("{linked_by} did the link"));
        }
        if own && !base.link.captured().in_place.iter().any(|p| p.path.ends_with("rust-lld")) {
            return Err("the linker behind the wrapper is not kept".into());
        }
        let common = variant::common(&base.program, &patched.program);
        Ok(Cell { dir, language, base, patched, common })
    }

    /// gold counts its fill in the order in which it meets code, and then sorts: that follows no arithmetic.
    fn gold(&self) -> bool {
        self.base.link.captured().linker.path.to_string_lossy().contains("gold")
    }

    /// Runs a variant, and compares what it says.
    fn run(&self, variant: &Path) -> Result<(), String> {
        let path = variant.display();
        let said = match self.language.name {
            "C, shared object" => {
                let script = format!("python3 -c \"import ctypes; print(ctypes.CDLL('{path}').work())\"");
                sh(self.dir.path(), &script)
            }
            _ => sh(self.dir.path(), &format!("'{path}' 2>/dev/null")),
        };
        match said {
            Ok(said) if said == self.language.prints => Ok(()),
            other => Err(format!("it said {other:?}")),
        }
    }

    fn land(&self, v: &Version, kind: &str, aim: Aim) -> Result<Landed, String> {
        let path = v.scratch.join(kind);
        let landed = variant::land(&v.program, &v.link, &aim, &path).map_err(|e| e.to_string())?;
        self.run(&path).map(|()| landed)
    }

    fn make(&self, v: &Version, plan: &Plan) -> Result<Variant, String> {
        let path = v.scratch.join(&plan.kind);
        let made = variant::make(&v.program, &v.link, plan, &path).map_err(|e| e.to_string())?;
        self.run(&path).map(|()| made)
    }

    fn no_op(&self) -> Result<String, String> {
        let made = self.make(&self.base, &Plan::no_op())?;
        let same = fs::read(&made.path).unwrap() == *self.base.link.original().unwrap();
        same.then(|| format!("{} units", made.proof.units)).ok_or_else(|| "other bytes than the build's".into())
    }

    /// Both versions on one drawn landing: the same phases, and the same units on one line, but for what is named.
    fn random(&self) -> Result<String, String> {
        let (base, patched) = (&self.base.program, &self.patched.program);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let drawn = variant::random_targets(base, patched, &mut rng);
        let lead = variant::random_lead(base, &mut rng);
        let joint = variant::together(base, patched, &self.common, &drawn, &lead);
        let aim = |v| {
            self.land(
                v,
                "random",
                Aim {
                    targets: joint.targets.clone(),
                    lead: lead.clone(),
                    lines: joint.lines.clone(),
                    ..Aim::default()
                },
            )
        };
        let (b, p) = (aim(&self.base)?, aim(&self.patched)?);
        let found = variant::differences((base, &b.variant.places), (patched, &p.variant.places), &self.common);
        let expected: BTreeSet<_> =
            [&joint.differences, &b.unmatched, &p.unmatched].into_iter().flatten().map(|(k, _)| k).collect();
        let new: Vec<_> = found.iter().filter(|(k, _)| !expected.contains(k)).collect();
        if let (Some((key, why)), false) = (new.first(), self.gold()) {
            return Err(format!("{} differ unexpectedly, {key}: {why}", new.len()));
        }
        self.matched(&[&b, &p], joint.targets.len())
    }

    /// Patched on the landing that base was built with.
    fn transplant(&self) -> Result<String, String> {
        let as_built = variant::targets_as_built(&self.base.program);
        let targets: Targets = as_built.into_iter().filter(|(k, _)| self.common.has(k)).collect();
        let of = targets.len();
        let landed = self.land(&self.patched, "transplant", Aim { targets, ..Aim::default() })?;
        self.matched(&[&landed], of)
    }

    /// All common units of the landings are on one phase, or named; few are named.
    fn matched(&self, landed: &[&Landed], of: usize) -> Result<String, String> {
        let named: BTreeMap<_, _> = landed.iter().flat_map(|l| l.unmatched.iter().map(|(k, why)| (k, why))).collect();
        for l in landed {
            for (key, planned, actual) in &l.variant.landing {
                if planned.is_some_and(|p| p != *actual) {
                    return Err(format!("{key} is on {actual}, planned was {planned:?}"));
                }
            }
            if l.variant.proof.targets as usize + named.len() < of {
                return Err(format!("{} of {of} targets, {} named", l.variant.proof.targets, named.len()));
            }
        }
        let gold = self.gold();
        let unexpected = named.iter().filter(|(_, why)| !(gold && why.starts_with("the linker put it")));
        let few = unexpected.count() <= 4 + of / 25;
        let first = || named.iter().take(8).map(|(k, why)| format!("{k}: {why}")).collect::<Vec<_>>().join("\n      ");
        few.then(|| format!("{}/{of}", of - named.len()))
            .ok_or_else(|| format!("{} of {of} unmatched:\n      {}", named.len(), first()))
    }

    /// Everything stays on its phase, and something moves.
    fn placebo(&self) -> Result<String, String> {
        let program = &self.base.program;
        let lead = variant::random_lead(program, &mut ChaCha8Rng::seed_from_u64(11));
        let targets = variant::targets_as_built(program);
        let of = targets.len();
        let aim = Aim { targets: targets.clone(), lead, ..Aim::default() };
        let landed = self.land(&self.base, "placebo", aim)?;
        if let Some((key, why)) = landed.unmatched.first() {
            return Err(format!("{} unmatched, {key}: {why}", landed.unmatched.len()));
        }
        let mut moved = BTreeSet::new();
        for (unit, (at, _)) in program.units.iter().zip(&landed.variant.places) {
            let far = at.wrapping_sub(unit.address);
            if targets.contains_key(&unit.key) && far != 0 {
                moved.insert(far);
                if far % 64 != 0 {
                    return Err(format!("{} moved by {far}", unit.key));
                }
            }
        }
        (!moved.is_empty()).then(|| format!("{of}")).ok_or_else(|| "nothing moved".into())
    }

    fn align_all(&self) -> Result<String, String> {
        let plan = variant::align_all(&self.patched.program, 64, 64);
        let made = self.make(&self.patched, &plan)?;
        Ok(made.proof.targets.to_string())
    }
}

type Kind = fn(&Cell) -> Result<String, String>;
const KINDS: [(&str, Kind); 5] = [
    ("no-op", Cell::no_op),
    ("random", Cell::random),
    ("placebo", Cell::placebo),
    ("align-all", Cell::align_all),
    ("transplant", Cell::transplant),
];

/// One row of the matrix: a linker and a language.
fn row(linker: &'static str, language: &'static Language) -> Vec<(&'static str, Result<String, String>)> {
    let cell = match choice(linker, language) {
        Err(missing) if std::env::var_os("CI").is_none() => return vec![("all", Ok(format!("skipped: no {missing}")))],
        Err(missing) => return vec![("all", Err(format!("{missing} is not installed")))],
        Ok(choice) => Cell::build(linker, language, &choice),
    };
    match cell {
        Ok(cell) => KINDS.iter().map(|(name, kind)| (*name, kind(&cell))).collect(),
        Err(why) => vec![("build", Err(why))],
    }
}

#[test]
fn landing_holds_under_every_linker_for_every_language() {
    let cells: Vec<_> = LINKERS.iter().flat_map(|l| LANGUAGES.iter().map(move |g| (*l, g))).collect();
    let rows = Mutex::new(BTreeMap::new());
    cells.par_iter().for_each(|(linker, language)| {
        let row = row(linker, language);
        rows.lock().unwrap().insert((*linker, language.name), row);
    });
    let mut failed = Vec::new();
    for ((linker, language), row) in rows.into_inner().unwrap() {
        let cells = row.iter().map(|(kind, result)| match result {
            Ok(said) => format!("{kind} {said}"),
            Err(_) => format!("{kind} FAILED"),
        });
        println!("{linker:9} {language:17} {}", cells.collect::<Vec<_>>().join(" · "));
        for (kind, why) in row.iter().filter_map(|(k, r)| Some((k, r.as_ref().err()?))) {
            failed.push(format!("{linker}, {language}, {kind}: {why}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[allow(clippy::print_stdout, reason = "what was skipped is said")]
fn skipped(missing: &str) {
    assert!(std::env::var_os("CI").is_none(), "{missing} is not installed");
    println!("skipped: no {missing}");
}

/// A small tree of C files, captured as linked by `linker`; `None` when that is not there (in CI it must be).
fn linked(linker: &str, sources: &[(&str, &str)], build: &str) -> Option<(tempfile::TempDir, Version)> {
    let choice = choice(linker, &LANGUAGES[0]).map_err(|missing| skipped(&missing)).ok()?;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    for (name, text) in sources {
        fs::write(dir.path().join("tree").join(name), text).unwrap();
    }
    let version = captured(dir.path(), "base", build.replace("{ld}", &choice)).unwrap();
    Some((dir, version))
}

fn key(file: &str, section: &str) -> UnitKey {
    UnitKey { file: file.into(), member: None, section: section.into(), index: 0 }
}

fn land(v: &Version, targets: Targets) -> Landed {
    let aim = Aim { targets, ..Aim::default() };
    let landed = variant::land(&v.program, &v.link, &aim, &v.scratch.join("v"));
    landed.unwrap_or_else(|e| panic!("{}: {e}", v.link.captured().linker.path.display()))
}

/// One unit is moved by half a line: it does, and every other unit with bytes stays on its phase.
#[test]
fn landing_of_a_single_factor_moves_nothing_else() {
    for linker in LINKERS {
        let build = format!("gcc {C_OBJECTS} gcc {{ld}} main.o new.o libhot.a -o x");
        let sources = [("main.c", MAIN_C), ("hot.c", HOT_C), ("new.c", NEW)];
        let Some((_dir, v)) = linked(linker, &sources, &build) else { continue };
        let unit = key("main.o", ".data.buffer");
        let mut targets = variant::targets_as_built(&v.program);
        let was = targets[&unit];
        targets.insert(unit.clone(), Phase((was.0 + 32) % 64));
        let landed = land(&v, targets);
        assert_eq!(landed.unmatched, [], "{linker}");
        for (u, (key, _, phase)) in v.program.units.iter().zip(&landed.variant.landing).filter(|(u, _)| u.size > 0) {
            let expected = if *key == unit { (u.address + 32) % 64 } else { u.address % 64 };
            assert_eq!(u64::from(phase.0), expected, "{linker}: {key} in {}", u.output);
        }
    }
}

/// Equal functions that the linker made one stay one, whatever is padded.
#[test]
fn landing_leaves_folded_sections_folded() {
    let pair = |name: &str| {
        format!(
            "int {name}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += helper(i) * 3; seen += s; return s; }}\n"
        )
    };
    let twins = format!(
        "int helper(int); static int seen; {}{}int other(int x) {{ return helper(x) + seen; }}\n",
        pair("one"),
        pair("two")
    );
    let main = "#include <stdio.h>\nint one(int), two(int), other(int); int helper(int x) { return x ^ 5; }\n\
                int main(void) { printf(\"%d %d %d %d\\n\", one(3), two(4), other(2), one == two); return 0; }\n";
    let build = "gcc -O1 -fno-ipa-icf -ffunction-sections -fdata-sections -c main.c twins.c; gcc {ld} -Wl,--icf=all main.o twins.o -o x";
    for linker in ["gold", "lld", "mold", "rust-lld"] {
        let Some((dir, v)) = linked(linker, &[("main.c", main), ("twins.c", &twins)], build) else { continue };
        let bytes = fs::read(v.scratch.join("pristine")).unwrap();
        let address = |bytes: &[u8], name: &str| {
            let elf = goblin::elf::Elf::parse(bytes).unwrap();
            elf.syms.iter().find(|s| elf.strtab.get_at(s.st_name) == Some(name)).unwrap().st_value
        };
        assert_eq!(address(&bytes, "one"), address(&bytes, "two"), "{linker} folds nothing");
        let kept: Vec<_> =
            v.program.kept().filter(|(_, why)| why.contains("folded")).map(|(k, _)| k.to_string()).collect();
        // The empty `.text` of one object is that of all.
        assert!(kept.contains(&"twins.o:.text.one".to_owned()) && kept.len() <= 2, "{linker}: {kept:?}");
        let drawn = variant::random_targets(&v.program, &v.program, &mut ChaCha8Rng::seed_from_u64(3));
        let landed = land(&v, drawn);
        assert!(landed.variant.plan.pads.len() > 3, "{linker}: {:?}", landed.variant.plan);
        let bytes = fs::read(&landed.variant.path).unwrap();
        assert_eq!(address(&bytes, "one"), address(&bytes, "two"), "{linker}");
        assert_ne!(address(&bytes, "one"), address(&bytes, "other"), "{linker}");
        assert_eq!(sh(dir.path(), &landed.variant.path.display().to_string()).unwrap().split(' ').next(), Some("48"));
    }
}

/// lld's map shows what a linker script assigns, as ld's does.
#[test]
fn landing_leaves_a_table_of_llds_linker_script_alone() {
    let script = "SECTIONS { .mine : { *(.data.before) foo_start = .; *(.data.foo.*) PROVIDE(foo_end = .); . = . + 12; *(.data.after) } }\nINSERT AFTER .data;\n";
    let put = |section: &str| format!("__attribute__((section(\"{section}\"), used))");
    let one = format!(
        "long x {} = 1; long a {} = 3; long y {} = 1;\n",
        put(".data.before"),
        put(".data.foo.a"),
        put(".data.after")
    );
    let two = format!("long b {} = 4;\n", put(".data.foo.b"));
    let main = "#include <stdio.h>\nextern long foo_start[], foo_end[]; int main(void) { long sum = 0;\n\
                for (long *p = foo_start; p != foo_end; p++) sum = sum * 10 + *p; printf(\"%ld\\n\", sum); return 0; }\n";
    let sources = [("one.c", one.as_str()), ("two.c", two.as_str()), ("main.c", main), ("table.ld", script)];
    let build = "gcc -O2 -c *.c; gcc {ld} main.o one.o two.o -Wl,-T,table.ld -o x";
    let Some((dir, v)) = linked("lld", &sources, build) else { return };
    let why = "the linker script brackets it with foo_start and foo_end";
    let kept: Vec<String> = v.program.kept().filter(|(_, w)| *w == why).map(|(k, _)| k.to_string()).collect();
    assert_eq!(kept, ["one.o:.data.foo.a", "two.o:.data.foo.b"]);
    for seed in 0..2 {
        let drawn = variant::random_targets(&v.program, &v.program, &mut ChaCha8Rng::seed_from_u64(seed));
        let landed = land(&v, drawn);
        assert!(landed.variant.plan.targets.contains_key(&key("one.o", ".data.after")), "{:?}", landed.unmatched);
        assert_eq!(sh(dir.path(), &landed.variant.path.display().to_string()).unwrap(), "34\n");
    }
}

/// A link that does something other than it was asked to, and may show the map of what was asked.
struct Tampered<'a> {
    link: &'a Link,
    with: fn(&Link, &mut BTreeMap<usize, Vec<u8>>),
    lie: bool,
}

impl Relink for Tampered<'_> {
    fn inputs(&self) -> &[Input] {
        self.link.inputs()
    }

    fn bytes(&self, input: usize) -> straddle::error::Result<Bytes> {
        self.link.bytes(input)
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> straddle::error::Result<Linked> {
        let honest = self.link.relink(replaced, output)?;
        let mut replaced = replaced.clone();
        (self.with)(self.link, &mut replaced);
        let linked = self.link.relink(&replaced, output)?;
        Ok(if self.lie { honest } else { linked })
    }
}

/// `main.o` as it is linked, and where the header of its section of that name is.
fn main_object<'a>(link: &Link, replaced: &'a mut BTreeMap<usize, Vec<u8>>, section: &str) -> (&'a mut Vec<u8>, usize) {
    let at = link.inputs().iter().position(|i| i.name == "main.o").unwrap();
    let bytes = replaced.entry(at).or_insert_with(|| link.bytes(at).unwrap().to_vec());
    let elf = goblin::elf::Elf::parse(bytes).unwrap();
    let index = elf.section_headers.iter().position(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(section)).unwrap();
    let header = elf.header.e_shoff as usize + index * 64;
    (bytes, header)
}

/// A variant whose link was tampered with is refused under each linker, and leaves no file.
#[test]
fn landing_that_was_tampered_with_is_refused_under_every_linker() {
    type Tamper = fn(&Link, &mut BTreeMap<usize, Vec<u8>>);
    let grow: Tamper = |link, replaced| {
        let (bytes, header) = main_object(link, replaced, ".data.buffer");
        bytes[header + 32] += 8;
    };
    let change: Tamper = |link, replaced| {
        let (bytes, header) = main_object(link, replaced, ".data.buffer");
        let offset = u64::from_le_bytes(bytes[header + 24..header + 32].try_into().unwrap()) as usize;
        bytes[offset + 9] ^= 1;
    };
    let forget: Tamper = |_, replaced| replaced.clear();
    for linker in ["gold", "lld", "mold"] {
        let build = format!("gcc {C_OBJECTS} gcc {{ld}} main.o new.o libhot.a -o x");
        let sources = [("main.c", MAIN_C), ("hot.c", HOT_C), ("new.c", NEW)];
        let Some((_dir, v)) = linked(linker, &sources, &build) else { continue };
        let drawn = variant::random_targets(&v.program, &v.program, &mut ChaCha8Rng::seed_from_u64(2));
        let plan = land(&v, drawn).variant.plan;
        let path = v.scratch.join("tampered");
        variant::make(&v.program, &v.link, &plan, &path).unwrap();
        for (name, with) in [("grow", grow), ("change", change), ("forget", forget)] {
            for lie in [false, true] {
                let made = variant::make(&v.program, &Tampered { link: &v.link, with, lie }, &plan, &path);
                let error = made.map(|v| v.proof).expect_err(name).to_string();
                assert!(error.starts_with("proving the variant"), "{linker}, {name}: {error}");
                assert!(!path.exists(), "{linker}, {name}");
            }
        }
    }
}
