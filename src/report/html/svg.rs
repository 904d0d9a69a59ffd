//! Pictures, drawn. Coordinates are whole units of the picture; it scales to the width of the page.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::escape;
use crate::report::figure::{Drawing, Figure, Forest, Lines, Mark, Span, Square, Strip};
use crate::report::verdict::figure as number;

/// Of every picture.
const WIDTH: f64 = 960.0;
/// Left of what is drawn, for names.
const NAMES: f64 = 330.0;
/// Right of it, for numbers.
const RIGHT: f64 = 230.0;
const ROW: f64 = 26.0;

/// Writes the picture of a figure.
pub(super) fn write(figure: &Figure, out: &mut impl Write) -> io::Result<()> {
    let (height, drawn) = match &figure.drawing {
        Drawing::Lines(lines) => draw_lines(lines),
        Drawing::Forest(forest) => draw_forest(forest),
        Drawing::Square(square) => draw_square(square),
        Drawing::Strip(strip) => draw_strip(strip),
    };
    // What can be focused inside must not be swallowed: no `role="img"` there.
    let role = if matches!(figure.drawing, Drawing::Lines(_)) { "group" } else { "img" };
    let caption = escape(&figure.caption);
    writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"{role}\" aria-label=\"{caption}\">\n{drawn}</svg>")
}

