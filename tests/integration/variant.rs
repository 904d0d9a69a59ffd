//! Variants of real links: landed as planned, the same program, and refused when anything was tampered with.

mod fake;
mod joint;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fake::Fake;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use straddle::error::Result;
use straddle::link::{Input, Linked, Relink};
use straddle::open::Bytes;
use straddle::units::Phase;
use straddle::variant::{self, Aim, Landed, Plan, Program, Targets, UnitKey};

/// The demo of the false-sharing case, single-threaded: a patch that adds eight unread bytes in front of the hot data.
fn demo(patched: bool) -> Fake {
    let extra = if patched { "unsigned long irrelevant_debug_mask = 1;\n" } else { "" };
    let irrelevant = format!("{extra}int irrelevant_version(void) {{ return 1; }}\n");
    fake::build(
        &[
            ("config.c", "unsigned long limits[7] __attribute__((aligned(64))) = {1, 2, 3, 4, 5, 6, 7};\n"),
            ("irrelevant.c", &irrelevant),
            ("ticker.c", "volatile unsigned long tick_count = 1; long ticks[3];\n"),
            ("queue.c", "struct { int lock, spare; long head, tail, stats, depth; } queue = {.depth = 1};\n"),
            (
                "hot.c",
                "extern volatile unsigned long tick_count; long push(long n) { return n * 3 + (long)tick_count; }\n",
            ),
            (
                "main.c",
                "#include <stdio.h>\nlong push(long); extern unsigned long limits[7]; static long seen[4];\n\
                 int main(void) { seen[1] = push(5); printf(\"%ld %lu\\n\", seen[1], limits[6]); return 0; }\n",
            ),
        ],
        &["-O2"],
        &[],
        "gcc",
        &["main.o", "hot.o", "config.o", "irrelevant.o", "ticker.o", "queue.o"],
    )
}

fn open(link: &dyn Relink) -> (tempfile::TempDir, Program) {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::open(link, scratch.path()).unwrap();
    (scratch, program)
}

fn key(file: &str, section: &str) -> UnitKey {
    UnitKey { file: file.into(), member: None, section: section.into(), index: 0 }
}

fn land(program: &Program, link: &Fake, targets: Targets, seed: u64) -> (tempfile::TempDir, Landed) {
    let out = tempfile::tempdir().unwrap();
    let lead = variant::random_lead(program, &mut ChaCha8Rng::seed_from_u64(seed));
    let aim = Aim { kind: "matched".into(), seed, targets, lead, ..Aim::default() };
    let landed = variant::land(program, link, &aim, &out.path().join("v")).unwrap();
    (out, landed)
}

/// Every unit of `keys` on the same phase in both, but for those named as unmatched.
fn assert_same_landing(keys: &BTreeSet<UnitKey>, a: &Landed, b: &Landed) {
    let phases = |l: &Landed| l.variant.landing.iter().map(|(k, _, p)| (k.clone(), *p)).collect::<BTreeMap<_, _>>();
    let (pa, pb) = (phases(a), phases(b));
    for k in keys {
        let named = a.unmatched.iter().chain(&b.unmatched).any(|(u, _)| u == k);
        assert!(named || pa[k] == pb[k], "{k}: {:?} and {:?}", pa[k], pb[k]);
    }
}

#[test]
fn landing_of_either_version_is_reproduced_by_the_other() {
    let (base, patched) = (demo(false), demo(true));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    for (program, link, landing) in [(&p, &patched, &b), (&b, &base, &p)] {
        let targets: Targets =
            variant::targets_as_built(landing).into_iter().filter(|(k, _)| common.units.contains(k)).collect();
        let wanted = targets.len();
        let (_out, landed) = land(program, link, targets, 7);
        assert_eq!(landed.unmatched, [], "of {wanted}");
        assert_eq!(landed.variant.proof.targets as usize, wanted);
        assert_eq!(link.run(&landed.variant.path), "ExitStatus(unix_wait_status(0)) 16 7\n");
    }
    let report = variant::matched_report(&common, &[]);
    assert_eq!(report.units + 1, report.of);
    assert_eq!(report.rest, ["irrelevant.o:.data: it has bytes only in patched"]);
}

