//! Tables of perf's reports: a line of dots under the heads tells where each column stands. Which columns there are depends
//! on the version and on what was asked for.

/// Where columns begin and end, in bytes from the start of a line.
#[derive(Debug, Default)]
pub(super) struct Columns {
    spans: Vec<(usize, usize)>,
}

/// `# .....  .......  …`
pub(super) fn is_dots(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next() == Some("#") && words.clone().next().is_some() && words.all(|w| w.bytes().all(|b| b == b'.'))
}

impl Columns {
    pub(super) fn of(dots: &str) -> Columns {
        let starts: Vec<usize> = super::words(dots).skip(1).map(|(at, _)| at).collect();
        // A cell may be longer than its column, and the last one has no end.
        let ends = starts.iter().skip(1).map(|next| next.saturating_sub(1)).chain(std::iter::once(usize::MAX));
        Columns { spans: starts.iter().copied().zip(ends).collect() }
    }

    pub(super) fn cell<'a>(&self, row: &'a str, column: usize) -> &'a str {
        let Some(&(start, end)) = self.spans.get(column) else { return "" };
        row.get(start..end.min(row.len())).unwrap_or_default().trim()
    }

    /// The column whose head is this; heads of two lines are those of the last one.
    pub(super) fn named(&self, heads: &str, name: &str) -> Option<usize> {
        (0..self.spans.len()).find(|column| self.cell(heads, *column) == name)
    }
}

/// `93.22%`.
pub(super) fn percent(cell: &str) -> Option<f64> {
    cell.strip_suffix('%')?.trim().parse().ok().filter(|p: &f64| (0.0..=100.0).contains(p))
}

/// `[.] main`, `[k] init_net+0x140`: without the letter.
pub(super) fn without_level(cell: &str) -> &str {
    let known = cell.as_bytes().first() == Some(&b'[') && cell.as_bytes().get(2) == Some(&b']');
    if known { cell.get(3..).unwrap_or_default().trim() } else { cell }
}
