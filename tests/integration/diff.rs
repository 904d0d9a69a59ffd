//! `diff` on pairs of images that gcc builds here.

use crate::scan::{Built, build};
use straddle::diff::{self, Change, Diff};
use straddle::image::Image;

fn compare(base: &Built, patched: &Built) -> Diff {
    let (a, b) = (straddle::open::map(&base.path).unwrap(), straddle::open::map(&patched.path).unwrap());
    diff::diff(&Image::parse(&a, "base").unwrap(), &Image::parse(&b, "patched").unwrap(), &diff::Ask::default())
        .unwrap()
}

fn partitions(diff: &Diff, objects: u64) {
    let d = &diff.data;
    assert_eq!(d.same + d.moved + d.resized + d.content_changed + d.undecided + d.removed, objects);
}

/// What the first fixture does: an object that nobody reads pushes a lock onto the line of a counter.
const LOCK: &str = "
    .data
    .balign 64
    .ifdef PATCHED
    .type unrelated, @object; .size unrelated, 24
    unrelated: .fill 24, 1, 2
    .endif
    .type first, @object; .size first, 32
    first: .fill 32, 1, 1
    .type lock, @object; .size lock, 32
    lock: .fill 32, 1, 1
    .balign 32
    .type counter, @object; .size counter, 8
    counter: .quad 1
    .section .rodata
    .balign 64
    .type number, @object; .size number, 4
    .ifdef PATCHED
    number: .long 2
    .else
    number: .long 1
    .endif
    .section .text
    .balign 64
    .ifdef PATCHED
    .fill 16, 1, 0x90
    .endif
    .type hot, @function; .size hot, 6
    hot: mov $1, %eax
    ret
    .type counts, @function; .size counts, 9
    counts: lock incq counter(%rip)
    ret
    .type asks, @function; .size asks, 15
    asks: mov lock(%rip), %rax
    mov first(%rip), %rcx
    ret
";

#[test]
fn a_lock_that_moved_onto_two_lines_is_the_first_suspect() {
    let base = build("a.s", LOCK, &["-nostdlib", "-static", "-Wl,-e,0"]);
    let patched = build("a.s", LOCK, &["-nostdlib", "-static", "-Wl,-e,0", "-Wa,--defsym,PATCHED=1"]);
    let diff = compare(&base, &patched);
    partitions(&diff, 4);
    let d = diff.data;
    assert_eq!((d.moved, d.content_changed, d.added, d.removed), (3, 1, 1, 0));
    assert_eq!((d.rephased, d.new_neighbours, d.newly_straddling, d.no_longer_straddling), (3, 3, 1, 0));
    let names: Vec<&str> = diff.suspects.iter().map(|s| s.name.as_str()).collect();
    // Nobody disturbs `first`.
    assert_eq!(names, ["lock", "counter", "hot", "counts", "asks"]);
    let lock = &diff.suspects[0];
    assert_eq!((lock.base.phase, lock.patched.phase, lock.bytes_changed), (32, 56, Some(false)));
    assert_eq!(
        (&lock.base.with[..], &lock.patched.with[..]),
        (&["first".into()][..], &["unrelated".into(), "first".into(), "counter".into()][..])
    );
    // Case A21: moved, unchanged, phase 0 → 16.
    let hot = &diff.suspects[2];
    assert_eq!(
        (hot.kind.as_str(), hot.base.phase, hot.patched.phase, hot.bytes_changed),
        ("function", 0, 16, Some(false))
    );
    assert_eq!((diff.functions.moved, diff.functions.rephased, diff.functions.changed), (3, 3, 0));
    assert_eq!((lock.readers, lock.writers, diff.suspects[1].writers), (Some(1), Some(0), Some(1)));
    assert_eq!(lock.why, ["new-straddle", "new-neighbour"]);
}

