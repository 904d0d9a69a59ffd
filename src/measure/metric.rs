//! What decides: a number read from a finished run.
//!
//! `wall`, `user`, `sys`, `cpu` (user + sys), `rss`, `stdout:REGEX` with one capture group, or `json:POINTER`. Of several
//! matches of a pattern the **last** counts: programs print running figures and end with the final one, and of a long
//! output only the end is kept ([`TAIL`]).
//!
//! `json:POINTER` reads the whole of stdout as one JSON value and takes the number at the pointer (RFC 6901). A bare
//! `NaN`, which some programs print, is no JSON: it is refused wherever it stands, not guessed at. Nor is a value that
//! is larger than what is kept.

use regex::bytes::{Regex, RegexBuilder};

use crate::error::{Error, Result};
use crate::measure::record::{Better, MOST_ROWS, Metric};
use crate::measure::run::{RunResult, TAIL};

/// A compiled pattern larger than this is a mistake, not a metric.
const PATTERN_BYTES: usize = 1 << 20;

/// A metric as the user named it, ready to be read.
#[derive(Clone, Debug)]
pub struct MetricSpec {
    name: String,
    source: Source,
    better: Better,
}

#[derive(Clone, Debug)]
enum Source {
    Wall,
    User,
    Sys,
    Cpu,
    Rss,
    Stdout(Regex),
    /// A pointer that is empty or starts with `/`.
    Json(String),
}

/// All that is read from a run.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub decides: MetricSpec,
    /// Shown beside it.
    pub also: Vec<MetricSpec>,
}

impl From<MetricSpec> for Metrics {
    fn from(decides: MetricSpec) -> Metrics {
        Metrics { decides, also: Vec::new() }
    }
}

impl Metrics {
    /// The first of `specs` decides. `better` is one word for all of them or one for each; what a run costs is better
    /// lower in any case, unless it decides or has a word of its own.
    pub fn parse(specs: &[String], better: &[Better]) -> Result<Metrics> {
        let doing = || format!("reading the metrics {}", specs.join(", "));
        if specs.len() > MOST_ROWS {
            return Err(Error::input(doing(), format!("there are more than {MOST_ROWS}")));
        }
        if let Some(twice) = specs.iter().enumerate().find(|(at, spec)| specs.iter().take(*at).any(|s| s == *spec)) {
            return Err(Error::input(doing(), format!("`{}` comes twice", twice.1)));
        }
        let first = better.first().copied().unwrap_or(Better::Lower);
        if better.len() > 1 && better.len() != specs.len() {
            let problem = format!("{} directions are given for {} metrics", better.len(), specs.len());
            return Err(Error::input(doing(), problem).hint("name one for all, or one for each"));
        }
        let each = specs.iter().enumerate().map(|(at, spec)| {
            let word = match better.get(at) {
                Some(word) => *word,
                None if spec.starts_with("stdout:") || spec.starts_with("json:") => first,
                None => Better::Lower,
            };
            MetricSpec::parse(spec, word)
        });
        let mut all = each.collect::<Result<Vec<_>>>()?;
        if all.is_empty() {
            return MetricSpec::parse("wall", first).map(Metrics::from);
        }
        Ok(Metrics { decides: all.remove(0), also: all })
    }
}

impl MetricSpec {
    /// An unknown name, a bad pattern or one without exactly one capture group is wrong input.
    pub fn parse(spec: &str, better: Better) -> Result<MetricSpec> {
        let source = match spec {
            "wall" => Source::Wall,
            "user" => Source::User,
            "sys" => Source::Sys,
            "cpu" => Source::Cpu,
            "rss" => Source::Rss,
            _ => match spec.split_once(':') {
                Some(("stdout", pattern)) => Source::Stdout(pattern_of(spec, pattern)?),
                Some(("json", pointer)) => Source::Json(pointer_of(spec, pointer)?),
                _ => {
                    return Err(Error::input(format!("reading the metric `{spec}`"), "is no metric that is known")
                        .hint(
                            "wall, user, sys, cpu, rss, stdout:REGEX with one group in parentheses, or json:/POINTER",
                        ));
                }
            },
        };
        Ok(MetricSpec { name: spec.to_owned(), source, better })
    }

