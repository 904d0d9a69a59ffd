//! [`Verdict`] → [`Page`]: one screen for a terminal, or fifteen lines for a mailing list.

use super::advice::next;
use super::drawn;
use super::page::{Block, Page, Table};
use super::sweep;
use crate::diff::{Place, Suspect};
use crate::error::Exit;
use crate::measure::record::Better;
use crate::verdict::{Answer, BY_WORKERS, Blocked, Effect, Verdict, better, by_workers, effect, plain};

/// Suspects on a screen.
const MOST: usize = 5;
/// Characters of a name; C++ has longer ones.
const WIDTH: usize = 30;

/// One screen: the answer, the numbers, the 2×2 of landings, what moved, what to do next, what it stands on.
#[must_use]
pub fn page(v: &Verdict) -> Page {
    let mut page = Page { title: title(v), sentence: sentence(v), ..Page::default() };
    if !v.identical {
        page.blocks.extend(sweep::table(v, sweep::ON_A_SCREEN).map(Block::Table));
        page.blocks.push(Block::Table(numbers(v, &rows(v))));
        page.blocks.extend(landings(v).map(Block::Table));
    }
    page.blocks.extend(suspects(v).map(Block::Table));
    page.blocks.push(Block::List { heading: "next".into(), items: next(v) });
    let reasons = v.reasons.iter().skip(1 + usize::from(v.aligned_disagrees));
    // The sentence says what the rows do.
    page.notes.extend(reasons.filter(|r| !r.starts_with(BY_WORKERS)).cloned());
    page.notes.extend(v.problems.iter().map(|p| format!("the record: {p}")));
    page.notes.extend(measured(v));
    page
}

/// The screen, its numbers drawn before they are told.
#[must_use]
pub fn document(v: &Verdict) -> Page {
    let mut page = page(v);
    let rows: Vec<(String, Effect)> = rows(v).into_iter().map(|row| (row.name, row.effect)).collect();
    page.blocks.splice(..0, drawn::of_verdict(v, &rows));
    page
}

/// At most fifteen lines of Markdown, whatever the case: the answer, four numbers, what moved, what it stands on.
#[must_use]
pub fn brief(v: &Verdict) -> Page {
    let mut page = Page { title: title(v), sentence: sentence(v), ..Page::default() };
    if !v.identical {
        let always = || rows(v).into_iter().filter(|row| row.always).collect::<Vec<_>>();
        let table = sweep::table(v, sweep::IN_A_MAIL).unwrap_or_else(|| numbers(v, &always()));
        page.blocks.push(Block::Table(table));
    }
    let moved = v.suspects.iter().take(3).map(|s| format!("{} (phase {})", short(&s.name), phases(s)));
    let mut moved: Vec<String> = moved.collect();
    if v.suspects.len() > moved.len() {
        moved.push(format!("{} more", v.suspects.len() - moved.len()));
    }
    let mut text = next(v).into_iter().next().map_or_else(String::new, |step| format!("Next: {step}."));
    if !moved.is_empty() {
        text = format!("Changed line-mates or phase: {}. {text}", moved.join(", "));
    }
    page.blocks.push(Block::Text(text));
    page.notes.extend(measured(v));
    page
}

fn title(v: &Verdict) -> String {
    let answer = match (v.verdict, v.blocked_by) {
        (Answer::Alignment, _) => "alignment".into(),
        (Answer::Code, _) if v.exit() == Exit::Gate => "code".into(),
        (Answer::Code, _) => format!("code ({})", better(&v.metric)),
        (Answer::Both, _) if v.masked => "both, masked".into(),
        (Answer::Both, _) if v.only_together => "both, only together".into(),
        (Answer::Both, _) => "both".into(),
        (Answer::NotReproduced, _) if v.identical => "not reproduced (identical)".into(),
        (Answer::NotReproduced, _) => "not reproduced".into(),
        (Answer::Inconclusive, Some(by)) => format!("inconclusive ({})", by.word()),
        (Answer::Inconclusive, None) => "inconclusive".into(),
    };
    format!("{}{}: {answer}", v.case, machines(v))
}

/// Where it was measured, when there is more than one machine.
fn machines(v: &Verdict) -> String {
    let names: Vec<&str> = v.machines.iter().map(|m| m.name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) }
}

