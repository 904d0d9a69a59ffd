//! One rule in one image: does it hold at every place that its names may have?

use super::ground::{Ground, Home, Spot};
use super::spec::{Bound, Rule, What};
use crate::finding::{Evidence, Finding, Severity, Share, Subject};
use crate::layout::meeting;
use crate::units::{Addr, Align, LineSize, Span};

/// Findings of one rule in one image; more are counted.
const MOST: usize = 100;

/// What came of a rule in an image.
pub(super) struct Judged {
    /// Places that were judged.
    pub(super) matched: u64,
    pub(super) findings: Vec<Finding>,
    /// Violations beyond those that are listed.
    pub(super) more: u64,
}

impl Judged {
    fn new(matched: usize) -> Judged {
        Judged { matched: matched as u64, findings: Vec::new(), more: 0 }
    }

    fn push(&mut self, finding: Finding) {
        if self.findings.len() < MOST { self.findings.push(finding) } else { self.more += 1 }
    }
}

/// `Err`: why there is nothing to judge.
pub(super) fn judge(ground: &mut Ground<'_, '_>, rule: &Rule) -> Result<Judged, String> {
    let mut spots = Vec::new();
    for (target, name) in rule.what.targets().into_iter().enumerate() {
        spots.extend(ground.spots((target, name), rule.align, matches!(rule.what, What::Offset(_)))?);
    }
    let line = ground.seen.lines.line;
    match &rule.what {
        What::Separate(names) => separate(ground, spots, names.len() > 1),
        What::Together(names) => together(&spots, names.len(), line),
        What::OwnLine(_) => Ok(own_line(ground, &spots, line)),
        What::NoStraddle(_) => Ok(no_straddle(&spots, line)),
        What::MaxSize(bound) => Ok(bounded(&spots, bound, true)),
        What::Offset(bound) => Ok(bounded(&spots, bound, false)),
    }
}

fn found(rule: &'static str, spot: &Spot, others: Vec<Subject>, advice: String) -> Finding {
    let typed = spot.member || matches!(spot.home, Home::Type(_));
    let evidence = if typed { Evidence::Typed } else { Evidence::Static };
    Finding { others, advice, ..Finding::about(rule, Severity::High, evidence, spot.subject.clone()) }
}

/// At how many bases something bad is, and what would end it.
fn bases(bad: &dyn Fn(Align) -> Share, spot: &Spot, line: LineSize) -> Option<String> {
    let step = spot.step;
    let share = bad(step);
    if share.at == 0 {
        return None;
    }
    if share.of == 1 {
        return Some(String::new());
    }
    let holds = share.of - share.at;
    let exponents = (0..=line.bytes().trailing_zeros()).map(|e| 1u64 << e).filter(|bytes| *bytes > step.bytes());
    let enough = exponents.filter_map(Align::new).find(|align| bad(*align).at == 0);
    let way = match enough {
        _ if spot.object.is_some() => "; where its section will lie is not known yet".to_string(),
        Some(align) => format!("; it holds with `align = {0}`, if objects are aligned to {0} bytes", align.bytes()),
        None => "; no alignment of the whole makes it hold".to_string(),
    };
    Some(format!(": the rule holds at {holds} of {} bases (multiples of {}){way}", share.of, step.bytes()))
}

/// Over all bases in a line, those at which something is.
fn share(step: Align, line: LineSize, bad: impl Fn(u64) -> bool) -> Share {
    let step = usize::try_from(step.bytes()).unwrap_or(usize::MAX);
    (0..line.bytes())
        .step_by(step)
        .fold(Share::default(), |s, shift| Share { at: s.at + u64::from(bad(shift)), of: s.of + 1 })
}

fn moved(span: Span, by: u64) -> Span {
    Span { start: Addr(span.start.0.saturating_add(by)), ..span }
}

/// What it costs to put it right, said in words too.
fn priced(ground: &Ground<'_, '_>, spot: &Spot, finding: Finding) -> Finding {
    let Some(price) = ground.price(spot) else { return finding };
    let text =
        format!("{}; {} costs {} bytes ({} lines in all)", finding.advice, price.advice, price.cost_bytes, price.lines);
    Finding { advice: text, cost_bytes: Some(price.cost_bytes), alternatives: vec![price], ..finding }
}

