//! Any bytes as a kernel that names its own symbols, and any text as a list of symbols: read or refused, and what is read
//! is in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::image::{Home, Image, List, Machine, Sizes, SymbolsFrom};

fn ordered(image: &Image<'_>) {
    if image.sizes != Sizes::UpTo {
        return;
    }
    assert!(image.symbols.iter().map(|s| s.value).is_sorted());
    for symbol in &image.symbols {
        let Home::Section(section) = symbol.home else { continue };
        let section = image.section(section).expect("a section of the image");
        assert!(symbol.value >= section.address && symbol.value - section.address < section.size);
        assert!(symbol.size <= section.size - (symbol.value - section.address));
    }
    if let Ok(scan) = straddle::rules::scan(image, None, &Default::default()) {
        let _ = straddle::report::table::write(&straddle::report::scan::page(&scan, straddle::report::page::View::All), &mut std::io::sink());
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = Image::parse(bytes, "fuzz") {
        ordered(&image);
    }
    let text = String::from_utf8_lossy(bytes);
    let Ok(list) = List::parse(&text, "fuzz", SymbolsFrom::ProcKallsyms) else { return };
    let machine = Machine::named("x86_64").expect("a known machine");
    if let Ok(image) = Image::without_file(list, machine, "fuzz") {
        ordered(&image);
    }
});
