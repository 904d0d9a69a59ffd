//! `straddle variants`, as a user calls it. What it claims is held against `nm` and `readelf`, which know nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// A program that checks itself: three objects put an entry of eight bytes each into a table between `__start_t` and
/// `__stop_t` (the kernel's `__dyndbg` is one), and it ends with 0 only if it walks over 1, 2 and 3.
const SOURCES: [(&str, &str); 7] = [
    (
        "main.c",
        "long push(long), table(void); extern unsigned long limits[7]; extern long queue[5];\n\
         int main(void) { return table() != 6 || push(5) != 16 || limits[6] != 7 || queue[0] != 1; }\n",
    ),
    ("config.c", "unsigned long limits[7] __attribute__((aligned(64))) = {1, 2, 3, 4, 5, 6, 7};\nENTRY(1);\n"),
    ("ticker.c", "volatile unsigned long ticker = 1; long ticks[3];\nENTRY(2);\n"),
    (
        "twice.c",
        "long once = 1; __asm__(\".section .data.two,\\\"aw\\\",@progbits,unique,1; .quad 1; \\
         .section .data.two,\\\"aw\\\",@progbits,unique,2; .quad 2; .text\");\n",
    ),
    ("queue.c", "long queue[5] __attribute__((aligned(16))) = {1}; long spare[9];\n"),
    ("hot.c", "extern volatile unsigned long ticker; long push(long n) { return n * 3 + (long)ticker; }\nENTRY(3);\n"),
    (
        "table.c",
        "extern const long __start_t[], __stop_t[];\n\
         long table(void) { long s = 0, n = 1; for (const long *p = __start_t; p < __stop_t; p++) s += *p * (n++ > 0);\n\
         return n == 4 ? s : -1; }\n",
    ),
];

const BUILD: &str = "for f in *.c; do gcc -O2 -c -include entry.h $f; done; ar rcs libhot.a hot.o; \
    gcc main.o config.o twice.o ticker.o queue.o table.o libhot.a -o demo";

struct World {
    dir: tempfile::TempDir,
}

/// Captured once for all tests, as base and as patched: the patch adds a datum in front of `ticker`.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let world = World { dir: tempfile::tempdir().unwrap() };
    for tree in ["base", "patched"] {
        fs::create_dir(world.path(tree)).unwrap();
        let entry = "#define ENTRY(v) __attribute__((section(\"t\"), used)) static const long entry = v\n";
        fs::write(world.path(tree).join("entry.h"), entry).unwrap();
        for (name, text) in SOURCES {
            let extra = if tree == "patched" && name == "config.c" { "long extra = 1;\n" } else { "" };
            fs::write(world.path(tree).join(name), format!("{extra}{text}")).unwrap();
        }
        let (dir, store) = (world.path(tree), world.path(&format!("cap-{tree}")));
        let args = ["capture", "--dir", &text(&dir), "--store", &text(&store), "--", "sh", "-c", BUILD];
        let out = world.run(&args);
        assert!(out.status.success(), "{out:?}");
    }
    world
});

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let program = env!("CARGO_BIN_EXE_straddle");
        let command = |args: &[&str]| Command::new(program).current_dir(self.dir.path()).args(args).output().unwrap();
        command(&[&["-q"], args].concat())
    }

    /// Variants of base in a new folder, all of which must pass the program's check of itself.
    fn variants(&self, folder: &str, args: &str) -> Made {
        let args: Vec<&str> = args.split(' ').collect();
        let out = self.run(&[&["variants", "cap-base", "-o", folder], args.as_slice()].concat());
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let dir = self.path(folder);
        let landed: Value = serde_json::from_str(&fs::read_to_string(dir.join("landed.json")).unwrap()).unwrap();
        let files: Vec<PathBuf> =
            landed["variants"].as_array().unwrap().iter().map(|v| dir.join(v["file"].as_str().unwrap())).collect();
        for file in &files {
            assert!(Command::new(file).status().unwrap().success(), "{}", file.display());
        }
        Made { files, landed, said: String::from_utf8(out.stdout).unwrap() }
    }

    fn refused(&self, args: &[&str]) -> (i32, String) {
        let out = self.run(&[&["variants"], args].concat());
        assert!(out.stdout.is_empty(), "{args:?}: half-written");
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(err.trim_end().lines().count(), 1, "{args:?}: {err}");
        (out.status.code().unwrap(), err)
    }
}

