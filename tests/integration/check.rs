//! `check`: public reports whose answer was a rule that should hold from then on. Each is named by its number in the
//! project's list of cases.

use std::path::Path;

use straddle::finding::{Finding, Severity};
use straddle::image::Image;
use straddle::rules::check::{Bound, Check, Deliberate, Outcome, Rule, Rules, What, judge};
use straddle::rules::{self, Baseline};
use straddle::types::{Files, Source, Want};
use straddle::units::{Align, LineSize};

use crate::scan::{Built, build, scan_as};

const HEAD: &str = "typedef struct { int counter; } atomic_t;
    #define LINE __attribute__((aligned(64)))
    void _start(void) { }
    ";

fn compiled(source: &str, more: &[&str]) -> Built {
    build("a.c", &format!("{HEAD}{source}"), &[&["-g", "-nostdlib", "-static", "-fno-pie"], more].concat())
}

fn rule(what: What) -> Rule {
    Rule { line: 1, what, bits: None, align: None, why: None }
}

fn aligned(what: What) -> Rule {
    Rule { align: Align::new(64), ..rule(what) }
}

fn own_line(name: &str) -> What {
    What::OwnLine(name.to_string())
}

fn separate(names: &[&str]) -> What {
    What::Separate(names.iter().map(|n| (*n).to_string()).collect())
}

fn offset(bound: &str) -> What {
    What::Offset(Bound::parse(bound).unwrap())
}

fn check_with(paths: &[&Path], asked: &Rules<'_>, baseline: Option<&Baseline>) -> Check {
    let judged = paths.iter().map(|path| {
        let bytes = straddle::open::map(path).unwrap();
        let image = Image::parse(&bytes, &path.display().to_string()).unwrap();
        let source = Source::of(&image, Want::Auto, Files::default()).unwrap();
        let (types, named) = (source.read(&image).unwrap(), source.read_named(&|_| true).unwrap());
        let mut judged = judge(&image, (Some(&types), Some(&named)), asked).unwrap();
        if baseline.is_some() {
            judged.take(rules::scan(&image, Some(&types), &rules::Ask::default()).unwrap());
        }
        judged
    });
    Check::of(judged.collect(), asked, baseline.is_some(), baseline)
}

fn check(paths: &[&Path], rules: &[Rule]) -> Check {
    check_with(paths, &Rules { rules, allowed: &[], line: None }, None)
}

fn outcomes(check: &Check) -> Vec<Outcome> {
    check.rules.iter().flat_map(|r| &r.images).map(|i| i.outcome).collect()
}

fn of<'c>(check: &'c Check, rule: &str) -> Vec<&'c Finding> {
    check.findings.iter().map(|t| &t.finding).filter(|f| f.rule == rule).collect()
}

/// Case A6: a counter alone on the first line of its struct, with padding behind it; then with something hot in the padding.
/// A comment beside it holds nothing.
#[test]
fn a6_a_counter_has_its_line_until_something_stands_in_its_padding() {
    let source = "struct mm { struct { atomic_t mm_count; } LINE; long map; } first;
        struct bad { atomic_t mm_count; long hot; char pad[48]; long map; } LINE second;";
    let built = compiled(source, &[]);
    let rules = [aligned(own_line("mm.mm_count")), aligned(own_line("bad.mm_count")), rule(own_line("mm.nothing"))];
    let found = check(&[&built.path], &rules);
    assert_eq!(outcomes(&found), [Outcome::Holds, Outcome::Violated, Outcome::NoMatch]);
    let [broken] = of(&found, "own-line")[..] else { panic!("{:?}", found.findings) };
    assert_eq!(broken.others.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["bad.hot"]);
    assert_eq!((broken.severity, broken.subject.line), (Severity::High, Some(5)));
    assert_eq!(of(&found, "no-match").len(), 1, "a rule that matches nothing fails");
    assert!(found.violated());
}

/// Case A7: members that depend on the configuration move two locks onto one line. Which image proved it is said.
#[test]
fn a7_every_configuration_is_judged_by_itself() {
    let source =
        "struct mm { long vector[VECTOR]; atomic_t page_table_lock; char fill[52]; atomic_t mmap_lock; } LINE mm;";
    let [large, small] = ["-DVECTOR=8", "-DVECTOR=3"].map(|flag| compiled(source, &[flag]));
    let paths = [large.path.as_path(), small.path.as_path()];
    let found = check(&paths, &[rule(separate(&["mm.page_table_lock", "mm.mmap_lock"]))]);
    // At 64 and 120; at 24 and 80.
    assert_eq!(outcomes(&found), [Outcome::Violated, Outcome::Holds]);
    assert!(!found.rules[0].holds && found.violated());
    let images: Vec<&str> = found.rules[0].images.iter().map(|i| i.path.as_str()).collect();
    assert_eq!(images, paths.map(|p| p.to_str().unwrap()));
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].image, images[0]);
}

