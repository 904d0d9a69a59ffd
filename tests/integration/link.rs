//! Real builds, captured and done again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use straddle::error::Result;
use straddle::link::{self, Build, Capture, Link, Makes, Relink, Request, Tree, populate_slot};

/// A folder with a tree in it and room for captures beside it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Makes the tree with a script: two programs' worth of small C files are at hand.
    fn new(script: &str) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.tree()).unwrap();
        let sources = "mkdir -p src lib\n\
            echo 'int f(void); int main(void){return f();}' > src/main.c\n\
            echo 'int g(void); int hot = 1; int f(void){return g() - hot;}' > src/f.c\n\
            echo 'int cold = 1; int g(void){return cold;}' > src/g.c\n";
        sh(&place.tree(), &format!("{sources}{script}"));
        place
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn request(&self, build: &str) -> Request {
        Request {
            build: Build::Shell(build.to_owned()),
            dir: self.tree(),
            store: self.dir.path().join("capture"),
            link: None,
            stop: None,
        }
    }

    fn capture(&self, build: &str) -> Result<Capture> {
        link::capture(&self.request(build))
    }

    /// The tree has these files, `tmp` beside it and the capture's scratch folder none.
    fn holds_only(&self, files: &str) {
        let script = format!(
            "cd tree; test \"$(find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs)\" = '{files}' || {{ find . >&2; false; }}; \
             test -z \"$(ls -A ../tmp ../capture/scratch | grep -v :)\" || {{ ls -RA ../tmp ../capture/scratch >&2; false; }}"
        );
        sh(self.dir.path(), &script);
    }

    /// Captures, deletes the tree, reads the capture from disk and proves that every link of it can be repeated.
    fn proved(&self, build: &str) -> Capture {
        self.capture(build).unwrap();
        fs::remove_dir_all(self.tree()).unwrap();
        let capture = Capture::load(&self.dir.path().join("capture")).unwrap();
        for link in &capture.links {
            capture.open(link).unwrap().prove_pass_through(self.dir.path()).unwrap();
        }
        assert_eq!(fs::read_dir(self.dir.path().join("capture/scratch")).unwrap().count(), 0, "scratch is deleted");
        capture
    }
}

fn sh(dir: &Path, script: &str) {
    let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{script}\n{}", String::from_utf8_lossy(&out.stderr));
}

fn names(capture: &Capture) -> Vec<&str> {
    capture.links.iter().map(|l| l.name.as_str()).collect()
}

/// The inputs that are the build's own.
fn own(link: &Link) -> Vec<&str> {
    link.inputs().iter().filter(|i| !i.system).map(|i| i.name.as_str()).collect()
}

const OBJECTS: &str = "for f in main f g; do gcc -c src/$f.c -o src/$f.o; done; ";

#[test]
fn objects_archives_and_searched_libraries() {
    let builds = [
        ("gcc src/main.o src/f.o src/g.o -o x", vec!["src/main.o", "src/f.o", "src/g.o"]),
        ("ar rcs lib/libfg.a src/f.o src/g.o; gcc src/main.o lib/libfg.a -o x", vec!["src/main.o", "lib/libfg.a"]),
        ("ar rcs lib/libfg.a src/f.o src/g.o; gcc src/main.o -Llib -lfg -o x", vec!["src/main.o", "lib/libfg.a"]),
        ("ar rcs lib/libfg.a src/f.o src/g.o; gcc src/main.o -L$PWD/lib -lfg -o x", vec!["src/main.o", "lib/libfg.a"]),
        ("ar rcsT lib/libfg.a src/f.o src/g.o; gcc src/main.o -Llib -lfg -o x", vec!["src/main.o", "lib/libfg.a"]),
        ("echo 'src/main.o \"src/f.o\"\nsrc/g.o' > list; gcc @list -o x", vec!["src/main.o", "src/f.o", "src/g.o"]),
        ("cd lib && gcc ../src/main.o $PWD/../src/f.o ../src/g.o -o ../x", vec!["src/main.o", "src/f.o", "src/g.o"]),
        ("gcc -static src/main.o src/f.o src/g.o -o x", vec!["src/main.o", "src/f.o", "src/g.o"]),
        ("ld -r src/f.o src/g.o -o lib/fg.o; gcc src/main.o lib/fg.o -o x", vec!["src/main.o", "lib/fg.o"]),
        ("gcc -fuse-ld=gold src/main.o src/f.o src/g.o -o x", vec!["src/main.o", "src/f.o", "src/g.o"]),
        (
            "echo 'INPUT(src/f.o -lg)' > lib/libfg.so; ar rcs lib/libg.a src/g.o; gcc src/main.o -Llib -lfg -o x",
            vec!["src/main.o", "lib/libfg.so", "src/f.o", "lib/libg.a"],
        ),
        (
            "echo 'SECTIONS { .mine : { *(.mine) } } INSERT AFTER .data;' > lib/mine.ld; echo '{ local: g; };' > v.map; \
             gcc -Llib -Wl,-T,mine.ld -Wl,--version-script=v.map src/main.o src/f.o src/g.o -o x",
            vec!["v.map", "src/main.o", "src/f.o", "src/g.o", "lib/mine.ld"],
        ),
    ];
    for (build, inputs) in builds {
        let place = Place::new("");
        let capture = place.proved(&format!("{OBJECTS}{build}"));
        let link = capture.select(Some("x")).unwrap();
        assert_eq!(own(&link), inputs, "{build}");
        assert!(link.inputs().iter().any(|i| i.system && i.name.ends_with("crt1.o")), "{build}");
        assert!(capture.problems.is_empty() && capture.unseen.is_empty(), "{build}: {capture:?}");
    }
}

