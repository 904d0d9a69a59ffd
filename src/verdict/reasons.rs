//! The value in plain words: what was found, then what a reader must know before believing it.

use super::decide::{Answer, Blocked};
use super::looks;
use super::rows::Row;
use super::runs::{MIN_ROUNDS, Tried, reason};
use super::value::{Effect, LayoutSpread, TwoModes, Verdict};
use super::words::{count, digits, effect, expectation, plain, worse};
use crate::measure::record::{Record, Sample};

/// The sentences, the weightiest first. An aligned pair that disagrees comes before everything.
pub(super) fn reasons(v: &Verdict, tried: Tried) -> Vec<String> {
    if v.identical {
        return vec!["identical: the loaded content of the two links is the same, so nothing was run; a difference is not explained by \
             image layout, but by what is placed at run time (heap, huge pages) or by another file"
                .into()];
    }
    let mut all = Vec::new();
    all.extend(aligned(v));
    all.push(answer(v, tried));
    all.extend(expected(v));
    all.extend(quick(v));
    all.extend(remainder(v));
    all.extend(interaction(v));
    all.extend(over_layouts(v));
    all.extend(two_modes(v));
    all.extend(matched(v));
    all.extend(lost(v));
    all
}

/// The sentences of the row whose numbers the verdict gives become those of the whole: which row that is, what the others
/// say, and what was not measured.
pub(super) fn of_all_rows(mut v: Verdict, record: &Record) -> Verdict {
    let at = usize::from(v.aligned_disagrees);
    if let (Some(workers), Some(answer)) = (v.workers, v.reasons.get_mut(at)) {
        *answer = format!("with {}, {answer}", count(u64::from(workers), "worker"));
    }
    let mut more = Vec::new();
    match (by_workers(&v), v.blocked_by) {
        (Some(rows), Some(Blocked::Row)) => {
            if let Some(answer) = v.reasons.get_mut(at) {
                *answer = format!("the row that was named to decide shows nothing, another one does: {rows}");
            }
        }
        (rows, _) => more.extend(rows.map(|rows| format!("{BY_WORKERS}{rows}"))),
    }
    more.extend(mixed(&v));
    let behind = v.reasons.len().min(at + 1);
    v.reasons.splice(behind..behind, more);
    v.reasons.extend(one_worker(record));
    v
}

/// The sentence of the rows begins so.
pub const BY_WORKERS: &str = "by worker count: ";

/// `nothing at 1 worker; 17.3 % faster (code) at 128`: the rows of a sweep over the metric that decides; `None` without one.
#[must_use]
pub fn by_workers(v: &Verdict) -> Option<String> {
    let mut said: Vec<(String, Vec<u32>)> = Vec::new();
    for row in v.rows.iter().filter(|row| row.metric == v.metric.name) {
        let workers = row.workers?;
        let what = |effect: &Effect, cause| format!("{} ({cause})", plain(effect.percent, &v.metric));
        let what = match (row.verdict, row.blocked_by) {
            (Answer::NotReproduced, _) => "nothing".to_owned(),
            (Answer::Code, _) => what(row.code(), "code"),
            (Answer::Alignment, _) => what(row.luck(), "luck"),
            (Answer::Both, _) => what(&row.headline, "both"),
            (Answer::Inconclusive, Some(by)) => format!("undecided ({})", by.word()),
            (Answer::Inconclusive, None) => "undecided".to_owned(),
        };
        match said.last_mut() {
            Some((last, counts)) if *last == what => counts.push(workers),
            _ => said.push((what, vec![workers])),
        }
    }
    let at = |(group, (what, counts)): (usize, (String, Vec<u32>))| {
        let list = counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let noun = match counts.as_slice() {
            _ if group > 0 => "",
            [1] => " worker",
            _ => " workers",
        };
        format!("{what} at {list}{noun}")
    };
    let all: Vec<String> = said.into_iter().enumerate().map(at).collect();
    (v.rows.iter().filter(|row| row.metric == v.metric.name).count() > 1).then(|| all.join("; "))
}

