//! The rows of a sweep, or of several metrics, as a table.

use super::page::Table;
use super::verdict::{better, figure, short};
use crate::measure::record::Metric;
use crate::verdict::{Answer, Pair, Row, Typical, Verdict};

/// Rows of the table.
pub(super) const ON_A_SCREEN: usize = 12;
pub(super) const IN_A_MAIL: usize = 5;

/// `None` where there is but one row. Those that decide come first, so they are cut last.
pub(super) fn table(v: &Verdict, most: usize) -> Option<Table> {
    if v.rows.len() < 2 {
        return None;
    }
    let metrics = v.rows.iter().any(|row| row.metric != v.metric.name);
    let workers = v.rows.iter().any(|row| row.workers.is_some());
    let aligned = v.rows.iter().any(|row| row.aligned.is_some());
    let heads = [
        (metrics, "metric"),
        (workers, ">workers"),
        (true, ">base (SD)"),
        (true, ">patched (SD) / ratio"),
        (aligned, ">aligned (SD) / ratio"),
        (true, "verdict"),
    ];
    let shown = |heads: &[(bool, String)]| -> Vec<String> {
        heads.iter().filter(|(shown, _)| *shown).map(|(_, text)| text.clone()).collect()
    };
    let names: Vec<&str> = heads.iter().filter(|(shown, _)| *shown).map(|(_, name)| *name).collect();
    let mut table = Table::new("", &names);
    table.rows = v
        .rows
        .iter()
        .take(most)
        .map(|row| {
            shown(&[
                (metrics, short(&row.metric)),
                (workers, row.workers.map_or_else(String::new, |n| n.to_string())),
                (true, typical(&row.as_built.base)),
                (true, with_ratio(&row.as_built)),
                (aligned, row.aligned.as_ref().map_or_else(|| "–".into(), with_ratio)),
                (true, verdict(row)),
            ])
        })
        .collect();
    let left = v.rows.len().saturating_sub(most);
    table.more = (left > 0).then(|| format!("{left} more rows: --format json"));
    Some(table)
}

/// Whether the row whose numbers the verdict gives has its answer too.
pub(super) fn in_one_row(v: &Verdict) -> bool {
    let lead = v.rows.iter().find(|row| row.metric == v.metric.name && row.workers == v.workers);
    lead.is_none_or(|row| row.verdict == v.verdict)
}

/// `12.52 (1.2 %)`.
fn typical(runs: &Typical) -> String {
    let Some(mean) = runs.mean else { return "–".into() };
    let sd = runs.sd.map_or_else(String::new, |sd| format!(" ({:.1} %)", 100.0 * sd / mean));
    format!("{}{sd}", figure(mean))
}

/// `12.52 (1.2 %) / 1.004`: the ratio is that of the metric's own numbers.
fn with_ratio(pair: &Pair) -> String {
    match pair.ratio {
        Some(ratio) => format!("{} / {}", typical(&pair.patched), figure(ratio)),
        None => typical(&pair.patched),
    }
}

fn verdict(row: &Row) -> String {
    let metric = Metric { name: row.metric.clone(), unit: row.unit.clone(), better: row.better };
    let faster = row.code().percent.is_some_and(|p| p < 0.0);
    let answer = match (row.verdict, row.blocked_by) {
        (Answer::Alignment, _) => "alignment".to_owned(),
        (Answer::Code, _) if faster => format!("code ({})", better(&metric)),
        (Answer::Code, _) => "code".to_owned(),
        (Answer::Both, _) => "both".to_owned(),
        (Answer::NotReproduced, _) => "nothing".to_owned(),
        (Answer::Inconclusive, Some(by)) => format!("open ({})", by.word()),
        (Answer::Inconclusive, None) => "open".to_owned(),
    };
    if row.decides { answer } else { format!("{answer}; decides nothing") }
}
