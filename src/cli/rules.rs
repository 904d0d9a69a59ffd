//! `[[rule]]` and `[[allow]]` of `straddle.toml`, with the line of each.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::config::{self, Deliberate as Allowed};
use crate::error::{Error, Result};
use crate::finding::{Finding, Severity};
use crate::rules;
use crate::rules::check::{Bound, Deliberate, Rule, What, contradiction};
use crate::units::Align;

/// `[[rule]]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Written {
    separate: Option<Vec<String>>,
    together: Option<Vec<String>>,
    own_line: Option<String>,
    no_straddle: Option<String>,
    max_size: Option<String>,
    offset: Option<String>,
    bits: Option<u32>,
    align: Option<u64>,
    why: Option<String>,
}

/// The rules of a project.
#[derive(Debug, Default)]
pub struct RulesFile {
    /// Empty: there is none.
    pub path: PathBuf,
    pub rules: Vec<Rule>,
    pub allowed: Vec<Deliberate>,
}

/// Those of the file that is given, or of the one in the current folder, where there is one.
///
/// # Errors
/// When it cannot be read, a rule makes no sense, or two cannot both hold; with the line.
pub fn read(given: Option<&Path>) -> Result<RulesFile> {
    let Some((path, text, file)) = config::file(given)? else { return Ok(RulesFile::default()) };
    let line_of = |at: usize| u32::try_from(text.get(..at).map_or(0, |t| t.matches('\n').count()) + 1).unwrap_or(0);
    let wrong = |line: u32, problem: String| Error::input(format!("reading {}:{line}", path.display()), problem);
    let mut rules = Vec::new();
    for written in file.rule {
        let line = line_of(written.span().start);
        rules.push(rule(line, written.into_inner()).map_err(|problem| wrong(line, problem))?);
    }
    let mut allowed = Vec::new();
    for written in &file.allow {
        let line = line_of(written.span().start);
        let Allowed { offset, rules, .. } = written.get_ref();
        for name in rules.iter().filter(|(rule, _)| *rule == "straddle").map(|(_, name)| name.clone()) {
            allowed.push(Deliberate { line, name, offset: *offset });
        }
    }
    if let Some((later, earlier, why)) = contradiction(&rules, &allowed) {
        return Err(wrong(later, format!("the rule contradicts line {earlier}: {why}")));
    }
    Ok(RulesFile { path, rules, allowed })
}

fn rule(line: u32, w: Written) -> std::result::Result<Rule, String> {
    let bound = |text: String| Bound::parse(&text);
    let mut asked: Vec<What> = Vec::new();
    asked.extend(w.separate.map(What::Separate));
    asked.extend(w.together.map(What::Together));
    asked.extend(w.own_line.map(What::OwnLine));
    asked.extend(w.no_straddle.map(What::NoStraddle));
    asked.extend(w.max_size.map(bound).transpose()?.map(What::MaxSize));
    asked.extend(w.offset.map(bound).transpose()?.map(What::Offset));
    let kinds = "separate, together, own-line, no-straddle, max-size or offset";
    let mut asked = asked.into_iter();
    let what = asked.next().ok_or_else(|| format!("the rule asks nothing: one of {kinds}"))?;
    if let Some(second) = asked.next() {
        return Err(format!("a rule asks one thing, and this one `{}` and `{}`", what.name(), second.name()));
    }
    let names = what.targets();
    if names.iter().any(|name| name.trim().is_empty()) {
        return Err(format!("`{}` has an empty name", what.name()));
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()) {
        return Err(format!("`{}` names {twice} twice", what.name()));
    }
    let one = matches!(what, What::Separate(_) | What::Together(_)) && names.len() < 2;
    if names.is_empty() || (one && !names.iter().any(|name| name.contains(['*', '?']))) {
        return Err(format!("`{}` needs two names, or a glob", what.name()));
    }
    if let What::MaxSize(Bound { modulo: Some(_), .. }) = what {
        return Err("`max-size` has no remainder: T <= 1024".to_string());
    }
    if w.bits.is_some_and(|bits| bits != 32 && bits != 64) {
        return Err("`bits` is 32 or 64".to_string());
    }
    let align = match w.align {
        None => None,
        Some(bytes) => {
            let align = Align::new(bytes).filter(|_| (1..=1 << 20).contains(&bytes));
            Some(align.ok_or("`align` is a power of two, in bytes")?)
        }
    };
    Ok(Rule { line, what, bits: w.bits, align, why: w.why })
}

/// `--fail-on`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// This or worse.
    Severity(Severity),
    Rule(String),
}

