//! The worker counts of a sweep, as the user writes them: `1`, `16`, `50%` of the CPUs of the set.

use crate::error::{Error, Result};
use crate::measure::record::MOST_ROWS;

/// More workers than this are a mistake.
const MOST: u32 = 1 << 16;

/// The largest plain number among `words`: so many CPUs are wanted where the user names none.
#[must_use]
pub fn largest(words: &[String]) -> u32 {
    words.iter().filter_map(|word| word.trim().parse().ok()).max().unwrap_or(0)
}

/// `words` as counts, ascending, none twice. A percentage of `cpus` is rounded, and never less than one worker.
///
/// # Errors
/// When a word is no count, there are too many, or `decides` is none of them.
pub fn resolve(words: &[String], cpus: usize, decides: Option<u32>) -> Result<Vec<u32>> {
    let doing = || format!("reading the worker counts {}", words.join(","));
    let mut counts =
        words.iter().map(|word| count(word.trim(), cpus)).collect::<Option<Vec<u32>>>().ok_or_else(|| {
            Error::input(doing(), format!("each must be a number from 1 to {MOST}, or a percentage"))
                .hint("1,2 or 1,50%,100%")
        })?;
    counts.sort_unstable();
    counts.dedup();
    if counts.len() > MOST_ROWS {
        return Err(Error::input(doing(), format!("there are more than {MOST_ROWS}")));
    }
    match decides.filter(|row| !counts.contains(row)) {
        Some(row) => Err(Error::input(doing(), format!("{row}, which is to decide, is none of them"))),
        None => Ok(counts),
    }
}

fn count(word: &str, cpus: usize) -> Option<u32> {
    let count = match word.strip_suffix('%') {
        Some(share) => {
            let share: f64 = share.trim().parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0)?;
            (share / 100.0 * cpus as f64).round().max(1.0) as u32
        }
        None => word.parse().ok()?,
    };
    (1..=MOST).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shares_of_the_cpus() {
        let of = |text: &str, cpus| {
            let words: Vec<String> = text.split(',').map(str::to_owned).collect();
            (resolve(&words, cpus, None), largest(&words))
        };
        let known = |text, cpus| {
            let (counts, largest) = of(text, cpus);
            (counts.unwrap(), largest)
        };
        assert_eq!(known("16, 1,50%,100%", 24), (vec![1, 12, 16, 24], 16));
        assert_eq!(known("1%,100%", 1), (vec![1], 0));
        for bad in ["0", "-1", "x", "", "1,,2", "0%", "nan%", "1e9%", "65537"] {
            let error = of(bad, 4).0.unwrap_err().to_string();
            assert!(error.contains("each must be a number") && error.lines().count() == 1, "{error}");
        }
        assert!(of(&(1..34).map(|n| n.to_string()).collect::<Vec<_>>().join(","), 4).0.is_err());
        let error = resolve(&["1".into(), "2".into()], 4, Some(3)).unwrap_err().to_string();
        assert!(error.contains("3, which is to decide, is none of them"), "{error}");
    }
}
