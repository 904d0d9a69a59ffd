//! The integration tests, in one binary.

mod link;
mod variant;