/// Case A14: a reference count at 0xc0 of 64-bit images and 0x80 of 32-bit ones. The word size is the image's.
#[test]
fn a14_each_word_size_has_its_offset() {
    let source = "struct dst { void *p[PAD]; atomic_t __refcnt; } LINE dst;";
    let [wide, narrow] = [["-DPAD=24", "-m64"], ["-DPAD=32", "-m32"]].map(|flags| compiled(source, &flags));
    let of_bits = |bits, bound: &str| Rule { bits: Some(bits), ..rule(offset(bound)) };
    let rules = [
        of_bits(64, "dst.__refcnt == 0xc0"),
        of_bits(32, "dst.__refcnt == 0x80"),
        rule(offset("dst.__refcnt % 64 == 0")),
    ];
    let found = check(&[&wide.path, &narrow.path], &rules);
    let (holds, other) = (Outcome::Holds, Outcome::NotApplied);
    assert_eq!(outcomes(&found), [holds, other, other, holds, holds, holds]);
    assert!(!found.violated());
    // Eight bytes more in front of it.
    let moved = compiled(&source.replace("PAD]", "PAD + 1]"), &["-DPAD=24"]);
    let found = check(&[&moved.path], &rules);
    assert_eq!(outcomes(&found), [Outcome::Violated, other, Outcome::Violated]);
    assert!(of(&found, "offset").iter().any(|f| f.advice.contains("at offset 200 (8 modulo 64)")), "{found:?}");
    assert!(found.problems[0].contains("bits = 32"), "what was not judged is said: {:?}", found.problems);
}

/// Case A19: `count` and `mask` apart in an array of 101 costs 203 lines instead of 26, and that is said.
#[test]
fn a19_what_a_rule_costs_is_said() {
    let source = "struct vec { atomic_t count; void *mask; };
        struct cpupri { struct vec pri_to_cpu[101]; int *cpu_to_pri; } cpupri;";
    let built = compiled(source, &[]);
    let names =
        ["cpupri.pri_to_cpu[0].count", "cpupri.pri_to_cpu[0].mask"].map(|n| n.replacen("cpupri", "struct cpupri", 1));
    let bound = |bytes| rule(What::MaxSize(Bound::parse(&format!("struct cpupri <= {bytes}")).unwrap()));
    let found =
        check(&[&built.path], &[aligned(separate(&names.each_ref().map(String::as_str))), bound(26 * 64), bound(1600)]);
    assert_eq!(outcomes(&found), [Outcome::Violated, Outcome::Holds, Outcome::Violated]);
    let price = &of(&found, "separate")[0].alternatives[0];
    assert_eq!((price.lines, price.size, price.cost_bytes), (203, 203 * 64, 203 * 64 - 1624));
    assert!(of(&found, "separate")[0].advice.contains("costs 11368 bytes (203 lines in all)"));
}

/// Case A27: a lock straddles on purpose; it is told only when it has drifted from where that was meant.
#[test]
fn a27_a_deliberate_straddle_is_told_when_it_drifts() {
    let source =
        "struct vma { char head[HEAD]; struct { long count; long owner; } vm_lock; char rest[112]; } LINE vma;";
    let meant = [Deliberate { line: 7, name: "vma.vm_lock".to_string(), offset: Some(56) }];
    let asked = Rules { rules: &[], allowed: &meant, line: None };
    let run = |flag| check_with(&[&compiled(source, &[flag]).path], &asked, None);
    let kept = run("-DHEAD=56");
    assert!(kept.findings.is_empty() && kept.problems.is_empty(), "{kept:?}");
    let drifted = run("-DHEAD=64");
    let [told] = &drifted.findings[..] else { panic!("{drifted:?}") };
    assert_eq!((told.finding.rule, told.finding.severity, told.rule_line), ("drift", Severity::Low, Some(7)));
    assert!(told.finding.advice.contains("at offset 56, and is at offset 64 now: not on two lines any more"));
    assert!(!drifted.violated(), "a warning");
}

/// Case C2: a mutex of 40 bytes begins on a line; what follows it is on its tail. Both ends are judged, in a struct and
/// between objects.
#[test]
fn c2_an_aligned_start_leaves_the_tail() {
    let source = "typedef struct { atomic_t a; char b[36]; } mutex_t;
        struct db { LINE mutex_t mutex_; long tracer; };
        struct fixed { LINE mutex_t mutex_; LINE long tracer; };
        struct db one; struct fixed two; LINE mutex_t lock = {{1}}; long behind = 1;";
    let built = compiled(source, &["-fno-toplevel-reorder"]);
    let names = ["db.mutex_", "fixed.mutex_", "lock", "two.mutex_"];
    let found = check(&[&built.path], &names.map(|name| rule(own_line(name))));
    let (bad, good) = (Outcome::Violated, Outcome::Holds);
    assert_eq!(outcomes(&found), [bad, good, bad, good], "{:?}", found.rules);
    let told: Vec<&str> = of(&found, "own-line").iter().map(|f| f.advice.as_str()).collect();
    assert!(told[0].starts_with("tail line still shared with db.tracer behind it"), "{told:?}");
    assert!(told[1].starts_with("tail line still shared with behind behind it"), "{told:?}");
}

