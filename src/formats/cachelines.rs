//! Tables of the kernel's `Documentation/networking/net_cachelines`: what the fast paths of sending and receiving do to
//! each member of a struct. Both forms have a line of heads, whose places are those of the columns: older ones stand alone
//! and fill empty cells with `-`, newer ones between lines of `=`.

use super::{Does, Place, Sample, Sink, Stands, Told, words};

/// Where the marks of a row stand, in bytes from the start of the line.
struct Columns {
    sending: usize,
    comments: usize,
}

pub(super) fn is_head(line: &str) -> bool {
    columns(line).is_some()
}

fn columns(line: &str) -> Option<Columns> {
    let at = |wanted: &str| words(line).find(|(_, word)| word.eq_ignore_ascii_case(wanted)).map(|(at, _)| at);
    let sending = at("fastpath_tx_access")?;
    let receiving = at("fastpath_rx_access").filter(|at| *at > sending)?;
    let comments = at("comment").or_else(|| at("comments")).filter(|at| *at > receiving).unwrap_or(usize::MAX);
    at("Name").filter(|at| *at < sending)?;
    Some(Columns { sending, comments })
}

/// `None`: a cell that says nothing of this.
fn mark(word: &str) -> Option<Does> {
    Some(match word {
        "read_mostly" => Does::READ,
        "read_write" => Does { reads: true, ..Does::WRITE },
        "write_mostly" => Does::WRITE,
        _ => return None,
    })
}

pub(super) fn read<'a>(text: &'a str, sink: Sink<'_, 'a>, told: &mut Told) {
    let mut of = None;
    let mut table: Option<Columns> = None;
    for (at, line) in (1u64..).zip(text.lines()) {
        if let Some(head) = columns(line) {
            table = Some(head);
            continue;
        }
        let mut row = words(line);
        let (Some((_, first)), second) = (row.next(), row.next().map(|(_, word)| word)) else { continue };
        if let (Some("struct" | "enum"), true) = (second, line.contains("usage breakdown")) {
            of = (second == Some("struct")).then_some(first);
            table = None;
            continue;
        }
        let Some(columns) = &table else { continue };
        let Some(name) = second.filter(|name| !first.starts_with("==") && !name.starts_with("..")) else { continue };
        // An array is named with its length: the access is to some element.
        let path = name.split('[').next().unwrap_or(name);
        let cells = words(line).skip(2).filter(|(at, _)| (columns.sending..columns.comments).contains(at));
        let marks: Vec<Does> = cells.filter_map(|(_, word)| mark(word)).collect();
        match of {
            _ if marks.is_empty() => told.skip("members that no fast path touches, as their table says", 1),
            None => told.skip("rows of a table that names no struct (of counters, by their numbers)", 1),
            Some(of) => marks.into_iter().for_each(|does| {
                let data = Some(Place::Member { of, path });
                sink(Sample { does: Some(does), data, ..Sample::at(at, Stands::Word { weighted: false }) });
            }),
        }
    }
    if of.is_none() && told.skipped.is_empty() {
        told.problems.push("its title names no struct".to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Samples};
    use super::*;

    const OLD: &str = "\
==========================================
queue struct fast path usage breakdown
==========================================

Type                Name          fastpath_tx_access  fastpath_rx_access  Comments
..struct            ..queue
u16                 length        read_mostly         read_mostly         fill(tx);drain(rx)
u32[3]              sent[3]       read_write          -                   fill
u64                 received      -                   write_mostly        drain, read_mostly(no mark)
u8:2                spare
";
    const NEW: &str = "\
queue struct fast path usage breakdown

=================== ============= =================== =================== ==================
Type                Name          fastpath_tx_access  fastpath_rx_access  comment
=================== ============= =================== =================== ==================
u16                 length        read_mostly         read_mostly         fill(tx);drain(rx)
u32                 sent[3]       read_write                              fill
u64                 received                          write_mostly        drain
u8:2                spare
=================== ============= =================== =================== ==================
";

    fn rows(text: &str) -> (Vec<(u64, Does, String)>, Told) {
        let samples = Samples::open(text.as_bytes(), "queue.rst").unwrap();
        assert_eq!(samples.format, Format::CacheLines);
        let mut rows = Vec::new();
        let told = samples.each(&mut |s| {
            let Some(Place::Member { of: "queue", path }) = s.data else { panic!("{s:?}") };
            rows.push((s.at, s.does.unwrap(), path.to_string()));
        });
        (rows, told.unwrap())
    }

    #[test]
    fn both_forms_say_the_same() {
        let update = Does { reads: true, ..Does::WRITE };
        let wanted = [(Does::READ, "length"), (Does::READ, "length"), (update, "sent"), (Does::WRITE, "received")];
        for (text, first) in [(OLD, 7), (NEW, 6)] {
            let (rows, told) = rows(text);
            let found: Vec<(Does, &str)> = rows.iter().map(|(_, does, name)| (*does, name.as_str())).collect();
            assert_eq!(found, wanted);
            assert_eq!(rows[0].0, first);
            assert_eq!(
                told.skipped.into_iter().collect::<Vec<_>>(),
                [("members that no fast path touches, as their table says", 1)]
            );
        }
    }

    #[test]
    fn a_table_of_numbers_is_counted() {
        let text = NEW.replace("queue struct", "queue enum");
        let mut none = 0;
        let told = Samples::open(text.as_bytes(), "it").unwrap().each(&mut |_| none += 1).unwrap();
        assert_eq!((none, told.skipped.values().sum::<u64>()), (0, 4));
    }
}
