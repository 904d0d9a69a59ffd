//! Thin archives → ordinary ones, so that a capture needs no file beside its store.
//!
//! A thin archive (`!<thin>`, ar(1) `--thin`) holds names in place of contents. The index of symbols holds the places
//! of the members' headers, which are rewritten. Member names stay paths, as the thin archive wrote them.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Error, Result};

const THIN: &[u8] = b"!<thin>\n";
const HEADER: usize = 60;

/// Whether these bytes need [`flatten`].
#[must_use]
pub fn is_thin(bytes: &[u8]) -> bool {
    bytes.starts_with(THIN)
}

struct Member<'a> {
    /// Where its header was.
    at: usize,
    header: &'a [u8],
    content: Vec<u8>,
}

/// The ordinary archive with the same index and members. `read` gets a member's path, relative to the archive's folder.
pub fn flatten(name: &str, thin: &[u8], read: &dyn Fn(&Path) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let bad = |what: &str| Error::input(format!("storing the thin archive {name}"), what.to_owned());
    let mut at = THIN.len();
    let (mut index, mut wide, mut names) = (None, false, &[][..]);
    let mut members = Vec::new();
    while at + 1 < thin.len() {
        let header = thin.get(at..at + HEADER).ok_or_else(|| bad("it ends inside a member's header"))?;
        let field = header.get(..16).map(|f| String::from_utf8_lossy(f).trim_end().to_owned()).unwrap_or_default();
        let size = header.get(48..58).map(String::from_utf8_lossy).and_then(|s| s.trim().parse::<usize>().ok());
        let size = size.ok_or_else(|| bad("a member's size is no number"))?;
        let body = || thin.get(at + HEADER..(at + HEADER).checked_add(size)?);
        let cut = || bad("it ends inside its index");
        match field.as_str() {
            "/" | "/SYM64/" => {
                wide = field.len() > 1;
                index = Some((header, body().ok_or_else(cut)?));
            }
            "//" => names = body().ok_or_else(cut)?,
            _ => {
                let path =
                    member_path(&field, names).ok_or_else(|| bad(&format!("member name `{field}` is unknown")))?;
                if path.1 {
                    return Err(
                        bad("it holds members of another archive").hint("build with ordinary archives (ar without T)")
                    );
                }
                let content = read(Path::new(&path.0))?;
                if content.len() != size {
                    return Err(bad(&format!("{} has changed since it was archived", path.0)));
                }
                members.push(Member { at, header, content });
                at += HEADER;
                continue;
            }
        }
        at += HEADER + size + size % 2;
    }
    assemble(index, wide, names, &members).ok_or_else(|| bad("its index points at no member, or past 4 GiB"))
}

/// `/123` is a place in the table of names, `name/` the name itself. GNU ar also writes `/123      /`. The flag tells
/// `/123:456`, a member of a nested archive.
fn member_path(field: &str, names: &[u8]) -> Option<(String, bool)> {
    let Some(place) = field.strip_prefix('/') else {
        return Some((field.trim_end_matches('/').to_owned(), false));
    };
    let place = place.trim_end_matches('/').trim();
    let (offset, nested) = place.split_once(':').map_or((place, false), |(offset, _)| (offset, true));
    let rest = names.get(offset.parse::<usize>().ok()?..)?;
    let end = rest.windows(2).position(|w| w == b"/\n")?;
    Some((String::from_utf8(rest.get(..end)?.to_vec()).ok()?, nested))
}

fn assemble(index: Option<(&[u8], &[u8])>, wide: bool, names: &[u8], members: &[Member]) -> Option<Vec<u8>> {
    let even = |n: usize| n + n % 2;
    let mut at = 8 + index.map_or(0, |(_, body)| HEADER + even(body.len()));
    if !names.is_empty() {
        at += HEADER + even(names.len());
    }
    let mut moved = HashMap::new();
    for member in members {
        moved.insert(member.at as u64, at as u64);
        at += HEADER + even(member.content.len());
    }
    let mut out = Vec::with_capacity(at);
    out.extend_from_slice(b"!<arch>\n");
    let mut push = |header: &[u8], body: &[u8]| {
        out.extend_from_slice(header);
        out.extend_from_slice(body);
        if body.len() % 2 == 1 {
            out.push(b'\n');
        }
    };
    if let Some((header, body)) = index {
        push(header, &reindex(body, wide, &moved)?);
    }
    if !names.is_empty() {
        push(format!("{:<48}{:<10}`\n", "//", names.len()).as_bytes(), names);
    }
    for member in members {
        push(member.header, &member.content);
    }
    Some(out)
}

/// The index: a count, that many places (big-endian, 4 or 8 bytes), then the names.
fn reindex(body: &[u8], wide: bool, moved: &HashMap<u64, u64>) -> Option<Vec<u8>> {
    let width = if wide { 8 } else { 4 };
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let count = usize::try_from(number(body.get(..width)?)).ok()?;
    let end = count.checked_add(1)?.checked_mul(width)?;
    let mut out = body.get(..width)?.to_vec();
    for place in body.get(width..end)?.chunks(width) {
        let new = moved.get(&number(place))?.to_be_bytes();
        let (high, low) = new.split_at(8 - width);
        if high.iter().any(|b| *b != 0) {
            return None;
        }
        out.extend_from_slice(low);
    }
    out.extend_from_slice(body.get(end..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sh(dir: &Path, script: &str) {
        let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// Long and short names, odd sizes, two members of one name: ar must list and extract what went in.
    #[test]
    fn ar_reads_what_was_flattened() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        sh(
            at,
            "mkdir one two; for f in one/a two/a one/a_name_longer_than_sixteen_bytes; do \
                echo \"int $(echo $f | tr / _)(void){return 1;}\" > $f.c; gcc -c $f.c -o $f.o; done; \
                ar rcsT lib.a one/a.o two/a.o one/a_name_longer_than_sixteen_bytes.o",
        );
        let thin = std::fs::read(at.join("lib.a")).unwrap();
        assert!(is_thin(&thin));
        let flat = flatten("lib.a", &thin, &|p| Ok(std::fs::read(at.join(p)).unwrap())).unwrap();
        std::fs::write(at.join("flat.a"), &flat).unwrap();
        sh(
            at,
            "nm -s lib.a | sed -n '/^Archive index/,/^$/p' > i1; nm -s flat.a | sed -n '/^Archive index/,/^$/p' > i2; \
                cmp i1 i2; test $(wc -l < i1) -ge 4; ar p flat.a > all; cat one/a.o two/a.o one/a_n*.o | cmp - all",
        );
        for cut in 0..thin.len() {
            drop(flatten("lib.a", &thin[..cut], &|p| Ok(std::fs::read(at.join(p)).unwrap())));
        }
    }
}
