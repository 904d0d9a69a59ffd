//! Two versions of a link on one landing: the same phases, and the same units on one line.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use straddle::units::Phase;
use straddle::variant::{self, Aim, Common, Landed, Lead, Lines, Plan, Program, Targets, UnitKey};

use super::fake::{self, Fake};
use super::{key, open};

/// The sizes of the false-sharing demo, linked in `order`; `ticker` is eight bytes, `queue` 40 on a multiple of 32.
fn sized(patched: bool, order: &[&str]) -> Fake {
    let irrelevant =
        if patched { "unsigned long mask = 1; int f(void) { return 1; }\n" } else { "int f(void) { return 1; }\n" };
    let sources = [
        ("main.c", "extern long limits[7], queue[5]; int main(void) { return (int)(limits[0] + queue[0]) - 2; }\n"),
        ("config.c", "long limits[7] __attribute__((aligned(64))) = {1};\n"),
        ("ticker.c", "volatile long tick = 1;\n"),
        ("irrelevant.c", irrelevant),
        ("queue.c", "long queue[5] __attribute__((aligned(32))) = {1};\n"),
        ("table.c", "long table[3] __attribute__((aligned(32))) = {1};\n"),
    ];
    let objects: Vec<String> = order.iter().map(|o| format!("{o}.o")).collect();
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    fake::build(&sources, &["-O2"], &[], "gcc", &objects)
}

fn land(program: &Program, link: &Fake, targets: &Targets, lines: Lines, lead: &Lead) -> Landed {
    let out = tempfile::tempdir().unwrap();
    let aim = Aim { targets: targets.clone(), lines, lead: lead.clone(), ..Aim::default() };
    variant::land(program, link, &aim, &out.path().join("v")).unwrap()
}

fn data(object: &str) -> UnitKey {
    key(&format!("{object}.o"), ".data")
}

/// By the addresses of the linked file: whether the last byte of one is on the line of the other's first.
fn share(program: &Program, places: &[(u64, u64)], one: &str, other: &str) -> bool {
    let at = |object: &str| {
        let i = program.units.iter().position(|u| u.key == data(object)).unwrap();
        (places[i].0, program.units[i].size)
    };
    let ((a, size), (b, _)) = (at(one), at(other));
    (a + size - 1) / 64 == b / 64
}

fn of_common(program: &Program, common: &Common) -> Targets {
    variant::targets_as_built(program).into_iter().filter(|(k, _)| common.has(k)).collect()
}

const FIRST: [&str; 6] = ["main", "config", "irrelevant", "ticker", "queue", "table"];
const BETWEEN: [&str; 6] = ["main", "config", "ticker", "irrelevant", "queue", "table"];

#[test]
fn joint_layouts_have_the_same_units_on_one_line() {
    for order in [BETWEEN, FIRST] {
        let (base, patched) = (sized(false, &order), sized(true, &order));
        let ((_b, b), (_p, p)) = (open(&base), open(&patched));
        let common = variant::common(&b, &p);
        let mut met = BTreeSet::new();
        for seed in 0..64 {
            let drawn = variant::random_targets(&b, &p, &mut ChaCha8Rng::seed_from_u64(seed));
            let joint = variant::together(&b, &p, &common, &drawn, &Lead::new());
            assert_eq!(joint.differences, [], "seed {seed}");
            let (on_b, on_p) = rayon::join(
                || land(&b, &base, &joint.targets, joint.lines.clone(), &Lead::new()),
                || land(&p, &patched, &joint.targets, joint.lines.clone(), &Lead::new()),
            );
            let (at_b, at_p) = (&on_b.variant.places, &on_p.variant.places);
            assert_eq!(variant::differences((&b, at_b), (&p, at_p), &common), [], "seed {seed}");
            for (one, other) in [("ticker", "queue"), ("config", "ticker"), ("queue", "table")] {
                let both = (share(&b, at_b, one, other), share(&p, at_p, one, other));
                assert_eq!(both.0, both.1, "{one} and {other}, seed {seed}");
                met.insert((one, both.0));
            }
        }
        assert!(met.contains(&("ticker", false)), "{met:?}");
        // With eight bytes between them, ticker (8 on a multiple of 8) and queue meet at phases 0..16 and 32 only.
        assert!(met.contains(&("ticker", true)), "{met:?}");
    }
}

