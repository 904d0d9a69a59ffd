//! Lines: who straddles, who shares.