/// Shared objects: with and without a soname, named by path and searched for, needed by each other.
#[test]
fn shared_objects_keep_the_names_that_the_program_needs() {
    let builds = [
        "gcc -shared src/f.o src/g.o -o lib/libfg.so; gcc src/main.o lib/libfg.so -o x",
        "gcc -shared src/f.o src/g.o -o lib/libfg.so; cd src; gcc main.o ../lib/libfg.so -o ../x",
        "gcc -shared src/f.o src/g.o -o lib/libfg.so; gcc src/main.o -Llib -lfg -Wl,-rpath,$PWD/lib -o x",
        "gcc -shared src/g.o -Wl,-soname,libg.so.1 -o lib/libg.so.1; gcc -shared src/f.o lib/libg.so.1 -o lib/libf.so; \
         gcc src/main.o -Llib -lf -Wl,-rpath-link,lib -o x",
    ];
    for build in builds {
        let capture = Place::new("").proved(&format!("{OBJECTS}{build}").replace("gcc -c", "gcc -fPIC -c"));
        assert_eq!(capture.links.last().unwrap().makes, Makes::Program);
        assert!(capture.links.iter().any(|l| l.makes == Makes::SharedObject), "{build}");
        let error = capture.select(None).unwrap_err().to_string();
        assert!(error.contains("several") && error.contains("lib/lib"), "{error}");
    }
}

/// The path of a nameless shared object ends in the program, so it cannot be linked from elsewhere.
#[test]
fn a_nameless_shared_object_by_absolute_path_is_read_where_it_is() {
    let place = Place::new("");
    let build = "gcc -shared -fPIC src/f.c src/g.c -o lib/libfg.so; gcc src/main.c $PWD/lib/libfg.so -o x";
    let capture = place.capture(build).unwrap();
    capture.select(Some("x")).unwrap().prove_pass_through(place.dir.path()).unwrap();
    sh(&place.tree(), "gcc -shared -fPIC src/f.c src/g.c -g -o lib/libfg.so");
    let error = capture.select(Some("x")).unwrap().prove_pass_through(place.dir.path()).unwrap_err().to_string();
    assert!(error.contains("lib/libfg.so is not the file"), "{error}");
}