#[test]
fn joint_landings_of_a_block_follow_the_one_that_was_built() {
    let (base, patched) = (sized(false, &FIRST), sized(true, &FIRST));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    let lead = variant::random_lead(&b, &mut ChaCha8Rng::seed_from_u64(9));
    let mut as_built = Vec::new();
    for (home, other, link, guest) in [(&b, &p, &base, &patched), (&p, &b, &patched, &base)] {
        let targets = of_common(home, &common);
        let first = land(home, link, &targets, Lines::new(), &lead);
        let lines = variant::lines_of(home, &first.variant.places, &common);
        let second = land(other, guest, &targets, lines, &lead);
        assert_eq!((first.unmatched.len(), second.unmatched.len()), (0, 0), "{:?}", second.unmatched);
        let found = variant::differences((home, &first.variant.places), (other, &second.variant.places), &common);
        // On base's landing config and ticker fill a line to its end, and patched has eight bytes between them.
        let why =
            "it shares a line with config.o:.data in base, not in patched: irrelevant.o:.data stands between them";
        let expected: &[(UnitKey, String)] = if as_built.is_empty() { &[(data("ticker"), why.into())] } else { &[] };
        assert_eq!(found, expected);
        as_built.push(share(home, &first.variant.places, "ticker", "queue"));
        let queue = home.units.iter().position(|u| u.key == data("queue")).unwrap();
        let was = Phase((home.units[queue].address % 64) as u32);
        assert_eq!(first.variant.landing[queue].2, was);
    }
    assert_eq!(as_built, [false, true], "the patch makes the two meet");
}

/// Base has both on one line, with no room between them; patched has eight bytes there.
#[test]
fn joint_landing_that_cannot_be_had_is_named() {
    let order = ["main", "config", "table", "ticker", "irrelevant", "queue"];
    let (base, patched) = (sized(false, &order), sized(true, &order));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    let mut targets = of_common(&b, &common);
    targets.extend([(data("table"), Phase(0)), (data("ticker"), Phase(24)), (data("queue"), Phase(32))]);
    let on_b = land(&b, &base, &targets, Lines::new(), &Lead::new());
    assert!(share(&b, &on_b.variant.places, "ticker", "queue"));
    let lines = variant::lines_of(&b, &on_b.variant.places, &common);
    let on_p = land(&p, &patched, &targets, lines, &Lead::new());
    assert!(!share(&p, &on_p.variant.places, "ticker", "queue"));
    let found = variant::differences((&b, &on_b.variant.places), (&p, &on_p.variant.places), &common);
    let why = "it shares a line with ticker.o:.data in base, not in patched: irrelevant.o:.data stands between them";
    assert_eq!(found, [(data("queue"), why.to_owned())]);
    let report = variant::matched_report(&common, &[&found]);
    assert!(report.rest.iter().any(|r| r == &format!("queue.o:.data: {why}")), "{report:?}");
    // Where that is so on most drawn landings, the layouts average nothing out.
    let none: &[(UnitKey, String)] = &[];
    assert_eq!(variant::held_apart(&b, &[&found, none, none]), [""; 0]);
    assert_eq!(variant::held_apart(&b, &[&found, none, &found]), [format!("queue.o:.data ({why})")]);
    // A landing for both keeps the two apart in base too.
    let joint = variant::together(&b, &p, &common, &targets, &Lead::new());
    assert_eq!(joint.differences, []);
    let apart = land(&b, &base, &joint.targets, joint.lines, &Lead::new());
    assert!(!share(&b, &apart.variant.places, "ticker", "queue"));
}

#[test]
fn an_inside_that_moved_is_named_and_rigid_from_32_bytes_on() {
    let program = |patched: bool, objects: &[&str]| {
        let new = if patched { "long added = 7;" } else { "" };
        let rigid = format!("long start[2] __attribute__((aligned(64))) = {{1}}; {new} long hot = 2;\n");
        let soft = format!("int first = 1; {new} int second = 2;\n").replace("added", "more");
        let even = format!("long one = 1; {new} long two = 2;\n").replace("added", "third");
        let sources = [
            ("rigid.c", rigid.as_str()),
            ("soft.c", soft.as_str()),
            ("even.c", even.as_str()),
            ("main.c", "extern long hot; int main(void) { return (int)hot - 2; }\n"),
        ];
        fake::build(&sources, &["-O2", "-fno-toplevel-reorder"], &[], "gcc", &[&["main.o"], objects].concat())
    };
    let all = ["rigid.o", "soft.o"];
    let (base, patched) = (program(false, &all), program(true, &all));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    assert_eq!(variant::cycle(&common), None, "a cycle would not even out what is rigid");
    let report = variant::matched_report(&common, &[]);
    assert_eq!(report.inside_moved, ["rigid.o:.data (alignment 64)", "soft.o:.data (alignment 8)"]);
    assert_eq!(report.rigid, ["rigid.o:.data (alignment 64)"]);
    let moved = "rigid.o:.data: its inside moved: hot is at offset 16 in base, at 24 in patched";
    assert!(report.rest.iter().any(|r| r == moved), "{report:?}");
    assert_eq!(report.units as usize + report.rest.len(), report.of as usize);
    let same = variant::matched_report(&variant::common(&b, &b), &[]);
    assert_eq!((same.units, same.inside_moved.len()), (same.of, 0));
    assert_eq!(variant::cycle(&variant::common(&b, &b)), None);
}