/// Slower in one row and faster in another is no mean of the two.
fn mixed(v: &Verdict) -> Option<String> {
    let code = |sign: f64| {
        let of = |row: &&Row| row.decides && matches!(row.verdict, Answer::Code | Answer::Both);
        let found = v.rows.iter().filter(of).filter(|row| row.code().percent.is_some_and(|p| p * sign > 0.0));
        found.filter_map(|row| row.workers).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (slower, faster) = (code(1.0), code(-1.0));
    let both = !slower.is_empty() && !faster.is_empty();
    let (worse, better) = (worse(&v.metric), plain(Some(-50.0), &v.metric));
    let better = better.rsplit(' ').next().unwrap_or("better").to_owned();
    both.then(|| format!("mixed: the patch is {worse} at {slower} workers and {better} at {faster}"))
}

/// A CPU's worth of runs, with what rounding and a start of the program make of it.
const ONE_CPU: f64 = 1.1;

/// What threads do to each other's lines was not seen where only one ran.
fn one_worker(record: &Record) -> Option<String> {
    let header = &record.header;
    let busy = || {
        let share = |s: &Sample| (s.wall > 0.0).then(|| (s.user + s.sys) / s.wall);
        super::robust::median(record.samples.iter().filter_map(share)).unwrap_or(0.0)
    };
    let limit = "what several cost each other where they share lines was not measured";
    match header.workers.as_slice() {
        _ if header.identical || record.samples.is_empty() => None,
        [1] => Some(format!("limit: only 1 worker was run; {limit} (--workers 1,2)")),
        [] if header.threads == Some(true) && busy() < ONE_CPU => {
            Some(format!("limit: the program can start threads, but its runs kept one CPU busy; {limit}"))
        }
        _ => None,
    }
}

fn answer(v: &Verdict, tried: Tried) -> String {
    let say = |e| effect(e, &v.metric);
    let over = match v.quick {
        true => String::new(),
        false => format!(" and {} over {}", say(&v.code_over_layouts), count(v.layouts as u64, "layout")),
    };
    let code = match v.cycle {
        Some(_) => format!(
            "the patch is {} over {} (both versions at every phase of what moved inside its object)",
            say(v.code()),
            count(v.over_layouts.of as u64, "full phase cycle")
        ),
        None => format!("the patch is {} on both landings{over}", say(&v.code_effect)),
    };
    let luck = match v.cycle {
        Some(_) => format!("the rest, luck or interaction, is {}", say(v.luck())),
        None => format!("the move alone is {}", say(&v.layout_luck)),
    };
    let headline = format!("the as-built pair's {}", plain(v.headline.percent, &v.metric));
    match v.verdict {
        Answer::Alignment => format!("{code}; {luck}: {headline} is placement"),
        Answer::Code => format!("{code}; {luck}: {headline} is the code"),
        Answer::Both if v.only_together => format!(
            "{code}; but the patch on base's landing is {} and the move with base's code is {}: only the two together \
             cost something",
            say(&v.transplant.code_on_base_landing),
            say(&v.transplant.move_with_base_code)
        ),
        Answer::Both if v.masked => format!("{code}; {luck}: {headline} hides the one behind the other"),
        Answer::Both => match v.layout_share {
            Some(share) => {
                format!("{code}; {luck}: {headline} is both, {share:.2} of it (of its logarithm) the landing")
            }
            None => format!("{code}; {luck}: {headline} is both"),
        },
        Answer::NotReproduced => format!(
            "{code}, {luck}, the as-built pair is {}: nothing here that is beyond {}",
            say(&v.headline),
            tolerance(v)
        ),
        Answer::Inconclusive => inconclusive(v, tried, &code, &luck),
    }
}

fn tolerance(v: &Verdict) -> String {
    let size = v.tolerance_percent.unwrap_or(v.margin_percent);
    format!(
        "{} % {} or {}",
        digits(size),
        worse(&v.metric),
        if worse(&v.metric) == "slower" { "faster" } else { "better" }
    )
}

fn inconclusive(v: &Verdict, tried: Tried, code: &str, luck: &str) -> String {
    let say = |e| effect(e, &v.metric);
    match v.blocked_by {
        Some(Blocked::Placement) => format!(
            "the patch is {} where it stands but {} over {} drawn layouts: the two contradict each other, so what it \
             costs hangs on its neighbours here{}",
            say(&v.code_effect),
            say(&v.code_over_layouts),
            v.layouts,
            neighbours(v)
        ),
        Some(Blocked::Unexplained) => format!(
            "{code}, {luck}, yet the as-built pair is {}: the luck lies in what a block draws anew (whole lines in front \
             of each section, stack and environment), not in the landing",
            say(&v.headline)
        ),
        Some(Blocked::AA) => format!(
            "two links of the same base differ, the second is {}: the machine or this tool is at fault, so there is no \
             verdict",
            v.a_a.as_ref().map_or_else(String::new, say)
        ),
        Some(Blocked::Unmatched) if v.cycle.is_some() && v.matched.rigid.is_empty() => {
            format!("{code}; {luck}, and the move alone, {}, does not confirm it as luck", say(&v.layout_luck))
        }
        Some(Blocked::Unmatched) => {
            let first = v.matched.rigid.first().map_or_else(String::new, |unit| format!(": {unit}"));
            format!("{code}, but not all of it need be the code: no layout gives both versions one landing{first}")
        }
        Some(Blocked::Precision | Blocked::Budget | Blocked::Row) | None => too_wide(v, tried),
    }
}

fn too_wide(v: &Verdict, tried: Tried) -> String {
    let Some(needs) = &v.needs else { return "nothing was measured".into() };
    if v.quick && (v.rounds as usize) < looks::QUICK_ROUNDS {
        return format!("too little is clean or complete: {} of {} rounds can be used", v.rounds, looks::QUICK_ROUNDS);
    }
    let few = tried.layouts < looks::FIRST.layouts || tried.blocks < looks::FIRST.blocks;
    if !v.quick && few {
        return format!(
            "too few layouts: {} and {} of {MIN_ROUNDS} rounds or more, and the first look needs {} and {}; runs of the same \
             few links, however many, say nothing of the code",
            count(tried.blocks as u64, "block"),
            units(v, tried.layouts),
            looks::FIRST.blocks,
            looks::FIRST.in_cycles(v.cycle).layouts
        );
    }
    if !v.quick && (v.layouts < looks::FIRST.in_cycles(v.cycle).layouts || v.blocks < looks::FIRST.blocks) {
        return format!(
            "too little is clean or complete: {} of {} and {} of {} can be used, and the first look needs {} and {}",
            v.blocks,
            count(tried.blocks as u64, "block"),
            v.layouts,
            units(v, tried.layouts),
            looks::FIRST.blocks,
            looks::FIRST.in_cycles(v.cycle).layouts
        );
    }
    let (name, wide) = match needs.interval.as_str() {
        "code_effect" => ("the code effect on both landings", &v.code_effect),
        "layout_luck" => ("the layout's luck", &v.layout_luck),
        "code_over_layouts" => ("the code effect over layouts", &v.code_over_layouts),
        "luck_or_interaction" => ("the luck or interaction", v.luck()),
        _ => ("the as-built pair", &v.headline),
    };
    if v.quick {
        return format!(
            "after {} rounds of one block {name} is {}, neither beyond {} % nor within {} %: that takes more links, so \
             measure without --quick",
            v.rounds,
            effect(wide, &v.metric),
            digits(looks::QUICK_MARGINS * v.margin_percent),
            digits(v.tolerance_percent.unwrap_or(v.margin_percent))
        );
    }
    let more = match needs.blocks {
        Some(blocks) if blocks > looks::LAST.blocks as u32 => {
            format!("it would take more than the {} blocks of the last look", looks::LAST.blocks)
        }
        Some(blocks) => format!("about {} would settle it", count(u64::from(blocks), "block")),
        None => format!(
            "its centre lies on the margin of {} %, so no number of blocks settles it: choose another margin",
            v.margin_percent
        ),
    };
    let had = format!("{} and {}", count(v.blocks as u64, "block"), count(v.layouts as u64, "layout"));
    format!("after {had} {name} is {}, too wide to call either way; {more}", effect(wide, &v.metric))
}

/// Layouts as the look table counts them, two for every block: with cycles, so many halves of one.
fn units(v: &Verdict, layouts: usize) -> String {
    count(v.cycle.map_or(layouts, |of| layouts * of as usize / 2) as u64, "layout")
}

/// What `--quick` cannot know.
fn quick(v: &Verdict) -> Option<String> {
    v.quick.then(|| {
        format!(
            "two landings, one link each: the luck of a single link is not averaged out, so only effects beyond {} % count, \
             and what holds on other layouts is not known",
            digits(looks::QUICK_MARGINS * v.margin_percent)
        )
    })
}

/// What the pilot foresaw, where too little was measured.
fn expected(v: &Verdict) -> Option<String> {
    let pilot = v.forecast.as_ref().filter(|_| matches!(v.blocked_by, Some(Blocked::Budget | Blocked::Precision)))?;
    Some(format!("after the pilot: {}", expectation(pilot, v.margin_percent, v.max_blocks)))
}

/// Whose line it shares, as far as the suspects tell.
fn neighbours(v: &Verdict) -> String {
    let named = |s: &crate::diff::Suspect| {
        let with: Vec<&str> = s.patched.with.iter().take(3).map(String::as_str).collect();
        (!with.is_empty()).then(|| format!("{} beside {}", s.name, with.join(", ")))
    };
    let all: Vec<String> = v.suspects.iter().filter_map(named).take(3).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join("; ")) }
}