#[test]
fn landing_of_random_layouts_is_the_same_in_both_versions() {
    let (base, patched) = (demo(false), demo(true));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    let mut phases = BTreeSet::new();
    for seed in 0..4 {
        let targets = variant::random_targets(&b, &p, &mut ChaCha8Rng::seed_from_u64(seed));
        // Both at once: variants are made in parallel.
        let ((_x, lb), (_y, lp)) =
            rayon::join(|| land(&b, &base, targets.clone(), seed), || land(&p, &patched, targets.clone(), seed));
        assert_same_landing(&common.units, &lb, &lp);
        assert_eq!(
            variant::matched_report(&common, &[&lb.unmatched, &lp.unmatched]).units as usize,
            common.units.len()
        );
        phases.insert(lb.variant.plan.targets[&key("ticker.o", ".data")]);
        assert_eq!(base.run(&lb.variant.path), base.run(&lp.variant.path));
    }
    assert!(phases.len() > 1, "the draws are all alike");
}

#[test]
fn a_no_op_variant_is_the_pristine_link_and_a_placebo_moves_by_whole_lines() {
    let link = demo(false);
    let (scratch, program) = open(&link);
    let out = tempfile::tempdir().unwrap();
    let same = variant::make(&program, &link, &Plan::no_op(), &out.path().join("same")).unwrap();
    let read = |p: &Path| std::fs::read(p).unwrap();
    assert!(read(&same.path) == read(&scratch.path().join("pristine")));
    let (_out, placebo) = land(&program, &link, variant::targets_as_built(&program), 3);
    assert_eq!(placebo.unmatched, []);
    for ((k, _, phase), unit) in placebo.variant.landing.iter().zip(&program.units) {
        let followed = unit.output != ".eh_frame_hdr" && unit.address > 0;
        assert!(!followed || u64::from(phase.0) == unit.address % 64, "{k}");
    }
    let proof = placebo.variant.proof;
    assert!(proof.placed_symbols > 10 && proof.bytes > 300 && proof.objects > 1, "{proof:?}");
}

#[test]
fn aligned_units_own_their_lines() {
    let link = demo(true);
    let (_s, program) = open(&link);
    let out = tempfile::tempdir().unwrap();
    let plan = variant::align_all(&program, 64, 64);
    let made = variant::make(&program, &link, &plan, &out.path().join("v")).unwrap();
    assert_eq!(made.proof.targets as usize, plan.targets.len());
    assert!(made.plan.targets.contains_key(&key("queue.o", ".data")));
    assert_eq!(link.run(&made.path), "ExitStatus(unix_wait_status(0)) 16 7\n");
}

