//! A sweep over worker counts from the command line to the verdict, with a program that really starts two threads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use straddle::measure::record::Record;

/// Patched counts half as much again for every worker but the first.
fn world() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, more) in [("base", 0), ("patched", 50)] {
        let tree = dir.path().join(name);
        fs::create_dir(&tree).unwrap();
        let main = format!(
            "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\nint more = {more}, count;\n\
             static void *work(void *p) {{ __atomic_add_fetch(&count, 100, 0); return p; }}\n\
             int main(int c, char **v) {{\n  int n = c > 1 ? atoi(v[1]) : 1;\n  pthread_t t[8];\n\
             for (int i = 0; i < n; i++) pthread_create(&t[i], 0, work, 0);\n\
             for (int i = 0; i < n; i++) pthread_join(t[i], 0);\n\
             printf(\"t %d\\nthreads %d\\n\", count / n + (n > 1 ? more : 0), n);\n  return 0;\n}}\n"
        );
        fs::write(tree.join("main.c"), main).unwrap();
    }
    dir
}

fn triage(dir: &Path, more: &[&str], workload: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
    let args = "-q triage --layouts 8 --format json --base base --patched patched --link prog";
    command.args(args.split(' ')).args(["--metric", "stdout:t ([0-9]+)", "--metric", "stdout:threads ([0-9]+)"]);
    command.args(["--build", "cc -O1 -pthread main.c -o prog"]).args(more).arg("--").args(workload);
    command.current_dir(dir).env("XDG_CACHE_HOME", dir.join("cache")).stdin(Stdio::null());
    command.output().unwrap()
}

fn record(dir: &Path) -> PathBuf {
    let files = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let cases: Vec<PathBuf> = files(dir.join("cache/straddle")).collect();
    cases.into_iter().flat_map(files).find(|p| p.extension().is_some_and(|e| e == "record")).unwrap()
}

#[test]
fn what_only_two_threads_show_is_found_and_the_record_says_it_again() {
    let world = world();
    let refused = triage(world.path(), &["--workers", "1,2"], &["{bin}"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && error.contains("the workload takes none"), "{error}");

    let done = triage(world.path(), &["--workers", "2,1", "--decides", "2"], &["{bin}", "{workers}"]);
    let error = String::from_utf8_lossy(&done.stderr);
    let v: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{error}"));
    // Beside other tests the machine may never be quiet: then it says so.
    let answer = (v["verdict"].as_str().unwrap(), done.status.code());
    assert!([("code", Some(1)), ("inconclusive", Some(3))].contains(&answer), "{v:#}");
    let rows: Vec<_> =
        v["rows"].as_array().unwrap().iter().map(|r| (r["workers"].as_u64(), r["decides"].as_bool())).collect();
    assert_eq!(rows, [(Some(1), Some(false)), (Some(2), Some(true)), (Some(1), Some(false)), (Some(2), Some(false))]);
    assert_eq!((&v["workers"], &v["rows"][1]["ratio"], &v["rows"][0]["ratio"]), (&2.into(), &1.5.into(), &1.0.into()));

    let path = record(world.path());
    let read = Record::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((read.header.workers, read.header.threads), (vec![1, 2], Some(true)));
    assert!(read.header.command.ends_with("prog {workers}"), "{}", read.header.command);
    for s in read.samples.iter().filter(|s| s.value.is_some()) {
        assert_eq!(s.also, [Some(f64::from(s.workers.unwrap()))], "the command had the count of its row");
    }
    let path = path.to_str().unwrap();
    let again =
        Command::new(env!("CARGO_BIN_EXE_straddle")).args(["verdict", "--format", "json", path]).output().unwrap();
    assert_eq!(again.stdout, done.stdout);
    // All of it is there: nothing is run. With other counts it is another campaign.
    let resumed = triage(world.path(), &["--workers", "1,2", "--decides", "2", "--resume"], &["{bin}", "{workers}"]);
    assert_eq!(resumed.stdout, done.stdout, "{}", String::from_utf8_lossy(&resumed.stderr));
    let other = triage(world.path(), &["--workers", "1", "--resume"], &["{bin}", "{workers}"]);
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(
        other.status.code() == Some(2) && error.contains("its list of worker counts is [1, 2], not [1]"),
        "{error}"
    );
}