fn aligned(v: &Verdict) -> Option<String> {
    let aligned = v.aligned.as_ref().filter(|_| v.aligned_disagrees)?;
    Some(format!(
        "with every data section on a line of its own and functions aligned, the patch is {}; that is not the {} found on \
         the two landings",
        effect(aligned, &v.metric),
        effect(&v.code_effect, &v.metric)
    ))
}

fn remainder(v: &Verdict) -> Option<String> {
    v.remainder.beyond(v.margin_percent).then(|| {
        format!(
            "the as-built pair is {} beyond what patch and landing explain: a single link has luck of its own",
            effect(&v.remainder, &v.metric)
        )
    })
}

fn interaction(v: &Verdict) -> Option<String> {
    (v.interaction.beyond(v.margin_percent) && !v.only_together && v.cycle.is_none()).then(|| {
        format!(
            "the two do not add up: the patch is {} on base's landing and {} on patched's",
            effect(&v.transplant.code_on_base_landing, &v.metric),
            effect(&v.transplant.code_on_patched_landing, &v.metric)
        )
    })
}

fn over_layouts(v: &Verdict) -> Option<String> {
    let over = &v.over_layouts;
    if over.of == 0 || v.code_over_layouts.low.is_none() {
        return None;
    }
    let faster = match over.faster_in {
        0 => String::new(),
        n => format!(" and faster in {n}"),
    };
    let unit = if v.cycle.is_some() { "cycles" } else { "layouts" };
    Some(format!(
        "beyond {} % the patch is {} in {} of {} {unit}{faster}; an effect in fewer than 3 of {} {unit} may be unseen",
        v.margin_percent,
        worse(&v.metric),
        over.slower_in,
        over.of,
        over.of
    ))
}

