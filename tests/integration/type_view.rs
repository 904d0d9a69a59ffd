//! `type`: public reports rebuilt as small structs. Each report is named by its number in the project's list of cases.

use std::path::Path;

use straddle::finding::{Finding, Severity, Share};
use straddle::image::Image;
use straddle::report::page::View;
use straddle::rules::Allow;
use straddle::rules::types::{Meets, MemberView, TypeAsk, TypeReport, TypeView, types};
use straddle::types::{Files, Source, Want};
use straddle::units::Align;

use crate::scan::{Built, build};
use crate::types::compile;

/// Every struct stands in a variable, so that the compiler describes it.
fn compiled(source: &str) -> Built {
    let head = "typedef struct { int counter; } atomic_t;
        typedef struct { long counter; } atomic64_t;
        #define LINE __attribute__((aligned(64)))
        #define PAIR __attribute__((aligned(128)))
        void _start(void) { }
        ";
    build("a.c", &format!("{head}{source}"), &["-g", "-nostdlib", "-static"])
}

fn ask(path: &Path, ask: &TypeAsk<'_>) -> TypeReport {
    let bytes = straddle::open::map(path).unwrap();
    let image = Image::parse(&bytes, "image").unwrap();
    let source = Source::of(&image, Want::Auto, Files::default()).unwrap();
    types(&image, &source.read_named(&|name| ask.wants(name)).unwrap(), ask).unwrap()
}

fn view(built: &Built, question: &TypeAsk<'_>) -> TypeView {
    let mut report = ask(&built.path, question);
    assert_eq!(report.types.len(), 1, "{:?}", report.types.iter().map(|t| &t.name).collect::<Vec<_>>());
    report.types.remove(0)
}

fn named(name: &str) -> TypeAsk<'_> {
    TypeAsk { name: Some(name), ..TypeAsk::default() }
}

fn aligned(name: &str, align: u64) -> TypeAsk<'_> {
    TypeAsk { align: Align::new(align), ..named(name) }
}

fn member<'v>(view: &'v TypeView, path: &str) -> &'v MemberView {
    view.members.iter().find(|m| m.path == path).unwrap_or_else(|| panic!("{path} is none of {:#?}", view.members))
}

fn of<'v>(view: &'v TypeView, rule: &str) -> Vec<&'v Finding> {
    view.findings.iter().filter(|f| f.rule == rule).collect()
}

/// Case A2: a writer and a reader on lines 2N and 2N+1 are a pair, on 2N+1 and 2N+2 they are not; and it is asked for.
#[test]
fn a_pair_of_lines_is_told_only_where_it_is_one() {
    let source = "
        struct PAIR pair { char head[56]; atomic64_t written; long read; char rest[40]; } a;
        struct PAIR two { char head[120]; atomic64_t written; long read; } b;
        struct LINE either { char head[56]; atomic64_t written; long read; } c;";
    let built = compiled(source);
    let pairs = |name| {
        let view = view(&built, &TypeAsk { double_line: true, ..named(name) });
        let found = of(&view, "adjacent-lines").into_iter();
        found.map(|f| (f.severity, f.others.iter().map(|o| o.name.clone()).collect())).collect::<Vec<(_, Vec<_>)>>()
    };
    let found = pairs("pair");
    assert_eq!((found.len(), found[0].0, found[0].1.first().unwrap().as_str()), (1, Severity::Info, "pair.read"));
    assert!(pairs("two").iter().all(|(_, others)| !others.contains(&"two.read".to_string())));
    // Aligned to one line, an object begins on either line of a pair.
    let one = view(&built, &TypeAsk { double_line: true, ..named("either") });
    assert!(of(&one, "adjacent-lines")[0].advice.contains("at 1 of 2 bases"), "{:?}", one.findings);
    assert!(of(&view(&built, &named("pair")), "adjacent-lines").is_empty());
}

