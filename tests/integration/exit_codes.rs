//! The exit-code table, as a user meets it: one clear line on stderr, nothing half-written, the promised number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with everything the cases need.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let world = World { dir: tempfile::tempdir().unwrap() };
        let main =
            "#include <stdio.h>\nint counter = 1;\nint main(void) { printf(\"t 1.5\\n\"); return counter != 1; }\n";
        world.tree("base", main, "cc -O1 main.c -o prog");
        world.tree(
            "patched",
            &main.replace("int counter = 1", "int other = 2; int counter = 1"),
            "cc -O1 main.c -o prog",
        );
        world.tree("same", &main.replace("int main", "/* the patch */ int main"), "cc -O1 main.c -o prog");
        world.tree("fails", main, "echo 'the compiler said no'; exit 7");
        world.tree("lto", main, "cc -O1 -flto main.c -o prog");
        world.tree("idle", main, "true");
        world.tree("silent", "int counter = 1, o; int main(void) { return 0; }", "cc -O1 main.c -o prog");
        world.tree("dies", "int counter = 1, o; int main(void) { return 9; }", "cc -O1 main.c -o prog");
        world.tree("hangs", "int counter = 1, o; int main(void) { for (;;) ; }", "cc -O0 main.c -o prog");
        world.tree("lies", &main.replace("t 1.5", "t zero"), "cc -O1 main.c -o prog");
        fs::write(world.path("text"), "no ELF at all\n").unwrap();
        fs::write(world.path("empty"), "").unwrap();
        let cc = |args: &[&str]| {
            assert!(Command::new("cc").current_dir(world.dir.path()).args(args).status().unwrap().success());
        };
        cc(&["base/main.c", "-o", "image"]);
        cc(&["base/main.c", "-g", "-o", "typed"]);
        fs::write(world.path("norule.toml"), "[[allow]]\nstradle = \"x\"\nwhy = \"y\"\n").unwrap();
        cc(&["base/main.c", "-s", "-static-libgcc", "-o", "stripped"]);
        let image = fs::read(world.path("image")).unwrap();
        fs::write(world.path("truncated"), &image[..image.len() / 2]).unwrap();
        let mut other = image.clone();
        other[18] = 0xb7; // e_machine: AArch64
        fs::write(world.path("arm"), &other).unwrap();
        let mut class = image;
        class[4] = 9; // EI_CLASS: neither 32 nor 64 bits
        fs::write(world.path("class"), &class).unwrap();
        world
    }

    fn tree(&self, name: &str, main: &str, build: &str) {
        let dir = self.path(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("main.c"), main).unwrap();
        fs::write(dir.join("build.sh"), build).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str], stdout: Stdio) -> Output {
        Command::new(env!("CARGO_BIN_EXE_straddle"))
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(stdout)
            .output()
            .unwrap()
    }
}

/// `triage base PATCHED` with the build that each tree carries.
fn triage<'a>(patched: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let metric = ["--metric", "stdout:t ([0-9.]+)"];
    let mut args = vec!["-q", "triage", "--base", "base", "--patched", patched, "--build", "sh build.sh"];
    args.extend(metric);
    args.extend(more);
    args.extend(["--", "{bin}"]);
    args
}