/// Temporaries are named by their sources, so that a build with one more source gives the common ones the same names.
#[test]
fn temporaries_are_named_by_their_sources() {
    let more = "mkdir more; echo 'int more;' > more/f.c; printf '.globl nameless\nnameless: .long 1\n' > n.s; ";
    for (script, expected) in [
        ("gcc src/main.c src/f.c src/g.c -o x", vec!["main.c", "f.c", "g.c"]),
        ("gcc -pipe more/f.c src/main.c src/f.c src/g.c -o x", vec!["f.c", "main.c", "f.c#2", "g.c"]),
        ("echo 'int z;' > z.c; gcc z.c src/main.c src/f.c src/g.c -o x", vec!["z.c", "main.c", "f.c", "g.c"]),
    ] {
        let capture = Place::new(more).proved(script);
        let link = capture.select(None).unwrap();
        let expected: Vec<String> = expected.iter().map(|s| format!("temporary:{s}")).collect();
        assert_eq!(own(&link), expected);
    }
    let capture = Place::new(more).proved("gcc n.s src/main.c src/f.c src/g.c -o x");
    assert_eq!(own(&capture.select(None).unwrap()).first(), Some(&"temporary#1.o"), "an object that names no source");
}

/// All variants run in the patched build's tree: what else the two builds linked differently has to be named.
#[test]
fn what_else_differs_between_two_builds_is_named() {
    let build = |g: &str| {
        let script = "gcc -shared -fPIC src/g.c -o lib/libg.so; gcc -shared -fPIC src/f.c -o lib/libf.so; ld -r src/g.o -o g2.o; \
                      gcc src/main.c -Llib -lf -lg -o x";
        let place = Place::new("");
        fs::write(place.tree().join("src/g.c"), g).unwrap();
        let (folder, dir) = (place.capture(&format!("gcc -c src/g.c -o src/g.o; {script}")).unwrap(), place.dir);
        (folder, dir)
    };
    let (base, patched) = (build("int g(void){return 1;}"), build("int g(void){return 2;}"));
    let differing = |except| base.0.differing(&patched.0, except);
    assert_eq!(differing("x"), ["lib/libg.so"]);
    assert_eq!(differing("lib/libg.so"), Vec::<String>::new());
    let (mut fewer, _dir) = build("int g(void){return 1;}");
    fewer.links.retain(|l| l.name != "lib/libf.so");
    assert_eq!(base.0.differing(&fewer, "x"), ["lib/libf.so"]);
    assert_eq!(fewer.differing(&base.0, "x"), ["lib/libf.so"]);
}

/// A workspace of two crates: rustc's own linker, an rlib, and a program that its user knows by another name.
#[test]
fn cargo_builds_are_captured_and_repeat() {
    let place = Place::new(
        "mkdir -p one/src two/src
        printf '[workspace]\nmembers = [\"one\", \"two\"]\nresolver = \"2\"\n' >Cargo.toml
        printf '[package]\nname = \"one\"\nedition = \"2021\"\n' >one/Cargo.toml
        printf 'pub static HOT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);\n' >one/src/lib.rs
        printf '[package]\nname = \"two\"\nedition = \"2021\"\n[dependencies]\none = { path = \"../one\" }\n' >two/Cargo.toml
        printf 'fn main() { println!(\"{:?}\", one::HOT); }\n' >two/src/main.rs",
    );
    let capture = place.proved("cargo build --quiet --release --offline");
    let link = capture.select(Some("target/release/two")).unwrap();
    assert!(own(&link).iter().any(|name| name.starts_with("target/release/deps/libone-")), "{:?}", own(&link));
    assert_eq!(capture.unseen, []);
}

/// As cargo does: the output lies at a second place too, and that is the one its user knows.
#[test]
fn a_link_is_known_by_its_copies() {
    let place = Place::new("mkdir deps; printf 'int main(void) { return 0; }' >m.c");
    let capture = place.proved("gcc m.c -o deps/m-0123 && ln deps/m-0123 m");
    assert_eq!(capture.links[0].copies, ["m"]);
    let by = |glob: &str| capture.select(Some(glob)).unwrap().captured().name.clone();
    assert_eq!((by("m"), by("deps/m-*"), by("m-*")), ("m".into(), "deps/m-0123".into(), "deps/m-0123".into()));
    assert!(capture.select(Some("m")).unwrap().captured().output.ends_with("tree/m"));
}

