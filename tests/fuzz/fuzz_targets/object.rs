//! Any bytes in the place of an object, or of an archive, of a real link: read or refused; whatever may be padded is
//! padded, and the proof by the second reader accepts every patch that the writer made.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use straddle::error::{Error, Result};
use straddle::link::{Input, Linked, Relink};
use straddle::open::Bytes;
use straddle::variant::{Plan, Program, make};

/// A real link, done once: the file, its map, and the name under which the map has the input.
struct Real {
    linked: Vec<u8>,
    map: String,
    name: &'static str,
}

/// Of an object, and of an archive that holds it.
static REAL: LazyLock<[Real; 2]> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a scratch folder");
    // As scripts/check.sh makes the first inputs, so that the fuzzer starts from what the link holds.
    let script = "set -e
        echo 'int one = 1, zero; const int four = 4; int g(void) { return one + zero; } int f(void) { return g() + four; }' |
            gcc -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -xc -c - -o object
        ar rcs archive object
        ld -e f object -o from-object -Map object-map
        ld -e f --whole-archive archive -o from-archive -Map archive-map";
    let done = Command::new("sh").args(["-c", &script]).current_dir(&dir).status().expect("sh starts");
    assert!(done.success(), "gcc and ld are there");
    let read = |file: &str| fs::read(dir.path().join(file)).expect("the link wrote it");
    ["object", "archive"].map(|name| Real {
        linked: read(&format!("from-{name}")),
        map: String::from_utf8(read(&format!("{name}-map"))).expect("a map is text"),
        name,
    })
});

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a scratch folder"));

/// That link, with the fuzzer's bytes for its input.
struct Fuzzed<'a> {
    real: &'static Real,
    bytes: &'a [u8],
    inputs: [Input; 1],
}

impl Relink for Fuzzed<'_> {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn bytes(&self, _: usize) -> Result<Bytes> {
        Ok(Bytes::Owned(self.bytes.to_vec()))
    }

    fn relink(&self, replaced: &BTreeMap<usize, Vec<u8>>, output: &Path) -> Result<Linked> {
        if !replaced.is_empty() {
            return Err(Error::input("linking", "patched and proven: that is all that is asked here"));
        }
        fs::write(output, &self.real.linked).expect("the scratch folder is there");
        Ok(Linked { map: self.real.map.clone(), files: BTreeMap::from([(self.real.name.to_owned(), 0)]) })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [object, archive] = &*REAL;
    let real = if bytes.starts_with(b"!<") { archive } else { object };
    let input = Input { name: real.name.to_owned(), system: false, hash: String::new() };
    let link = Fuzzed { real, bytes, inputs: [input] };
    let Ok(program) = Program::open(&link, SCRATCH.path()) else { return };
    let mut plan = Plan::no_op();
    for (number, unit) in program.units.iter().filter(|u| u.class.paddable()).enumerate() {
        plan.pads.insert(unit.key.clone(), 16 * (1 + number as u64));
        plan.aligns.insert(unit.key.clone(), 64);
    }
    if let Err(error) = make(&program, &link, &plan, &SCRATCH.path().join("variant")) {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
    }
});
