//! Layouts as pahole prints them: C, where a member without a type of its own holds its members between braces, its name
//! behind them.

use std::sync::LazyLock;

use regex::Regex;

use super::{Extent, Layout, Row};

static ATTRIBUTES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"__attribute__ ?\(\((?:[^()]|\([^()]*\))*\)\)").unwrap());

/// What is between two braces.
#[derive(Debug, Default)]
struct Level {
    /// Of a type that is printed for itself.
    name: Option<String>,
    size: Option<u64>,
    rows: Vec<Row>,
}

/// Of what `pahole -E` says. It prints no size of a union.
pub fn layouts(text: &str) -> Vec<Layout> {
    let mut found = Vec::new();
    let mut open: Vec<Level> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (declared, comment) = parts(line);
        if line.ends_with('{') {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = match words[..] {
                ["struct" | "union", name, "{"] if open.is_empty() => Some(name.to_string()),
                _ => None,
            };
            open.push(Level { name, ..Level::default() });
        } else if let Some(size) = line.strip_prefix("/* size: ") {
            let size = size.split(',').next().unwrap().parse().unwrap();
            open.last_mut().unwrap().size = Some(size);
        } else if let Some(behind) = declared.strip_prefix('}') {
            let mut level = open.pop().unwrap();
            let outer = open.last_mut();
            match (outer, comment.and_then(place)) {
                (None, _) => {
                    level.rows.sort();
                    let typedef = || Some(behind.trim_matches(';').trim().to_string()).filter(|name| !name.is_empty());
                    let name = level.name.or_else(typedef);
                    found.extend(name.map(|name| Layout { name, size: level.size, rows: level.rows }));
                }
                // A type that is only declared here: its members are told where it is used.
                (Some(_), None) => {}
                (Some(outer), Some((at, size))) => {
                    let (name, bits, array) = declarator(behind);
                    if name.is_empty() {
                        outer.rows.extend(level.rows);
                        continue;
                    }
                    outer.rows.push(Row { path: name.clone(), at, extent: extent(size, bits) });
                    if !array {
                        let inside = level.rows.into_iter();
                        outer.rows.extend(inside.map(|row| Row { path: format!("{name}.{}", row.path), ..row }));
                    }
                }
            }
        } else if let (Some(level), Some((at, size))) = (open.last_mut(), comment.and_then(place)) {
            let (path, bits, _) = declarator(declared);
            level.rows.push(Row { path, at, extent: extent(size, bits) });
        }
    }
    found
}

fn extent(size: u64, bits: Option<u64>) -> Extent {
    bits.map_or(Extent::Bytes(size), Extent::Bits)
}

/// What is declared, and the comment behind it.
fn parts(line: &str) -> (&str, Option<&str>) {
    let comment = line.strip_suffix("*/").and_then(|l| l.rsplit_once("/*"));
    comment.map_or((line, None), |(declared, comment)| (declared.trim(), Some(comment.trim())))
}

/// `64     8`, or of a bit field `128: 3  4`: the first bit, and the size in bytes.
fn place(comment: &str) -> Option<(u64, u64)> {
    let (at, size) = comment.rsplit_once(' ')?;
    let (byte, bit) = at.split_once(':').unwrap_or((at, "0"));
    Some((byte.trim().parse::<u64>().ok()? * 8 + bit.trim().parse::<u64>().ok()?, size.parse().ok()?))
}

/// The name, the bits that it takes, and whether it is an array or a pointer: what is pointed to is printed, too.
fn declarator(declared: &str) -> (String, Option<u64>, bool) {
    let text = declared.trim().trim_end_matches(';');
    let text = ATTRIBUTES.replace_all(text, "");
    let text = text.trim();
    if let Some((_, pointer)) = text.split_once("(*") {
        let name = pointer.split([')', '[']).next().unwrap();
        return (name.rsplit([' ', '*']).next().unwrap().to_string(), None, true);
    }
    let (text, bits) = match text.rsplit_once(':') {
        Some((text, bits)) => (text.trim(), Some(bits.parse().unwrap())),
        None => (text, None),
    };
    let (text, array) = text.split_once('[').map_or((text, false), |(text, _)| (text, true));
    (text.rsplit([' ', '*']).next().unwrap().to_string(), bits, array || text.contains('*'))
}