/// Case C9: what 64 bytes hold apart, 128 do not; and pairs of lines alone are worth a look, no more.
#[test]
fn c9_a_rule_holds_for_a_line_size() {
    let source = "struct ring { LINE atomic_t head; LINE atomic_t tail; }; struct ring LINE ring = {{1}};";
    let built = compiled(source, &[]);
    let rules =
        [aligned(separate(&["ring.head", "ring.tail"])), rule(separate(&["struct ring.head", "struct ring.tail"]))];
    let of_line = |bytes| {
        let asked = Rules { rules: &rules, allowed: &[], line: LineSize::new(bytes) };
        check_with(&[&built.path], &asked, None)
    };
    assert_eq!(outcomes(&of_line(64)), [Outcome::Holds, Outcome::Holds]);
    let wide = of_line(128);
    assert_eq!(wide.rules[1].images[0].outcome, Outcome::Violated);
    let advice = &of(&wide, "separate").last().unwrap().advice;
    assert!(advice.contains("the rule holds at 1 of 2 bases (multiples of 64)"), "{advice}");
    let scan = scan_as(&built.path, &rules::Ask { double_line: true, ..rules::Ask::default() });
    assert!(scan.findings.iter().all(|f| f.severity == Severity::Info), "{:?}", scan.findings);
}

/// Members of a type are judged at every base that its alignment allows, and `align` is the way out.
#[test]
fn types_are_judged_at_every_base() {
    let source = "struct t { int a; int fill[7]; int b; char rest[28]; }; struct t t[3];
        struct two { int a; int b; }; struct two x;";
    let built = compiled(source, &[]);
    let apart = separate(&["struct t.a", "struct t.b"]);
    let joined = What::Together(vec!["two.a".to_string(), "two.b".to_string()]);
    let eight = Rule { align: Align::new(8), ..rule(joined) };
    let tight = What::NoStraddle("struct t".to_string());
    let found = check(&[&built.path], &[rule(apart), eight, aligned(tight.clone()), rule(tight)]);
    let (bad, good) = (Outcome::Violated, Outcome::Holds);
    assert_eq!(outcomes(&found), [bad, good, good, bad], "{:?}", found.rules);
    assert!(of(&found, "separate")[0].advice.contains("holds at 2 of 4 bases (multiples of 16)"), "{found:?}");
    assert!(of(&found, "separate")[0].advice.contains("no alignment of the whole makes it hold"));
    let tight = &of(&found, "no-straddle")[0].advice;
    assert!(tight.contains("it holds with `align = 64`"), "{tight}");
}

/// Members between markers: two groups on one line are told, and fail nothing by themselves.
#[test]
fn groups_are_found_by_their_markers() {
    let group = |name: &str, bytes: u32| {
        format!(
            "char __cacheline_group_begin__{name}[0]; char {name}_data[{bytes}]; char __cacheline_group_end__{name}[0];"
        )
    };
    let source = format!(
        "struct sock {{ {} {} char fill[20]; {} }} LINE sock;",
        group("rx", 40),
        group("tx", 4),
        group("cold", 64)
    );
    let built = compiled(&source, &[]);
    let found = check(&[&built.path], &[rule(own_line("sock.cold")), rule(own_line("sock.rx"))]);
    assert_eq!(outcomes(&found), [Outcome::Holds, Outcome::Violated], "{:?}", found.rules);
    let [shared] = of(&found, "group")[..] else { panic!("{found:?}") };
    assert_eq!((shared.subject.name.as_str(), shared.others[0].name.as_str()), ("sock.rx", "sock.tx"));
    assert_eq!(shared.severity, Severity::Low);
    let none = check(&[&built.path], &[]);
    assert!(!none.violated() && none.findings.len() == 1);
}

/// An unrelated object moves one onto another's line: against a scan of before, that alone is new, by name.
#[test]
fn a_baseline_leaves_what_a_change_did() {
    let source =
        "long first = 1; LINE long table[8] = {1}; SHIFT long tasklist_lock = 1; LINE long x = 1; long old = 1;";
    let before = compiled(&source.replace("SHIFT", "LINE"), &["-fno-toplevel-reorder"]);
    let after = compiled(
        "LINE long moved[5] = {1}; long first = 1; LINE long table[8] = {1}; LINE long x = 1; long old = 1; long tasklist_lock = 1;",
        &["-fno-toplevel-reorder"],
    );
    let text = serde_json::to_string(&scan_as(&before.path, &rules::Ask::default())).unwrap();
    let baseline = Baseline::parse(&text, "scan.json").unwrap();
    let asked = Rules { rules: &[], allowed: &[], line: None };
    let same = check_with(&[&before.path], &asked, Some(&baseline));
    assert!(same.findings.is_empty() && same.known > Some(0), "{same:?}");
    let found = check_with(&[&after.path], &asked, Some(&baseline));
    let told: Vec<&str> = found.findings.iter().map(|t| t.finding.advice.as_str()).collect();
    assert!(told.iter().any(|t| t.starts_with("this change moved tasklist_lock onto x's line")), "{told:?}");
    assert!(told.iter().all(|t| !t.contains("moved x onto old's line")), "{told:?}");
}