#[test]
fn make_with_two_jobs_and_two_programs() {
    let makefile = "all: one two\n%.o: %.c\n\tgcc -c $< -o $@\none: src/main.o src/f.o src/g.o\n\tgcc $^ -o $@\n\
                    two: src/main.o src/f.o src/g.o\n\tgcc -Wl,-Map=two.map $^ -o $@ && strip two\n";
    let place = Place::new("");
    fs::write(place.tree().join("Makefile"), makefile).unwrap();
    let capture = place.capture("make -j2").unwrap();
    let mut all = names(&capture);
    all.sort_unstable();
    assert_eq!(all, ["one", "two"]);
    let one = capture.select(Some("one")).unwrap();
    assert!(one.captured().problems().is_empty());
    let stripped = capture.select(Some("t*")).unwrap().captured().problems().remove(0);
    assert!(stripped.starts_with("two was changed after the link"), "{stripped}");
    assert!(capture.select(None).unwrap_err().to_string().contains("one"));
    let none = capture.select(Some("three")).unwrap_err().to_string();
    assert!(none.contains("three") && none.contains("one") && none.contains("two"), "{none}");
    assert!(place.tree().join("two.map").exists(), "the build's own map is the build's");
    let log = fs::read_to_string(capture.store.join("build.log")).unwrap();
    assert!(log.contains("gcc -c src/main.c"), "{log}");

    let error = place.capture("make -j2").unwrap_err();
    assert!(error.to_string().contains("up to date"), "{error}");
    let mut request = place.request("make clean && make -j2");
    fs::write(place.tree().join("Makefile"), format!("{makefile}clean:\n\trm -f one two src/*.o\n")).unwrap();
    request.link = Some("nine".to_owned());
    assert!(link::capture(&request).unwrap_err().to_string().contains("no link matches `nine`"));
}

#[test]
fn a_failing_build_shows_its_own_output() {
    let place = Place::new("echo 'int main( {' > src/main.c");
    let error = place.capture("gcc src/main.c -o x").unwrap_err();
    assert_eq!(error.exit() as u8, 2);
    let text = error.to_string();
    assert!(text.contains("status 1") && text.contains("error: expected"), "{text}");
    assert!(!place.dir.path().join("capture/capture.json").exists(), "nothing half-written");
    assert!(place.capture("no-such-program").unwrap_err().to_string().contains("status 127"));
    assert!(place.capture("kill -9 $$").unwrap_err().to_string().contains("signal 9"));
}

/// What a configure script does: links that fail, links that are thrown away, linkers asked for their version.
#[test]
fn probes_change_nothing_and_are_counted() {
    let probes = "ld --version > version; ld -v; gcc src/main.c -o conftest && exit 1; \
                  gcc src/main.c src/f.c src/g.c -o conftest && rm conftest; ld src/none.o -o conftest && exit 1;";
    let place = Place::new("");
    let capture = place.capture(&format!("{probes} gcc src/main.c src/f.c src/g.c -o x.tmp && mv x.tmp x")).unwrap();
    assert_eq!(names(&capture), ["x"], "a renamed output keeps its new name");
    assert_eq!(capture.skipped.values().sum::<usize>(), 3, "{:?}", capture.skipped);
    assert!(fs::read_to_string(place.tree().join("version")).unwrap().contains("ld"));
    let log = fs::read_to_string(capture.store.join("build.log")).unwrap();
    assert_eq!(
        log.matches("undefined reference to `f'").count(),
        1,
        "the link beside says nothing into the build: {log}"
    );
}

/// Signals, job control, threads and vfork behave as without us.
#[test]
fn the_build_does_not_notice() {
    let script = "sh -c 'trap \"echo got > term\" TERM; kill -TERM $$; kill -STOP $$ & sleep 0.1; :' & p=$!; \
        sleep 0.3; kill -STOP $p 2>/dev/null; kill -CONT $p 2>/dev/null; wait $p; test -e term; \
        python3 -c 'import subprocess,threading as t\n\
ts=[t.Thread(target=lambda: subprocess.run([\"true\"],check=True)) for _ in range(8)]\n\
[x.start() for x in ts];[x.join() for x in ts]' ; \
        sh -c 'kill -SEGV $$'; test $? = 139; gcc src/main.c src/f.c src/g.c -o x; exit 0";
    assert_eq!(names(&Place::new("").capture(script).unwrap()), ["x"]);
}

#[test]
fn a_process_that_outlives_the_build_is_let_go() {
    let place = Place::new("");
    let capture = place.capture("(setsid sleep 30 & echo $! > pid) ; gcc src/main.c src/f.c src/g.c -o x").unwrap();
    assert!(capture.problems.iter().any(|p| p.contains("went on running")), "{:?}", capture.problems);
    sh(
        &place.tree(),
        "kill -0 $(cat pid); test \"$(grep TracerPid /proc/$(cat pid)/status | cut -f2)\" = 0; kill $(cat pid)",
    );
}

