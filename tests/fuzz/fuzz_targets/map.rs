//! Any text as a link map: read or refused, and what is read lies where it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::image::map::Landing;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(landing) = Landing::parse(&text) else { return };
    assert!(!landing.placed.is_empty());
    assert!(landing.placed.len() + landing.outputs.len() <= 2 * text.lines().count(), "more pieces than lines");
    // The map is its text alone: the same text gives the same landing.
    assert_eq!(Landing::parse(&text).ok().as_ref(), Some(&landing));
});