/// Case B5: the same objects in another order. Nothing changed, whatever the addresses inside say.
#[test]
fn another_link_order_changes_nothing() {
    let unit = |n: u32| {
        format!(
            "extern int other{m}(int); static int state{n} = {n}; static const char *names{n}[] = {{\"a{n}\", \"b{n}\"}};
             int *cursor{n} = &state{n}; int other{n}(int x) {{ return x ? other{m}(x - 1) + *cursor{n} : *names{n}[1]; }}",
            m = (n + 1) % 3
        )
    };
    let built = |order: [u32; 3], arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..3 {
            std::fs::write(folder.path().join(format!("u{n}.c")), unit(n)).unwrap();
        }
        let files: Vec<String> =
            order.iter().map(|n| folder.path().join(format!("u{n}.c")).display().to_string()).collect();
        let arguments: Vec<&str> = arguments.iter().copied().chain(files.iter().map(String::as_str)).collect();
        build("main.c", "extern int other0(int); int main(void) { return other0(3); }", &arguments)
    };
    for arguments in [&["-O2", "-Wl,--emit-relocs"][..], &["-O2"], &["-O2", "-no-pie"]] {
        let diff = compare(&built([0, 1, 2], arguments), &built([2, 0, 1], arguments));
        let d = diff.data;
        assert_eq!(
            (d.resized, d.content_changed, d.added, d.removed),
            (0, 0, 0, 0),
            "{arguments:?}: {:?}",
            diff.objects
        );
        assert!(d.moved >= 3, "{d:?}");
        let f = diff.functions;
        assert_eq!((f.changed, f.added, f.removed), (0, 0, 0), "{arguments:?}: {:?}", diff.functions_changed);
        assert_eq!(f.undecided, 0, "{arguments:?}: {:?}", diff.functions_changed);
    }
}

/// A pointer that names something else is a change, though its bytes are filled in by the linker.
#[test]
fn another_pointer_is_another_content() {
    let source = |target: &str| format!("int a, b; int *cursor = &{target}; int main(void) {{ return *cursor; }}");
    for arguments in [&["-O1"][..], &["-O1", "-no-pie"], &["-c"]] {
        let diff = compare(&build("a.c", &source("a"), arguments), &build("a.c", &source("b"), arguments));
        let changed: Vec<_> = diff.objects.iter().map(|o| (o.name.as_str(), o.change)).collect();
        assert_eq!(changed, [("cursor", Change::ContentChanged)], "{arguments:?}");
    }
}

/// One string more must not resize the two thousand that are numbered after it.
#[test]
fn numbered_names_are_paired_by_content() {
    let source = |extra: &str| {
        let functions = (0..9).map(|n| {
            format!(
                "void f{n}(void) {{ static const char text[] = \"text of {}\"; puts(text); }}\n",
                "x".repeat(n * 3 % 7 + n)
            )
        });
        let head = "#include <stdio.h>\n".to_string();
        head + extra + &functions.collect::<String>() + "int main(void) { return 0; }"
    };
    let extra = "void g(void) { static const char text[] = \"one more\"; puts(text); }\n";
    let diff = compare(&build("a.c", &source(""), &["-O1"]), &build("a.c", &source(extra), &["-O1"]));
    assert_eq!((diff.data.resized, diff.data.content_changed, diff.data.added, diff.data.removed), (0, 0, 1, 0));
}

#[test]
fn loaded_content_is_all_but_the_build_id() {
    let source = "int x = 1; int main(void) { return x; }";
    let id = |id: &str| format!("-Wl,--build-id=0x{id}");
    let equal = |a: &Built, b: &Built| {
        let (a, b) = (std::fs::read(&a.path).unwrap(), std::fs::read(&b.path).unwrap());
        diff::loaded_content_equal(&Image::parse(&a, "a").unwrap(), &Image::parse(&b, "b").unwrap())
    };
    let base = build("a.c", source, &[&id("1234567890")]);
    assert!(equal(&base, &build("a.c", source, &[&id("0987654321"), "-g"])));
    assert!(equal(&base, &build("a.c", source, &[&id("0987654321"), "-s"])), "symbols are not loaded");
    assert!(!equal(&base, &build("a.c", &source.replace("= 1", "= 2"), &[&id("1234567890")])));
    assert!(!equal(&base, &build("a.c", &source.replace("int x", "int pad = 3, x"), &[&id("1234567890")])));
}
