//! Where a linker's files lie: in the build, and mirrored below a scratch folder.

use std::path::{Component, Path, PathBuf};

/// The absolute path of `text` seen from `folder`: the symbolic links of its folder are resolved, its own name is kept
/// (a linker writes `libz.so.1`, the name that it opened, where it reads `libz.so.1.2.13`).
#[must_use]
pub fn resolve(folder: &Path, text: &str) -> Option<PathBuf> {
    let path = folder.join(text);
    let name = path.file_name()?;
    Some(path.parent()?.canonicalize().ok()?.join(name))
}

/// Where `path` lies below `scratch`: files of the build keep their places to each other, and so do all others.
#[must_use]
pub fn mirror(scratch: &Path, root: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(root) {
        Ok(below) => scratch.join("root").join(below),
        Err(_) => scratch.join("outside").join(path.strip_prefix("/").unwrap_or(path)),
    }
}

/// Whether `text`, seen from `folder`, means `path` by its letters alone (no symbolic link, no way out of the build
/// root and back): then it means the mirrored file as well when it is seen from the mirrored folder.
#[must_use]
pub fn relative_means(root: &Path, folder: &Path, text: &str, path: &Path) -> bool {
    let mut at = folder.to_owned();
    let mut down = false;
    for part in Path::new(text).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                down = true;
                at.push(name);
            }
            // `sub/..` would need `sub` in the mirror.
            Component::ParentDir if !down && at.pop() => {
                if at.starts_with(root) != folder.starts_with(root) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    at == path && path.starts_with(root) == folder.starts_with(root)
}

/// The files named by a make rule that a linker wrote (`--dependency-file`), in order, each once. GNU ld writes names
/// raw, lld escapes spaces and `#` with a backslash and `$` by doubling. mold writes all of them raw on one line, where
/// spaces part nothing for sure; the rules of one name each that follow are read instead.
#[must_use]
pub fn dependencies(text: &str) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let first = text.lines().next().and_then(|l| l.split_once(": ")).map_or("", |(_, rest)| rest);
    let one_line = !first.trim_end().is_empty() && !first.trim_end().ends_with('\\');
    let rule = text.lines().skip(1).filter(|_| !one_line).take_while(|l| l.starts_with(' '));
    let rules = text.lines().skip(1).filter(|_| one_line).filter_map(|l| l.strip_suffix(':'));
    let mut files = Vec::new();
    for line in rule.chain(rules) {
        let name = line.trim_start().trim_end_matches('\\').trim_end();
        let name = if Path::new(name).exists() { name.to_owned() } else { unescape(name) };
        if !name.is_empty() && seen.insert(name.clone()) {
            files.push(name);
        }
    }
    files
}

fn unescape(name: &str) -> String {
    name.replace("\\ ", " ").replace("\\#", "#").replace("$$", "$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_in_all_dialects() {
        let gnu = "x: \\\n  /usr/lib/crt1.o \\\n  ./liba.a \\\n  ./liba.a\n\n./liba.a:\n";
        assert_eq!(dependencies(gnu), ["/usr/lib/crt1.o", "./liba.a"]);
        let lld = "x: \\\n  a\\ b.o \\\n  c\\#.o\n\na\\ b.o:\n";
        assert_eq!(dependencies(lld), ["a b.o", "c#.o"]);
        let mold = "x y: a b.o c.o\n\na b.o:\n\nc.o:\n";
        assert_eq!(dependencies(mold), ["a b.o", "c.o"]);
        assert!(dependencies("").is_empty());
    }

    #[test]
    fn mirrors_keep_places() {
        let at = |p: &str| mirror(Path::new("/s"), Path::new("/b/tree"), Path::new(p));
        assert_eq!(at("/b/tree/src/a.o"), Path::new("/s/root/src/a.o"));
        assert_eq!(at("/usr/lib/crt1.o"), Path::new("/s/outside/usr/lib/crt1.o"));
        let means = |folder: &str, text, path: &str| {
            relative_means(Path::new("/b/tree"), Path::new(folder), text, Path::new(path))
        };
        assert!(means("/b/tree/src", "./sub/a.o", "/b/tree/src/sub/a.o"));
        assert!(means("/b/tree/src", "../a.o", "/b/tree/a.o"));
        assert!(!means("/b/tree/src", "../../tree/a.o", "/b/tree/a.o"), "leaves the root");
        assert!(!means("/b/tree/src", "x/../a.o", "/b/tree/src/a.o"), "x is not in the mirror");
        assert!(!means("/b/tree", "/b/tree/a.o", "/b/tree/a.o"), "is absolute");
        assert!(!means("/b", "tree/a.o", "/b/tree/a.o"), "enters the root");
    }
}
