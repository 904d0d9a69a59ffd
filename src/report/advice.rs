//! What to do next, by the verdict and by what stood in its way.

use crate::error::Exit;
use crate::verdict::{Answer, Blocked, Verdict};

/// What to do next, the first step first.
pub(super) fn next(v: &Verdict) -> Vec<String> {
    let apart = match v.suspects.is_empty() {
        true => "find the hot objects that share a line (straddle scan) and give each a line of its own",
        false => "give the hot ones of these objects a line of their own: alignas(64), ____cacheline_aligned",
    };
    let steps = match (v.verdict, v.blocked_by) {
        (Answer::Alignment, _) => {
            vec!["the patch needs no change: base's own code on patched's landing shows the same", apart]
        }
        (Answer::Code, _) if v.exit() == Exit::Gate => {
            vec!["profile base against patched: where the bytes lie is not the reason"]
        }
        (Answer::Code, _) => vec!["keep it: the gain holds wherever the bytes lie"],
        (Answer::Both, _) if v.masked => {
            vec!["judge the patch by its code effect: the next change may move its bytes again", apart]
        }
        (Answer::Both, _) if v.only_together => vec![apart, "then measure again: what is left is the code"],
        (Answer::Both, _) => vec!["profile the code effect: it stays wherever the bytes lie", apart],
        (Answer::NotReproduced, _) if v.identical => vec!["see whether the patch reaches this link at all (--link)"],
        (Answer::NotReproduced, _) if v.workers == Some(1) && v.rows.iter().all(|row| row.workers == Some(1)) => {
            vec!["run it with more workers: --workers 1,2", "or run that workload on the machine where it was seen"]
        }
        (Answer::NotReproduced, _) => {
            vec!["if it was seen elsewhere: run that workload on that machine, or choose a smaller --margin"]
        }
        (Answer::Inconclusive, by) => match by {
            Some(Blocked::Placement) => vec![apart, "then measure again"],
            Some(Blocked::Unexplained) => {
                vec!["repeat with another --seed; if it stays, vary page, stack and heap offsets"]
            }
            Some(Blocked::AA) => vec!["stop what else runs on this machine, then measure again"],
            Some(Blocked::Unmatched) => return unmatched(v),
            Some(Blocked::Budget | Blocked::Precision) if v.quick && v.code_effect.low.is_some() => {
                vec!["measure without --quick"]
            }
            Some(Blocked::Budget) => vec!["give it a larger --budget, or choose a larger --margin"],
            Some(Blocked::Row) => vec!["let every row of the sweep decide: leave `decides` out, measure again"],
            Some(Blocked::Precision) | None => vec!["find a quieter machine, or choose a larger --margin"],
        },
    };
    steps.into_iter().map(String::from).collect()
}

/// What the compiler kept in one section can be told apart by a rebuild. Data that no padding brings to one landing in both
/// versions can not: it needs a line of its own.
fn unmatched(v: &Verdict) -> Vec<String> {
    let unit = |unit: &str| unit.split_once(" (").map_or(unit, |(name, _)| name).to_owned();
    let Some(apart) = v.matched.apart().next().map(unit) else {
        return vec!["rebuild both with -fdata-sections -ffunction-sections, measure again".into()];
    };
    let more = v.matched.apart().count() - 1;
    let more = if more > 0 { format!(" and of {more} more") } else { String::new() };
    vec![
        format!("give the written data of {apart}{more} a line of its own (alignas(64), ____cacheline_aligned)"),
        "then measure again: both versions can stand on one landing".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::simulated::{Campaign, World};
    use crate::verdict::verdict;

    /// A rebuild tells the inside of one section apart; it does nothing for what no padding brings together.
    #[test]
    fn the_advice_follows_from_why_units_are_unmatched() {
        let mut record = Campaign::new(World::new(0.3, 0.0), 0.002, 11).fixed(12, 6);
        let inside = "state.o:.data (alignment 64)".to_owned();
        record.header.matched.inside_moved = vec![inside.clone()];
        record.header.matched.rigid = vec![inside];
        let steps = next(&verdict(&record));
        assert!(steps[0].contains("-fdata-sections"), "{steps:?}");
        let apart =
            "lib.a(ticker.o):.data (on base's landing, it shares a line with config.o:.data in base, not in patched)";
        record.header.matched.rigid.push(apart.into());
        let steps = next(&verdict(&record));
        assert!(steps[0].contains("written data of lib.a(ticker.o):.data a line of its own"), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("-fdata-sections")), "{steps:?}");
    }
}
