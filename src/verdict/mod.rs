//! Record → Estimates → Verdict.