/// What moved by whole steps of eight visits all eight phases in both versions, and nothing else is turned with it.
#[test]
fn a_full_phase_cycle_takes_what_moved_through_the_same_phases() {
    let program = |new: &str| {
        let even = format!("long one = 1; {new} long two = 2;\n");
        let main = "extern long one, two; int main(void) { return (int)(two - one) - 1; }\n";
        let sources = [("even.c", even.as_str()), ("filler.c", "long filler = 3;\n"), ("main.c", main)];
        fake::build(&sources, &["-O2", "-fno-toplevel-reorder"], &[], "gcc", &["main.o", "filler.o", "even.o"])
    };
    let (base, patched) = (program(""), program("long added = 7;"));
    let ((_b, b), (_p, p)) = (open(&base), open(&patched));
    let common = variant::common(&b, &p);
    assert_eq!(variant::cycle(&common), Some(8));
    let drawn = variant::random_targets(&b, &p, &mut ChaCha8Rng::seed_from_u64(1));
    let out = tempfile::tempdir().unwrap();
    let mut visited = [BTreeSet::new(), BTreeSet::new()];
    for turn in 0..8 {
        let targets = variant::turned(&common, &drawn, turn);
        let moved: Vec<&UnitKey> = targets.iter().filter(|(k, phase)| drawn[k] != **phase).map(|(k, _)| k).collect();
        let even = data("even");
        assert_eq!(moved, if turn == 0 { vec![] } else { vec![&even] });
        let joint = variant::together(&b, &p, &common, &targets, &Lead::new());
        for ((program, link, offset), visited) in [(&b, &base, 8), (&p, &patched, 16)].into_iter().zip(&mut visited) {
            let aim = Aim { targets: joint.targets.clone(), lines: joint.lines.clone(), ..Aim::default() };
            let landed = variant::land(program, link, &aim, &out.path().join("v")).unwrap();
            let at = program.units.iter().position(|u| u.key == even).unwrap();
            let start = landed.variant.places[at].0;
            assert_eq!(start % 64, u64::from(targets[&even].0));
            visited.insert((start + offset) % 64);
        }
    }
    assert_eq!(visited[0].len(), 8);
    assert_eq!(visited[0], visited[1]);
}

/// A table that only the linker script knows as one: entries are put in from several objects, and walked.
#[test]
fn landing_leaves_a_table_of_the_linker_script_alone() {
    let dir = tempfile::tempdir().unwrap();
    let script = "SECTIONS { .mine : { *(.data.before) foo_start = .; *(.data.foo.*) foo_end = .; *(.data.after) } }\nINSERT AFTER .data;\n";
    std::fs::write(dir.path().join("table.ld"), script).unwrap();
    let put = |section: &str| format!("__attribute__((section(\"{section}\"), used))");
    let one = format!(
        "long x {} = 1; long a {} = 3; long y {} = 1;\n",
        put(".data.before"),
        put(".data.foo.a"),
        put(".data.after")
    );
    let two = format!("long b {} = 4;\n", put(".data.foo.b"));
    let main = "#include <stdio.h>\nextern long foo_start[], foo_end[]; int main(void) { long sum = 0;\n                for (long *p = foo_start; p != foo_end; p++) sum = sum * 10 + *p; printf(\"%ld\\n\", sum); return 0; }\n";
    let sources = [("one.c", one.as_str()), ("two.c", two.as_str()), ("main.c", main)];
    let path = dir.path().join("table.ld");
    let link = fake::build(
        &sources,
        &["-O2"],
        &[],
        "gcc",
        &["main.o", "one.o", "two.o", &format!("-Wl,-T,{}", path.display())],
    );
    let (_s, program) = open(&link);
    let kept: Vec<String> =
        program.kept().filter(|(_, why)| why.contains("brackets")).map(|(k, why)| format!("{k}: {why}")).collect();
    let why = "the linker script brackets it with foo_start and foo_end";
    assert_eq!(kept, [format!("one.o:.data.foo.a: {why}"), format!("two.o:.data.foo.b: {why}")]);
    assert!(program.unit(&key("one.o", ".data.before")).unwrap().class.paddable());
    assert!(program.unit(&key("one.o", ".data.after")).unwrap().class.paddable());
    let out = tempfile::tempdir().unwrap();
    let plain = variant::make(&program, &link, &Plan::no_op(), &out.path().join("plain")).unwrap();
    let said = link.run(&plain.path);
    assert!(said.ends_with(" 34\n"), "{said}");
    for seed in 0..4 {
        let targets = variant::random_targets(&program, &program, &mut ChaCha8Rng::seed_from_u64(seed));
        let aim = Aim { targets, ..Aim::default() };
        let landed = variant::land(&program, &link, &aim, &out.path().join("v")).unwrap();
        assert_eq!(link.run(&landed.variant.path), said);
    }
}