    /// As the record's header names it.
    #[must_use]
    pub fn metric(&self) -> Metric {
        let unit = match self.source {
            Source::Wall | Source::User | Source::Sys | Source::Cpu => "s",
            Source::Rss => "KiB",
            Source::Stdout(_) | Source::Json(_) => "",
        };
        Metric { name: self.name.clone(), unit: unit.to_owned(), better: self.better }
    }

    /// The number, in the metric's own unit; finite and positive, because the estimates take its logarithm. The words
    /// of an error say what was looked for and how the output ends.
    pub fn value(&self, run: &RunResult) -> Result<f64, String> {
        let value = match &self.source {
            Source::Wall => run.wall,
            Source::User => run.user,
            Source::Sys => run.sys,
            Source::Cpu => run.user + run.sys,
            Source::Rss if run.max_rss <= run.rss_floor => {
                return Err(format!(
                    "its peak memory cannot be told: the kernel counts our own {} KiB in until it is exceeded",
                    run.rss_floor
                ));
            }
            Source::Rss => run.max_rss as f64,
            Source::Stdout(regex) => return number_in(regex, run),
            Source::Json(pointer) => return number_at(pointer, run),
        };
        positive(value).map_err(|why| format!("its {} is {value}: {why}", self.name))
    }
}

fn pattern_of(spec: &str, pattern: &str) -> Result<Regex> {
    let doing = || format!("reading the metric `{spec}`");
    let regex = RegexBuilder::new(pattern).multi_line(true).size_limit(PATTERN_BYTES).build().map_err(|e| {
        // The crate draws the pattern with a caret below over several lines; the last one says what is wrong.
        let text = e.to_string();
        let last = text.lines().last().unwrap_or_default();
        Error::input(doing(), format!("bad pattern: {}", last.strip_prefix("error: ").unwrap_or(last)))
    })?;
    match regex.captures_len() - 1 {
        1 => Ok(regex),
        0 => Err(Error::input(doing(), "the pattern has no capture group")
            .hint("put the number in parentheses: stdout:ns_per_op ([0-9.]+)")),
        n => Err(Error::input(doing(), format!("the pattern has {n} capture groups, one is wanted"))
            .hint("write the others as (?:…)")),
    }
}

/// RFC 6901: empty, or `/` before each name; `~` only as `~0` or `~1`.
fn pointer_of(spec: &str, pointer: &str) -> Result<String> {
    let tildes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if tildes && (pointer.is_empty() || pointer.starts_with('/')) {
        return Ok(pointer.to_owned());
    }
    Err(Error::input(format!("reading the metric `{spec}`"), "is no JSON pointer")
        .hint("write / before each name: json:/result/ns_per_op (~1 for a / in a name, ~0 for a ~)"))
}

fn number_at(pointer: &str, run: &RunResult) -> Result<f64, String> {
    if run.stdout.len() as u64 >= TAIL {
        return Err(format!("prints no metric: of a stdout of {} KiB or more, only the end is kept", TAIL >> 10));
    }
    let value: serde_json::Value = serde_json::from_slice(&run.stdout)
        .map_err(|e| format!("prints no metric: its stdout is not one JSON value ({e}); {}", run.said()))?;
    let Some(found) = value.pointer(pointer) else {
        return Err(format!("prints no metric: its JSON has nothing at `{pointer}`"));
    };
    let number = found.as_f64().ok_or_else(|| {
        let kind = match found {
            serde_json::Value::Null => "null",
            serde_json::Value::Bool(_) => "a truth value",
            serde_json::Value::Array(_) => "a list",
            serde_json::Value::Object(_) => "an object",
            _ => "text",
        };
        format!("prints no metric: `{pointer}` is {kind}, not a number")
    })?;
    positive(number).map_err(|why| format!("`{pointer}` is {number}: {why}"))
}

fn number_in(regex: &Regex, run: &RunResult) -> Result<f64, String> {
    let found = regex.captures_iter(&run.stdout).filter_map(|c| c.get(1)).last();
    let Some(found) = found else {
        return Err(format!("prints no metric: nothing matches `{regex}`; {}", run.said()));
    };
    let text = String::from_utf8_lossy(found.as_bytes());
    let value: f64 =
        text.trim().parse().map_err(|_| format!("prints no metric: `{regex}` found `{text}`, not a number"))?;
    positive(value).map_err(|why| format!("`{regex}` found `{text}`: {why}"))
}

