//! All integration tests in one binary: one link instead of many.

mod link;
mod measure;
mod scan;
mod variant;