/// The answer in a sentence. An aligned pair that disagrees is said before it, never hidden.
fn sentence(v: &Verdict) -> String {
    let code = effect(v.code(), &v.metric);
    let luck = effect(v.luck(), &v.metric);
    let answer = match v.verdict {
        Answer::Alignment => {
            let most = v.tolerance_percent.unwrap_or(v.margin_percent);
            format!(
                "The bytes moved: the move alone is {luck}; the patch itself is {code}, and up to {most:.0} % counts \
                 as none."
            )
        }
        Answer::Code => format!("The code changed, not its place: the patch is {code}, the move alone {luck}."),
        Answer::Both if v.masked && v.exit() == Exit::Gate => {
            format!("The code is {code}, and a luckier landing hides it: the move alone is {luck}.")
        }
        Answer::Both if v.masked => {
            format!("The code is {code}, and an unluckier landing hides it: the move alone is {luck}.")
        }
        Answer::Both if v.only_together => {
            format!("Patch and landing cost something only together: {}.", effect(&v.headline, &v.metric))
        }
        Answer::Both if !sweep::in_one_row(v) => "Both, each with another worker count.".into(),
        Answer::Both => format!("Both: the patch itself is {code}, and the move alone is {luck}."),
        Answer::NotReproduced if v.identical => {
            "The loaded content of the two links is the same, so nothing was run.".into()
        }
        Answer::NotReproduced => {
            format!("Not seen here: the patch is {code}, the move alone {luck}.")
        }
        Answer::Inconclusive => format!("No verdict: {}.", answer_reason(v)),
    };
    let answer = match (by_workers(v), v.workers) {
        (Some(_), _) if v.blocked_by == Some(Blocked::Row) => answer,
        (Some(rows), _) if v.verdict == Answer::Inconclusive => format!("{answer} By worker count: {rows}."),
        (Some(rows), Some(n)) => format!("{answer} That is with {}; by worker count: {rows}.", workers(n)),
        (None, Some(n)) if v.verdict != Answer::Inconclusive => format!("With {}: {answer}", workers(n)),
        _ => answer,
    };
    match v.reasons.first() {
        Some(first) if v.aligned_disagrees => format!("First: {first}. {answer}"),
        _ => answer,
    }
}

fn workers(n: u32) -> String {
    if n == 1 { "1 worker".into() } else { format!("{n} workers") }
}

fn answer_reason(v: &Verdict) -> &str {
    v.reasons.get(usize::from(v.aligned_disagrees)).map_or("nothing was measured", String::as_str)
}

/// A number of the table.
struct Number {
    name: String,
    effect: Effect,
    /// In the short form as well.
    always: bool,
}

fn rows(v: &Verdict) -> Vec<Number> {
    let row = |name: &str, effect: Effect, always| Number { name: name.into(), effect, always };
    let both = match v.cycle {
        Some(_) => "the patch on both landings, its inside's luck included",
        None => "code effect: the patch on both landings",
    };
    let mut rows = vec![
        row("headline: the as-built pair", v.headline, true),
        row(both, v.code_effect, true),
        row("layout luck: the move alone", v.layout_luck, true),
    ];
    if v.cycle.is_some() {
        rows.push(row(&format!("code alone, over {} full phase cycles", v.over_layouts.of), *v.code(), true));
        rows.push(row("the rest: luck or interaction", *v.luck(), true));
    } else if !v.quick {
        rows.push(row(&format!("code effect over {} drawn layouts", v.layouts), v.code_over_layouts, true));
    }
    let said = |e: Effect| e.beyond(v.margin_percent);
    rows.extend(said(v.interaction).then(|| row("interaction of the two", v.interaction, false)));
    rows.extend(said(v.remainder).then(|| row("remainder: neither of them", v.remainder, false)));
    rows.extend(v.aligned.map(|e| row("the patch with everything aligned", e, false)));
    rows.extend(v.a_a.map(|e| row("A/A: base linked once more", e, false)));
    rows
}

fn numbers(v: &Verdict, rows: &[Number]) -> Table {
    let level = format!("{:.1} % interval", v.interval_percent);
    let mut table = Table::new("", &["", ">change", &level]);
    table.rows = rows
        .iter()
        .map(|row| {
            let whole = effect(&row.effect, &v.metric);
            let interval = whole.split_once(" [").map_or("–", |(_, interval)| interval.trim_end_matches(']'));
            let interval = interval.replace(", ", " … ");
            vec![row.name.clone(), plain(row.effect.percent, &v.metric), interval]
        })
        .collect();
    table
}

