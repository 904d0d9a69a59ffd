//! `straddle.toml` and the flags that override it → one resolved [`Case`].
//!
//! Flags become plain values first; then the world is resolved once, here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::measure::record::Better;
use crate::measure::workload::WORKERS;
use crate::rules::{self, Allow};

/// The file as written. Unknown keys are errors: a misspelt key must not be ignored in silence.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    build: Build,
    run: Run,
    pub(super) allow: Vec<toml::Spanned<Deliberate>>,
    pub(super) rule: Vec<super::rules::WrittenRule>,
}

/// `[[allow]]`: the rule's name and whom it is allowed to, and why.
#[derive(Debug, Deserialize)]
pub(super) struct Deliberate {
    #[serde(rename = "why")]
    _why: String,
    /// Where it is meant to lie: `check` tells when it does not.
    pub(super) offset: Option<u64>,
    #[serde(flatten)]
    pub(super) rules: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Build {
    base: Option<PathBuf>,
    patched: Option<PathBuf>,
    git: Option<String>,
    command: Option<String>,
    link: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Run {
    command: Option<String>,
    metric: Option<OneOrMany<String>>,
    better: Option<OneOrMany<Better>>,
    cpus: Option<String>,
    workers: Option<OneOrMany<Count>>,
    decides: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn list(self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// A worker count: `2`, or `"50%"` of the CPUs.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u32),
    Share(String),
}

/// What the command line says; `None` leaves the file's word.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    pub base: Option<PathBuf>,
    pub patched: Option<PathBuf>,
    pub git: Option<String>,
    pub build: Option<String>,
    pub link: Option<String>,
    pub workload: Vec<String>,
    pub metric: Vec<String>,
    pub better: Vec<Better>,
    pub cpus: Option<String>,
    pub workers: Vec<String>,
    pub decides: Option<u32>,
}

/// The two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trees {
    Folders { base: PathBuf, patched: PathBuf },
    Git { repo: PathBuf, base: String, patched: String },
}

/// Everything that a triage needs to know, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// In the user's words: `fixtures/irrelevant-patch`, `HEAD~1..HEAD`.
    pub name: String,
    pub trees: Trees,
    pub build: String,
    pub link: Option<String>,
    pub workload: String,
    /// The first decides.
    pub metrics: Vec<String>,
    /// One for all metrics, or one for each; empty: lower.
    pub better: Vec<Better>,
    pub cpus: Option<String>,
    /// The worker counts of a sweep, as they are written; empty: there is none.
    pub workers: Vec<String>,
    /// The worker count whose row decides alone.
    pub decides: Option<u32>,
}

/// Resolves a case folder (or its `straddle.toml`, or the one in the current folder, or none) and the flags.
pub fn resolve(case: Option<&Path>, flags: &Overrides) -> Result<Case> {
    let path = locate(case)?;
    let file = match &path {
        Some(path) => parse(path, &crate::open::text(path)?)?,
        None => File::default(),
    };
    let folder = path.as_deref().and_then(Path::parent).map_or_else(PathBuf::new, Path::to_path_buf);
    let doing = || match &path {
        Some(path) => format!("resolving {}", path.display()),
        None => "resolving the command line".to_string(),
    };
    let missing = |what: &str, hint: &str| Error::input(doing(), format!("no {what} is given")).hint(hint);

    let trees = trees(&file.build, flags, &folder, &doing())?;
    let cargo = of_cargo(&flags.workload);
    let said = flags.build.clone().or(file.build.command);
    let build = said.or_else(|| cargo.as_ref().map(|c| c.build.clone())).ok_or_else(|| {
        missing("build command", "`command = \"make\"` under [build] in straddle.toml, or --build 'make'")
    })?;
    let workload = if flags.workload.is_empty() {
        file.run.command.ok_or_else(|| {
            missing("workload", "`command = \"{bin}\"` under [run] in straddle.toml, or `-- ./program` at the end")
        })?
    } else {
        shlex::try_join(flags.workload.iter().map(String::as_str))
            .map_err(|e| Error::input(doing(), format!("the workload cannot be quoted: {e}")))?
            .replace("'{bin}'", "{bin}")
            .replace("'{workers}'", WORKERS)
    };
    let or = |flag: &[String], file: Option<Vec<String>>| match flag {
        [] => file.unwrap_or_default(),
        flag => flag.to_vec(),
    };
    let mut metrics = or(&flags.metric, file.run.metric.map(OneOrMany::list));
    if metrics.is_empty() {
        metrics.push("wall".to_string());
    }
    let counts = file.run.workers.map(|counts| {
        let word = |count| match count {
            Count::Number(n) => n.to_string(),
            Count::Share(word) => word,
        };
        counts.list().into_iter().map(word).collect()
    });
    let workers = or(&flags.workers, counts);
    match (workers.is_empty(), workload.contains(WORKERS)) {
        (true, true) => {
            return Err(missing("worker count for {workers}", "`workers = [1, 2]` under [run], or --workers 1,2"));
        }
        (false, false) => {
            let problem = "worker counts are given, but the workload takes none";
            return Err(
                Error::input(doing(), problem).hint("put {workers} into the command: {bin} --threads {workers}")
            );
        }
        _ => {}
    }
    Ok(Case {
        name: name(case, &trees),
        trees,
        build,
        link: flags.link.clone().or(file.build.link).or_else(|| cargo?.link),
        workload,
        metrics,
        better: match (flags.better.is_empty(), file.run.better) {
            (true, Some(better)) => better.list(),
            _ => flags.better.clone(),
        },
        cpus: flags.cpus.clone().or(file.run.cpus),
        workers,
        decides: flags.decides.or(file.run.decides),
    })
}