impl FailOn {
    /// The name of a rule of `scan`.
    pub fn of_scan(&self) -> Option<&str> {
        match self {
            FailOn::Rule(rule) if rules::NAMES.contains(&rule.as_str()) => Some(rule),
            FailOn::Rule(_) | FailOn::Severity(_) => None,
        }
    }

    fn met(&self, finding: &Finding) -> bool {
        match self {
            FailOn::Severity(worst) => finding.severity <= *worst,
            FailOn::Rule(rule) => finding.rule == rule,
        }
    }
}

/// Whether one of the findings is one to fail on.
pub fn fails<'f>(on: &[FailOn], findings: impl IntoIterator<Item = &'f Finding>) -> bool {
    !on.is_empty() && findings.into_iter().any(|f| on.iter().any(|on| on.met(f)))
}

/// For clap: `high`, `medium`, `low`, `info`, or a rule's name.
pub fn fail_on(text: &str) -> std::result::Result<FailOn, String> {
    match text {
        "high" => Ok(FailOn::Severity(Severity::High)),
        "medium" => Ok(FailOn::Severity(Severity::Medium)),
        "low" => Ok(FailOn::Severity(Severity::Low)),
        "info" => Ok(FailOn::Severity(Severity::Info)),
        rule if rules::ABOUT.iter().any(|a| a.name == rule) => Ok(FailOn::Rule(rule.to_string())),
        _ => {
            let names: Vec<&str> = rules::ABOUT.iter().map(|a| a.name).collect();
            Err(format!("high, medium, low, info, or a rule: {}", names.join(", ")))
        }
    }
}

/// What [`Spanned`] holds of a rule in the file.
pub(super) type WrittenRule = Spanned<Written>;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<RulesFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("straddle.toml");
        std::fs::write(&path, text).unwrap();
        read(Some(&path))
    }

    #[test]
    fn rules_know_their_lines() {
        let text = "[run]\ncommand = \"x\"\n\n[[rule]]\nseparate = [\"a\", \"b\"]\nwhy = \"x\"\n\n# c\n[[rule]]\nmax-size = \"T <= 0x40\"\nbits = 64\nalign = 64\n\n\
            [[allow]]\nstraddle = \"v\"\noffset = 60\nwhy = \"y\"\n";
        let file = read_text(text).unwrap();
        assert_eq!(file.rules.iter().map(|r| r.line).collect::<Vec<_>>(), [4, 9]);
        assert_eq!(file.rules[1].to_string(), "max-size = \"T <= 64\", bits = 64, align = 64");
        assert_eq!(file.allowed, [Deliberate { line: 14, name: "v".into(), offset: Some(60) }]);
    }

    #[test]
    fn what_is_wrong_names_its_line() {
        for (text, line, says) in [
            ("\n[[rule]]\nwhy = \"x\"\n", 2, "asks nothing"),
            ("\n[[rule]]\nown-line = \"a\"\nno-straddle = \"a\"\n", 2, "one thing"),
            ("\n[[rule]]\nseparate = [\"a\"]\n", 2, "two names"),
            ("\n[[rule]]\nseparate = [\"a\", \"a\"]\n", 2, "twice"),
            ("\n[[rule]]\nseparate = []\n", 2, "two names"),
            ("\n[[rule]]\nown-line = \"\"\n", 2, "empty name"),
            ("\n[[rule]]\nmax-size = \"T\"\n", 2, "no bound"),
            ("\n[[rule]]\nmax-size = \"T % 4 == 0\"\n", 2, "remainder"),
            ("\n[[rule]]\nown-line = \"a\"\nbits = 16\n", 2, "32 or 64"),
            ("\n[[rule]]\nown-line = \"a\"\nalign = 24\n", 2, "power of two"),
            ("\n[[rule]]\nown-lin = \"a\"\n", 3, "own-lin"),
            ("\n[[rule]]\nown-line = 3\n", 3, "string"),
            ("[[rule]]\nseparate = [\"a\", \"b\"]\n[[rule]]\ntogether = [\"a\", \"b\"]\n", 3, "contradicts line 1"),
        ] {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(&format!("straddle.toml:{line}:")) && error.contains(says), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn what_to_fail_on_is_a_severity_or_a_rule() {
        assert_eq!(fail_on("low"), Ok(FailOn::Severity(Severity::Low)));
        assert_eq!(fail_on("straddle"), Ok(FailOn::Rule("straddle".into())));
        assert!(fail_on("stradle").unwrap_err().contains("straddle"));
    }
}
