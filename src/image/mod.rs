//! From bytes to an [`Image`]: sections, symbols, machine, build id.

pub mod map;
