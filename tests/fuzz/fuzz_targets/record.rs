//! Any text as a campaign's record: read or refused; what is read has a verdict that can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::measure::record::Record;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::parse(&String::from_utf8_lossy(bytes)) else { return };
    let verdict = straddle::verdict::verdict(&record);
    let _ = straddle::report::table::write(&straddle::report::verdict::page(&verdict), &mut std::io::sink());
    let _ = verdict.exit();
});