fn separate(ground: &Ground<'_, '_>, mut spots: Vec<Spot>, by_name: bool) -> Result<Judged, String> {
    let line = ground.seen.lines.line;
    spots.sort_by_key(|s| (s.home, s.span.start, s.target));
    let mut judged = Judged::new(spots.len());
    let mut pairs = false;
    for of_home in spots.chunk_by(|a, b| a.home == b.home) {
        let one = of_home.iter().all(|s| s.target == of_home.first().map_or(0, |f| f.target));
        pairs |= of_home.len() > 1 && !(one && by_name);
        for (at, a) in of_home.iter().enumerate() {
            let close = |b: &&Spot| b.span.start.0 < a.span.end().saturating_add(line.bytes());
            for b in of_home.iter().skip(at + 1).take_while(close) {
                let apart = a.span.end() <= b.span.start.0;
                if !apart || (by_name && a.target == b.target) {
                    continue;
                }
                let (first, second) = if a.target <= b.target { (a, b) } else { (b, a) };
                if let Some(why) = bases(&|step| meeting(a.span, b.span, step, line), a, line) {
                    let both = format!(
                        "{} and {} are on one line, {} bytes from start to start{why}",
                        first.subject.name,
                        second.subject.name,
                        b.span.start.0 - a.span.start.0
                    );
                    let finding = found("separate", first, vec![second.subject.clone()], both);
                    judged.push(priced(ground, b, finding));
                }
            }
        }
    }
    if !pairs {
        return Err("no two of its names are in one object or section that could be compared".to_string());
    }
    Ok(judged)
}

fn together(spots: &[Spot], names: usize, line: LineSize) -> Result<Judged, String> {
    let mut homes: Vec<Home> = spots.iter().map(|s| s.home).collect();
    homes.sort_unstable();
    homes.dedup();
    let mut judged = Judged::new(spots.len());
    let mut complete = false;
    for home in &homes {
        let here: Vec<&Spot> = spots.iter().filter(|s| s.home == *home).collect();
        let all = (0..names).all(|target| here.iter().any(|s| s.target == target));
        let Some(first) = here.iter().min_by_key(|s| (s.target, s.span.start)).filter(|_| all) else { continue };
        complete = true;
        let start = here.iter().map(|s| s.span.start.0).min().unwrap_or(0);
        let end = here.iter().map(|s| s.span.end()).max().unwrap_or(0);
        let whole = Span { start: Addr(start), size: end.saturating_sub(start) };
        let lines = |span: Span| span.lines(line).end() - span.lines(line).start() + 1;
        let bad = |step: Align| share(step, line, |shift| lines(moved(whole, shift)) > 1);
        if let Some(why) = bases(&bad, first, line) {
            let others = here.iter().filter(|s| s.subject != first.subject).take(64).map(|s| s.subject.clone());
            let text = format!("they take {} bytes from the first to the last, on more than one line{why}", whole.size);
            judged.push(found("together", first, others.collect(), text));
        }
    }
    if complete {
        return Ok(judged);
    }
    // Objects in different spaces cannot meet: that is an answer.
    let objects = spots.iter().all(|s| matches!(s.home, Home::Image(_)));
    match spots.first().filter(|_| objects && homes.len() > 1) {
        Some(first) => {
            let others = spots.iter().filter(|s| s.subject != first.subject).take(64).map(|s| s.subject.clone());
            let text = "they lie in sections that cannot share a line".to_string();
            judged.push(found("together", first, others.collect(), text));
            Ok(judged)
        }
        None => Err("its names are not in one object".to_string()),
    }
}

fn own_line(ground: &Ground<'_, '_>, spots: &[Spot], line: LineSize) -> Judged {
    let mut judged = Judged::new(spots.len());
    for spot in spots {
        let beside = ground.beside(spot);
        let on = |other: Span, step: Align| meeting(spot.span, other, step, line);
        let met: Vec<&(Subject, Span)> = beside.iter().filter(|(_, span)| on(*span, spot.step).at > 0).collect();
        let bounds = ground.bounds(spot);
        // What lies before and behind the object is not known: nothing does where no byte of the lines is.
        let outside = |shift: u64, step: Align| {
            bounds.as_ref().is_some_and(|known| {
                let lines = moved(spot.span, shift).lines(line);
                let (low, high) = (lines.start() * line.bytes(), (lines.end() + 1).saturating_mul(line.bytes()));
                // With a larger step the next object of a type begins later.
                let end = if spot.object.is_none() { step.up(known.end) } else { known.end };
                low < known.start.saturating_add(shift) || high > end.saturating_add(shift)
            })
        };
        let bad = |step: Align| {
            share(step, line, |shift| {
                let own = moved(spot.span, shift).lines(line);
                let meets = |other: &Span| {
                    let theirs = moved(*other, shift).lines(line);
                    own.start() <= theirs.end() && theirs.start() <= own.end()
                };
                met.iter().any(|(_, span)| meets(span)) || outside(shift, step)
            })
        };
        let Some(why) = bases(&bad, spot, line) else { continue };
        let text = match met.as_slice() {
            [] => "what lies before or behind the object may come onto its lines".to_string(),
            met => {
                let told = met.iter().take(3).map(|(other, span)| {
                    let behind = span.start.0 >= spot.span.end();
                    if behind {
                        format!("tail line still shared with {} behind it", other.name)
                    } else {
                        format!("first line shared with {} in front of it", other.name)
                    }
                });
                told.collect::<Vec<_>>().join("; ")
            }
        };
        let others = met.iter().take(64).map(|(other, _)| other.clone()).collect();
        judged.push(priced(ground, spot, found("own-line", spot, others, format!("{text}{why}"))));
    }
    judged
}