struct Made {
    files: Vec<PathBuf>,
    landed: Value,
    said: String,
}

/// Name → address, by `nm`; local names that come twice and what the linker itself defines are left out.
fn addresses(file: &Path) -> BTreeMap<String, u64> {
    let out = Command::new("nm").arg(file).output().unwrap();
    let mut found = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, name] = words[..] else { continue };
        if found.insert(name.to_owned(), u64::from_str_radix(address, 16).unwrap()).is_some() {
            twice.insert(name.to_owned());
        }
    }
    found.retain(|name, _| !twice.contains(name) && !name.starts_with("__") && !name.starts_with("_e"));
    found
}

fn built() -> BTreeMap<String, u64> {
    addresses(&WORLD.path("base").join("demo"))
}

/// Names whose phase differs.
fn rephased(a: &BTreeMap<String, u64>, b: &BTreeMap<String, u64>) -> Vec<String> {
    assert!(a.keys().eq(b.keys()) && a.len() > 10, "{a:?}");
    a.iter().filter(|(name, at)| *at % 64 != b[*name] % 64).map(|(name, _)| name.clone()).collect()
}

#[test]
fn variants_shift_moves_one_object_and_no_other() {
    let was = built();
    for by in [8, 24, -16] {
        let made = WORLD.variants(&format!("shift{by}"), &format!("--kind shift --unit ticker.o:.data --by {by}"));
        let is = addresses(&made.files[0]);
        assert_eq!(rephased(&was, &is), ["ticker"], "by {by}");
        assert_eq!(is["ticker"] % 64, (was["ticker"] as i64 + by).rem_euclid(64) as u64);
        assert_eq!(made.landed["variants"][0]["phases_moved"], 1);
        let (met, promised) = (&made.landed["variants"][0]["met"], &made.landed["variants"][0]["promised"]);
        assert!(met == promised && met.as_u64().unwrap() > 10, "{met} of {promised}");
    }
    // More than a line: exactly as far as was asked for.
    let is = addresses(&WORLD.variants("shift72", "--kind shift --unit ticker --by 72").files[0]);
    assert_eq!(is["ticker"], was["ticker"] + 72);
    assert_eq!(rephased(&was, &is), ["ticker"]);
}

#[test]
fn variants_cycle_is_on_each_phase_once() {
    let made = WORLD.variants("cycle", "--kind cycle --unit queue");
    let all: Vec<BTreeMap<String, u64>> = made.files.iter().map(|f| addresses(f)).collect();
    let phases: Vec<u64> = all.iter().map(|a| a["queue"] % 64).collect();
    assert_eq!(phases, [0, 16, 32, 48]);
    for is in &all {
        assert!(rephased(&built(), is).iter().all(|name| name == "queue"));
    }
}

/// (first line, last line) of every sized symbol, by `readelf`.
fn lines(file: &Path) -> BTreeMap<String, (u64, u64)> {
    let out = Command::new("readelf").args(["-sW"]).arg(file).output().unwrap();
    let mut found = BTreeMap::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, address, size, "OBJECT" | "FUNC", _, _, section, name] = words[..] else { continue };
        let (Ok(at), Ok(size)) = (u64::from_str_radix(address, 16), size.parse::<u64>()) else { continue };
        if section != "UND" && size > 0 {
            found.insert(format!("{name} {address}"), (at / 64, (at + size - 1) / 64));
        }
    }
    found
}

