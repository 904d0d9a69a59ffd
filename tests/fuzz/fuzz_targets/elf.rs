//! Any bytes: read or refused, never a panic, never more memory than the file justifies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::image::Image;
use straddle::types::{Files, Source, Want};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes, "fuzz") else { return };
    let source = Source::of(&image, Want::Auto, Files::default()).expect("what cannot be read becomes a reason");
    let Ok(types) = source.read(&image) else { return };
    let Ok(scan) = straddle::rules::scan(&image, Some(&types), &Default::default()) else { return };
    let _ = straddle::report::table::write(&straddle::report::scan::page(&scan, straddle::report::page::View::All), &mut std::io::sink());
    // Against itself nothing can have changed.
    let diff = straddle::diff::diff(&image, &image, &Default::default()).expect("what can be scanned can be compared");
    assert_eq!(diff.data.resized + diff.data.added + diff.data.removed + diff.data.moved, 0);
    assert!(diff.loaded_content_equal);
});