#[test]
fn stopping_kills_the_whole_build() {
    let place = Place::new("");
    static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut request = place.request("setsid sleep 60 & echo $! > away; sleep 60 & echo $! > near; sleep 60");
    request.stop = Some(|| STOP.load(std::sync::atomic::Ordering::Relaxed));
    let near = place.tree().join("near");
    let error = std::thread::scope(|s| {
        let capture = s.spawn(|| link::capture(&request).unwrap_err());
        while fs::read(&near).unwrap_or_default().is_empty() {
            std::thread::yield_now();
        }
        STOP.store(true, std::sync::atomic::Ordering::Relaxed);
        capture.join().unwrap()
    });
    assert_eq!((error.exit() as u8, error.problem.as_str()), (4, "interrupted"));
    sh(
        &place.tree(),
        "for p in $(cat near away); do test ! -e /proc/$p || grep -q '^State:.*[ZX]' /proc/$p/status; done",
    );
}

/// Whatever becomes of a build: what lies in its tree and among its temporaries afterwards is its own.
#[test]
fn nothing_of_ours_is_left() {
    let compiled = "export TMPDIR=$PWD/../tmp; gcc -c src/main.c -o src/main.o; ";
    let linked = format!("{compiled}gcc src/main.o src/f.c src/g.c -o x");
    let lto = format!("{compiled}gcc -flto src/main.o src/f.c src/g.c -o x");
    let unlinked = format!("{compiled}gcc src/main.o -o x");
    let failed = format!("{linked} && exit 3");
    for (build, left) in
        [(&linked, " src/main.o x"), (&lto, " src/main.o x"), (&unlinked, " src/main.o"), (&failed, " src/main.o x")]
    {
        let place = Place::new("mkdir ../tmp");
        drop(place.capture(build));
        place.holds_only(&format!("src/f.c src/g.c src/main.c{left}"));
    }
}

