//! The text of `perf c2c report --stdio`: of its four tables the last, the distribution of each line. Offsets in it are
//! those in the line, whose address is that of the running system. It tells on how many CPUs a row was, not on which.

use super::columns::{Columns, is_dots, percent, without_level};
use super::{Does, Place, Sample, Sink, Stands, Told, hex, symbol};

pub(super) fn is_head(line: &str) -> bool {
    const TABLES: [&str; 3] =
        ["Shared Cache Line Distribution Pareto", "Shared Data Cache Line Table", "Global Shared Cache Line Event"];
    TABLES.iter().any(|table| line.contains(table))
}

/// One line of the machine: its address, and the counts that rows have shares of, in the order of their columns.
struct Line {
    address: u64,
    counts: Vec<u64>,
}

#[derive(Default)]
struct Table<'a> {
    heads: &'a str,
    columns: Columns,
    /// Shares of hits of modified lines (or of peers), and of stores.
    shares: std::ops::Range<usize>,
}

/// Of the columns of shares, those that are no stores: remote, then local.
const HITM: usize = 2;

pub(super) fn read<'a>(text: &'a str, sink: Sink<'_, 'a>, told: &mut Told) {
    let lines = (1u64..).zip(text.lines()).skip_while(|(_, line)| !line.contains("Distribution Pareto"));
    let mut table: Option<Table<'_>> = None;
    let (mut heads, mut of, mut rows) = ("", None, 0u64);
    for (at, line) in lines {
        if is_dots(line) {
            table = Table::of(heads, line);
        } else if line.starts_with('#') {
            heads = line;
        } else if let Some(table) = table.as_ref().filter(|_| !line.trim().is_empty()) {
            if let Some(found) = table.line(line) {
                of = Some(found);
            } else if let Some((row, line_of)) = table.row(line).zip(of.as_ref()) {
                rows += 1;
                row.samples(at, line_of, &mut *sink);
            } else if !line.trim().bytes().all(|b| b == b'-' || b == b'=') {
                told.skip("lines that are no row of a table", 1);
            }
        }
    }
    if rows == 0 {
        let why = match (text.contains("Distribution Pareto"), &table) {
            (false, _) => "it holds statistics only (--stats): the table of each line's distribution is missing",
            (true, None) => "its columns are not known: the line of dots under their heads is missing",
            (true, Some(_)) => "it names no line: where the counters of memory are missing, that is no sign of quiet",
        };
        told.problems.push(why.to_string());
    }
}

/// One row: what one instruction did to one place of the line.
struct Row<'a> {
    offset: u64,
    shares: Vec<f64>,
    records: Option<u64>,
    address: Option<u64>,
    code: Option<Place<'a>>,
}

