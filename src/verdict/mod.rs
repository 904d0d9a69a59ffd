//! Record → Estimates → Verdict: from raw runs to an answer, and nothing but the record in between.
//!
//! [`runs`] sorts the samples out, [`estimates`] turns them into numbers with intervals, [`looks`] says how wide these
//! must be, [`decide`] applies the rule, [`rows`] puts a sweep's rows together, [`reasons`] puts it in words. All pure: the
//! same record gives the same bytes.

pub mod decide;
pub mod estimates;
pub mod looks;
mod machines;
mod reasons;
pub mod robust;
pub mod rounds;
pub mod rows;
pub mod runs;
pub mod spread;
mod value;
mod words;

pub use decide::{Answer, Blocked};
pub use machines::verdicts;
pub use reasons::{BY_WORKERS, by_workers};
pub use rounds::{Cost, Lacking, forecast, lacking, rounds_wanted};
pub use rows::{Pair, Row, Typical};
pub use value::{
    CellValue, Contrasts, Effect, LayoutSpread, Machine, Needs, OverLayouts, PerVersion, SCHEMA, TwoModes, Verdict,
    Verdicts,
};
pub use words::{effect, expectation, plain};

use crate::measure::record::Record;
use decide::Decision;
use estimates::Estimates;
use rows::Key;
use runs::Runs;

/// The verdict of a record, as far as it goes: at the last look that its blocks and layouts reach.
#[must_use]
pub fn verdict(record: &Record) -> Verdict {
    conclude(record, |key| Runs::of(record, key))
}

/// The verdict of the runs of each row; of `record`, all but the samples counts.
fn conclude(record: &Record, runs: impl Fn(Key) -> Runs) -> Verdict {
    let of = |key| (key, of_row(record, key, runs(key)));
    let others = Key::all(&record.header).into_iter().skip(1).map(of).collect();
    let verdict = rows::whole(record, of(Key::first(&record.header)), others);
    reasons::of_all_rows(verdict, record)
}

fn of_row(record: &Record, key: Key, mut runs: Runs) -> Verdict {
    let tried = runs.tried;
    let margin = decide::margin(record);
    let sharing = key.sharing(&record.header);
    let estimates = match record.header.quick {
        true => Estimates::quick(&mut runs, margin, sharing),
        false => Estimates::at_look(&mut runs, margin, record.header.cycle, sharing),
    };
    let decision = if record.header.identical {
        Decision::answer(Answer::NotReproduced)
    } else {
        // In the look table there are two layouts for every block; of cycles, one.
        let layouts = record.header.cycle.map_or(tried.layouts, |of| 2 * tried.layouts / of as usize);
        let tried = runs::Tried { layouts, ..tried };
        // A single landing of an inside that moved is as bad as one that cannot be moved.
        let matched = &record.header.matched;
        let rigid = !matched.rigid.is_empty() || record.header.quick && !matched.inside_moved.is_empty();
        decide::decide(&estimates, record.header.max_blocks as usize, tried, rigid)
    };
    let mut verdict = Verdict::of(record, key, runs, &estimates, decision);
    verdict.reasons = reasons::reasons(&verdict, tried);
    verdict
}

#[cfg(test)]
mod calibration;
#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