fn two_modes(v: &Verdict) -> Vec<String> {
    let say = |what: &str, m: TwoModes| {
        format!(
            "bimodal: {what} fall into two groups, {} low / {} high, the higher {}: no mean describes them",
            m.low,
            m.high,
            plain(m.apart_percent, &v.metric)
        )
    };
    let of = |s: Option<LayoutSpread>| s.and_then(|s| s.modes);
    let all = [
        ("base's layouts", of(v.layout_spread.base)),
        ("patched's layouts", of(v.layout_spread.patched)),
        ("the code effects over layouts", v.over_layouts.modes),
    ];
    all.into_iter().filter_map(|(what, modes)| modes.map(|m| say(what, m))).collect()
}

fn matched(v: &Verdict) -> Option<String> {
    let m = &v.matched;
    if m.units >= m.of {
        return None;
    }
    let named: Vec<&str> = m.rest.iter().take(3).map(String::as_str).collect();
    let more = m.rest.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("matched {} of {} units, not {}{more}", m.units, m.of, named.join(", ")))
}

/// Runs that are in no estimate and that the user can do something about.
fn lost(v: &Verdict) -> Option<String> {
    let kinds = [reason::FAILED, reason::TIMED_OUT, reason::NO_VALUE, reason::DISTURBED, reason::FEW_ROUNDS];
    let of = |kind: &&str| v.skipped.get(*kind).filter(|&&n| n > 0).map(|n| format!("{n} {kind}"));
    let all: Vec<String> = kinds.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| format!("of {}: {}; all are in the record", count(v.runs, "run"), all.join(", ")))
}
