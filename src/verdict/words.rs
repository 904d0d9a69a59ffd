//! Numbers in words: every percentage says which way is worse.

use super::value::Effect;
use crate::measure::record::Metric;

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
}