/// Archive members, a static C library, TLS, COMMON symbols, a walked table, functions and data in sections of their own.
#[test]
fn landing_in_archives_and_static_links_leaves_tables_alone() {
    let entry = "struct e { const char *name; long v; };\n#define ENTRY(n, x) \
                 static const struct e n __attribute__((section(\"table\"), used)) = {#n, x}\n";
    let first =
        format!("{entry}ENTRY(one, 1); int shared; __thread int tls = 3; long used(long x) {{ return x + tls; }}\n");
    let second =
        format!("{entry}ENTRY(two, 2); ENTRY(three, 3); static int hits; int touch(void) {{ return ++hits; }}\n");
    let main = format!(
        "#include <stdio.h>\n{entry}extern const struct e __start_table[], __stop_table[]; ENTRY(zero, 0);\n\
         extern int shared; long used(long); int touch(void);\nint main(void) {{ long sum = 0, n = 0;\n\
         for (const struct e *p = __start_table; p != __stop_table; p++) {{ n++; sum += p->v; }}\n\
         printf(\"%ld entries, %ld, %ld %d %d\\n\", n, sum, used(4), touch(), shared); return 0; }}\n"
    );
    let sources = [("first.c", first.as_str()), ("second.c", second.as_str()), ("main.c", main.as_str())];
    let archives: &[(&str, &[&str])] = &[("libtwo.a", &["first.o", "second.o"])];
    for flags in [&["-O1", "-fcommon"][..], &["-O1", "-ffunction-sections", "-fdata-sections"]] {
        for link in [&["main.o", "libtwo.a"][..], &["-static", "-Wl,--gc-sections", "main.o", "libtwo.a"]] {
            let link = fake::build(&sources, flags, archives, "gcc", link);
            let (_s, program) = open(&link);
            let tables: Vec<_> = program.kept().filter(|(k, _)| k.section == "table").collect();
            assert!(tables.len() == 3 && tables.iter().all(|(_, why)| why.contains("__start_")), "{tables:?}");
            for seed in 0..2 {
                let targets = variant::random_targets(&program, &program, &mut ChaCha8Rng::seed_from_u64(seed));
                let (_out, landed) = land(&program, &link, targets, seed);
                assert_eq!(link.run(&landed.variant.path), "ExitStatus(unix_wait_status(0)) 4 entries, 6, 7 1 0\n");
                assert!(landed.unmatched.len() * 50 < program.units.len(), "{:?}", landed.unmatched);
                assert!(landed.variant.plan.pads.keys().any(|k| k.file == "libtwo.a"));
            }
        }
    }
}

#[test]
fn landing_of_cxx_with_comdat_and_exceptions() {
    let shared = "#include <map>\n#include <stdexcept>\n#include <string>\n#include <vector>\n\
                  template <class T> struct Box { virtual ~Box() = default; virtual T get(T x) { if (x > 3) throw std::range_error(\"big\"); return x; } };\n\
                  inline std::map<int, std::string> &names() { static std::map<int, std::string> m{{1, \"a\"}}; return m; }\n";
    let a = format!(
        "{shared}long f(int x) {{ Box<int> b; try {{ return b.get(x); }} catch (std::range_error &) {{ return -1; }} }}\n"
    );
    let main = format!(
        "{shared}#include <cstdio>\nlong f(int);\nint main() {{ Box<int> b; names()[2] = \"b\"; std::vector<int> v{{1, 2, 5}};\n\
         for (int x : v) std::printf(\"%ld \", f(x)); std::printf(\"%d %zu\\n\", b.get(2), names().size()); }}\n"
    );
    let sources = [("a.cc", a.as_str()), ("main.cc", main.as_str())];
    let link = fake::build(&sources, &["-O1", "-g"], &[], "g++", &["main.o", "a.o"]);
    let (_s, program) = open(&link);
    assert!(program.dropped > 0, "no COMDAT twin was dropped");
    for seed in 0..3 {
        let targets = variant::random_targets(&program, &program, &mut ChaCha8Rng::seed_from_u64(seed));
        let (_out, landed) = land(&program, &link, targets, seed);
        assert_eq!(landed.unmatched, []);
        assert_eq!(link.run(&landed.variant.path), "ExitStatus(unix_wait_status(0)) 1 2 -1 2 2\n");
    }
}

/// A link that does something other than it was asked to, and may show the map of what was asked.
struct Tampered<'a, F> {
    link: &'a Fake,
    with: F,
    lie: bool,
}

impl<F: Fn(&Fake, &mut BTreeMap<usize, Vec<u8>>) + Sync> Relink for Tampered<'_, F> {
    fn inputs(&self) -> &[Input] {
        self.link.inputs()
    }

    fn bytes(&self, input: usize) -> Result<Bytes> {
        self.link.bytes(input)
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked> {
        let honest = self.link.relink(replaced, output)?;
        let mut replaced = replaced.clone();
        (self.with)(self.link, &mut replaced);
        let linked = self.link.relink(&replaced, output)?;
        Ok(if self.lie { honest } else { linked })
    }
}