/// A linker that hangs while it links beside the build, and its helper, die when the capture is stopped.
#[test]
fn a_stopped_link_beside_leaves_nothing() {
    static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let linker = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { fork(); FILE *pids = fopen(\"../pids\", \"a\");\n\
                  fprintf(pids, \"%d\\n\", getpid()); fclose(pids); for (;;) pause(); }";
    let place = Place::new("mkdir ../tmp ../bin");
    fs::write(place.dir.path().join("bin/linker.c"), linker).unwrap();
    sh(&place.dir.path().join("bin"), "gcc linker.c -o ld");
    let mut request =
        place.request("export TMPDIR=$PWD/../tmp; gcc -c src/main.c -o src/main.o; ../bin/ld src/main.o -o x");
    request.stop = Some(|| STOP.load(std::sync::atomic::Ordering::Relaxed));
    let pids = place.dir.path().join("pids");
    std::thread::scope(|s| {
        let capture = s.spawn(|| link::capture(&request).unwrap_err());
        while fs::read_to_string(&pids).unwrap_or_default().lines().count() < 2 {
            std::thread::yield_now();
        }
        STOP.store(true, std::sync::atomic::Ordering::Relaxed);
        capture.join().unwrap()
    });
    sh(
        place.dir.path(),
        "for p in $(cat pids); do test ! -e /proc/$p || grep -q '^State:.*[ZX]' /proc/$p/status; done",
    );
    place.holds_only("src/f.c src/g.c src/main.c src/main.o");
}

#[test]
fn replaced_inputs_are_linked_in_and_the_map_names_them() {
    let place = Place::new("");
    sh(&place.tree(), "echo 'int cold = 43; int g(void){return cold;}' > src/other.c; gcc -c src/other.c -o other.o");
    let other = fs::read(place.tree().join("other.o")).unwrap();
    let capture = place.proved(&format!("{OBJECTS} gcc src/main.o src/f.o src/g.o -o x"));
    let link = capture.select(Some("x")).unwrap();
    let at = link.inputs().iter().position(|i| i.name == "src/g.o").unwrap();
    let out = place.dir.path().join("variant");
    let linked = link.relink(&BTreeMap::from([(at, other)]), &out).unwrap();
    assert_eq!(Command::new(&out).status().unwrap().code(), Some(42));
    assert_eq!(linked.files.get("src/g.o"), Some(&at), "{:?}", linked.files);
    for (name, index) in &linked.files {
        let base = |p: &str| p.rsplit('/').next().unwrap().to_owned();
        assert_eq!(base(name), base(&link.inputs()[*index].name));
    }
    let named = linked.map.lines().filter_map(|l| l.strip_prefix("LOAD "));
    assert!(named.clone().count() > 5);
    for name in named {
        assert!(linked.files.contains_key(name), "{name} is in the map but in no file of ours: {:?}", linked.files);
    }
    // Many at once, and a failing one leaves nothing.
    std::thread::scope(|s| {
        for n in 0..4 {
            let (link, out) = (&link, place.dir.path().join(format!("v{n}")));
            s.spawn(move || link.relink(&BTreeMap::new(), &out).unwrap());
        }
    });
    let bad = place.dir.path().join("bad");
    let error = link.relink(&BTreeMap::from([(at, b"no object".to_vec())]), &bad).unwrap_err();
    assert!(error.to_string().contains("linking") && !bad.exists(), "{error}");
    let left: Vec<_> = fs::read_dir(place.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_str().unwrap().starts_with(".link-")), "{left:?}");
}

/// A capture whose store was damaged is refused, never linked.
#[test]
fn a_damaged_store_is_refused() {
    let place = Place::new("");
    let capture = place.proved(&format!("{OBJECTS} gcc src/main.o src/f.o src/g.o -o x"));
    let link = capture.select(None).unwrap();
    let hash = link.inputs().iter().find(|i| i.name == "src/g.o").unwrap().hash.clone();
    let path = place.dir.path().join("capture/objects").join(&hash[..2]).join(&hash);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "damaged").unwrap();
    let error = capture.select(None).unwrap().relink(&BTreeMap::new(), &place.dir.path().join("v")).unwrap_err();
    assert!(error.to_string().contains("not the file"), "{error}");
}

/// Two copies of one tree, built in the slot, link byte-identically though `assert` holds the path of its file.
#[test]
fn two_copies_of_a_tree_link_to_the_same_bytes() {
    let place = Place::new("printf '#include <assert.h>\nint g(void){assert(sizeof(int)==4); return 1;}\n' > src/g.c");
    sh(place.dir.path(), "cp -r tree patched_in_a_folder_with_a_longer_name");
    let slot = place.dir.path().join("slot");
    let build = |tree: &str| {
        populate_slot(&Tree::Folder(place.dir.path().join(tree)), &slot).unwrap();
        let script = "for f in main f g; do gcc -g -c $PWD/src/$f.c -o src/$f.o; done; gcc src/*.o -o x";
        let store = place.dir.path().join(format!("capture-{tree}"));
        let (build, dir) = (Build::Shell(script.to_owned()), slot.clone());
        link::capture(&Request { build, dir, store, link: None, stop: None }).unwrap().select(None).unwrap()
    };
    let (base, patched) = (build("tree"), build("patched_in_a_folder_with_a_longer_name"));
    assert_eq!(base.captured().output_hash, patched.captured().output_hash);
    assert_eq!(base.inputs(), patched.inputs());
    base.prove_pass_through(place.dir.path()).unwrap();
}

#[test]
fn link_time_optimisation_is_refused_only_where_it_is_taken_in() {
    let place =
        Place::new("echo 'int unused(void){return 0;}' > src/unused.c; gcc -c -flto src/unused.c -o src/unused.o");
    let capture = place
        .capture(&format!(
            "{OBJECTS} gcc -flto -c src/f.c -o src/lto.o; ar rcs lib/libf.a src/lto.o; ar rcs lib/libu.a src/unused.o; \
             gcc src/main.o src/lto.o src/g.o -o direct; gcc src/main.o src/g.o -Llib -lf -o member; \
             gcc src/main.o src/f.o src/g.o lib/libu.a -o clean"
        ))
        .unwrap();
    for (name, file) in [("direct", "src/lto.o"), ("member", "lib/libf.a(lto.o)")] {
        let error = capture.select(Some(name)).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("-flto"), "{error}");
    }
    capture.select(Some("clean")).unwrap().prove_pass_through(place.dir.path()).unwrap();
}

