//! Public reports of layout changes, built small: what `diff` says of each. Cases are named by their number in the
//! project's list.

use std::path::Path;

use crate::scan::{Built, NOTHING, build};
use straddle::diff::{self, Diff, Meeting, TypeChange};
use straddle::image::Image;
use straddle::types::{Files, Source, Want};

fn compare(base: &Path, patched: &Path) -> Diff {
    let (a, b) = (straddle::open::map(base).unwrap(), straddle::open::map(patched).unwrap());
    let (a, b) = (Image::parse(&a, "base").unwrap(), Image::parse(&b, "patched").unwrap());
    let source = |image| Source::of(image, Want::Auto, Files::default()).unwrap();
    let (of_a, of_b) = (source(&a), source(&b));
    let (types_a, types_b) = (of_a.read_named(&|_| true).unwrap(), of_b.read_named(&|_| true).unwrap());
    let types = types_a.from.is_some().then_some((&types_a, &types_b));
    diff::diff(&a, &b, &diff::Ask { types, ..diff::Ask::default() }).unwrap()
}

const LOCKS: &str = "
    typedef struct { int counter; } atomic_t; typedef struct { long counter; } atomic_long_t;
    typedef struct spinlock { int word; } spinlock_t;
    struct rw_semaphore { atomic_long_t count; atomic_long_t owner; spinlock_t wait_lock; int *first; };\n";

/// The object is there, so that the type is.
fn typed(source: &str, defines: &[&str]) -> Built {
    build(
        "a.c",
        &format!("{LOCKS}{source} void _start(void) {{ }}"),
        &[&["-g", "-nostdlib", "-static"], defines].concat(),
    )
}

fn change<'d>(diff: &'d Diff, name: &str) -> &'d TypeChange {
    diff.types_changed.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no {name}: {:?}", diff.types_changed))
}

fn meeting<'t>(list: &'t [Meeting], a: &str, b: &str) -> Option<&'t Meeting> {
    list.iter()
        .find(|m| (m.member.as_str(), m.other.as_str()) == (a, b) || (m.member.as_str(), m.other.as_str()) == (b, a))
}

/// Case A1: a word before `mmap_lock` pushes it from 120 to 128. Its count and its owner were on two lines, and are on
/// one: both are told, neither is called bad.
#[test]
fn a1_a_split_lock_comes_together() {
    let source = "
        struct mm_struct { char head[116]; int users;
        #ifdef PATCHED
            int write_protect_seq;
        #endif
            struct rw_semaphore mmap_lock; long hiwater_rss, hiwater_vm, total_vm; } init_mm = {.users = 1};";
    let diff = compare(&typed(source, &[]).path, &typed(source, &["-DPATCHED"]).path);
    let mm = change(&diff, "mm_struct");
    let added: Vec<_> = mm.added.iter().map(|m| (m.path.as_str(), m.offset)).collect();
    assert_eq!((added, mm.removed.len()), (vec![("write_protect_seq", 120)], 0));
    let lock = meeting(&mm.came_together, "mmap_lock.count", "mmap_lock.owner").expect("they meet");
    assert_eq!((lock.base_lines, lock.patched_lines, lock.both_contended), ([[1, 1], [2, 2]], [[2, 2], [2, 2]], true));
    let moved: Vec<_> = mm.moved_line.iter().map(|m| (m.path.as_str(), m.base_offset, m.patched_offset)).collect();
    // The lock as a whole was on lines 1 and 2.
    let want = [("mmap_lock", 120, 128), ("mmap_lock.count", 120, 128), ("mmap_lock.count.counter", 120, 128)];
    assert_eq!(moved, want);
    assert_eq!((mm.steps.len(), mm.steps[0].bytes), (1, 8), "{:?}", mm.steps);
    assert!(mm.steps[0].what.contains("write_protect_seq"), "{:?}", mm.steps);
    let text = format!("{:?}", straddle::report::diff::page(&diff, false, &[]));
    assert!(text.contains("mmap_lock.count and mmap_lock.owner: on lines 1 and 2 before, on line 2 now"), "{text}");
    assert!(!text.contains("worse") && !text.contains("bad"), "{text}");
}