#[test]
fn variants_isolate_owns_its_lines() {
    // In the middle of its section, and as its last unit, where `.bss` follows.
    for unit in ["ticker", "queue", "spare"] {
        let made = WORLD.variants(&format!("isolate-{unit}"), &format!("--kind isolate --unit {unit}"));
        let (is, at) = (lines(&made.files[0]), addresses(&made.files[0]));
        assert_eq!(at[unit] % 64, 0);
        let own = is.iter().find(|(name, _)| name.starts_with(&format!("{unit} "))).unwrap();
        let sharing: Vec<_> = is.iter().filter(|o| o.0 != own.0 && o.1.0 <= own.1.1 && own.1.0 <= o.1.1).collect();
        assert!(sharing.is_empty() && is.len() > 8, "{unit}: {sharing:?}");
        assert!(rephased(&built(), &at).iter().all(|name| name == unit));
    }
}

/// A table that is walked from `__start_t` to `__stop_t` (case A22) stays whole, and that is said.
#[test]
fn variants_leave_a_walked_table_whole() {
    let kinds = [
        "align-all",
        "align-all --align 128",
        "align-all --align 4096 --families data",
        "random -n 2",
        "isolate --unit limits",
        "placebo",
    ];
    for (n, kind) in kinds.iter().enumerate() {
        let made = WORLD.variants(&format!("table-{n}"), &format!("--kind {kind} --seed 0x7"));
        let kept: Vec<&Value> = made.landed["versions"][0]["kept"].as_array().unwrap().iter().collect();
        let table: Vec<_> = kept.iter().filter(|k| k["unit"].as_str().unwrap().ends_with(":t")).collect();
        assert_eq!(table.len(), 3);
        assert!(table.iter().all(|k| k["why"].as_str().unwrap().contains("__start_") && k["symbols"][0] == "entry"));
        assert!(made.said.contains("3 units: its name is a C identifier: __start_ and"), "{}", made.said);
    }
    let aligned = addresses(&WORLD.path("table-2/demo-000"));
    assert!(["limits", "ticker", "queue", "ticks", "spare"].iter().all(|name| aligned[*name].is_multiple_of(4096)));
    assert_ne!(aligned["push"] % 4096, 0, "text was not asked for");
}

/// Whole lines and pages change no phase (case B8): useless for a phase test, and that is said.
#[test]
fn variants_by_whole_lines_are_called_placebos() {
    let was = built();
    for (n, kind) in ["placebo --by 4096", "placebo", "shift --unit queue --by 4096", "shift --unit queue --by 128"]
        .iter()
        .enumerate()
    {
        let made = WORLD.variants(&format!("placebo-{n}"), &format!("--kind {kind}"));
        let is = addresses(&made.files[0]);
        assert_eq!(rephased(&was, &is), [""; 0], "{kind}");
        assert_ne!(was["queue"], is["queue"], "{kind}");
        let said = made.said.replace('\n', " ");
        assert!(said.contains("useless for a phase test"), "{said}");
        assert_eq!(made.landed["variants"][0]["kind"], "placebo");
        assert_eq!(made.landed["variants"][0]["phases_moved"], 0);
        assert_eq!(made.landed["problems"].as_array().unwrap().len(), usize::from(n > 1));
    }
    let moved = addresses(&WORLD.path("placebo-2/demo-000"))["queue"] - was["queue"];
    assert_eq!(moved, 4096);
}

#[test]
fn variants_of_two_versions_land_alike() {
    let common = ["limits", "ticker", "queue", "ticks", "spare", "push", "table", "main"];
    let made = WORLD.variants("matched", "--kind matched --with cap-patched -n 2");
    let mut drawn = BTreeSet::new();
    assert_eq!(made.files.len(), 4);
    for pair in made.files.chunks(2) {
        assert!(text(&pair[0]).ends_with("-base") && text(&pair[1]).ends_with("-patched"));
        let (b, p) = (addresses(&pair[0]), addresses(&pair[1]));
        assert!(!b.contains_key("extra") && p.contains_key("extra"));
        // `limits` stands first in `.data`'s second unit; `extra` moved it within config.o, which no pad can match.
        let apart: Vec<_> = common.iter().filter(|n| b[**n] % 64 != p[**n] % 64).collect();
        assert!(apart.is_empty() || apart == [&"limits"], "{apart:?}");
        drawn.insert(b["ticker"] % 64);
    }
    assert_eq!(made.landed["versions"][1]["name"], "patched");
    let made = WORLD.variants("transplant", "--kind transplant --with cap-patched");
    let (is, there) = (addresses(&made.files[0]), addresses(&WORLD.path("patched/demo")));
    assert!(common.iter().filter(|n| **n != "limits").all(|n| is[*n] % 64 == there[*n] % 64));
    assert!(!is.contains_key("extra"));
}