#[test]
fn every_exit_code_has_its_case_and_every_failure_one_line() {
    let world = World::new();
    let s = |args: &[&'static str]| args.to_vec();
    // What is done, the code, and what the one line must say.
    let table: Vec<(&str, Vec<&str>, i32, &str)> = vec![
        ("an image", s(&["scan", "image"]), 0, ""),
        ("a machine that is looked at only", s(&["doctor", "--probe", "0s"]), 0, ""),
        ("CPUs that are not there", s(&["doctor", "--cpus", "8000"]), 2, "CPU 8000"),
        ("help", s(&["--help"]), 0, ""),
        ("no command", s(&[]), 2, "Usage"),
        ("an unknown flag", s(&["scan", "--frobnicate", "image"]), 2, "--frobnicate"),
        ("not an ELF", s(&["scan", "text"]), 2, "text"),
        ("a truncated ELF", s(&["scan", "truncated"]), 2, "truncated"),
        ("an unknown class", s(&["scan", "class"]), 2, "class"),
        ("two machines", s(&["diff", "image", "arm"]), 2, "aarch64"),
        ("no symbols", s(&["scan", "stripped"]), 2, "symbols"),
        ("no types", s(&["type", "image"]), 2, "no type information"),
        ("no such type", s(&["type", "typed", "nosuch"]), 2, "`nosuch`"),
        ("no such object", s(&["scan", "image", "--object", "nosuch"]), 2, "`nosuch`"),
        ("no such rule", s(&["scan", "image", "--rules", "norule.toml"]), 2, "`stradle`"),
        ("an alignment that is none", s(&["type", "typed", "--align", "24"]), 2, "power of two"),
        ("an empty file", s(&["scan", "empty"]), 2, "empty"),
        ("a folder", s(&["scan", "base"]), 2, "directory"),
        ("no such file", s(&["scan", "nowhere"]), 2, "nowhere"),
        ("no such case", s(&["triage", "nowhere"]), 2, "straddle.toml"),
        ("no trees", s(&["triage", "--build", "make"]), 2, "--base"),
        ("no build command", s(&["triage", "--base", "base", "--patched", "patched"]), 2, "build command"),
        ("no workload", s(&["triage", "--base", "base", "--patched", "patched", "--build", "make"]), 2, "workload"),
        ("no repository", s(&["triage", "--git", "A..B", "--build", "make", "--", "{bin}"]), 2, "git"),
        ("no range", s(&["triage", "--git", "A", "--build", "make", "--", "{bin}"]), 2, "range"),
        (
            "a bad metric",
            s(&[
                "triage",
                "--base",
                "base",
                "--patched",
                "patched",
                "--build",
                "x",
                "--metric",
                "stdout:(",
                "--",
                "{bin}",
            ]),
            2,
            "stdout:(",
        ),
        ("a build that fails", triage("fails", &[]), 2, "the compiler said no"),
        ("a build that links nothing", triage("idle", &[]), 2, "linked nothing"),
        ("link-time optimisation", triage("lto", &[]), 2, "-flto"),
        ("a link that is not there", triage("patched", &["--link", "nosuch*"]), 2, "nosuch*"),
        ("a workload that fails", triage("dies", &[]), 2, "status 9"),
        ("a workload without a metric", triage("silent", &[]), 2, "no metric"),
        ("a metric that is no number", triage("lies", &[]), 2, "t zero"),
        ("a workload that hangs", triage("hangs", &[]), 2, "still runs after"),
        ("the same, for git bisect", triage("dies", &["--bisect"]), 125, "status 9"),
        ("identical builds", triage("same", &[]), 0, ""),
        ("no such record", s(&["verdict", "nowhere"]), 2, "nowhere"),
        ("no record", s(&["verdict", "text"]), 2, "text"),
    ];
    let mut wrong = Vec::new();
    for (what, args, code, says) in table {
        let out = world.run(&args, Stdio::piped());
        let err = String::from_utf8_lossy(&out.stderr);
        if out.status.code() != Some(code) {
            wrong.push(format!("{what}: exit {:?}, not {code}: {err}", out.status));
        }
        if code != 0 && !err.contains(says) {
            wrong.push(format!("{what}: {err:?} does not say {says:?}"));
        }
        // A failing build shows its own output below the line; clap prints its usage.
        let own_output =
            ["a build that fails", "no command", "an unknown flag", "an alignment that is none"].contains(&what);
        if code != 0 && !own_output && err.trim_end().lines().count() != 1 {
            wrong.push(format!("{what}: not one line: {err}"));
        }
        if code != 0 && !out.stdout.is_empty() {
            wrong.push(format!("{what}: half-written: {}", String::from_utf8_lossy(&out.stdout)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A record of a campaign of which nothing was clean says nothing: 3. A full disk is the machine's fault: 4.
#[test]
fn a_full_disk_is_the_machine_and_an_empty_record_is_inconclusive() {
    let world = World::new();
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let out = world.run(&["scan", "image"], full());
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{err}");
    assert!(err.contains("space"), "{err}");

    let out = world.run(&triage("same", &[]), Stdio::piped());
    assert_eq!(out.status.code(), Some(0));
    let record = newest_record(&world.path("cache"));
    let header = fs::read_to_string(&record).unwrap().replace("\"identical\":true", "\"identical\":false");
    fs::write(&record, header).unwrap();
    let out = world.run(&["verdict", record.to_str().unwrap()], Stdio::piped());
    assert_eq!(out.status.code(), Some(3));
}

fn newest_record(cache: &Path) -> PathBuf {
    let mut found = Vec::new();
    let mut folders = vec![cache.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "record") {
                found.push(path);
            }
        }
    }
    found.pop().unwrap()
}