fn input(link: &Fake, name: &str) -> usize {
    link.inputs().iter().position(|i| i.name == name).unwrap()
}

/// What is linked as `name`, to be tampered with.
fn object<'a>(link: &Fake, replaced: &'a mut BTreeMap<usize, Vec<u8>>, name: &str) -> &'a mut Vec<u8> {
    let at = input(link, name);
    replaced.entry(at).or_insert_with(|| link.bytes(at).unwrap().to_vec())
}

/// The file offset of the header of the ELF64 section `name`.
fn header(object: &[u8], name: &str) -> usize {
    let elf = goblin::elf::Elf::parse(object).unwrap();
    let at = elf.section_headers.iter().position(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(name)).unwrap();
    elf.header.e_shoff as usize + at * 64
}

/// Each tampering with the link of a plan that is good without it must be refused, and leave no file.
#[test]
fn a_tampered_link_is_refused() {
    let link = demo(false);
    let (_s, program) = open(&link);
    let targets = variant::random_targets(&program, &program, &mut ChaCha8Rng::seed_from_u64(1));
    let (_out, landed) = land(&program, &link, targets, 1);
    let plan = landed.variant.plan;
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("v");
    variant::make(&program, &link, &plan, &path).unwrap();

    type Tamper = fn(&Fake, &mut BTreeMap<usize, Vec<u8>>);
    let grow: Tamper = |link, replaced| {
        let bytes = object(link, replaced, "ticker.o");
        let at = header(bytes, ".bss") + 32;
        bytes[at] += 8; // one step of 8
    };
    let swap: Tamper = |link, replaced| {
        let (a, b) = (input(link, "hot.o"), input(link, "irrelevant.o"));
        let (x, y) = (object(link, replaced, "hot.o").clone(), object(link, replaced, "irrelevant.o").clone());
        replaced.insert(a, y);
        replaced.insert(b, x);
    };
    let drop_section: Tamper = |link, replaced| {
        let bytes = object(link, replaced, "queue.o");
        let at = header(bytes, ".data") + 8;
        bytes[at + 3] |= 0x80; // SHF_EXCLUDE: the linker leaves it out
    };
    let change: Tamper = |link, replaced| {
        let bytes = object(link, replaced, "config.o");
        let head = header(bytes, ".data") + 24;
        let offset = u64::from_le_bytes(bytes[head..head + 8].try_into().unwrap()) as usize;
        bytes[offset + 9] ^= 1;
    };
    let forget: Tamper = |_, replaced| replaced.clear();
    let all = [("grow", grow), ("swap", swap), ("drop", drop_section), ("change", change), ("forget", forget)];
    for ((name, with), lie) in all.into_iter().flat_map(|t| [(t, false), (t, true)]) {
        let made = variant::make(&program, &Tampered { link: &link, with, lie }, &plan, &path);
        let error = made.map(|v| v.proof).expect_err(name).to_string();
        assert!(error.starts_with("proving the variant"), "{name}: {error}");
        println!("{name}, lie {lie}: {error}");
        assert!(!path.exists(), "{name}");
    }
}

/// A link that says its objects were ordered, of whatever program.
struct Ordered(Fake, Vec<String>);

impl Relink for Ordered {
    fn inputs(&self) -> &[Input] {
        self.0.inputs()
    }

    fn order(&self) -> &[String] {
        &self.1
    }

