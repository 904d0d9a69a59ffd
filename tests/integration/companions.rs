//! Debug information that is not in the image itself, or packed: by the tools that move it. Whatever way it went, `scan`
//! and `type` must say what they say of the program as the compiler left it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const SOURCE: &str = "
    namespace db { template <class T> struct Shard { T hits; volatile T lock; char name[40]; }; }
    db::Shard<long> shards[4]; db::Shard<long> *more; volatile int total; static long near_it[2] = {1, 2};
    int main(int count, char **) { total += count; shards[count & 3].hits++; return near_it[count & 1] > 2 && more; }";

fn sh(folder: &Path, script: &str) {
    let out = Command::new("sh").args(["-e", "-c", script]).current_dir(folder).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
}

fn straddle(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
    let out = command.args(arguments).args(["--format", "json"]).current_dir(folder).output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

/// Findings with their types and places in the source, and a type as a user of clang would spell it.
fn told(folder: &Path, image: &str) -> [Value; 3] {
    let (mut scan, mut of_type) =
        (straddle(folder, &["scan", image]), straddle(folder, &["type", image, "db::Shard<long>"]));
    assert_eq!(scan["image"]["types_from"], "dwarf", "{image}");
    let findings = scan["findings"].take();
    assert!(findings.as_array().unwrap().iter().any(|f| f["subject"]["name"] == "shards"), "{image}: {findings}");
    [findings, scan["problems"].take(), of_type["types"][0]["members"].take()]
}

#[test]
fn wherever_debug_information_went_the_same_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("a.cc"), SOURCE).unwrap();
    sh(at, "g++ -O1 -g a.cc -o plain; g++ -O1 -g -gdwarf-4 -fdebug-types-section a.cc -o units");
    let plain = told(at, "plain");
    assert_eq!(plain[1], Value::Array(vec![]));
    for (image, script) in [
        ("older", "objcopy --compress-debug-sections=zlib-gnu plain older"),
        ("units", ""),
        (
            "link",
            "objcopy --only-keep-debug plain of-link; strip plain -o link; objcopy --add-gnu-debuglink=of-link link",
        ),
        ("split", "g++ -O1 -g -gsplit-dwarf -c a.cc -o s.o; g++ s.o -o split"),
        // The dwp of binutils 2.40 does not survive DWARF 5.
        (
            "packed",
            "g++ -O1 -g -gdwarf-4 -gsplit-dwarf -c a.cc -o p.o; g++ p.o -o packed; dwp -e packed -o packed.dwp; rm p.dwo",
        ),
        ("shared", "cp plain shared; cp units other; dwz -m common -r shared other"),
    ] {
        sh(at, script);
        assert_eq!(told(at, image), plain, "{image}");
    }
}

#[test]
fn files_of_another_build_are_refused_and_missing_ones_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("a.cc"), SOURCE).unwrap();
    std::fs::write(at.join("b.cc"), SOURCE.replace("near_it[2]", "near_it[3]")).unwrap();
    sh(
        at,
        "for f in a b; do g++ -O1 -g $f.cc -Wl,--build-id -o $f; objcopy --only-keep-debug $f $f.debug; done
         strip -g a; objcopy --add-gnu-debuglink=a.debug a; mv b.debug a.debug
         g++ -O1 -g -gsplit-dwarf -c a.cc -o s.o; g++ s.o -o split; rm s.dwo",
    );
    for (image, said) in [("a", "a.debug (it has build id"), ("split", "1 .dwo files not found")] {
        let scan = straddle(at, &["scan", image]);
        let problems = scan["problems"].to_string();
        assert!(problems.contains(said), "{image}: {problems}");
        assert!(scan["findings"].as_array().unwrap().iter().all(|f| f["evidence"] != "typed"), "{image}");
    }
}
