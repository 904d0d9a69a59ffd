//! [`Checkup`] → [`Page`]: whether measuring makes sense here, then what would make it better.

use super::page::{Block, Page, Table};
use crate::measure::doctor::{Check, Checkup, State};

#[must_use]
pub fn page(checkup: &Checkup) -> Page {
    let count = |state| checkup.checks.iter().filter(|c| c.state == state).count();
    let sentence = match (checkup.hopeless(), count(State::Worse)) {
        (true, _) => "Measuring is pointless here as it is.".to_string(),
        (false, 0) => "This machine can measure.".to_string(),
        (false, n) => format!("This machine can measure; {n} things make it slower or less sure."),
    };
    let cpu = checkup.host.get("cpu_model").and_then(|m| m.as_str()).unwrap_or("an unknown processor");
    let mut page = Page { title: format!("straddle doctor: {cpu}"), sentence, ..Page::default() };
    let mut table = Table::new("", &["", "state", "found"]);
    table.rows = checkup.checks.iter().map(|c| vec![c.name.into(), word(c.state).into(), c.found.clone()]).collect();
    page.blocks.push(Block::Table(table));
    let advised = |c: &&Check| matches!(c.state, State::Hopeless | State::Worse);
    let items: Vec<String> = checkup
        .checks
        .iter()
        .filter(advised)
        .map(|c| match c.fix.as_str() {
            "" => format!("{}: {}", c.name, c.why),
            fix => format!("{}: {}: {fix}", c.name, c.why),
        })
        .collect();
    if !items.is_empty() {
        page.blocks.push(Block::List { heading: "what to change, and how".into(), items });
    }
    if let Some(probe) = &checkup.probe {
        page.notes.push(format!(
            "Probed for {:.0} s on CPU {}: {} equal pieces of work of {:.0} ms each.",
            probe.seconds,
            probe.cpu,
            probe.pieces,
            1000.0 * probe.piece_seconds
        ));
    }
    page
}

fn word(state: State) -> &'static str {
    match state {
        State::Hopeless => "hopeless",
        State::Worse => "could be better",
        State::Unknown => "unknown",
        State::Good => "good",
    }
}
