//! Numbers in words: every percentage says which way is worse.

use super::value::Effect;
use crate::measure::record::{Metric, Pilot};

/// `27.1 % slower [+26.0, +28.2]`. In brackets the 97.5 % interval, plus is worse; `no slower` where the number rounds
/// to nothing.
#[must_use]
pub fn effect(effect: &Effect, metric: &Metric) -> String {
    match (effect.low, effect.high) {
        (Some(low), Some(high)) => format!("{} [{}, {}]", plain(effect.percent, metric), signed(low), signed(high)),
        _ => plain(effect.percent, metric),
    }
}

/// `27.1 % slower`, without its interval; `unknown` for `null`.
#[must_use]
pub fn plain(percent: Option<f64>, metric: &Metric) -> String {
    let (worse, better) = directions(metric);
    match percent {
        None => "unknown".into(),
        Some(p) if digits(p) == "0" => format!("no {worse}"),
        Some(p) => format!("{} % {}", digits(p), if p > 0.0 { worse } else { better }),
    }
}

/// A size is not slow.
fn directions(metric: &Metric) -> (&'static str, &'static str) {
    if metric.name == "rss" { ("worse", "better") } else { ("slower", "faster") }
}

/// The word for worse.
pub(super) fn worse(metric: &Metric) -> &'static str {
    directions(metric).0
}

/// The word for better.
#[must_use]
pub fn better(metric: &Metric) -> &'static str {
    directions(metric).1
}

/// `+0.9`, `−0.5`, `0`.
pub(super) fn signed(percent: f64) -> String {
    match digits(percent).as_str() {
        "0" => "0".into(),
        digits => format!("{}{digits}", if percent > 0.0 { '+' } else { '−' }),
    }
}

/// The magnitude, to what can be read: 612, 27.1, 0.2, 0.03.
pub(super) fn digits(percent: f64) -> String {
    let size = percent.abs();
    match size {
        _ if size >= 99.95 => format!("{size:.0}"),
        _ if size >= 0.095 => format!("{size:.1}"),
        _ if size >= 0.005 => format!("{size:.2}"),
        _ => "0".into(),
    }
}

/// What the pilot says of the rest: how long it takes, what the budget allows, whether the margin can be reached.
#[must_use]
pub fn expectation(pilot: &Pilot, margin_percent: f64, max_blocks: u32) -> String {
    let most = count(u64::from(max_blocks), "block");
    let sure = |percent: f64| format!("{} %", digits(percent));
    let (Some(can), Some(seconds)) = (pilot.decidable_margin_percent, pilot.seconds) else {
        return "too little of the pilot is clean to tell how long it takes".into();
    };
    let Some(blocks) = pilot.blocks.filter(|_| pilot.reachable == Some(true)) else {
        return format!(
            "at this noise a margin of {} cannot be decided within {most}; {} can (--margin {can:.1})",
            sure(margin_percent),
            sure(can)
        );
    };
    let needs =
        format!("about {} should settle it (9 times in 10), in {}", count(u64::from(blocks), "block"), time(seconds));
    let Some(left) = pilot.budget_seconds else { return needs };
    match (pilot.budget_blocks, pilot.budget_margin_percent) {
        (Some(within), _) if within >= blocks => needs,
        (Some(within), Some(margin)) => format!(
            "{needs}; the {} left of the budget end after {}, where a margin of {} can be decided",
            time(left),
            count(u64::from(within), "block"),
            sure(margin)
        ),
        _ => format!("{needs}; the {} left of the budget end before the first look is complete", time(left)),
    }
}

/// `42 s`, `14 min`, `2.1 h`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// `1 block`, `12 blocks`.
pub(super) fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::Better;

    #[test]
    fn every_percentage_says_which_way() {
        let metric = Metric { name: "wall".into(), unit: "s".into(), better: Better::Lower };
        let say = |percent, low, high| effect(&Effect { percent, low, high }, &metric);
        assert_eq!(say(Some(27.14), Some(26.0), Some(612.4)), "27.1 % slower [+26.0, +612]");
        assert_eq!(say(Some(-3.0), Some(-4.04), Some(0.031)), "3.0 % faster [−4.0, +0.03]");
        assert_eq!(say(Some(0.001), Some(-0.5), Some(0.0)), "no slower [−0.5, 0]");
        assert_eq!(say(Some(5.0), None, None), "5.0 % slower");
        assert_eq!(say(None, None, None), "unknown");
        let rss = Metric { name: "rss".into(), ..metric.clone() };
        assert_eq!(plain(Some(5.0), &rss), "5.0 % worse");
    }

    #[test]
    fn the_pilots_expectation_is_a_sentence() {
        let pilot = Pilot {
            seconds_per_run: 0.02,
            seconds_per_link: 0.1,
            rounds: 12,
            blocks: Some(24),
            seconds: Some(840.0),
            decidable_margin_percent: Some(0.7),
            reachable: Some(true),
            budget_seconds: None,
            budget_blocks: None,
            budget_margin_percent: None,
        };
        let say = |p: Pilot| expectation(&p, 1.0, 48);
        assert_eq!(say(pilot), "about 24 blocks should settle it (9 times in 10), in 14 min");
        let short =
            Pilot { budget_seconds: Some(60.0), budget_blocks: Some(6), budget_margin_percent: Some(2.34), ..pilot };
        assert!(
            say(short)
                .ends_with("; the 60 s left of the budget end after 6 blocks, where a margin of 2.3 % can be decided")
        );
        let shorter = Pilot { budget_blocks: None, budget_margin_percent: None, ..short };
        assert!(say(shorter).ends_with("end before the first look is complete"));
        let noisy = Pilot { reachable: Some(false), decidable_margin_percent: Some(2.4), ..short };
        assert!(say(noisy).contains("a margin of 1.0 % cannot be decided within 48 blocks; 2.4 % can (--margin 2.4)"));
    }
}