impl<'a> Table<'a> {
    fn of(heads: &'a str, dots: &str) -> Option<Table<'a>> {
        let columns = Columns::of(dots);
        let (number, offset) = (columns.named(heads, "Num")?, offset(&columns, heads)?);
        let shares = number + 1..offset;
        (shares.len() > HITM).then_some(Table { heads, columns, shares })
    }

    /// `0  120  30  500  20  0  0xffff…`: the counts of a line, whose address stands in the column of offsets.
    fn line(&self, line: &str) -> Option<Line> {
        let number: Option<u64> = self.columns.cell(line, self.columns.named(self.heads, "Num")?).parse().ok();
        let counts = self.shares.clone().map(|column| self.columns.cell(line, column).parse().ok());
        let counts: Vec<u64> = counts.collect::<Option<_>>()?;
        let address = line.split_ascii_whitespace().last().and_then(hex)?;
        number.map(|_| Line { address, counts })
    }

    fn row(&self, line: &'a str) -> Option<Row<'a>> {
        let cell = |name| self.columns.named(self.heads, name).map(|column| self.columns.cell(line, column));
        let shares = self.shares.clone().map(|column| percent(self.columns.cell(line, column)));
        let file = cell("Object").filter(|f| !f.is_empty());
        let name = cell("Symbol").map(without_level).unwrap_or_default();
        Some(Row {
            offset: hex(self.columns.cell(line, self.shares.end))?,
            shares: shares.collect::<Option<_>>()?,
            records: cell("records").and_then(|n| n.parse().ok()),
            address: cell("Code address").and_then(hex),
            code: symbol(name, file),
        })
    }
}

/// `Off`, or `Offset` in older versions.
fn offset(columns: &Columns, heads: &str) -> Option<usize> {
    columns.named(heads, "Off").or_else(|| columns.named(heads, "Offset"))
}

impl<'a> Row<'a> {
    /// Loads and stores apart: a share of the line's stores, and what else was recorded.
    fn samples(&self, at: u64, line: &Line, sink: Sink<'_, 'a>) {
        let counts: Vec<u64> = self
            .shares
            .iter()
            .zip(&line.counts)
            .map(|(share, all)| (share / 100.0 * *all as f64).round() as u64)
            .collect();
        let sum = |counts: &[u64]| counts.iter().copied().fold(0, u64::saturating_add);
        let (hitm, stores) = counts.split_at_checked(HITM).map_or((0, 0), |(hitm, stores)| (sum(hitm), sum(stores)));
        let loads = self.records.map_or(hitm, |records| records.saturating_sub(stores).max(hitm));
        let data = Some(Place::Address(line.address.wrapping_add(self.offset)));
        for (count, does, hitm) in [(loads, Does::READ, hitm), (stores, Does::WRITE, 0)] {
            if count > 0 {
                let (code, code_address) = (self.code.or(self.address.map(Place::Address)), self.address);
                let own = Sample::at(at, Stands::Access);
                sink(Sample { count, does: Some(does), code, code_address, data, hitm, ..own });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Samples};
    use super::*;

    /// Offset, reads or writes, count, hits of modified lines, function.
    type One = (u64, bool, u64, u64, String);

    fn all(text: &str) -> (Vec<One>, Told) {
        let samples = Samples::open(text.as_bytes(), "it").unwrap();
        assert_eq!(samples.format, Format::PerfC2c);
        let mut all = Vec::new();
        let told = samples.each(&mut |s| {
            let (Some(Place::Address(at)), Some(Place::Symbol { name, .. })) = (s.data, s.code) else {
                panic!("{s:?}")
            };
            all.push((at - 0xffff_9d2c_0000_1040, s.does.unwrap().writes, s.count, s.hitm, name.to_string()));
        });
        (all, told.unwrap())
    }

    fn one(at: u64, writes: bool, count: u64, hitm: u64, name: &str) -> One {
        (at, writes, count, hitm, name.to_string())
    }

    /// Of perf 4.x to 5.x: no `N/A` among the stores; the column of symbols holds blanks.
    const OLD: &str = "\
=================================================
           Shared Data Cache Line Table
=================================================
      0  0xffff9d2c00001040  50.00%  150

=================================================
      Shared Cache Line Distribution Pareto
=================================================
#
#        ----- HITM -----  -- Store Refs --  --------- Data address ---------                               ---------- cycles ----------    Total       cpu                              Shared
#   Num      Rmt      Lcl   L1 Hit  L1 Miss              Offset  Node  PA cnt      Pid        Code address  rmt hitm  lcl hitm      load  records       cnt                    Symbol    Object         Source:Line  Node{cpus %hitms %stores}
# .....  .......  .......  .......  .......  ..................  ....  ......  .......  ..................  ........  ........  ........  .......  ........  ........................  ........  ..................  ....
#
  -------------------------------------------------------------
      0      120       30      500        0  0xffff9d2c00001040
  -------------------------------------------------------------
          75.00%   50.00%    0.00%    0.00%                 0x8     0       1     9969  0xffffffff81234567       300       250        10      200        16  [k] operator new(unsigned  [kernel]  atomic.h:23          0{16 75.0% n/a}
          25.00%   50.00%  100.00%    0.00%                0x18     0       1     9969  0xffffffff81234600       300       250        10      545        16  [k] spin                   [kernel]  spinlock.h:1         0{16 25.0% 100.0%}
";

    #[test]
    fn older_columns_are_found() {
        let (found, told) = all(OLD);
        assert_eq!(
            found,
            [
                one(8, false, 200, 105, "operator new(unsigned"),
                one(24, false, 45, 45, "spin"),
                one(24, true, 500, 0, "spin")
            ]
        );
        assert_eq!((told.skipped.len(), told.problems.len()), (0, 0));
    }

    /// Arm tells peers instead; `Off`, and no column of records was asked for.
    #[test]
    fn newer_columns_are_found() {
        let text = "\
      Shared Cache Line Distribution Pareto
#        -- Peer Snoop --  ------- Store Refs ------  ------- CL --------
#   Num      Rmt      Lcl   L1 Hit  L1 Miss      N/A    Off  Node  PA cnt        Code address         Symbol             Object
# .....  .......  .......  .......  .......  .......  .....  ....  ......  ..................  .............  .................
  ----------------------------------------------------------------------
      0        0       10       40        0        0      0xffff9d2c00001040
  ----------------------------------------------------------------------
           0.00%   40.00%   25.00%    0.00%    0.00%    0x0   N/A       0  0xffff800010123456  [k] up         [kernel.kallsyms]
           0.00%   60.00%   75.00%    0.00%    0.00%   0x10   N/A       0  0xffff800010123466  [k] down       [kernel.kallsyms]
a line that was torn
";
        let (found, told) = all(text);
        let wanted = [
            one(0, false, 4, 4, "up"),
            one(0, true, 10, 0, "up"),
            one(16, false, 6, 6, "down"),
            one(16, true, 30, 0, "down"),
        ];
        assert_eq!(found, wanted);
        assert_eq!(told.skipped.values().sum::<u64>(), 1);
    }

    #[test]
    fn what_was_trimmed_is_told() {
        for (text, why) in [
            ("  Global Shared Cache Line Event Information\n  Total Shared Cache Lines : 3\n", "statistics only"),
            ("Shared Cache Line Distribution Pareto\n 0  50.00% 0x8 [k] up\n", "line of dots"),
            (&OLD[..OLD.find("          75.00%").unwrap()], "names no line"),
        ] {
            let (found, told) = all(text);
            assert!(found.is_empty() && told.problems.len() == 1 && told.problems[0].contains(why), "{told:?}");
        }
    }
}
