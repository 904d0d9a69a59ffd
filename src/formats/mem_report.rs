//! The text of `perf mem report`: one table for each event, whose rows are accesses of one function to one datum. It tells
//! no CPUs and no threads.

use super::columns::{Columns, is_dots, percent, without_level};
use super::{Does, Place, Sample, Sink, Stands, Told, hex, of_event, symbol};

pub(super) fn is_head(line: &str) -> bool {
    line.starts_with("# Overhead") && line.contains("Data Symbol")
}

/// A table, while it is read.
#[derive(Default)]
struct Table<'a> {
    event: &'a str,
    /// Of the event, rounded where there are many.
    samples: u64,
    heads: &'a str,
    columns: Columns,
}

pub(super) fn read<'a>(text: &'a str, sink: Sink<'_, 'a>, told: &mut Told) {
    let mut table = Table::default();
    let (mut rows, mut rough) = (0u64, false);
    for (at, line) in (1u64..).zip(text.lines()) {
        if let Some((samples, event)) = event(line) {
            table = Table { event, samples, ..Table::default() };
        } else if line.starts_with("# Overhead") {
            table.heads = line;
        } else if is_dots(line) {
            table.columns = Columns::of(line);
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            match table.row(line) {
                Some((sample, exact)) => {
                    rows += 1;
                    rough |= !exact;
                    sink(Sample { at, ..sample });
                }
                None => told.skip("lines that are no row of a table", 1),
            }
        }
    }
    if rough {
        told.problems.push("samples are reckoned from percentages: the report has no column of them (-n)".to_string());
    }
    if rows == 0 {
        told.problems
            .push("its tables are empty: where the counters of memory are missing, that is no sign of quiet".into());
    }
}

/// `# Samples: 2K of event 'cpu/mem-loads,ldlat=30/P'`.
fn event(line: &str) -> Option<(u64, &str)> {
    let (samples, event) = line.strip_prefix("# Samples:")?.split_once(" of event")?;
    let samples = samples.trim();
    let number = samples.trim_end_matches(['K', 'M', 'G']);
    let unit = match samples.as_bytes().last() {
        Some(b'K') => 1_000,
        Some(b'M') => 1_000_000,
        Some(b'G') => 1_000_000_000,
        _ => 1,
    };
    let event = event.trim_start_matches(['s', ' ', '\'']).trim_end_matches('\'');
    Some((number.parse::<u64>().unwrap_or(0).saturating_mul(unit), event))
}

impl<'a> Table<'a> {
    /// The sample that a row is, and whether its count is exact.
    fn row(&self, line: &'a str) -> Option<(Sample<'a>, bool)> {
        let column = |name| self.columns.named(self.heads, name).map(|at| self.columns.cell(line, at));
        let exact: Option<u64> = column("Samples").and_then(|n| n.parse().ok());
        let reckoned = || Some((percent(column("Overhead")?)? / 100.0 * self.samples as f64).round() as u64);
        let count = exact.or_else(reckoned).filter(|n| *n > 0)?;
        let locked = column("Locked") == Some("Yes");
        let does = of_event(self.event).map(|does| Does { writes: does.writes || locked, locked, ..does });
        let snoop = column("Snoop").unwrap_or_default().to_ascii_lowercase();
        let weight: u64 = column("Local Weight").and_then(|w| w.parse().ok()).unwrap_or(0);
        let place = |name, file| {
            let name = without_level(column(name)?);
            let file = column(file).filter(|f| !f.is_empty() && *f != "[unknown]");
            match (hex(name).filter(|_| name.starts_with("0x")), file) {
                // On a stack, say: the address names nothing else.
                (Some(_), Some(file)) if file.starts_with('[') => {
                    Some(Place::Symbol { name, offset: 0, file: Some(file) })
                }
                (Some(address), _) => Some(Place::Address(address)),
                (None, file) => symbol(name, file),
            }
        };
        let sample = Sample {
            count,
            does,
            code: place("Symbol", "Shared Object"),
            data: place("Data Symbol", "Data Object"),
            cycles: weight.saturating_mul(count),
            hitm: if snoop.contains("hitm") { count } else { 0 },
            ..Sample::at(0, Stands::Access)
        };
        Some((sample, exact.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Samples};
    use super::*;

    fn all(text: &str) -> (Vec<Sample<'_>>, Told) {
        let samples = Samples::open(text.as_bytes(), "it").unwrap();
        assert_eq!(samples.format, Format::PerfMem);
        let mut all = Vec::new();
        let told = samples.each(&mut |s| all.push(s)).unwrap();
        (all, told)
    }

    const UPDATE: Does = Does { reads: true, writes: true, locked: true };

    /// An older one: `L3 or L3 hit`, no `Blocked`; blocks of two events; places that nothing names.
    const TWO: &str = "\
# Samples: 5K of event 'cpu/mem-loads,ldlat=50/P'
# Overhead       Samples  Local Weight  Memory access   Symbol               Shared Object       Data Symbol               Data Object    Snoop  TLB access    Locked
# ........  ............  ............  ..............  ...................  ..................  ........................  .............  .....  ............  ......
#
    80.00%          4000  120           L3 or L3 hit    [k] spin             [kernel.kallsyms]   [k] init_net+0x140        [kernel].data  HitM   L1 or L2 hit  Yes
    20.00%          1000  7             L1 hit          [.] ns::f(int, int)  /usr/bin/a          [.] 0x00007ffc5f3b2a10    [stack]        None   L1 hit        No

# Samples: 12  of event 'cpu/mem-stores/P'
# Overhead       Samples  Local Weight  Memory access   Symbol               Shared Object       Data Symbol               Data Object    Snoop  TLB access    Locked
# ........  ............  ............  ..............  ...................  ..................  ........................  .............  .....  ............  ......
   100.00%            12  0             L1 hit          [.] main             a                   [.] 0x0000000000601040    [unknown]      N/A    N/A           No
";

    #[test]
    fn blocks_have_their_own_event() {
        let (found, told) = all(TWO);
        let counts: Vec<_> = found.iter().map(|s| (s.at, s.count, s.does.unwrap(), s.cycles, s.hitm)).collect();
        assert_eq!(
            counts,
            [(5, 4000, UPDATE, 480_000, 4000), (6, 1000, Does::READ, 7000, 0), (11, 12, Does::WRITE, 0, 0)]
        );
        let data: Vec<_> = found.iter().map(|s| s.data.unwrap()).collect();
        let of = |name, offset, file| Place::Symbol { name, offset, file: Some(file) };
        assert_eq!(
            data,
            [of("init_net", 0x140, "[kernel].data"), of("0x00007ffc5f3b2a10", 0, "[stack]"), Place::Address(0x60_1040)]
        );
        assert_eq!(found[1].code, Some(of("ns::f(int, int)", 0, "/usr/bin/a")));
        assert_eq!(told, Told::default());
    }

    #[test]
    fn without_counts_they_are_reckoned() {
        let text = "# Samples: 2K of event 'ibs_op//'\n# Overhead  Data Symbol    Symbol\n# ........  .............  ......\n    12.50%  [.] x+0x8      [.] f\n";
        let (found, told) = all(text);
        assert_eq!((found[0].count, found[0].does), (250, None));
        assert!(told.problems[0].contains("percentages"), "{told:?}");
        let (none, told) = all(&text[..text.find("    12").unwrap()]);
        assert!(none.is_empty() && told.problems[0].contains("empty"), "{told:?}");
    }
}