fn text(drawn: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
    let _ = writeln!(
        drawn,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

fn rule(drawn: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(drawn, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

/// As much of a name as fits, about 8 units a character.
fn fitting(name: &str, width: f64) -> String {
    let room = (width / 7.8).floor().max(0.0) as usize;
    if name.chars().count() <= room {
        return name.to_string();
    }
    if room < 3 {
        return String::new();
    }
    name.chars().take(room - 1).chain(['…']).collect()
}

fn draw_lines(lines: &Lines) -> (f64, String) {
    const LEFT: f64 = 200.0;
    let mut drawn = String::new();
    let scale = (WIDTH - LEFT - 8.0) / lines.line.max(1) as f64;
    for byte in (0..=lines.line).step_by(8) {
        let x = LEFT + byte as f64 * scale;
        text(&mut drawn, (x, 12.0), "quiet", "middle", &byte.to_string());
    }
    let mut top = 18.0;
    for row in &lines.rows {
        text(&mut drawn, (0.0, top + 17.0), "quiet", "start", &fitting(&row.label, LEFT - 8.0));
        let _ = writeln!(
            drawn,
            "<rect class=\"line\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"24\"/>",
            scale * lines.line as f64
        );
        for span in &row.spans {
            draw_span(&mut drawn, span, (LEFT, top, scale), lines.line);
        }
        top += 32.0;
    }
    (top, drawn)
}

fn draw_span(drawn: &mut String, span: &Span, (left, top, scale): (f64, f64, f64), line: u64) {
    let (from, width) = (left + span.from as f64 * scale, span.to.saturating_sub(span.from) as f64 * scale);
    let class = match span.mark {
        Mark::Plain => "plain",
        Mark::Subject => "subject",
        Mark::Contended => "contended",
    };
    let about = escape(&format!("{}: bytes {} to {}; {}", span.name, span.from, span.to.saturating_sub(1), span.about));
    let _ = writeln!(
        drawn,
        "<g tabindex=\"0\" role=\"img\" aria-label=\"{about}\"><title>{about}</title>\
         <rect class=\"span {class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"24\"/>"
    );
    text(drawn, (from + width / 2.0, top + 17.0), "on", "middle", &fitting(&span.name, width - 4.0));
    // Where it goes on over the edge of the line.
    if span.continues && span.to == line {
        rule(drawn, "cut", (from + width, top - 2.0), (from + width, top + 26.0));
    }
    if span.continues && span.from == 0 {
        rule(drawn, "cut", (from, top - 2.0), (from, top + 26.0));
    }
    drawn.push_str("</g>\n");
}

/// From values to places between names and numbers.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Of these values, with a little room at both ends.
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let room = ((high - low) * 0.05).max(high.abs().max(low.abs()) * 1e-6).max(1e-9);
        Axis { low: low - room, high: high + room }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        NAMES + share.clamp(0.0, 1.0) * (WIDTH - NAMES - RIGHT)
    }
}

fn draw_forest(forest: &Forest) -> (f64, String) {
    let mut drawn = String::new();
    let ends = forest.rows.iter().flat_map(|r| [r.percent, r.low, r.high]).flatten();
    let axis = Axis::over(ends.chain([0.0, forest.margin, -forest.margin]));
    let bottom = ROW * forest.rows.len() as f64 + 4.0;
    let (from, to) = (axis.at(-forest.margin), axis.at(forest.margin));
    let _ = writeln!(
        drawn,
        "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom:.1}\"/>",
        to - from
    );
    rule(&mut drawn, "zero", (axis.at(0.0), 0.0), (axis.at(0.0), bottom));
    let mut middle = ROW / 2.0 + 2.0;
    for row in &forest.rows {
        text(&mut drawn, (0.0, middle + 5.0), "", "start", &fitting(&row.name, NAMES - 8.0));
        if let (Some(low), Some(high)) = (row.low, row.high) {
            rule(&mut drawn, "bar", (axis.at(low), middle), (axis.at(high), middle));
        }
        if let Some(percent) = row.percent {
            let _ =
                writeln!(drawn, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"5\"/>", axis.at(percent));
        }
        text(&mut drawn, (WIDTH, middle + 5.0), "", "end", &fitting(&row.words, RIGHT - 8.0));
        middle += ROW;
    }
    let label = format!("0, and ±{} % that count as none", forest.margin);
    text(&mut drawn, (axis.at(0.0), bottom + 16.0), "quiet", "middle", &label);
    (bottom + 22.0, drawn)
}

fn draw_square(square: &Square) -> (f64, String) {
    let mut drawn = String::new();
    let (columns, rows) = ([230.0, 700.0], [30.0, 150.0]);
    for (column, head) in columns.iter().zip(["base's landing", "patched's landing"]) {
        text(&mut drawn, (column + 100.0, 18.0), "quiet", "middle", head);
    }
    let [bb, bp, pb, pp] = &square.cells;
    for (top, code, cells) in [(rows[0], "base's code", [bb, bp]), (rows[1], "patched's code", [pb, pp])] {
        text(&mut drawn, (0.0, top + 35.0), "quiet", "start", code);
        for (left, cell) in columns.iter().zip(cells) {
            let _ = writeln!(drawn, "<rect class=\"line\" x=\"{left}\" y=\"{top}\" width=\"200\" height=\"60\"/>");
            text(&mut drawn, (left + 100.0, top + 36.0), "", "middle", cell);
        }
    }
    for (top, moved) in rows.iter().zip(&square.moves) {
        rule(&mut drawn, "join", (436.0, top + 30.0), (694.0, top + 30.0));
        text(&mut drawn, (565.0, top + 22.0), "", "middle", &fitting(moved, 250.0));
    }
    for (left, patch) in columns.iter().zip(&square.patches) {
        rule(&mut drawn, "join", (left + 100.0, 94.0), (left + 100.0, 146.0));
        text(&mut drawn, (left + 110.0, 125.0), "", "start", &fitting(patch, 250.0));
    }
    (220.0, drawn)
}

fn draw_strip(strip: &Strip) -> (f64, String) {
    let mut drawn = String::new();
    let axis = Axis::over(strip.rows.iter().flat_map(|r| [r.base, r.patched]));
    // Rows are thin: there may be a hundred, and it is the shape of the whole that speaks.
    let row = if strip.rows.len() > 24 { 12.0 } else { 20.0 };
    let mut middle = row / 2.0 + 2.0;
    for (index, pair) in strip.rows.iter().enumerate() {
        if pair.as_built {
            let _ = writeln!(
                drawn,
                "<rect class=\"built\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{row}\"/>",
                middle - row / 2.0
            );
        }
        if row > 12.0 || index % 2 == 0 {
            text(&mut drawn, (0.0, middle + 4.5), "quiet", "start", &fitting(&pair.label, NAMES - 8.0));
        }
        let (base, patched) = (axis.at(pair.base), axis.at(pair.patched));
        rule(&mut drawn, "join", (base, middle), (patched, middle));
        let _ = writeln!(drawn, "<circle class=\"base\" cx=\"{base:.1}\" cy=\"{middle:.1}\" r=\"4\"/>");
        let _ = writeln!(
            drawn,
            "<rect class=\"patched\" x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>",
            patched - 3.5,
            middle - 3.5
        );
        middle += row;
    }
    let bottom = middle - row / 2.0 + 2.0;
    rule(&mut drawn, "axis", (NAMES, bottom), (WIDTH - RIGHT, bottom));
    for value in [axis.low, (axis.low + axis.high) / 2.0, axis.high] {
        text(&mut drawn, (axis.at(value), bottom + 16.0), "quiet", "middle", &number(value));
    }
    text(&mut drawn, (NAMES, bottom + 34.0), "quiet", "start", &strip.axis);
    let _ = writeln!(drawn, "<circle class=\"base\" cx=\"{:.1}\" cy=\"14\" r=\"4\"/>", WIDTH - RIGHT + 24.0);
    text(&mut drawn, (WIDTH - RIGHT + 34.0, 18.5), "", "start", "base");
    let _ = writeln!(
        drawn,
        "<rect class=\"patched\" x=\"{:.1}\" y=\"30.5\" width=\"7\" height=\"7\"/>",
        WIDTH - RIGHT + 20.5
    );
    text(&mut drawn, (WIDTH - RIGHT + 34.0, 38.5), "", "start", "patched");
    (bottom.max(48.0) + 40.0, drawn)
}
