//! Rules: Lines → Findings.