/// The layouts that are meant: `[[allow]]` of the file that is given, or of the one in the current folder.
///
/// # Errors
/// When the file cannot be read, or allows what no rule is called.
pub fn allowed(rules: Option<&Path>) -> Result<Vec<Allow>> {
    let Some((path, _, file)) = file(rules)? else { return Ok(Vec::new()) };
    let mut allow = Vec::new();
    for (rule, name) in file.allow.into_iter().flat_map(|a| a.into_inner().rules) {
        if !rules::NAMES.contains(&rule.as_str()) {
            let problem = format!("`{rule}` under [[allow]] is no rule");
            return Err(Error::input(format!("reading {}", path.display()), problem).hint(rules::NAMES.join(", ")));
        }
        allow.push(Allow { rule, name });
    }
    Ok(allow)
}

/// The file that is given, or the one in the current folder, where there is one: its path and text too.
pub(super) fn file(given: Option<&Path>) -> Result<Option<(PathBuf, String, File)>> {
    let path = match given {
        Some(path) => Some(path.to_path_buf()),
        None => locate(None)?,
    };
    let Some(path) = path else { return Ok(None) };
    let text = crate::open::text(&path)?;
    let file = parse(&path, &text)?;
    Ok(Some((path, text, file)))
}

/// How a workload that cargo builds and runs is built alone.
#[derive(Debug, PartialEq, Eq)]
struct Cargo {
    build: String,
    /// The linked file, where the words name the target.
    link: Option<String>,
}

/// `cargo bench --bench x -- …` is built by `cargo bench --bench x --no-run` and links `x-HASH`; `cargo run --bin x` by
/// `cargo build --bin x`, which leaves it as `x`. Anything else needs a build command.
fn of_cargo(workload: &[String]) -> Option<Cargo> {
    let words: Vec<&str> = workload.iter().map(String::as_str).take_while(|w| *w != "--").collect();
    let (head, rest) = words.split_first()?;
    let (toolchain, rest) = match rest.split_first()? {
        (first, more) if first.starts_with('+') => (Some(*first), more),
        _ => (None, rest),
    };
    let (command, arguments) = rest.split_first()?;
    let tested = match *command {
        "bench" | "test" => true,
        "run" => false,
        _ => return None,
    };
    if *head != "cargo" {
        return None;
    }
    let mut build: Vec<&str> = ["cargo"].into_iter().chain(toolchain).collect();
    build.push(if tested { command } else { "build" });
    build.extend(arguments);
    build.extend(tested.then_some("--no-run"));
    let mut arguments = arguments.iter();
    let target = arguments.find_map(|a| {
        let kinds = ["--bench", "--test", "--bin", "--example"];
        match a.split_once('=') {
            Some((kind, name)) if kinds.contains(&kind) => Some(name),
            None if kinds.contains(a) => Some(""),
            _ => None,
        }
    });
    let target = target.and_then(|name| if name.is_empty() { arguments.next().copied() } else { Some(name) });
    let link = target.map(|name| if tested { format!("{}-*", name.replace('-', "_")) } else { name.to_owned() });
    Some(Cargo { build: shlex::try_join(build).ok()?, link })
}