#[test]
fn what_lays_out_instead_of_the_order_of_the_link_is_named() {
    let order =
        "echo g > order; printf '.text\\n.globl p,q\\np: call q\\nq: ret\\n.cg_profile p, q, 9\\n' > p.s; clang -c p.s";
    let place = Place::new(order);
    let lld = "gcc -fuse-ld=lld -ffunction-sections src/main.c src/f.c src/g.c";
    let build = format!(
        "{lld} -Wl,--symbol-ordering-file=order -o a; {lld} p.o -o b; {lld} p.o -Wl,--no-call-graph-profile-sort -o c; \
         {lld} -Wl,--symbol-ordering-file,order p.o -o d"
    );
    let capture = place.proved(&build);
    let said: Vec<Vec<String>> = capture.links.iter().map(|l| l.problems()).collect();
    let sentence =
        |name: &str, by: &str| vec![format!("{name} is laid out by {by}: the order of the link is not its layout")];
    let profile = "a profile (.llvm.call-graph-profile in p.o)";
    let both = format!("--symbol-ordering-file and {profile}");
    let expected = [sentence("a", "--symbol-ordering-file"), sentence("b", profile), Vec::new(), sentence("d", &both)];
    assert_eq!(said, expected);
}

#[test]
fn the_flag_of_link_time_optimisation_is_named_for_each_compiler() {
    let place = Place::new("");
    let build = format!(
        "{OBJECTS} clang -flto -c src/f.c -o lib/f.o; ar rcs lib/libf.a lib/f.o; clang -fuse-ld=lld src/main.o lib/f.o src/g.o -o clang; \
         clang -fuse-ld=lld src/main.o src/g.o -Llib -lf -o member; \
         gcc -flto src/main.o src/f.c src/g.o -o gcc; \
         rustc -C linker-plugin-lto -C linker=clang r.rs -C link-arg=-fuse-ld=lld -o rust || true"
    );
    let capture = place.capture(&build).unwrap();
    let said = |name: &str| capture.select(Some(name)).unwrap_err().to_string();
    for (name, hint) in [("clang", "-flto=thin (clang)"), ("member", "-flto=thin (clang)"), ("gcc", "-flto (gcc)")] {
        assert!(said(name).contains(hint), "{name}: {}", said(name));
    }
    assert_eq!(link::lto_hint("x.rcgu.o", true), "build without -C linker-plugin-lto (cargo: lto = \"off\")");
}

/// gold writes the path of a shared object without a name into it.
#[test]
fn a_shared_object_of_gold_needs_a_name() {
    // Only where it needs versioned symbols.
    let place = Place::new("echo 'int puts(const char *); int g(void){return puts(\"g\");}' > src/g.c");
    let gold = "gcc -fuse-ld=gold -fPIC -shared src/f.c src/g.c";
    let capture =
        place.capture(&format!("{gold} -o lib/bare.so; {gold} -Wl,-soname,named.so -o lib/named.so")).unwrap();
    assert_eq!(capture.problems, Vec::<String>::new());
    capture.select(Some("named.so")).unwrap().prove_pass_through(place.dir.path()).unwrap();
    let proved = capture.select(Some("bare.so")).unwrap().prove_pass_through(place.dir.path());
    assert!(proved.unwrap_err().to_string().contains("-soname"));
}

/// A link made by a process that the build did not start is named, not met with silence.
#[test]
fn a_link_that_was_not_seen_is_named() {
    let place = Place::new("gcc -g src/main.c src/f.c src/g.c -o ../prebuilt");
    let error = place.capture("cp ../prebuilt x").unwrap_err().to_string();
    assert!(error.contains("x was written") || error.contains("yet x"), "{error}");
    let capture = place.capture("cp ../prebuilt x; gcc src/main.c src/f.c src/g.c -o y; cp y z").unwrap();
    assert_eq!(names(&capture), ["y"]);
    assert_eq!(capture.unseen.iter().map(|u| u.path.as_str()).collect::<Vec<_>>(), ["x"]);
    assert!(capture.select(Some("x")).unwrap_err().to_string().contains("not captured"));
}