fn positive(value: f64) -> Result<f64, &'static str> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err("a cost must be a finite number above 0, since ratios are taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fake::result;

    fn read(spec: &str, stdout: &str) -> Result<f64, String> {
        let mut run = result(0.5);
        run.stdout = stdout.as_bytes().to_vec();
        MetricSpec::parse(spec, Better::Lower).unwrap().value(&run)
    }

    #[test]
    fn the_last_match_counts() {
        assert_eq!(read("stdout:^ns ([0-9.]+)$", "ns 1.5\nns 2.5\ntotal 9\n"), Ok(2.5));
        assert_eq!(read("stdout:x=(\\S+)", "x=1e3"), Ok(1000.0));
        assert_eq!(read("wall", ""), Ok(0.5));
    }

    #[test]
    fn one_word_says_which_way_is_better_or_one_for_each_metric() {
        use Better::{Higher, Lower};
        let specs = ["stdout:ops (.*)", "stdout:hits (.*)", "rss"].map(str::to_owned);
        let of = |better: &[Better]| {
            let all = Metrics::parse(&specs, better).unwrap();
            [&all.decides].into_iter().chain(&all.also).map(|m| m.metric().better).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [Lower; 3]);
        assert_eq!(of(&[Higher]), [Higher, Higher, Lower]);
        assert_eq!(of(&[Higher, Lower, Higher]), [Higher, Lower, Higher]);
        let error = Metrics::parse(&specs, &[Higher, Lower]).unwrap_err().to_string();
        assert!(error.contains("2 directions are given for 3 metrics"), "{error}");
    }

    #[test]
    fn what_is_no_cost_is_refused_with_the_reason() {
        for (text, wants) in [
            ("x=", "nothing matches"),
            ("x=NaN", "finite"),
            ("x=inf", "finite"),
            ("x=0", "above 0"),
            ("x=-3", "above 0"),
            ("x=1,234", "not a number"),
        ] {
            let why = read("stdout:x=(\\S+)", text).unwrap_err();
            assert!(why.contains(wants), "{text}: {why}");
        }
        let why = read("stdout:ns ([0-9.]+)", "hello\nworld").unwrap_err();
        assert!(why.contains("ns ([0-9.]+)") && why.contains("hello | world"), "{why}");
    }

    #[test]
    fn a_pointer_reads_one_number_or_says_why_not() {
        let text = r#"{"a/b": [1, {"ns": 2.5}], "t": "3", "zero": 0, "none": null}"#;
        assert_eq!(read("json:/a~1b/1/ns", text), Ok(2.5));
        assert_eq!(read("json:", "7\n"), Ok(7.0));
        let nested = "[".repeat(10_000);
        let long = format!("{}1", " ".repeat(TAIL as usize));
        for (pointer, text, wants) in [
            ("json:/absent", text, "nothing at `/absent`"),
            ("json:/t", text, "is text, not a number"),
            ("json:/none", text, "is null"),
            ("json:/zero", text, "above 0"),
            ("json:/a", r#"{"a": 1, "b": NaN}"#, "not one JSON value"),
            ("json:/a", "starting\n{\"a\": 1}", "not one JSON value"),
            ("json:/a", "", "it prints nothing"),
            ("json:/a", &nested, "recursion limit"),
            ("json:", &long, "only the end is kept"),
        ] {
            let why = read(pointer, text).unwrap_err();
            assert!(why.contains(wants) && !why.contains('\n'), "{pointer}: {why}");
        }
    }

    #[test]
    fn memory_below_our_own_is_unknown() {
        let mut run = result(1.0);
        (run.max_rss, run.rss_floor) = (900, 1000);
        let rss = MetricSpec::parse("rss", Better::Lower).unwrap();
        assert!(rss.value(&run).is_err());
        run.max_rss = 1001;
        assert_eq!(rss.value(&run), Ok(1001.0));
    }

    #[test]
    fn a_bad_spec_says_what_is_wrong_on_one_line() {
        for (spec, wants) in [
            ("stdout:(", "unclosed group"),
            ("stdout:ns", "no capture group"),
            ("stdout:(a)(b)", "2 capture groups"),
            ("json:a", "no JSON pointer"),
            ("json:/a~2", "no JSON pointer"),
            ("cycles", "no metric that is known"),
            ("stdout:(a{1000}{1000}{1000})", "size limit"),
        ] {
            let e = MetricSpec::parse(spec, Better::Lower).unwrap_err().to_string();
            assert!(e.contains(wants) && !e.contains('\n'), "{spec}: {e}");
        }
    }
}