/// Case A5: an embedded struct shrinks, and an element of an array meets a hot pointer 88 bytes further up.
#[test]
fn a5_an_embedded_struct_that_shrinks_pulls_others_together() {
    let source = "
        struct vmpressure { long pressure[3];
        #ifndef PATCHED
            long more[11];
        #endif
        };
        struct mem_cgroup { char head[216]; struct vmpressure vmpressure; long other[11];
            atomic_long_t events_local[12]; void *vmstats_percpu; long tail[8]; } root = {.tail = {1}};";
    let diff = compare(&typed(source, &[]).path, &typed(source, &["-DPATCHED"]).path);
    let memcg = change(&diff, "mem_cgroup");
    let met = meeting(&memcg.came_together, "events_local[10]", "vmstats_percpu").expect("they meet");
    assert_eq!((met.base_lines, met.patched_lines), ([[7, 7], [8, 8]], [[6, 6], [6, 6]]));
    assert!(meeting(&memcg.separated, "events_local[10]", "vmstats_percpu").is_none());
    let [step] = memcg.steps.as_slice() else { panic!("{:?}", memcg.steps) };
    assert_eq!((step.bytes, step.members), (-88, 4), "{step:?}");
    assert!(step.what.starts_with("vmpressure (vmpressure) shrank by 88 bytes"), "{step:?}");
    assert_eq!(
        (change(&diff, "vmpressure").base_size, change(&diff, "vmpressure").patched_size),
        (Some(112), Some(24))
    );
}

/// Case A7: one header, two configurations: the two locks share a line in one of them only.
#[test]
fn a7_two_locks_share_a_line_in_one_configuration() {
    let source = "
        struct mm_struct { char head[40]; spinlock_t page_table_lock; long saved_auxv[AUXV]; struct rw_semaphore mmap_lock; }
        init_mm = {.head = {1}};";
    let (large, small) = (typed(source, &["-DAUXV=4"]), typed(source, &["-DAUXV=1"]));
    let diff = compare(&large.path, &small.path);
    let met = meeting(&change(&diff, "mm_struct").came_together, "page_table_lock", "mmap_lock.count").unwrap();
    assert_eq!((met.base_lines, met.patched_lines), ([[0, 0], [1, 1]], [[0, 0], [0, 0]]));
    let back = compare(&small.path, &large.path);
    assert!(meeting(&change(&back, "mm_struct").separated, "page_table_lock", "mmap_lock.count").is_some());
}

/// Case A21: dead code of 16 bytes upstream, and a hot function whose bytes are the same.
#[test]
fn a21_a_function_that_merely_moved_is_told_with_its_phases() {
    let source = "
        .text
        .balign 64
        .type dead, @function; .size dead, DEAD
        dead: .fill DEAD, 1, 0x90
        .type hot, @function; .size hot, 6
        hot: mov $1, %eax
        ret
        .data
        .type thing, @object; .size thing, 8
        thing: .quad hot";
    let built = |size: &str| build("a.s", source, &[NOTHING, &[&format!("-Wa,--defsym,DEAD={size}")]].concat());
    let diff = compare(&built("64").path, &built("80").path);
    let f = diff.functions;
    assert_eq!((f.moved, f.rephased, f.changed, diff.data.content_changed), (1, 1, 1, 0), "{:?}", diff.objects);
    let hot = &diff.suspects[0];
    assert_eq!((hot.name.as_str(), hot.base.phase, hot.patched.phase), ("hot", 0, 16));
    assert_eq!((hot.kind.as_str(), hot.bytes_changed), ("function", Some(false)));
    assert!(!diff.alignment.starts_excluded);
}

/// Case A23: where every function starts on a line, its start explains nothing.
#[test]
fn a23_aligned_functions_exclude_the_hypothesis() {
    let source = |first: &str| {
        let functions: String = (0..6).map(|n| format!("int f{n}(int x) {{ return x * {n}; }}\n")).collect();
        format!("int first(int x) {{ {first} return x; }}\n{functions}")
    };
    let aligned = ["-O1", "-falign-functions=64", "-nostdlib", "-static", "-Wl,-e,0", "-fno-toplevel-reorder"];
    let (a, b) = (source(""), source("asm volatile(\".fill 80, 1, 0x90\");"));
    let diff = compare(&build("a.c", &a, &aligned).path, &build("a.c", &b, &aligned).path);
    assert_eq!((diff.functions.moved, diff.functions.rephased), (6, 0));
    assert_eq!((diff.alignment.base.all, diff.alignment.patched.all, diff.alignment.starts_excluded), (64, 64, true));
    assert!(diff.statements.iter().any(|s| s.starts_with("every function starts on a line")), "{:?}", diff.statements);
    assert_eq!(diff.suspects.len(), 0);
    // One that does not, and it is not excluded.
    let loose = build("a.c", &b, &["-O1", "-nostdlib", "-static", "-Wl,-e,0", "-fno-toplevel-reorder"]);
    assert!(!compare(&build("a.c", &a, &aligned).path, &loose.path).alignment.starts_excluded);
}