/// The objects of the link in address order, by a datum of each.
fn order(at: &BTreeMap<String, u64>) -> Vec<&str> {
    let mut names = vec!["limits", "ticker", "queue"];
    names.sort_by_key(|n| at[*n]);
    names
}

#[test]
fn variants_order_objects_and_keep_the_program() {
    let made = WORLD.variants("order", "--kind order -n 4");
    let orders: BTreeSet<Vec<String>> =
        made.files.iter().map(|f| order(&addresses(f)).iter().map(|n| (*n).to_owned()).collect()).collect();
    assert!(orders.len() > 1, "{orders:?}");
    let plan: Value =
        serde_json::from_str(&fs::read_to_string(WORLD.path("order/demo-002.plan.json")).unwrap()).unwrap();
    assert_eq!(plan["order"].as_array().unwrap().len(), 6, "not the archive, not the system's: {plan}");
    let kept = WORLD.variants("order-kept", "--kind keep --plan order/demo-002.plan.json");
    assert!(fs::read(&kept.files[0]).unwrap() == fs::read(&made.files[2]).unwrap());

    // What differs goes last, so that all before it has the same addresses within its section.
    let made = WORLD.variants("last", "--kind changed-last --with cap-patched");
    let [b, p] = [0, 1].map(|n| addresses(&made.files[n]));
    assert_eq!(order(&b), ["ticker", "queue", "limits"]);
    assert_eq!((b["ticker"], b["queue"], b["push"]), (p["ticker"], p["queue"], p["push"]));
    let built = [built(), addresses(&WORLD.path("patched/demo"))];
    assert_ne!(built[0]["ticker"], built[1]["ticker"], "else the order changes nothing");
}

