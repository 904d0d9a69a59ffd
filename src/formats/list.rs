//! A list of names: one a line, `NAME [r|w|rw|a] [WEIGHT]` in any order after the name, `#` for comments. A name is an
//! object, `object.member`, `object+0x18`, or `type.member`.

use super::{Does, Place, Sample, Sink, Stands, symbol};
use crate::error::{Error, Result};

struct Line<'a> {
    name: Place<'a>,
    does: Option<Does>,
    weight: Option<u64>,
}

pub(super) fn is_empty(line: &str) -> bool {
    content(line).is_empty()
}

pub(super) fn is_line(line: &str) -> bool {
    parse(content(line)).is_some()
}

fn content(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut words = line.split(|c: char| c.is_ascii_whitespace() || c == ',').filter(|w| !w.is_empty());
    let name = words.next()?;
    let begins = |c: char| c.is_alphabetic() || matches!(c, '_' | '.' | '$');
    if !name.starts_with(begins) || name.contains(['(', ')', '{', '}', ';', '=', '"']) {
        return None;
    }
    let mut out = Line { name: symbol(name, None)?, does: None, weight: None };
    for word in words {
        match (mark(word), word.parse()) {
            (Some(does), _) if out.does.is_none() => out.does = Some(does),
            (None, Ok(weight)) if out.weight.is_none() => out.weight = Some(weight),
            _ => return None,
        }
    }
    Some(out)
}

fn mark(word: &str) -> Option<Does> {
    Some(match word {
        "r" | "read" => Does::READ,
        "w" | "write" => Does::WRITE,
        "rw" | "read-write" => Does { reads: true, ..Does::WRITE },
        "a" | "atomic" => Does { reads: true, writes: true, locked: true },
        _ => return None,
    })
}

pub(super) fn read<'a>(text: &'a str, path: &str, sink: Sink<'_, 'a>) -> Result<()> {
    for (at, line) in (1u64..).zip(text.lines()).filter(|(_, line)| !is_empty(line)) {
        let Some(parsed) = parse(content(line)) else {
            let problem = format!("line {at} is no `NAME [r|w|rw|a] [WEIGHT]`: {}", content(line));
            return Err(Error::input(format!("reading the profile {path}"), problem));
        };
        let stands = Stands::Word { weighted: parsed.weight.is_some() };
        let count = parsed.weight.unwrap_or(1);
        sink(Sample { count, does: parsed.does, data: Some(parsed.name), ..Sample::at(at, stands) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Samples;
    use super::*;

    #[test]
    fn names_have_marks_and_weights() {
        let text = "# hot\njiffies\ncounter w 1200\ntable+0x18, r\npage_counter.usage 7 a # A3\n\n";
        let samples = Samples::open(text.as_bytes(), "list").unwrap();
        let mut all = Vec::new();
        samples.each(&mut |s| all.push((s.at, s.count, s.does, s.data.unwrap()))).unwrap();
        let of = |name, offset| Place::Symbol { name, offset, file: None };
        let atomic = Does { reads: true, writes: true, locked: true };
        assert_eq!(
            all,
            [
                (2, 1, None, of("jiffies", 0)),
                (3, 1200, Some(Does::WRITE), of("counter", 0)),
                (4, 1, Some(Does::READ), of("table", 0x18)),
                (5, 7, Some(atomic), of("page_counter.usage", 0)),
            ]
        );
    }

    #[test]
    fn what_is_no_list_is_said() {
        for text in ["", "# nothing\n", "int main(void) { }\n", "x y\n", "x 1 2\n", "x w w\n", "\u{0}"] {
            let error = Samples::open(text.as_bytes(), "it").unwrap_err();
            assert!(error.to_string().starts_with("reading the profile it: "), "{error}");
        }
        let long = "x\n".repeat(3000) + "x y\n";
        let samples = Samples::open(long.as_bytes(), "it").unwrap();
        let error = samples.each(&mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("line 3001 is no"), "{error}");
    }
}
