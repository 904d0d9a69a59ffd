//! One binary for all integration tests: they share one link and one build of the helpers.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests open files, run compilers and stop at the first surprise"
)]

mod browser;
mod btf;
mod cases;
mod check;
mod companions;
mod cycle;
mod diff;
mod diff_cases;
mod diff_known;
mod exit_codes;
mod heat;
mod hostile;
mod images;
mod link;
mod matrix;
mod measure;
mod oracles;
mod profile;
mod resume;
mod rules;
mod scan;
mod sweep;
mod tidy;
mod type_view;
mod types;
mod variant;
mod variants;
