//! Any bytes: read or refused, never a panic, never more memory than the file justifies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::image::Image;
use straddle::types::DebugSections;

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes, "fuzz") else { return };
    let debug = DebugSections::of(&image);
    let types = debug.as_ref().map(DebugSections::read);
    let Ok(scan) = straddle::rules::scan(&image, types.as_ref(), &Default::default()) else { return };
    let _ = straddle::report::table::write(&straddle::report::scan::page(&scan, true), &mut std::io::sink());
    // Against itself nothing can have changed.
    let diff = straddle::diff::diff(&image, &image, None).expect("what can be scanned can be compared");
    assert_eq!(diff.data.resized + diff.data.added + diff.data.removed + diff.data.moved, 0);
    assert!(diff.loaded_content_equal);
});
