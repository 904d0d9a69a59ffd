//! `straddle` answers one question: **did my code get slower, or did its bytes merely move?**
//!
//! Two rivers, one mouth:
//!
//! ```text
//! static   path ─▶ Image ─▶ Objects, Types, Heat ─▶ Lines ─▶ Findings ─────────────────┐
//!                              └──────── two of them ─▶ Diff ─▶ Suspects ──────────────┤
//!                                                                                      ├─▶ Report
//! dynamic  build ─▶ Capture ─▶ Plan ─▶ Variants ─▶ Record ─▶ Estimates ─▶ Verdict ─────┘
//! ```
//!
//! Each arrow is one function; each value in between can be printed and serialised. A module uses
//! only modules above it in this list; `cli` may use all. ARCHITECTURE.md says what each turns into
//! what, and what must never be.

pub mod units;

pub mod error;
pub mod finding;

pub mod open;

pub mod image;
pub mod objects;
pub mod types;

pub mod code;
pub mod formats;
pub mod heat;
pub mod layout;

pub mod diff;
pub mod rules;

pub mod link;
pub mod variant;

pub mod measure;
pub mod verdict;

pub mod triage;

pub mod report;

pub mod cli;