/// Case A24: identical images explain nothing, and none is invented.
#[test]
fn a24_identical_images_explain_nothing() {
    let source = "static long count[9] = {1}; int main(int n, char **v) { count[n]++; return count[n]; }";
    let (base, patched) = (build("a.c", source, &["-O1"]), build("a.c", source, &["-O1"]));
    let diff = compare(&base.path, &patched.path);
    assert_eq!((diff.suspects.len(), diff.cause.len()), (0, 0));
    let told = "nothing in these images explains a layout effect on hot data";
    assert!(diff.statements.iter().any(|s| s == told), "{:?}", diff.statements);
    assert!(diff.loaded_content_equal);
}

/// Case B3: a loop of 29 bytes lies on two lines when it starts at 36 to 63, at no multiple of 32.
#[test]
fn b3_a_loop_that_now_crosses_a_line_is_found() {
    let source = "
        .text
        .balign 64
        .type dead, @function; .size dead, DEAD
        dead: .fill DEAD, 1, 0x90
        .type kernel, @function; .size kernel, 34
        kernel: xor %eax, %eax
        xor %ecx, %ecx
        1: .fill 25, 1, 0x90
        dec %ecx
        jnz 1b
        ret";
    let built = |size: u32| build("a.s", source, &[NOTHING, &[&format!("-Wa,--defsym,DEAD={size}")]].concat());
    // The head is 4 bytes behind the start of the function.
    let base = built(28);
    let found: Vec<(u32, u64)> = [28, 31, 32, 44, 59, 60]
        .into_iter()
        .map(|dead| (dead + 4, compare(&base.path, &built(dead).path).functions.loops_newly_crossing))
        .collect();
    assert_eq!(found, [(32, 0), (35, 0), (36, 1), (48, 1), (63, 1), (64, 0)]);
    let diff = compare(&base.path, &built(44).path);
    let own = diff.suspects.iter().find(|s| s.kind == "loop").expect("a loop");
    assert_eq!((own.name.as_str(), own.base.phase, own.patched.phase), ("kernel+0x4", 32, 48));
    assert_eq!(own.sensitivity.map(|s| (s.straddles, s.of)), Some((7, 16)));
}

/// Three structs of the same members in another order are no edit.
#[test]
fn a_shuffle_is_named_as_one() {
    let source = |orders: [[usize; 5]; 4]| {
        let members = ["atomic_t users;", "long flags;", "int state;", "void *next;", "short kind;"];
        let types = orders.iter().enumerate().map(|(n, order)| {
            let members: String = order.iter().map(|m| members[*m]).collect();
            format!("struct s{n} {{ {members} }} o{n} = {{.state = 1}};")
        });
        types.collect::<String>()
    };
    let base = source([[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 1, 3, 4]]);
    let shuffled = source([[3, 1, 4, 0, 2], [2, 4, 1, 3, 0], [0, 4, 1, 2, 3], [1, 4, 0, 2, 3]]);
    let edited = source([[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [4, 3, 2, 1, 0], [1, 4, 0, 2, 3]]);
    let told = |patched: &str| {
        let diff = compare(&typed(&base, &[]).path, &typed(patched, &[]).path);
        diff.statements
            .iter()
            .any(|s| s == "the layout was randomised between these builds: offsets are not comparable")
    };
    assert!(told(&shuffled) && !told(&edited) && !told(&base));
}

/// Of an object file only what holds within a section is said.
#[test]
fn phases_of_an_object_hold_within_its_sections() {
    let source = |more: &str| format!("{more} long a = 1, b = 2; void f(void) {{ a += b; }}");
    let arguments = ["-c", "-O1", "-fno-toplevel-reorder"];
    let (base, patched) = (source(""), source("long first = 5;"));
    let diff = compare(&build("a.c", &base, &arguments).path, &build("a.c", &patched, &arguments).path);
    assert_eq!((diff.data.moved, diff.data.added, diff.functions.same, diff.functions.changed), (2, 1, 1, 0));
    assert!(
        diff.statements.iter().any(|s| s.starts_with("phases hold within a section only")),
        "{:?}",
        diff.statements
    );
}
