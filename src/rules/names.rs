//! Names that a user gives: which objects and types are meant, and which layouts are deliberate.

use crate::finding::Finding;

/// Names, types and globs (`*`, `?`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl Names {
    /// One a line or several with commas between; `#` begins a comment.
    #[must_use]
    pub fn parse(text: &str) -> Names {
        let lines = text.lines().map(|l| l.split('#').next().unwrap_or_default());
        let names = lines.flat_map(|l| l.split(',')).map(str::trim).filter(|n| !n.is_empty());
        Names(names.map(str::to_string).collect())
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| glob(pattern, name))
    }
}

/// A layout that is meant: `[[allow]]` in `straddle.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The rule that is silenced.
    pub rule: String,
    /// `object`, `object.member` or `type.member`, a glob.
    pub name: String,
}

/// Whether a finding is about what is meant. `type_name`: of the object that its subject is, or is a member of.
pub(super) fn allowed(allow: &[Allow], finding: &Finding, type_name: Option<&str>) -> bool {
    let subject = &finding.subject.name;
    let member = subject.split_once('.').and_then(|(_, path)| Some(format!("{}.{path}", type_name?)));
    let names = std::iter::once(subject).chain(&member).chain(finding.others.iter().map(|o| &o.name));
    let names: Vec<&String> = names.collect();
    allow.iter().filter(|a| a.rule == finding.rule).any(|a| names.iter().any(|name| glob(&a.name, name)))
}

/// `*` is any text, `?` any character.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = text.get(t) {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(w) if w == c || *w == '?' => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_have_lines_commas_and_comments() {
        let names = Names::parse("jiffies, tcp_*\n# all of them\nmm_struct # the type\n\n");
        assert_eq!(names.0, ["jiffies", "tcp_*", "mm_struct"]);
        assert!(names.matches("tcp_memory_allocated") && !names.matches("jiffies_64"));
    }

    proptest! {
        /// A regular expression says the same.
        #[test]
        fn globs_are_the_shells(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let expression = format!("^{}$", pattern.replace('*', ".*").replace('?', "."));
            prop_assert_eq!(glob(&pattern, &text), regex::Regex::new(&expression).unwrap().is_match(&text));
        }
    }
}
