//! A changed object of one section, end to end: its inside goes through the same phases in both versions.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use straddle::measure::record::{Cell, Group, Record};

/// `hot` costs eight times as much on the last eight bytes of a line; eight new bytes in its own object put it there. The
/// program says what it costs by its address, so nothing depends on the machine.
#[test]
fn the_luck_of_an_inside_that_moved_is_not_blamed_on_the_code() {
    let dir = tempfile::tempdir().unwrap();
    for (name, new) in [("base", ""), ("patched", "long added = 7; ")] {
        let tree = dir.path().join(name);
        fs::create_dir(&tree).unwrap();
        let main = "#include <stdio.h>\nextern long hot;\nint main(void) { unsigned long at = (unsigned long)&hot;\n\
            printf(\"t %d\\n\", at % 64 == 56 ? 800 : 100); return 0; }\n";
        fs::write(tree.join("main.c"), main).unwrap();
        fs::write(tree.join("filler.c"), "long a = 1, b = 2, c = 3;\n").unwrap();
        fs::write(tree.join("hot.c"), format!("long one = 1; {new}long hot = 2;\n")).unwrap();
    }
    let build = "cc -O1 -fno-toplevel-reorder -c main.c filler.c hot.c && cc -o prog main.o filler.o hot.o";
    let output = Command::new(env!("CARGO_BIN_EXE_straddle"))
        .args(["triage", "--layouts", "8", "--format", "json", "--base", "base", "--patched", "patched"])
        .args(["--metric", "stdout:t ([0-9]+)", "--build", build, "--", "{bin}"])
        .current_dir(dir.path())
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{said}");
    let path = said.lines().find_map(|l| l.strip_prefix("record: ")).unwrap();
    let record = Record::parse(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(record.header.cycle, Some(8));

    // In every cycle each version stands once on the bad phase, and never in the same layout as the other.
    let mut unlucky: BTreeMap<(u32, Cell), Vec<u32>> = BTreeMap::new();
    let layouts = || record.samples.iter().filter(|s| s.group == Group::Layout);
    for sample in layouts().filter(|s| s.value == Some(800.0)) {
        let at = unlucky.entry((sample.number / 8, sample.cell)).or_default();
        if !at.contains(&sample.number) {
            at.push(sample.number);
        }
    }
    let cycles: Vec<u32> = unlucky.keys().filter(|(_, cell)| *cell == Cell::B0).map(|(cycle, _)| *cycle).collect();
    assert_eq!(cycles, [0, 1, 2, 3]);
    assert!(unlucky.len() == 8 && unlucky.values().all(|at| at.len() == 1), "{unlucky:?}");
    for cycle in cycles {
        assert_ne!(unlucky[&(cycle, Cell::B0)], unlucky[&(cycle, Cell::P0)]);
    }
    // Beside other tests the machine may never be quiet: then it says so.
    let as_built = |cell| {
        let of = |s: &&straddle::measure::record::Sample| (s.group, s.number, s.cell) == (Group::Block, 0, cell);
        record.samples.iter().find(of).unwrap().value
    };
    // Where the start files put the data decides whether the build met the bad phase.
    let answer = if as_built(Cell::B0) == as_built(Cell::P0) { "not-reproduced" } else { "alignment" };
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    if verdict["verdict"] != "inconclusive" {
        assert_eq!((&verdict["verdict"], &verdict["code_over_layouts"]["percent"]), (&answer.into(), &0.0.into()));
    }
}