/// The 2×2: the mean over blocks of each cell, in the metric's own unit. `None` where no block was measured.
fn landings(v: &Verdict) -> Option<Table> {
    let cell = |name: &str| {
        let values = v.cells.iter().filter(|c| c.kind == "block" && c.cell == name).filter_map(|c| c.value);
        let logs: Vec<f64> = values.map(f64::ln).collect();
        // Geometric, as the effects are: then the table and the percentages agree.
        (!logs.is_empty()).then(|| figure((logs.iter().sum::<f64>() / logs.len() as f64).exp()))
    };
    let unit = if v.metric.unit.is_empty() { String::new() } else { format!(", {}", v.metric.unit) };
    let more = if v.metric.better == Better::Higher { ", more is better" } else { "" };
    let heading = format!("{}{unit}{more}", short(&v.metric.name));
    let mut table = Table::new(heading, &["", ">on base's landing", ">on patched's landing"]);
    table.rows = vec![
        vec!["base's code".into(), format!("{} (as built)", cell("b0")?), cell("bP")?],
        vec!["patched's code".into(), cell("pB")?, format!("{} (as built)", cell("p0")?)],
    ];
    Some(table)
}

/// Four digits that mean something.
pub(super) fn figure(value: f64) -> String {
    let whole = value.abs().log10().floor().clamp(-9.0, 9.0) as i32 + 1;
    format!("{value:.*}", usize::try_from(4 - whole).unwrap_or(0))
}

fn suspects(v: &Verdict) -> Option<Table> {
    let mut table =
        Table::new("changed line-mates or phase", &["object", "section", ">phase", "now on a line with", "own bytes"]);
    table.rows = v
        .suspects
        .iter()
        .take(MOST)
        .map(|s| {
            let bytes = match s.bytes_changed {
                Some(true) => "changed",
                Some(false) => "same",
                None => "unknown",
            };
            vec![short(&s.name), short(&s.section), phases(s), mates(&s.patched), bytes.into()]
        })
        .collect();
    let left = v.suspects.len().saturating_sub(MOST);
    table.more = (left > 0).then(|| format!("{left} more: --format json"));
    (!table.rows.is_empty()).then_some(table)
}

fn phases(s: &Suspect) -> String {
    match (s.base.phase, s.patched.phase) {
        (a, b) if a == b => a.to_string(),
        (a, b) => format!("{a} → {b}"),
    }
}

fn mates(place: &Place) -> String {
    let mut names = place.with.iter();
    match (names.next(), names.len()) {
        (None, _) => "nobody".into(),
        (Some(first), 0) => short(first),
        (Some(first), more) => format!("{} and {more} more", short(first)),
    }
}

/// Long names keep both ends: templates differ at the end, namespaces at the start.
pub(super) fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= WIDTH {
        return name.to_string();
    }
    let half = (WIDTH - 1) / 2;
    let tail: String = name.chars().skip(count - half).collect();
    format!("{}…{tail}", name.chars().take(half).collect::<String>())
}

