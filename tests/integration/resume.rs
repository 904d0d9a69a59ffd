//! A triage that is killed outright goes on, and a record that does not fit is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use straddle::measure::record::{Note, Record};

struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// The patch makes the program's own figure half as large again, whatever the layout.
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        for (name, cost) in [("base", 100), ("patched", 150)] {
            let tree = dir.path().join(name);
            fs::create_dir(&tree).unwrap();
            let main = format!(
                "#include <stdio.h>\n#include <unistd.h>\nint cost = {cost};\n\
                 int main(void) {{ usleep(1000); printf(\"t %d\\n\", cost); return 0; }}\n"
            );
            fs::write(tree.join("main.c"), main).unwrap();
        }
        World { dir }
    }

    fn triage(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
        let args = "-q triage --layouts 8 --format json --base base --patched patched --link prog --metric";
        command.args(args.split(' ')).args(["stdout:t ([0-9]+)", "--build", "cc -O1 main.c -o prog"]);
        command.args(more).args(["--", "{bin}"]);
        command.current_dir(self.dir.path()).env("XDG_CACHE_HOME", self.dir.path().join("cache")).stdin(Stdio::null());
        command
    }

    fn record(&self) -> Option<PathBuf> {
        let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        let cases: Vec<PathBuf> = files(self.dir.path().join("cache/straddle")).collect();
        cases.into_iter().flat_map(files).find(|p| p.extension().is_some_and(|e| e == "record"))
    }

    fn lines(&self) -> usize {
        self.record().and_then(|p| fs::read(p).ok()).map_or(0, |text| text.iter().filter(|&&b| b == b'\n').count())
    }
}

fn read(path: &Path) -> Record {
    Record::parse(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_killed_triage_goes_on_where_it_was() {
    let world = World::new();
    let refused = world.triage(&["--resume"]).output().unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(error.contains("this case has none yet") && error.trim_end().lines().count() == 1, "{error}");

    let mut child = world.triage(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while world.lines() < 80 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let path = world.record().unwrap();
    let before = read(&path);

    let refused = world.triage(&["--resume", "--seed", "7"]).output().unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(error.contains("its seed is 0x1, not 0x7") && error.trim_end().lines().count() == 1, "{error}");

    let resumed = world.triage(&["--resume"]).output().unwrap();
    let error = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(error, "");
    let after = read(&path);
    assert_eq!(after.samples[..before.samples.len()], before.samples, "what was whole is kept as it was");
    let [.., last] = &after.samples[..] else { panic!("no sample") };
    assert_eq!(last.order, after.samples.len() as u64 - 1);
    assert!(after.notes.iter().any(|n| matches!(n, Note::Resumed(r) if r.order == before.samples.len() as u64)));
    // The record is enough, and there is no other.
    let path = path.to_str().unwrap();
    let again =
        Command::new(env!("CARGO_BIN_EXE_straddle")).args(["verdict", "--format", "json", path]).output().unwrap();
    assert_eq!(again.stdout, resumed.stdout);
    let verdict: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
    // Beside other tests the machine may never be quiet: then it says so.
    let answer = (verdict["verdict"].as_str().unwrap(), resumed.status.code());
    assert!([("code", Some(1)), ("inconclusive", Some(3))].contains(&answer), "{verdict:#}");

    // Once more: all of it is there, nothing is run.
    let whole = world.triage(&[&format!("--resume={path}")]).output().unwrap();
    assert_eq!(whole.stdout, resumed.stdout);
    assert_eq!(read(Path::new(path)), after);
}
