//! Any bytes as a profile of a real program: read or refused, laid over it and reported; and every sample that was read went
//! somewhere.
#![no_main]

use std::process::Command;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use straddle::formats::Samples;
use straddle::image::Image;
use straddle::rules::{Ask, scan};

/// A small program with functions, per-CPU data and structs, at the addresses that the first inputs have.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let script = "set -e
        echo 'struct s { int a; long b; } s; int one = 1, zero; void _start(void) { one += s.a; s.b = zero; }' |
            gcc -O1 -nostdlib -static -fno-pie -no-pie -xc - -o image";
    let done = Command::new("sh").args(["-c", script]).current_dir(&dir).status().expect("sh starts");
    assert!(done.success(), "gcc is there");
    std::fs::read(dir.path().join("image")).expect("the link wrote it")
});

fuzz_target!(|bytes: &[u8]| {
    let samples = match Samples::open(bytes, "fuzz") {
        Ok(samples) => samples,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let image = Image::parse(&PROGRAM, "image").expect("gcc links programs");
    let profiles = [samples];
    let Ok(scan) = scan(&image, None, &Ask { profiles: &profiles, ..Ask::default() }) else { return };
    for profile in scan.profiles.iter().filter(|p| p.samples < u64::MAX) {
        let elsewhere: u128 = profile.elsewhere.values().map(|n| u128::from(*n)).sum();
        assert_eq!(u128::from(profile.objects) + elsewhere, u128::from(profile.samples));
    }
    let _ = straddle::report::table::write(&straddle::report::scan::page(&scan, straddle::report::page::View::All), &mut std::io::sink());
});