/// Case A13: two members 32 bytes apart in an object that is aligned to 8: half of the bases. Case C8: two words side by
/// side are apart at one base of eight.
#[test]
fn what_depends_on_the_base_is_a_share_of_the_bases() {
    let built = compiled(
        "struct mapping { atomic64_t i_mmap; long between[3]; atomic64_t i_mmap_rwsem; } a;
        struct klass { atomic64_t cache; atomic64_t supers; } b;",
    );
    let meets = |name, path: &str, align| member(&view(&built, &aligned(name, align)), path).meets.clone();
    let share = |path: &str, at, of| Meets { path: path.to_string(), at, of };
    assert_eq!(meets("mapping", "i_mmap_rwsem", 8), [share("i_mmap", 4, 8)]);
    assert_eq!(meets("mapping", "i_mmap_rwsem", 16), [share("i_mmap", 2, 4)]);
    assert_eq!(meets("mapping", "i_mmap_rwsem", 64), [share("i_mmap", 1, 1)]);
    assert_eq!(meets("klass", "supers", 8), [share("cache", 7, 8)]);
    // Known phases decide, one by one.
    let apart: Vec<u32> = (0..64)
        .step_by(8)
        .filter(|at| member(&view(&built, &TypeAsk { at: Some(*at), ..named("mapping") }), "i_mmap").meets.is_empty())
        .collect();
    assert_eq!(apart, [32, 40, 48, 56]);
    let view = view(&built, &aligned("mapping", 8));
    assert_eq!((view.base.phase, view.base.align, view.base.phases), (None, 8, 8));
    let [finding] = of(&view, "shared-line")[..] else { panic!("{:?}", view.findings) };
    assert!(
        finding.advice.contains("both contended") && finding.advice.contains("at 4 of 8 bases"),
        "{}",
        finding.advice
    );
}

/// Case A15: a counter at the start of the second line of an inner struct, and what an outer one places behind it.
#[test]
fn members_of_different_structs_meet() {
    let built = compiled(
        "struct inner { long head[8]; atomic_t refcnt; int rest[11]; };
        struct LINE outer { struct inner dst; int genid; long far[8]; } a;",
    );
    let view = view(&built, &named("outer"));
    assert_eq!((member(&view, "dst.refcnt").offset, member(&view, "genid").offset), (64, 112));
    assert_eq!((view.align, view.base.phases), (64, 1));
    let [finding] = of(&view, "shared-line")[..] else { panic!("{:?}", view.findings) };
    assert_eq!((finding.subject.name.as_str(), finding.severity), ("outer.dst.refcnt", Severity::Low));
    assert_eq!(finding.others[0].name, "outer.genid");
    assert!(finding.advice.starts_with("genid is outside its struct, and on its line:"), "{}", finding.advice);
    assert!(finding.others.iter().all(|o| o.name != "outer.dst.head"));
    // What a struct holds beside its own lock may be what the lock guards.
    let guarded =
        compiled("struct list { void *next, *prev; }; struct LINE queue { atomic_t lock; struct list list; } a;");
    let view = self::view(&guarded, &named("queue"));
    assert_eq!(of(&view, "shared-line")[0].severity, Severity::Info);
}

/// Case A18: half a line, aligned to a word, is on two lines at 3 of 8 bases.
#[test]
fn an_object_of_half_a_line() {
    let built = compiled("struct call { void *next, *func, *info; long flags; } a;");
    let share = |align| view(&built, &aligned("call", align)).sensitivity.unwrap();
    assert_eq!((share(8).share(), share(8).straddles), (Share { at: 3, of: 8 }, 3));
    assert_eq!(share(32).share(), Share { at: 0, of: 2 });
}

/// Case A19: an array of more than a hundred elements; aligning one member of them costs twice what aligning them does.
#[test]
fn every_way_to_separate_elements_has_its_price() {
    let built =
        compiled("struct vec { atomic_t count; void *mask; }; struct cpupri { struct vec vec[101]; int *cpu; } a;");
    let view = view(&built, &named("cpupri"));
    assert_eq!((view.size, view.lines, member(&view, "vec").elements.as_ref().unwrap().most_on_a_line), (1624, 26, 4));
    let [finding] = of(&view, "shared-elements")[..] else { panic!("{:?}", view.findings) };
    let prices: Vec<_> = finding.alternatives.iter().map(|a| (a.lines, a.cost_bytes)).collect();
    assert_eq!(prices, [(102, 6528 - 1624), (203, 12992 - 1624)]);
    assert!(finding.alternatives[1].advice.contains("on mask"), "{:?}", finding.alternatives);
}

