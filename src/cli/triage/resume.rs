//! Which record a triage goes on with.

use std::path::{Path, PathBuf};

use super::work::Work;
use crate::error::{Error, Result};
use crate::measure::record::{Header, Record};

/// The record that was named, or the newest one of the case whose header fits the campaign that `now` would begin.
pub(super) fn find(named: Option<&Path>, work: &Work, now: &Header) -> Result<PathBuf> {
    let doing = "looking for a record to go on with";
    let candidates = match named {
        Some(path) => vec![path.to_path_buf()],
        None => work.records()?,
    };
    let mut why_not = None;
    for path in candidates {
        match unfit(&path, now) {
            None => return Ok(path),
            Some(why) => drop(why_not.get_or_insert(format!("{}: {why}", path.display()))),
        }
    }
    let problem = why_not.unwrap_or_else(|| "this case has none yet".to_string());
    Err(Error::input(doing, problem).hint("measure anew, without --resume"))
}

/// Why this record cannot be gone on with.
fn unfit(path: &Path, now: &Header) -> Option<String> {
    match crate::open::text(path).and_then(|text| Record::parse(&text)) {
        Ok(record) => record.header.differs(now),
        Err(error) => Some(error.problem),
    }
}
