//! Files that go with an image: where its debug information may be when it is not in the image itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Bytes, map};

/// Where distributions keep debug files.
const SYSTEM: &str = "/usr/lib/debug";

/// A build id's file below `/usr/lib/debug`.
#[must_use]
pub fn by_build_id(id: &str) -> Option<PathBuf> {
    let (first, rest) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(Path::new(SYSTEM).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Where the file may be that `.gnu_debuglink` names, in the order of gdb.
#[must_use]
pub fn by_link(image: &Path, name: &str) -> Vec<PathBuf> {
    let folder = folder(image);
    let below = folder.strip_prefix("/").map(|folder| Path::new(SYSTEM).join(folder).join(name));
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    places.extend(below);
    // A link to itself would be the image.
    places.retain(|place| place != image);
    places
}

/// Where the file may be that `.gnu_debugaltlink` names.
#[must_use]
pub fn by_supplement(image: &Path, name: &str, build_id: &str) -> Vec<PathBuf> {
    let mut places = vec![folder(image).join(name)];
    places.extend(Path::new(name).file_name().map(|name| Path::new(SYSTEM).join(".dwz").join(name)));
    places.extend(by_build_id(build_id));
    places
}

/// Where a `.dwo` file may be: where the compiler wrote it, or beside the image.
#[must_use]
pub fn by_split(image: &Path, from: Option<&str>, name: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    places.extend(from.map(|from| Path::new(from).join(name)));
    places.push(folder(image).join(name));
    places.extend(Path::new(name).file_name().map(|name| folder(image).join(name)));
    places.dedup();
    places
}

/// The package that a linked image's `.dwo` files may be in.
#[must_use]
pub fn package(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".dwp");
    name.into()
}

fn folder(image: &Path) -> PathBuf {
    let whole = std::fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
    whole.parent().unwrap_or(Path::new("/")).to_owned()
}

/// The first of some places that has a file; the others are added to `tried`.
pub fn first(places: Vec<PathBuf>, tried: &mut Vec<String>) -> Option<(Bytes, PathBuf)> {
    for place in places {
        match map(&place) {
            Ok(bytes) => return Some((bytes, place)),
            Err(_) => tried.push(place.display().to_string()),
        }
    }
    None
}

/// Asks the servers that `DEBUGINFOD_URLS` names, where it is set, by their own client.
pub fn debuginfod(build_id: &str, tried: &mut Vec<String>) -> Option<(Bytes, PathBuf)> {
    std::env::var_os("DEBUGINFOD_URLS").filter(|urls| !urls.is_empty())?;
    let mut find = Command::new("debuginfod-find");
    find.args(["debuginfo", build_id]).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(out) = find.output() else {
        tried.push("debuginfod (DEBUGINFOD_URLS is set, but debuginfod-find cannot be run)".to_string());
        return None;
    };
    let path = String::from_utf8(out.stdout).ok().filter(|_| out.status.success());
    let found = path.and_then(|path| first(vec![PathBuf::from(path.trim_end())], &mut Vec::new()));
    if found.is_none() {
        tried.push(format!("debuginfod for build id {build_id}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_their_order() {
        let text = |places: Vec<PathBuf>| places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        let id = by_build_id("abcdef").unwrap();
        assert_eq!(id, Path::new("/usr/lib/debug/.build-id/ab/cdef.debug"));
        assert_eq!((by_build_id("ab"), by_build_id("")), (None, None));
        let image = Path::new("/no/bin/server");
        assert_eq!(
            text(by_link(image, "server.debug")),
            ["/no/bin/server.debug", "/no/bin/.debug/server.debug", "/usr/lib/debug/no/bin/server.debug"]
        );
        assert_eq!(text(by_link(image, "server")), ["/no/bin/.debug/server", "/usr/lib/debug/no/bin/server"]);
        assert_eq!(
            text(by_supplement(image, "../x/a.dwz", "abcd")),
            ["/no/bin/../x/a.dwz", "/usr/lib/debug/.dwz/a.dwz", "/usr/lib/debug/.build-id/ab/cd.debug"]
        );
        assert_eq!(
            text(by_split(image, Some("/build"), "obj/a.dwo")),
            ["/build/obj/a.dwo", "/no/bin/obj/a.dwo", "/no/bin/a.dwo"]
        );
        assert_eq!(text(by_split(image, None, "/abs/a.dwo")), ["/abs/a.dwo", "/no/bin/a.dwo"]);
        assert_eq!(package(image), Path::new("/no/bin/server.dwp"));
    }
}