/// Case C5: eight counters in a block from malloc: how they divide is the base's affair.
#[test]
fn counters_divide_by_their_base() {
    let built = compiled("struct counters { _Atomic long n[8]; } a;");
    let view = view(&built, &named("counters"));
    assert_eq!(view.base.align, 16, "malloc's");
    let bases = &member(&view, "n").elements.as_ref().unwrap().bases;
    assert_eq!(*bases, [(0, vec![8]), (16, vec![6, 2]), (32, vec![4, 4]), (48, vec![2, 6])]);
    // One element has a place of its own.
    let element = self::view(&built, &named("counters.n[5]"));
    let [element] = &element.members[..] else { panic!("{:?}", element.members) };
    assert_eq!((element.path.as_str(), element.offset, element.size), ("n[5]", 40, Some(8)));
    assert_eq!(element.type_name, "_Atomic long int");
}

/// What pahole shows, flattened: nested and anonymous members, bit fields, unions, arrays, holes, and lines by arithmetic.
#[test]
fn a_type_is_flattened() {
    let source = "
        struct lock { int owner; char held; };
        struct whole {
            char tag;
            struct { int x; union { long y; struct { short z, w; }; }; };
            struct { struct lock inner; int deep; } named;
            unsigned flags : 3, more : 7;
            struct lock table[2][3];
            char __cacheline_group_begin__tx[0];
            atomic_t sent; int asked;
            char __cacheline_group_end__tx[0];
            atomic_t users;
            char _pad1_[24];
            long last;
            int open[];
        } a;";
    let built = compiled(source);
    let view = view(&built, &named("whole"));
    let place = |path: &str| (member(&view, path).offset, member(&view, path).size);
    assert_eq!(
        [place("x"), place("y"), place("z"), place("w")],
        [(8, Some(4)), (16, Some(8)), (16, Some(2)), (18, Some(2))]
    );
    assert!(member(&view, "y").overlaps && member(&view, "w").overlaps && !member(&view, "x").overlaps);
    assert_eq!([place("named.inner.held"), place("named.deep")], [(28, Some(1)), (32, Some(4))]);
    assert_eq!(member(&view, "named.inner.held").depth, 2);
    let bits = |path: &str| member(&view, path).bits.map(|b| (b.first, b.count));
    assert_eq!((bits("flags"), bits("more"), member(&view, "more").offset), (Some((0, 3)), Some((3, 7)), 36));
    assert_eq!((place("open").1, member(&view, "_pad1_").pad, member(&view, "last").pad), (None, true, false));
    let group = |path: &str| member(&view, path).group.as_deref();
    assert_eq!([group("sent"), group("asked"), group("users")], [Some("tx"), Some("tx"), None]);
    // Of one group, on one line on purpose; `users` is of none.
    assert!(member(&view, "asked").meets.iter().all(|m| m.path == "users"));
    let holes: Vec<_> = view.holes.as_ref().unwrap().iter().map(|h| (h.offset, h.size)).collect();
    assert_eq!(holes, [(1, 7), (12, 4), (38, 2), (124, 4)]);
    // Every byte is a member's, a hole's or behind the last.
    let top = view.members.iter().filter(|m| m.depth == 0);
    let mut taken = vec![0u8; usize::try_from(view.size).unwrap()];
    let spans =
        top.map(|m| (m.offset, m.size.unwrap_or(0))).chain(holes).chain([(view.size - view.padding, view.padding)]);
    spans.for_each(|(at, size)| taken[at as usize..(at + size) as usize].iter_mut().for_each(|byte| *byte += 1));
    assert!(taken.iter().all(|n| *n > 0), "{taken:?}");
    for m in &view.members {
        let last = (m.offset + m.size.unwrap_or(0).max(1) - 1) / 64;
        assert_eq!((m.lines.first(), m.lines.last()), (Some(&(m.offset / 64)), Some(&last)), "{}", m.path);
    }
    let element = self::view(&built, &named("whole.table[1][2].held"));
    assert_eq!(element.members[0].offset, member(&view, "table").offset + 5 * 8 + 4);
    let wider = self::view(&built, &TypeAsk { line: straddle::units::LineSize::new(128), ..named("whole") });
    assert!(wider.lines < view.lines && wider.members.iter().all(|m| m.lines.last() <= Some(&1)));
}

