//! Any text as campaigns' records, one or several (a NUL byte between them): read or refused; what is read has a verdict that
//! can be printed, alone and pooled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::measure::record::Record;
use straddle::report::{markdown, table, verdict as pages};
use straddle::verdict::{Verdict, Verdicts, verdict, verdicts};

fuzz_target!(|bytes: &[u8]| {
    let read = |part: &[u8]| Record::parse(&String::from_utf8_lossy(part));
    let Ok(mut records) = bytes.split(|&b| b == 0).take(4).map(read).collect::<Result<Vec<Record>, _>>() else { return };
    records.iter().for_each(|record| print(&verdict(record)));
    // A single record is merged with itself on another day.
    if let [one] = &records[..] {
        let mut other = one.clone();
        other.header.started.push('+');
        records.push(other);
    }
    let Ok(all) = verdicts(&records) else { return };
    all.iter().for_each(print);
    let pooled: u64 = all.iter().map(|v| v.runs).sum();
    assert_eq!(pooled, records.iter().map(|r| r.samples.len() as u64).sum::<u64>(), "a run is lost or counted twice");
    let _ = Verdicts::new(all).exit();
});

fn print(verdict: &Verdict) {
    for page in [pages::page(verdict), pages::brief(verdict)] {
        let _ = table::write(&page, &mut std::io::sink());
        let _ = markdown::write(&page, &mut std::io::sink());
    }
    assert!(verdict.skipped.values().sum::<u64>() <= verdict.runs);
    assert!(!verdict.rows.is_empty() && serde_json::to_string(verdict).is_ok());
    let _ = verdict.exit();
}