fn name(case: Option<&Path>, trees: &Trees) -> String {
    match (case, trees) {
        (Some(case), _) => case.display().to_string(),
        (None, Trees::Git { base, patched, .. }) => format!("{base}..{patched}"),
        (None, Trees::Folders { base, patched }) => format!("{} → {}", base.display(), patched.display()),
    }
}

fn locate(case: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(case) = case else {
        let here = Path::new("straddle.toml");
        return Ok(here.exists().then(|| here.to_path_buf()));
    };
    let path = if case.is_dir() { case.join("straddle.toml") } else { case.to_path_buf() };
    if path.is_file() {
        return Ok(Some(path));
    }
    Err(Error::input(format!("opening the case {}", case.display()), format!("there is no {}", path.display()))
        .hint("a folder with a straddle.toml, or --base/--patched/--build, or --git A..B"))
}

fn parse(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(0, |s| text.get(..s.start).map_or(0, |t| t.matches('\n').count()) + 1);
        Error::input(format!("reading {}:{line}", path.display()), e.message().replace('\n', " "))
    })
}

fn trees(file: &Build, flags: &Overrides, folder: &Path, doing: &str) -> Result<Trees> {
    let wrong = |problem: &str| Error::input(doing, problem).hint("--base T --patched T, or --git A..B");
    if let Some(range) = &flags.git {
        if flags.base.is_some() || flags.patched.is_some() {
            return Err(wrong("--git and --base/--patched name the versions twice"));
        }
        return git(range, PathBuf::from("."), doing);
    }
    if let (None, None, Some(range)) = (&flags.base, &flags.patched, &file.git) {
        if file.base.is_some() || file.patched.is_some() {
            return Err(wrong("`git` and `base`/`patched` name the versions twice"));
        }
        let repo = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_path_buf() };
        return git(range, repo, doing);
    }
    let tree = |flag: &Option<PathBuf>, file: &Option<PathBuf>, which: &str| {
        let tree = match (flag, file) {
            (Some(flag), _) => flag.clone(),
            (None, Some(file)) => folder.join(file),
            (None, None) => return Err(wrong(&format!("the {which} version is not given"))),
        };
        if tree.is_dir() {
            return Ok(tree);
        }
        Err(wrong(&format!("the {which} tree {} is not a folder", tree.display())))
    };
    Ok(Trees::Folders {
        base: tree(&flags.base, &file.base, "base")?,
        patched: tree(&flags.patched, &file.patched, "patched")?,
    })
}

/// `A..B` as git reads it; an empty side is HEAD.
fn git(range: &str, repo: PathBuf, doing: &str) -> Result<Trees> {
    let Some((base, patched)) = range.split_once("..") else {
        return Err(Error::input(doing, format!("`{range}` is not a range")).hint("--git HEAD~1..HEAD"));
    };
    if patched.starts_with('.') {
        return Err(Error::input(doing, format!("`{range}` has three dots")).hint("name two versions: A..B"));
    }
    let or_head = |s: &str| if s.is_empty() { "HEAD".to_string() } else { s.to_string() };
    Ok(Trees::Git { repo, base: or_head(base), patched: or_head(patched) })
}