    fn bytes(&self, input: usize) -> Result<Bytes> {
        self.0.bytes(input)
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked> {
        self.0.relink(replaced, output)
    }
}

#[test]
fn an_order_that_changes_the_program_is_refused() {
    let build = |a: &str, objects: &[&str]| {
        let main = "extern long a[4]; long b(void); int main(void) { return (int)(a[3] + b()) - 7; }\n";
        let sources = [("a.c", a), ("b.c", "long b(void) { return 3; }\n"), ("main.c", main)];
        fake::build(&sources, &[], &[], "gcc", objects)
    };
    let same = "long a[4] = {1, 2, 3, 4};\n";
    let (built, order) = (["main.o", "a.o", "b.o"], ["b.o", "main.o", "a.o"]);
    let (_s, program) = open(&build(same, &built));
    let plan = Plan { order: order.map(str::to_owned).to_vec(), ..Plan::no_op() };
    let (out, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = out.path().join("v");
    let make = |a: &str| {
        let link = Ordered(build(a, &order), plan.order.clone());
        variant::make_ordered(&program, &link, &plan, scratch.path(), &path)
    };
    let made = make(same).unwrap();
    assert!(made.places.iter().zip(&program.units).any(|(at, u)| at.0 != u.address));
    std::fs::remove_file(&path).unwrap();
    for (other, says) in [
        ("long a[4] = {1, 2, 3, 5};\n", "a.o:.data: its byte 0x18"),
        ("long a[5] = {1, 2, 3, 4};\n", "the symbol a (32 bytes) became a (40 bytes)"),
        ("long a[4] = {1, 2, 3, 4}; long more;\n", "symbol"),
        ("const long a[4] = {1, 2, 3, 4};\n", "the output section .rodata is not in both"),
    ] {
        let error = make(other).unwrap_err().to_string();
        assert!(error.contains(says) && !path.exists(), "{other}: {error}");
    }
    let error = variant::make(&program, &build(same, &built), &plan, &path).unwrap_err().to_string();
    assert!(error.contains("its order of objects is not the link's"), "{error}");
}

#[test]
fn a_plan_for_another_build_is_refused() {
    let link = demo(false);
    let (_s, program) = open(&link);
    let out = tempfile::tempdir().unwrap();
    let refuse = |plan: Plan| variant::make(&program, &link, &plan, &out.path().join("v")).unwrap_err().to_string();
    let pads = |k: UnitKey| Plan { pads: [(k, 8)].into(), ..Plan::no_op() };
    assert!(refuse(pads(key("gone.o", ".data"))).contains("no such unit"));
    assert!(refuse(pads(key("main.o", ".eh_frame"))).contains("must not be touched"));
    let promise = Plan { targets: [(key("queue.o", ".data"), Phase(8))].into(), ..Plan::no_op() };
    assert!(refuse(promise).contains("planned was 8"));
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

/// Thin archives hold no bytes: their members are inputs of their own. Two members of one name are told apart by
/// nothing that a map prints, so they are kept.
#[test]
fn thin_archives_and_twin_members_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let sh = |script: &str| {
        let out = std::process::Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    std::fs::write(
        at("main.c"),
        "int one(void), two(void), three(void); int main(void) { return one() + two() + three(); }\n",
    )
    .unwrap();
    for (name, value) in [("one", 1), ("two", 2), ("three", 3)] {
        std::fs::write(
            at(&format!("{name}.c")),
            format!("int v_{name} = {value}; int {name}(void) {{ return v_{name}; }}\n"),
        )
        .unwrap();
    }
    sh("gcc -O1 -c *.c; mkdir sub other; mv one.o sub/a_rather_long_name.o; ar rcsT libthin.a sub/a_rather_long_name.o
        mv two.o sub/same.o; mv three.o other/same.o; ar qcs libtwin.a sub/same.o other/same.o");
    let link = fake::record(dir, "gcc", &["main.o", "libthin.a", "libtwin.a"]);
    let (_s, program) = open(&link);
    let why = |file: &str, member: Option<&str>| {
        let of = |k: &UnitKey| k.section == ".data" && k.file == file && k.member.as_deref() == member;
        program.units.iter().filter(|u| of(&u.key)).map(|u| format!("{:?}", u.class)).collect::<Vec<_>>()
    };
    assert!(why("main.o", None)[0].contains("Paddable"));
    let twins: Vec<_> = program.kept().filter(|(_, why)| why.contains("two members of that name")).collect();
    assert!(twins.len() >= 4, "{twins:?}");
    let thin: Vec<_> = program.kept().filter(|(_, why)| why.contains("not among the captured inputs")).collect();
    assert!(!thin.is_empty());
    let (_out, landed) = land(&program, &link, variant::targets_as_built(&program), 5);
    assert_eq!(landed.unmatched, []);
    assert_eq!(link.run(&landed.variant.path), "ExitStatus(unix_wait_status(1536)) ");
}

#[test]
fn what_cannot_be_patched_honestly_is_refused() {
    let refuse = |script: &str, link: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.c"), "int f(void) { return 3; }\n").unwrap();
        std::fs::write(dir.path().join("main.c"), "int f(void); int main(void) { return f(); }\n").unwrap();
        let out = std::process::Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let link = fake::record(dir, "gcc", link);
        let scratch = tempfile::tempdir().unwrap();
        Program::open(&link, scratch.path()).err().unwrap().to_string()
    };
    let lto = refuse("gcc -c main.c; gcc -flto -ffat-lto-objects -c a.c", &["main.o", "a.o"]);
    assert!(lto.contains("a.o") && lto.ends_with("(try: build without -flto (gcc))"), "{lto}");
    let merged = refuse("gcc -c main.c a.c; ld -r -o both.o main.o a.o", &["both.o"]);
    assert!(merged.contains("both.o") && merged.contains("ld -r"), "{merged}");
}

/// A function and its variable move to another file, or into an archive: they are the same all the same. What both
/// versions do not have once is not.
#[test]
fn landing_follows_a_section_into_another_object() {
    let f = "long moved_hits = 3; long moved(long x) { return x + moved_hits++; }\n";
    let twice = "static long helper(long x) { return x * 3; } long (*NAME)(long) = helper;\n";
    let main = "#include <stdio.h>\nlong moved(long); extern long (*one)(long), (*two)(long);\n\
                int main(void) { printf(\"%ld %ld\\n\", moved(2), one(2) + two(1)); return 0; }\n";
    let (one, two) = (twice.replace("NAME", "one"), twice.replace("NAME", "two"));
    let build = |a: &str, b: &str| {
        let sources = [("main.c", main), ("a.c", a), ("b.c", b)];
        let flags = ["-O1", "-ffunction-sections", "-fdata-sections"];
        fake::build(&sources, &flags, &[("libb.a", &["b.o"])], "gcc", &["main.o", "a.o", "libb.a"])
    };
    let (base, patched) = (build(&format!("{f}{one}"), &two), build(&one, &format!("{f}{two}")));
    let ((_b, b), (_p, mut p)) = (open(&base), open(&patched));
    let moved = [key("a.o", ".text.moved"), key("a.o", ".data.moved_hits")];
    assert!(moved.iter().all(|k| !variant::common(&b, &p).has(k)));
    p.adopt_names(&b);
    let common = variant::common(&b, &p);
    assert!(moved.iter().all(|k| common.has(k)), "{:?}", common.rest);
    assert!(p.unit(&key("a.o", ".text.helper")).is_some() && p.unit(&moved[0]).is_some());
    let targets: Targets = variant::targets_as_built(&b).into_iter().filter(|(k, _)| common.has(k)).collect();
    let phases: Vec<Phase> = moved.iter().map(|k| targets[k]).collect();
    let (_out, landed) = land(&p, &patched, targets, 3);
    for (k, phase) in moved.iter().zip(phases) {
        let named = landed.unmatched.iter().any(|(u, _)| u == k);
        assert!(named || landed.variant.landing.iter().any(|(u, _, at)| u == k && *at == phase), "{k}");
    }
    assert!(landed.unmatched.len() < 2, "{:?}", landed.unmatched);
    assert_eq!(patched.run(&landed.variant.path), "ExitStatus(unix_wait_status(0)) 5 9\n");
}
