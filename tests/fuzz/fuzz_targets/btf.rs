//! Any bytes as BTF: read or refused, never a panic, and every walk over what was read ends. The first byte says how
//! the rest is used: as it is, split on a good base, or cut in two, the first half the base of the second.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::types::{Btf, TypeTable};

/// One type, and the empty string: a base that every split blob can have.
const BASE: &[u8] =
    b"\x9f\xeb\x01\0\x18\0\0\0\0\0\0\0\x10\0\0\0\x10\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\x01\x04\0\0\0\x20\0\0\0\0int\0";

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let half = bytes.len() / 2;
    let (base, own) = match how % 3 {
        0 => (None, bytes),
        1 => (Some(BASE), bytes),
        _ => (Some(&bytes[..half]), &bytes[half..]),
    };
    let base = base.and_then(|base| Btf::parse(base, "base").ok());
    let Ok(own) = Btf::parse(own, "fuzz") else { return };
    let Ok(types) = own.types(base.as_ref(), None) else { return };
    walk(&types.table);
});

/// Time is linear in the types: each walk has a bound.
fn walk(table: &TypeTable<'_>) {
    for (id, _) in table.iter().take(64) {
        let _ = (table.size(id), table.contention(id), table.elements(id, Some(64)));
        assert!(table.levels(id).iter().map(Vec::len).sum::<usize>() <= 4096);
        assert!(table.name(id).chars().count() <= 201);
    }
}
