//! What of a value is better looked at than read: its figures.

use super::figure::{Drawing, Figure, Forest, Interval, LineRow, Lines, Mark, Pair, Span, Square, Strip};
use super::page::Block;
use super::verdict::figure as number;
use crate::finding::{Finding, Subject};
use crate::rules::LineMap;
use crate::rules::types::TypeView;
use crate::verdict::{Effect, Verdict, effect, plain};

fn block(caption: impl Into<String>, drawing: Drawing) -> Block {
    Block::Figure(Figure { caption: caption.into(), drawing })
}

/// Intervals, the rows of a sweep, the 2×2 and every layout; those that were measured.
pub(super) fn of_verdict(v: &Verdict, rows: &[(String, Effect)]) -> Vec<Block> {
    if v.identical {
        return Vec::new();
    }
    let interval = |name: &str, e: &Effect| Interval {
        name: name.to_string(),
        percent: e.percent,
        low: e.low,
        high: e.high,
        words: effect(e, &v.metric),
    };
    let forest = |rows| Drawing::Forest(Forest { margin: v.margin_percent, rows });
    let level = v.interval_percent;
    let mut blocks = vec![block(
        format!("What the patch and the move cost, with {level:.1} % intervals"),
        forest(rows.iter().map(|(name, e)| interval(name, e)).collect()),
    )];
    if v.rows.len() > 1 {
        let row = |r: &crate::verdict::Row| {
            let workers = r.workers.map_or_else(String::new, |n| format!(", workers: {n}"));
            [("patch", &r.code_effect), ("move", &r.layout_luck)]
                .map(|(what, e)| interval(&format!("{}{workers}: {what}", r.metric), e))
        };
        blocks.push(block("By metric and worker count", forest(v.rows.iter().flat_map(row).collect())));
    }
    blocks.extend(square(v));
    blocks.extend(strip(v));
    blocks
}

fn square(v: &Verdict) -> Option<Block> {
    let mean = |name: &str| {
        let values = v.cells.iter().filter(|c| c.kind == "block" && c.cell == name).filter_map(|c| c.value);
        let logs: Vec<f64> = values.map(f64::ln).collect();
        (!logs.is_empty()).then(|| number((logs.iter().sum::<f64>() / logs.len() as f64).exp()))
    };
    let unit = if v.metric.unit.is_empty() { String::new() } else { format!(" {}", v.metric.unit) };
    let cell = |name| Some(format!("{}{unit}", mean(name)?));
    let built = |name| Some(format!("{} (as built)", cell(name)?));
    let words = |e: &Effect| plain(e.percent, &v.metric);
    let t = &v.transplant;
    let square = Square {
        cells: [built("b0")?, cell("bP")?, cell("pB")?, built("p0")?],
        moves: [words(&t.move_with_base_code), words(&t.move_with_patched_code)],
        patches: [words(&t.code_on_base_landing), words(&t.code_on_patched_landing)],
    };
    Some(block(
        "Both codes on both landings: to the right the bytes move, downwards the code changes",
        Drawing::Square(square),
    ))
}

fn strip(v: &Verdict) -> Option<Block> {
    let value = |kind: &str, number: u32, cell: &str| {
        v.cells.iter().find(|c| c.kind == kind && c.number == number && c.cell == cell)?.value
    };
    let mut rows: Vec<Pair> = Vec::new();
    for c in v.cells.iter().filter(|c| c.cell == "b0") {
        let (Some(base), Some(patched)) = (c.value, value(&c.kind, c.number, "p0")) else { continue };
        rows.push(Pair { label: format!("{} {}", c.kind, c.number), base, patched, as_built: c.kind == "block" });
    }
    let modes = [("base", &v.layout_spread.base), ("patched", &v.layout_spread.patched)].into_iter().filter_map(
        |(which, spread)| {
            let modes = spread.as_ref()?.modes?;
            Some(format!("; {which} has two modes, {} layouts low and {} high", modes.low, modes.high))
        },
    );
    let caption = format!(
        "Every layout, base and patched joined: drawn ones on one landing, blocks (marked) as built{}",
        modes.collect::<String>()
    );
    let unit = if v.metric.unit.is_empty() { String::new() } else { format!(", {}", v.metric.unit) };
    let axis = format!("{}{unit}", super::verdict::short(&v.metric.name));
    (!rows.is_empty()).then(|| block(caption, Drawing::Strip(Strip { axis, rows })))
}

/// Lines of one subject that are drawn, at most; a long one is drawn at its start.
const LINES: u64 = 4;

