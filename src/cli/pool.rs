//! Threads of one command.

use crate::error::{Error, Result};

/// `-j N`; `None` is one a CPU.
pub(super) fn pool(jobs: Option<u16>) -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.unwrap_or(0).into()).build();
    pool.map_err(|e| Error::machine("starting threads", e.to_string()))
}