/// What it stands on: counts, noise, seed.
fn measured(v: &Verdict) -> Option<String> {
    if v.identical {
        return None;
    }
    let matched = match v.matched.units < v.matched.of {
        true => String::new(),
        false => format!("; matched {} of {} units", v.matched.units, v.matched.of),
    };
    let noise = v.noise_sd_percent.map_or_else(String::new, |p| format!(", SD of a run {p:.1} %"));
    let units = match v.quick {
        true => "two landings, one link each".to_string(),
        false => format!("{} blocks, {} layouts", v.blocks, v.layouts),
    };
    Some(format!(
        "{units}, {} rounds, {} runs{noise}{matched}; margin {} %; seed {}. \
         + is {}, by cost per unit of work.",
        v.rounds,
        v.runs,
        v.margin_percent,
        v.seed,
        plain(Some(50.0), &v.metric).rsplit(' ').next().unwrap_or("worse"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::Record;
    use crate::report::{html, markdown, table};
    use crate::verdict::simulated::{Campaign, World, sweep};
    use crate::verdict::verdict;

    fn suspect(name: &str, from: u32, to: u32, with: &[&str]) -> Suspect {
        let place = |phase, with: &[&str]| Place {
            address: format!("{:#x}", 0x4000 + phase),
            phase,
            with: with.iter().map(|w| (*w).to_string()).collect(),
        };
        Suspect {
            name: name.into(),
            kind: "data".into(),
            section: ".data".into(),
            base: place(from, &[]),
            patched: place(to, with),
            bytes_changed: Some(false),
            evidence: "static".into(),
            readers: None,
            writers: None,
            test: "base's code on patched's landing".into(),
            why: Vec::new(),
            sensitivity: None,
        }
    }

    fn record(world: World, sd: f64) -> Record {
        let mut record = Campaign::new(world, sd, 7).fixed(12, 6);
        let long = "std::vector<std::pair<unsigned long, std::string>>::shared_state_of_the_queue";
        record.header.suspects = vec![suspect("queue_lock", 56, 0, &["ticks", "go"]), suspect(long, 8, 16, &[])];
        record
            .header
            .suspects
            .extend((0..7u32).map(|i| suspect(&format!("counter_{i}"), i * 8, i * 8 + 4, &["ticks"])));
        record
    }

    fn screen(page: &Page) -> String {
        let mut out = Vec::new();
        table::write(page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() <= 38, "{} lines\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        text
    }

    fn mail(page: &Page) -> String {
        let mut out = Vec::new();
        markdown::write(page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().count() <= 15, "{} lines\n{text}", text.lines().count());
        text
    }

    #[test]
    fn an_alignment_verdict() {
        let v = verdict(&record(World { aligned: Some(0.0), ..World::new(0.0, 2.0) }, 0.03));
        insta::assert_snapshot!("alignment_screen", screen(&page(&v)));
        insta::assert_snapshot!("alignment_mail", mail(&brief(&v)));
    }

    #[test]
    fn a_masked_verdict_says_the_aligned_pair_first() {
        let mut record = record(World { aligned: Some(0.3), ..World::new(0.1, -0.2) }, 0.01);
        record.header.matched.of = 33;
        record.header.matched.rest =
            vec!["hot.o:.data (no -fdata-sections)".into(), "new.o:.bss (only in patched)".into()];
        let v = verdict(&record);
        insta::assert_snapshot!("masked_screen", screen(&page(&v)));
        insta::assert_snapshot!("masked_mail", mail(&brief(&v)));
        let mut html = Vec::new();
        html::write(&document(&v), &mut html).unwrap();
        let html = String::from_utf8(html).unwrap();
        insta::assert_snapshot!(
            "masked_html",
            html.split("<script>").next().and_then(|h| h.split_once("<body>")).unwrap().1
        );
    }

    #[test]
    fn an_inconclusive_verdict_names_the_interval() {
        let v = verdict(&record(World::new(0.0, 0.0), 0.10));
        insta::assert_snapshot!("inconclusive_screen", screen(&page(&v)));
        insta::assert_snapshot!("inconclusive_mail", mail(&brief(&v)));
    }

    #[test]
    fn a_sweep_is_a_table_of_rows() {
        let world = World { aligned: Some(-0.19), ..World::new(-0.19, 0.0) };
        let mut record =
            sweep(&[(1, World::new(0.0, 0.0)), (16, World::new(-0.05, 0.0)), (128, world)], 0.005, 7, (12, 24));
        record.header.suspects = vec![suspect("f_ref", 56, 0, &["f_op"])];
        let v = verdict(&record);
        insta::assert_snapshot!("sweep_screen", screen(&page(&v)));
        insta::assert_snapshot!("sweep_mail", mail(&brief(&v)));
        // Whatever the number of rows, a mail is a mail.
        let many: Vec<(u32, World)> = (1..=20).map(|n| (n, World::new(0.0, 0.0))).collect();
        let text = mail(&brief(&verdict(&sweep(&many, 0.005, 7, (4, 6)))));
        assert!(text.contains("15 more rows: --format json"), "{text}");
    }

    #[test]
    fn identical_links_need_three_lines() {
        let mut record = record(World::new(0.0, 0.0), 0.01);
        record.samples.clear();
        record.header.suspects.clear();
        record.header.identical = true;
        let v = verdict(&record);
        assert!(screen(&page(&v)).contains("nothing was run"));
        assert!(mail(&brief(&v)).contains("nothing was run"));
    }

    #[test]
    fn figures_keep_four_digits() {
        let all = [0.012_345_6, 1.0, 77.123_4, 512_000.4].map(figure);
        assert_eq!(all, ["0.01235", "1.000", "77.12", "512000"]);
    }
}