/// Where a virtual base lies depends on the object, and what a base holds that is defined elsewhere clang does not say:
/// these bytes are neither holes nor padding, and no order is suggested.
#[test]
fn what_is_not_told_of_a_base_is_no_hole() {
    let members = "{ char b; long c; char d; long e; char f; } v;";
    for (compiler, base) in [
        (&["g++", "-g"][..], "struct A { long a[3]; }; struct V : virtual A"),
        (&["clang++", "-g"], "struct A { A(); virtual void key(); long a[3]; }; struct V : A"),
    ] {
        let all =
            [compiler, &["-fno-rtti", "-nostdlib", "-static", "-Wl,-e,0,--unresolved-symbols=ignore-all"]].concat();
        let (_folder, path) = compile(&all, "a.cc", &format!("{base} {members}")).expect("g++ and clang++ are needed");
        let report = ask(&path, &named("V"));
        let [view] = &report.types[..] else { panic!("{:?}", report.types) };
        assert!(view.members.iter().all(|m| m.path != "a") && view.members.iter().any(|m| m.path == "f"));
        assert_eq!((&view.holes, view.padding, view.reorder.is_none()), (&None, 0, true), "{compiler:?}");
        assert!(report.skipped.keys().any(|reason| reason.contains("bases")), "{:?}", report.skipped);
    }
}

/// The page: members on their lines, holes between them, what is inside only on request.
#[test]
fn a_page_shows_members_and_holes() {
    let source =
        "struct inner { long a, b; }; struct s { char tag; atomic64_t users; struct inner in; atomic_t n[4]; } x;";
    let report = ask(&compiled(source).path, &aligned("s", 8));
    let page = |all| {
        let page = straddle::report::types::page(&report, false, all);
        let (mut table, mut markdown) = (Vec::new(), Vec::new());
        straddle::report::table::write(&page, &mut table).unwrap();
        straddle::report::markdown::write(&page, &mut markdown).unwrap();
        (String::from_utf8(table).unwrap(), String::from_utf8(markdown).unwrap())
    };
    let (short, markdown) = page(View::Screen);
    let row = |text: &str, member: &str| {
        let words = |l: &str| l.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        text.lines().map(words).find(|w| w.iter().take(4).any(|w| w == member)).unwrap_or_default().join(" ")
    };
    assert!(
        short.contains("struct s: 48 bytes on 1 line, needs alignment 8; assumed: objects begin at any multiple of")
    );
    assert_eq!(row(&short, "(hole)"), "1 7 (hole)");
    assert_eq!(row(&short, "users"), "0 8 8 users atomic64_t atomic n (5 of 8)");
    assert!(short.contains("n: 4 at 0, 4 at 8, 4 at 16, 2+2 at 24, 4 at 32"), "{short}");
    assert_eq!(row(&short, "in.a"), "0 16 8 in.a long int users (7 of 8), n (6 of 8)");
    // What is inside an atomic is its own affair.
    assert_eq!(
        (row(&short, "users.counter"), row(&page(View::All).0, "users.counter").as_str()),
        (String::new(), "0 8 8 users.counter long int")
    );
    assert!(markdown.contains("| 0 | 8 | 8 | users | atomic64\\_t |"), "{markdown}");
}