fn no_straddle(spots: &[Spot], line: LineSize) -> Judged {
    let mut judged = Judged::new(spots.len());
    for spot in spots {
        let need = spot.span.size.div_ceil(line.bytes()).max(1);
        let lines = |span: Span| span.lines(line).end() - span.lines(line).start() + 1;
        let bad = |step: Align| share(step, line, |shift| lines(moved(spot.span, shift)) > need);
        if let Some(why) = bases(&bad, spot, line) {
            let text = format!("{} bytes on {} lines, {need} would do{why}", spot.span.size, need + 1);
            judged.push(found("no-straddle", spot, Vec::new(), text));
        }
    }
    judged
}

fn bounded(spots: &[Spot], bound: &Bound, size: bool) -> Judged {
    let mut judged = Judged::new(spots.len());
    for spot in spots {
        let number = if size { spot.span.size } else { spot.span.start.0 };
        if bound.holds(number) {
            continue;
        }
        let rest = bound.modulo.map_or_else(String::new, |n| format!(" ({} modulo {n})", bound.rest(number)));
        let (rule, text) = match (size, spot.home) {
            (true, _) => ("max-size", format!("{number} bytes{rest}, and must be {} {}", bound.relation, bound.value)),
            (false, Home::Type(_)) => {
                ("offset", format!("at offset {number}{rest}, and must be {} {}", bound.relation, bound.value))
            }
            (false, Home::Image(_)) => {
                ("offset", format!("at address {number:#x}{rest}, and must be {} {}", bound.relation, bound.value))
            }
        };
        judged.push(found(rule, spot, Vec::new(), text));
    }
    judged
}

/// Groups of members: those that share a line with another group, and those on more lines than they need.
pub(super) fn groups(ground: &mut Ground<'_, '_>) -> Vec<Finding> {
    let line = ground.seen.lines.line;
    let mut findings = Vec::new();
    for of_type in ground.groups() {
        for (at, group) in of_type.iter().enumerate() {
            let meets = |other: &&Spot| meeting(group.span, other.span, group.step, line).at > 0;
            let others: Vec<&Spot> = of_type.iter().skip(at + 1).filter(meets).collect();
            if let Some(first) = others.first() {
                let share = meeting(group.span, first.span, group.step, line);
                let places =
                    if share.of == 1 { String::new() } else { format!(" at {} of {} bases", share.at, share.of) };
                let text = format!("the group shares a line with the group {}{places}", first.subject.name);
                let others = others.iter().map(|s| s.subject.clone()).collect();
                findings.push(Finding { severity: Severity::Low, ..found("group", group, others, text) });
            }
            let (lines, need) = (group.span.lines(line), group.span.size.div_ceil(line.bytes()));
            let on = lines.end() - lines.start() + 1;
            if group.step.bytes() >= line.bytes() && on > need {
                let text = format!("the group's {} bytes are on {on} lines, {need} would do", group.span.size);
                findings.push(Finding { severity: Severity::Info, ..found("group", group, Vec::new(), text) });
            }
        }
    }
    findings
}

/// A deliberate layout that has moved.
pub(super) fn drift(spots: &[Spot], offset: u64, line: LineSize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spot in spots {
        let (at, what) = match spot.home {
            Home::Type(_) => (spot.span.start.0, "offset"),
            Home::Image(_) => (u64::from(line.phase_of(spot.span.start).0), "phase"),
        };
        if at != offset {
            let split = if spot.span.straddles(line) { "still on two lines" } else { "not on two lines any more" };
            let text = format!("allowed on purpose at {what} {offset}, and is at {what} {at} now: {split}");
            findings.push(Finding { severity: Severity::Low, ..found("drift", spot, Vec::new(), text) });
        }
    }
    findings
}
