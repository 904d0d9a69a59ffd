//! Any bytes as a kernel in whatever wrapping: taken off or refused, within the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use straddle::image::{Image, unpack};
use straddle::open::Bytes;

const LIMIT: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(unpacked) = unpack(Bytes::Owned(bytes.to_vec()), "fuzz", LIMIT) else { return };
    if unpacked.packed.is_none() {
        assert_eq!(&*unpacked.bytes, bytes, "what is not wrapped stays as it is");
        return;
    }
    assert!(unpacked.bytes.len() as u64 <= LIMIT);
    let Ok(image) = Image::parse(&unpacked.bytes, "fuzz") else { return };
    let _ = straddle::rules::scan(&image, None, &Default::default());
});