/// `90`, `90s`, `5m`, `1.5h`.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    let (number, scale) = match text.trim().char_indices().last() {
        Some((i, 's')) => (text.trim().get(..i), 1.0),
        Some((i, 'm')) => (text.trim().get(..i), 60.0),
        Some((i, 'h')) => (text.trim().get(..i), 3600.0),
        _ => (Some(text.trim()), 1.0),
    };
    let seconds = number.and_then(|n| n.trim().parse::<f64>().ok()).map(|n| n * scale);
    match seconds {
        Some(s) if s.is_finite() && s > 0.0 && s < 1e9 => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("`{text}` is not a time; write 90s, 5m or 1h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        for bad in ["", "m", "-1s", "0", "1e400", "5 minutes", "nan"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cargo_runs_is_built_by_cargo() {
        let of = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            of_cargo(&words).map(|c| (c.build, c.link.unwrap_or_default()))
        };
        let built = |build: &str, link: &str| Some((build.to_owned(), link.to_owned()));
        assert_eq!(of("cargo bench --bench my-x -- --fast"), built("cargo bench --bench my-x --no-run", "my_x-*"));
        assert_eq!(of("cargo +1.90 bench --bench=x"), built("cargo +1.90 bench '--bench=x' --no-run", "x-*"));
        assert_eq!(of("cargo run --release --bin x -- a"), built("cargo build --release --bin x", "x"));
        assert_eq!(of("cargo bench"), built("cargo bench --no-run", ""));
        assert_eq!(of("cargo nextest run"), None);
        assert_eq!(of("./x bench"), None);
    }

    #[test]
    fn ranges_read_as_git_reads_them() {
        let sides = |r| match git(r, ".".into(), "x") {
            Ok(Trees::Git { base, patched, .. }) => Some((base, patched)),
            _ => None,
        };
        assert_eq!(sides("a..b"), Some(("a".into(), "b".into())));
        assert_eq!(sides("v1.."), Some(("v1".into(), "HEAD".into())));
        assert_eq!(sides("a...b"), None);
        assert_eq!(sides("HEAD"), None);
    }

    #[test]
    fn a_misspelt_key_names_its_line() {
        let error = parse(Path::new("straddle.toml"), "[build]\nbase = \"b\"\ncomand = \"make\"\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("straddle.toml:3") && text.contains("comand"), "{text}");
    }

    #[test]
    fn what_is_allowed_names_a_rule_and_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("straddle.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            allowed(Some(&path))
        };
        let allow = read("[[allow]]\nstraddle = \"vm_area_struct.vm_lock\"\nwhy = \"two lines on purpose\"\n").unwrap();
        let want = Allow { rule: "straddle".to_string(), name: "vm_area_struct.vm_lock".to_string() };
        assert_eq!(allow, [want]);
        for (text, says) in
            [("[[allow]]\nstraddle = \"x\"\n", "why"), ("[[allow]]\nstradle = \"x\"\nwhy = \"y\"", "stradle")]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("straddle.toml"), "{error}");
        }
    }

    #[test]
    fn a_workload_keeps_its_quotes_and_its_placeholder() {
        let tree = tempfile::tempdir().unwrap();
        let flags = Overrides {
            base: Some(tree.path().into()),
            patched: Some(tree.path().into()),
            build: Some("make".into()),
            workload: vec!["{bin}".into(), "a b".into()],
            ..Overrides::default()
        };
        let toml = tree.path().join("straddle.toml");
        std::fs::write(&toml, "").unwrap();
        let case = resolve(Some(&toml), &flags).unwrap();
        assert_eq!(case.workload, "{bin} 'a b'");
        assert_eq!(case.metrics, ["wall"]);
        assert_eq!((case.workers.len(), case.better.len()), (0, 0));
    }

    #[test]
    fn a_sweep_is_read_and_must_reach_the_command() {
        let tree = tempfile::tempdir().unwrap();
        let flags = |workload: &[&str], workers: &[&str]| Overrides {
            base: Some(tree.path().into()),
            patched: Some(tree.path().into()),
            build: Some("make".into()),
            workload: workload.iter().map(|w| (*w).to_owned()).collect(),
            workers: workers.iter().map(|w| (*w).to_owned()).collect(),
            ..Overrides::default()
        };
        let toml = tree.path().join("straddle.toml");
        let run = "[run]\ncommand = \"{bin} {workers}\"\nworkers = [1, \"50%\"]\ndecides = 1\nbetter = [\"higher\", \"lower\"]\n";
        std::fs::write(&toml, run).unwrap();
        let case = resolve(Some(&toml), &flags(&[], &[])).unwrap();
        assert_eq!((case.workers, case.decides), (vec!["1".to_owned(), "50%".to_owned()], Some(1)));
        assert_eq!(case.better, [Better::Higher, Better::Lower]);
        let case = resolve(Some(&toml), &flags(&["{bin}", "-t", "{workers}"], &["4"])).unwrap();
        assert_eq!((case.workload.as_str(), case.workers), ("{bin} -t {workers}", vec!["4".to_owned()]));
        let says = |workload: &[&str], workers: &[&str], what: &str| {
            std::fs::write(&toml, "").unwrap();
            let error = resolve(Some(&toml), &flags(workload, workers)).unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
        };
        says(&["{bin}"], &["1", "2"], "the workload takes none");
        says(&["{bin}", "{workers}"], &[], "no worker count for {workers}");
    }
}