#[test]
fn variants_are_kept_by_their_plans_and_repeat() {
    let made = WORLD.variants("drawn", "--kind random -n 3 --seed 5 -j 2");
    let again = WORLD.variants("drawn-again", "--kind random -n 2 --seed 5 -j 1");
    let kept = WORLD.variants("kept", "--kind keep --plan drawn/demo-001.plan.json");
    let read = |p: &Path| fs::read(p).unwrap();
    assert!(read(&made.files[1]) == read(&again.files[1]) && read(&made.files[1]) == read(&kept.files[0]));
    assert_eq!(made.landed["variants"][1]["hash"], kept.landed["variants"][0]["hash"]);
    let ids: BTreeSet<&str> = (0..3).map(|n| made.landed["variants"][n]["build_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3, "each variant has a build id of its own");

    // A plan of another build names the first unit that is not there.
    let plan = fs::read_to_string(WORLD.path("drawn/demo-001.plan.json")).unwrap();
    let refuse = |name: &str, plan: String| {
        fs::write(WORLD.path(name), plan).unwrap();
        let (code, error) = WORLD.refused(&["cap-base", "-o", "other", "--kind", "keep", "--plan", name]);
        assert!(code == 2 && !WORLD.path("other").exists(), "{error}");
        error
    };
    // Written by hand: an entry without an index means the one section of its name, and fails where there are two.
    let entry = |section: &str| format!(r#"{{"file":"twice.o","section":"{section}","pad":8}}"#);
    let by_hand = |section: &str| {
        format!(r#"{{"schema":"straddle.plan/1","kind":"mine","seed":"0x0","units":[{}]}}"#, entry(section))
    };
    assert!(refuse("two.json", by_hand(".data.two")).contains("2 sections have this name; the entry needs an index"));
    assert!(refuse("none.json", by_hand(".data.none")).contains("the link has no such unit"));
    fs::write(WORLD.path("one.json"), by_hand(".data")).unwrap();
    WORLD.variants("by-hand", "--kind keep --plan one.json");
    assert!(refuse("gone.json", plan.replace("ticker.o", "clock.o")).contains("clock.o:"));
    assert!(refuse("typo.json", plan.replace("\"pad\"", "\"pads\"")).contains("pads"));
    assert!(refuse("cut.json", plan[..plan.len() / 2].to_owned()).contains("cut.json"));
}

#[test]
fn variants_prove_where_units_are() {
    let made = WORLD.variants("json", "--kind random -n 2 --seed 9");
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let landed = &made.landed;
    assert_eq!(keys(landed), "schema kind seed line versions variants problems skipped");
    assert_eq!((&landed["schema"], &landed["seed"]), (&"straddle.landed/1".into(), &"0x9".into()));
    assert_eq!(keys(&landed["versions"][0]), "name link hash units kept");
    assert_eq!(keys(&landed["versions"][0]["units"][0]), "unit output size align address phase proven_by");
    assert_eq!(
        keys(&landed["variants"][0]),
        "file plan version number hash build_id kind phases_moved addresses_moved promised met missed proof planned \
         phases addresses"
    );
    let units = landed["versions"][0]["units"].as_array().unwrap();
    let at = |name: &str| units.iter().position(|u| u["unit"] == name).unwrap();
    for (variant, file) in landed["variants"].as_array().unwrap().iter().zip(&made.files) {
        let nm = addresses(file);
        for list in ["planned", "phases", "addresses"] {
            assert_eq!(variant[list].as_array().unwrap().len(), units.len());
        }
        for (unit, symbol) in [("ticker.o:.data", "ticker"), ("libhot.a(hot.o):.text", "push")] {
            assert_eq!(units[at(unit)]["proven_by"], "symbol");
            let address = format!("{:#x}", nm[symbol]);
            assert_eq!(variant["addresses"][at(unit)], address);
            assert_eq!(variant["phases"][at(unit)], nm[symbol] % 64);
            assert_eq!(variant["planned"][at(unit)], variant["phases"][at(unit)]);
        }
    }
    // Without symbols of its own, a unit is known by the map alone.
    let map = units.iter().find(|u| u["output"] == ".got").unwrap();
    assert_eq!(map["proven_by"], "map");
    assert!(landed["skipped"]["units without bytes"].as_u64().unwrap() > 0);
}

#[test]
fn variants_refuse_bad_input_with_one_line() {
    let world = &*WORLD;
    let copy = |name: &str, change: &str| {
        let script = format!("mkdir {name}; cp -r cap-base/objects cap-base/capture.json {name}; cd {name}; {change}");
        let out = Command::new("sh").args(["-ec", &script]).current_dir(world.dir.path()).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    let stored = |file: &str| {
        let bytes = fs::read(world.path("base").join(file)).unwrap();
        let hash = blake3::hash(&bytes).to_hex().to_string();
        format!("objects/{}/{hash}", &hash[..2])
    };
    let damage = |file: &str| format!("chmod u+w {0}; printf x | dd of={0} bs=1 seek=70 conv=notrunc", stored(file));
    copy("damaged-archive", &damage("libhot.a"));
    copy("damaged-object", &damage("queue.o"));
    copy("missing", &format!("rm -f {}", stored("ticker.o")));
    copy("linker", "sed -i 's,\"path\": \"[^\"]*ld[^\"]*\",\"path\": \"/usr/bin/nosuch-ld\",' capture.json");
    copy("cut", "head -c 500 capture.json > c; mv c capture.json");
    fs::create_dir(world.path("full")).unwrap();
    fs::write(world.path("full/mine"), "").unwrap();
    let before = fs::read_dir(world.dir.path()).unwrap().count();

    let random = ["--kind", "random"];
    let unit = |unit: &'static str| ["--kind", "shift", "--by", "8", "--unit", unit];
    let table: Vec<(&str, Vec<&str>, i32, &str)> = vec![
        ("damaged-archive", random.to_vec(), 2, "not the file that it was"),
        ("damaged-object", random.to_vec(), 2, "not the file that it was"),
        ("missing", random.to_vec(), 2, "is gone"),
        ("linker", random.to_vec(), 2, "nosuch-ld is gone"),
        ("cut", random.to_vec(), 2, "capture.json"),
        ("nowhere", random.to_vec(), 2, "nowhere"),
        ("cap-base", [&random[..], &["-o", "full"]].concat(), 2, "not empty"),
        ("cap-base", [&random[..], &["-o", "/sys/new"]].concat(), 4, "/sys/new"),
        ("cap-base", [&random[..], &["--link", "nosuch"]].concat(), 2, "nosuch"),
        ("cap-base", unit("tikcer").to_vec(), 2, "the nearest: ticker"),
        ("cap-base", unit("*.o:.data").to_vec(), 2, "several match"),
        ("cap-base", unit("entry").to_vec(), 2, "several match"),
        ("cap-base", unit("config.o:t").to_vec(), 2, "must not be touched: its name is a C identifier"),
        ("cap-base", unit("limits").to_vec(), 2, "no multiple of its alignment 64"),
        ("cap-base", unit("queue").to_vec(), 2, "16, 32, …, 48"),
        ("cap-base", vec!["--kind", "cycle", "--unit", "limits"], 2, "one phase only"),
        ("cap-base", vec!["--kind", "cycle"], 2, "--unit is not given"),
        ("cap-base", vec!["--kind", "placebo", "--by", "100"], 2, "no whole lines"),
        ("cap-base", vec!["--kind", "random", "--unit", "ticker"], 2, "--unit goes with shift, cycle, isolate"),
        ("cap-base", vec!["--kind", "matched"], 2, "--with is not given"),
        ("cap-base", vec!["--kind", "keep", "--plan", "nowhere.json"], 2, "nowhere.json"),
        ("cap-base", vec!["--kind", "changed-last", "--with", "cap-base"], 2, "no object on the link line differs"),
    ];
    for (capture, args, code, says) in table {
        let output: &[&str] = if args.contains(&"-o") { &[] } else { &["-o", "out"] };
        let (got, error) = world.refused(&[&[capture], args.as_slice(), output].concat());
        assert!(got == code && error.contains(says), "{args:?} of {capture}: {got}: {error}");
    }
    assert!(!world.path("out").exists() && world.path("full/mine").exists());
    let after: Vec<_> = fs::read_dir(world.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let left =
        after.iter().filter(|n| n.to_string_lossy().starts_with(".out") || n.to_string_lossy().starts_with(".full"));
    assert_eq!(left.count(), 0, "{before} {after:?}");
}

/// Interrupted or killed in the middle: no folder under the final name, and the capture is as good as before.
#[test]
fn variants_that_are_stopped_leave_nothing_half_done() {
    let world = &*WORLD;
    let beside = || {
        let all = fs::read_dir(world.dir.path()).unwrap().map(|e| e.unwrap().path());
        all.filter(|p| text(p).contains("/.stopped-")).collect::<Vec<_>>()
    };
    for (signal, code) in [(libc::SIGINT, Some(4)), (libc::SIGKILL, None)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_straddle"))
            .current_dir(world.dir.path())
            .args(["-q", "variants", "cap-base", "-o", "stopped", "-n", "9999", "-j", "1"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let some = |p: &PathBuf| fs::read_dir(p.join("whole")).is_ok_and(|mut d| d.next().is_some());
        while !beside().iter().any(some) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(child.wait().unwrap().code(), code);
        assert!(!world.path("stopped").exists());
        assert!(beside().is_empty() || code.is_none(), "{:?}", beside());
    }
    let made = world.variants("stopped", "--kind random");
    assert_eq!(made.files.len(), 1);
}
