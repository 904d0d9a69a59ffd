//! Linker scripts name files by absolute paths (`GROUP ( /lib/x86_64-linux-gnu/libc.so.6 … )`): they are pointed at
//! the copies.

use std::collections::HashMap;
use std::path::Path;

use crate::link::paths;

/// The script with each whole word that is the path of a moved file replaced by where it lies now.
#[must_use]
pub fn repoint(script: &[u8], sysroot: Option<&str>, moved: &HashMap<&Path, &Path>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(script) else { return script.to_vec() };
    let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '{' | '}' | ',' | ';' | '"' | '\'');
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(ends) {
        let end = word.chars().next_back().filter(|c| ends(*c)).map_or(0, char::len_utf8);
        let (path, rest) = word.split_at(word.len() - end);
        match place_of(path, sysroot, moved) {
            Some(place) => out.push_str(place),
            None => out.push_str(path),
        }
        out.push_str(rest);
    }
    out.into_bytes()
}

fn place_of<'a>(word: &str, sysroot: Option<&str>, moved: &HashMap<&Path, &'a Path>) -> Option<&'a str> {
    let path = word.strip_prefix('=').unwrap_or(word);
    if !path.starts_with('/') {
        return None;
    }
    let known = |p: &Path| moved.get(p).copied();
    let resolved = |p: &str| known(Path::new(p)).or_else(|| known(&paths::resolve(Path::new("/"), p)?));
    resolved(path).or_else(|| resolved(&format!("{}{path}", sysroot?)))?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_replaced() {
        let moved = HashMap::from([
            (Path::new("/nowhere/libc.so.6"), Path::new("/s/c")),
            (Path::new("/r/nowhere/b"), Path::new("/s/b")),
        ]);
        let script = b"/* /nowhere/libc.so.6x */ GROUP ( /nowhere/libc.so.6 AS_NEEDED(=/nowhere/b,-lc))";
        let now = String::from_utf8(repoint(script, Some("/r"), &moved)).unwrap();
        assert_eq!(now, "/* /nowhere/libc.so.6x */ GROUP ( /s/c AS_NEEDED(/s/b,-lc))");
    }
}