/// The order that is suggested is one that the compiler lays out so, and touches nothing that stands there on purpose.
#[test]
fn another_order_is_what_the_compiler_makes_of_it() {
    let members = [
        ("a", "char a;"),
        ("b", "long b;"),
        ("c", "char c;"),
        ("d", "atomic64_t d;"),
        ("e", "short e;"),
        ("_pad1_", "char _pad1_[6];"),
        ("f", "char f;"),
        ("g", "long g;"),
        ("h", "int h;"),
        ("i", "char i;"),
        ("open", "int open[];"),
    ];
    let declare = |order: &[&str]| {
        let text = |name: &&str| members.iter().find(|(n, _)| n == name).unwrap().1;
        format!("struct s {{ {} }} s;", order.iter().map(text).collect::<String>())
    };
    let names: Vec<&str> = members.iter().map(|(n, _)| *n).collect();
    let before = view(&compiled(&declare(&names)), &named("s"));
    let reorder = before.reorder.as_ref().expect("there are holes");
    assert!(reorder.size_after < reorder.size_before && reorder.size_before == before.size);
    let order: Vec<&str> = reorder.members.iter().map(|m| m.name.as_deref().unwrap()).collect();
    let after = view(&compiled(&declare(&order)), &named("s"));
    assert_eq!(after.size, reorder.size_after);
    for moved in &reorder.members {
        let name = moved.name.as_deref().unwrap();
        assert_eq!(member(&after, name).offset, moved.offset_after, "{name}");
        assert_eq!(member(&before, name).offset, moved.offset_before, "{name}");
    }
    let pad = reorder.members.iter().find(|m| m.name.as_deref() == Some("_pad1_")).unwrap();
    assert_eq!(pad.offset_before, pad.offset_after);
    // To pack what is before a pad would only widen the hole in front of it.
    assert_eq!((&order[..6], *order.last().unwrap()), (&names[..6], "open"));
}

#[test]
fn definitions_that_differ_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let unit = |name: &str, member: &str| {
        let source = format!("struct same {{ int x; }} same_{name}; struct other {{ {member} }} other_{name};");
        std::fs::write(folder.path().join(format!("{name}.c")), source).unwrap();
    };
    unit("a", "int x;");
    unit("b", "long x, y;");
    std::fs::write(folder.path().join("m.c"), "void _start(void) { }").unwrap();
    let gcc = ["-g", "-nostdlib", "-static", "-o", "image", "a.c", "b.c", "m.c"];
    assert!(std::process::Command::new("gcc").args(gcc).current_dir(folder.path()).status().unwrap().success());
    let image = folder.path().join("image");
    let same = ask(&image, &named("same"));
    assert_eq!(same.types.iter().map(|t| t.copies).collect::<Vec<_>>(), [2]);
    assert_eq!(ask(&image, &named("other")).types.iter().map(|t| t.size).collect::<Vec<_>>(), [4, 16]);
    assert_eq!(ask(&image, &named("*the*")).types.len(), 2);
}

/// Without a name: contended first; what is allowed is counted and silent.
#[test]
fn types_with_findings_are_listed_contended_first() {
    let source = "
        struct LINE plain { char head[60]; struct { int x, y; } two; } a;
        struct quiet { long x; } b;
        struct locks { atomic_t first, second; } c;";
    let built = compiled(source);
    let report = ask(&built.path, &TypeAsk::default());
    let names: Vec<_> = report.types.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["locks", "plain"]);
    let [straddle] = of(&report.types[1], "straddle")[..] else { panic!("{:?}", report.types[1].findings) };
    assert_eq!((straddle.subject.name.as_str(), straddle.cost_bytes), ("plain.two", Some(4)));
    let allow = [Allow { rule: "straddle".to_string(), name: "plain.two".to_string() }];
    let allowed = ask(&built.path, &TypeAsk { allow: &allow, ..TypeAsk::default() });
    assert_eq!((allowed.types.len(), allowed.skipped["findings that straddle.toml allows"]), (1, 1));
}

/// Every member of one union meets every one of the other: what is told of each stays small.
#[test]
fn unions_of_thousands_cost_little() {
    let members = |of: char| (0..2000).map(|n| format!("volatile char {of}{n};")).collect::<String>();
    let built = compiled(&format!(
        "struct wide {{ union {{ {} }} one; char between[7]; union {{ {} }} two; }} wide;",
        members('a'),
        members('b')
    ));
    let view = view(&built, &named("wide"));
    assert_eq!(member(&view, "one.a0").meets.len(), 256);
    assert!(!view.findings.is_empty() && view.findings.iter().all(|f| f.others.len() <= 256));
}