/// The lines that a finding is about, as far as it tells who lies on them.
pub(super) fn of_finding(f: &Finding, line: u64) -> Option<Block> {
    let first = f.subject.address.0 / line;
    let last = f.subject.address.0.saturating_add(f.subject.size.max(1) - 1) / line;
    let met = |number: u64| f.others.iter().any(|o| on(o, number, line).is_some());
    let numbers: Vec<u64> = (first..=last).take(1 << 16).filter(|n| f.others.is_empty() || met(*n)).collect();
    let rows = numbers.iter().take(LINES as usize).map(|number| {
        let subject = std::iter::once((&f.subject, Mark::Subject));
        let spans = subject.chain(f.others.iter().map(|o| (o, Mark::Plain))).filter_map(|(s, mark)| {
            let mut span = on(s, *number, line)?;
            span.mark = mark;
            if mark == Mark::Subject {
                let users = [("readers", f.readers), ("writers", f.writers)];
                let users = users.into_iter().filter_map(|(who, n)| Some(format!(", {who}: {}", n?)));
                span.about.extend(users);
            }
            Some(span)
        });
        let mut spans: Vec<Span> = spans.collect();
        spans.sort_by_key(|s| (s.from, std::cmp::Reverse(s.to)));
        LineRow { label: format!("{} {:#x}", f.subject.section, number.saturating_mul(line)), spans }
    });
    let rows: Vec<LineRow> = rows.collect();
    let more = numbers.len().saturating_sub(rows.len());
    let more = if more > 0 { format!(" ({more} more lines)") } else { String::new() };
    let severity = format!("{:?}", f.severity).to_lowercase();
    let caption = format!("{severity}, {}: {}{more}. {}", f.rule, f.subject.name, f.advice);
    (!rows.is_empty()).then(|| block(caption, Drawing::Lines(Lines { line, rows })))
}

/// The part of an object on a line.
fn on(s: &Subject, number: u64, line: u64) -> Option<Span> {
    let start = number.checked_mul(line)?;
    let end = s.address.0.checked_add(s.size)?;
    let (from, to) = (s.address.0.max(start), end.min(start.saturating_add(line)));
    let kind = s.type_name.as_deref().map_or_else(String::new, |t| format!(", {t}"));
    (from < to).then(|| Span {
        from: from - start,
        to: to - start,
        name: s.name.clone(),
        about: format!("{} bytes at phase {}{kind}", s.size, s.phase),
        mark: Mark::Plain,
        continues: s.address.0 < start || end > start.saturating_add(line),
    })
}

/// The lines of the objects that were asked for.
pub(super) fn of_maps(maps: &[LineMap], line: u64) -> Option<Block> {
    let row = |map: &LineMap| LineRow {
        label: format!("{} {}", map.section, map.address),
        spans: map
            .objects
            .iter()
            .map(|o| {
                let (start, end) = (o.object.address.0, o.object.address.0.saturating_add(o.object.size));
                let kind = o.object.type_name.as_deref().map_or_else(String::new, |t| format!(", {t}"));
                let how = o.contended.map_or_else(String::new, |c| format!(", {c:?}").to_lowercase());
                Span {
                    from: o.from,
                    to: o.to,
                    name: o.object.name.clone(),
                    about: format!("{} bytes{kind}{how}", o.object.size),
                    mark: match (o.asked, o.contended) {
                        (true, _) => Mark::Subject,
                        (false, Some(_)) => Mark::Contended,
                        (false, None) => Mark::Plain,
                    },
                    continues: start < map.address.0 || end > map.address.0.saturating_add(line),
                }
            })
            .collect(),
    };
    let rows: Vec<LineRow> = maps.iter().map(row).collect();
    (!rows.is_empty()).then(|| block("Line by line", Drawing::Lines(Lines { line, rows })))
}

/// Lines of a type that are drawn: those of the largest struct of a kernel.
const LINES_OF_TYPE: u64 = 160;

/// A type's members on its lines, at the phase that is assumed.
pub(super) fn of_type(view: &TypeView, line: u64) -> Option<Block> {
    let at = view.base.phase.map_or(0, |p| u64::from(p.0));
    let end = view.size.checked_add(at)?;
    let rows = (0..end.div_ceil(line.max(1)).min(LINES_OF_TYPE)).map(|number| {
        let start = number * line;
        let on = view.members.iter().filter(|m| m.depth == 0).filter_map(|m| {
            let (begin, size) = (m.offset.checked_add(at)?, m.size?);
            let finish = begin.checked_add(size)?;
            let (from, to) = (begin.max(start), finish.min(start + line));
            (from < to).then(|| Span {
                from: from - start,
                to: to - start,
                name: m.path.clone(),
                about: format!("{}, {size} bytes at {}", m.type_name, m.offset),
                mark: if m.contended.is_some() { Mark::Contended } else { Mark::Plain },
                continues: begin < start || finish > start + line,
            })
        });
        LineRow { label: format!("line {number}"), spans: on.collect() }
    });
    let rows: Vec<LineRow> = rows.collect();
    let caption = format!("{} {}: its members on lines", view.kind, view.name);
    (!rows.is_empty()).then(|| block(caption, Drawing::Lines(Lines { line, rows })))
}
