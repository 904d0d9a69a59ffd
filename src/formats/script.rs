//! The text of `perf script`: `comm pid/tid [cpu] time: period event: addr data_src weight ip sym+off (dso)`, of which any
//! part may be missing, in perf's own order. A name of a command may have blanks and colons; call chains stand on lines of
//! their own, the innermost function first, up to an empty line. Shown mappings (`--show-mmap-events`) tell what is where.

use super::{Does, Map, Maps, Owner, Place, Sample, Sink, Stands, Told, hex, of_event, symbol, words};

/// What stands in front of the event.
#[derive(Clone, Copy, Default)]
struct Head {
    process: Option<u32>,
    thread: Option<u32>,
    cpu: Option<u32>,
    time: Option<u64>,
}

pub(super) fn is_line(line: &str) -> bool {
    line.contains(": PERF_RECORD_") || parse(line).is_some()
}

/// `29238.795838:` in nanoseconds.
fn time(word: &str) -> Option<u64> {
    let (seconds, rest) = word.strip_suffix(':')?.split_once('.')?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(rest) || rest.len() > 9 {
        return None;
    }
    let rest: u64 = rest.parse::<u64>().ok()? * 10u64.pow(9 - rest.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// `1234` or `100/101`; `-1` is the kernel's, or nobody's.
fn identity(word: &str) -> Option<(Option<u32>, Option<u32>)> {
    let number = |w: &str| if w == "-1" { Some(None) } else { w.parse().ok().map(Some) };
    match word.split_once('/') {
        Some((process, thread)) => Some((number(process)?, number(thread)?)),
        None => Some((None, number(word)?)),
    }
}

fn cpu(word: &str) -> Option<u32> {
    word.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The head of a line, and the rest of it. The command may have any words; the last ones before the time, the CPU or the
/// event are what is looked for.
fn head(line: &str) -> (Head, &str) {
    let mut out = Head::default();
    let mut end = 0;
    let mut previous: Option<&str> = None;
    for (at, word) in words(line).take(40) {
        let after = at + word.len();
        if let Some(number) = cpu(word).filter(|_| out.time.is_none()) {
            (out.cpu, end) = (Some(number), after);
            (out.process, out.thread) = previous.and_then(identity).unwrap_or_default();
        } else if let Some(nanoseconds) = time(word) {
            out.time = Some(nanoseconds);
            if out.cpu.is_none() {
                (out.process, out.thread) = previous.and_then(identity).unwrap_or_default();
            }
            return (out, line.get(after..).unwrap_or_default());
        }
        if previous.is_some() && end > 0 && at >= end && cpu(word).is_none() {
            break;
        }
        previous = Some(word);
    }
    if end == 0 {
        // Neither CPU nor time: the first words, where they are numbers.
        let mut first = words(line);
        if let Some((at, word)) = first.next()
            && let Some(found) = identity(word).filter(|_| word.contains('/'))
        {
            (out.process, out.thread) = found;
            end = at + word.len();
        }
    }
    (out, line.get(end..).unwrap_or_default())
}

fn parse(line: &str) -> Option<Sample<'_>> {
    let (head, rest) = head(line);
    let (event, rest) = event(rest);
    let body = body(rest);
    let known = head.time.is_some() || head.cpu.is_some() || head.process.is_some();
    let named = matches!(body.code, Some(Place::Symbol { .. }));
    let chained = known && !event.is_empty() && rest.trim().is_empty();
    let placed = match (body.code_address, known) {
        (Some(_), true) => true,
        (Some(_), false) => named || !event.is_empty(),
        (None, true) => body.data.is_some() || (named && body.file),
        (None, false) => false,
    };
    if !(chained || placed) {
        return None;
    }
    let memory = body.data.is_some();
    let does = body.does.or_else(|| memory.then(|| of_event(event)).flatten());
    Some(Sample {
        does,
        code: body.code,
        code_address: body.code_address,
        data: body.data,
        cpu: head.cpu,
        process: head.process,
        thread: head.thread,
        time: head.time,
        cycles: body.weight,
        hitm: u64::from(body.hitm),
        ..Sample::at(0, if memory { Stands::Access } else { Stands::Code })
    })
}

/// The event's name, and what is behind it: `   250000 cpu/mem-loads,ldlat=30/P:  `.
fn event(rest: &str) -> (&str, &str) {
    for (at, word) in words(rest).take(3) {
        if let Some(name) = word.strip_suffix(':').filter(|name| !name.is_empty()) {
            return (name, rest.get(at + word.len()..).unwrap_or_default());
        }
    }
    ("", rest)
}

#[derive(Default)]
struct Body<'a> {
    data: Option<Place<'a>>,
    does: Option<Does>,
    hitm: bool,
    weight: u64,
    code: Option<Place<'a>>,
    code_address: Option<u64>,
    /// A file was told.
    file: bool,
}

/// `addr data_src |OP …| weight ip sym+off (dso)`, any of it.
fn body(rest: &str) -> Body<'_> {
    let mut out = Body::default();
    let (before, behind) = match (rest.find("|OP "), rest.rfind("|BLK").or_else(|| rest.rfind("|LCK"))) {
        (Some(from), Some(to)) if from < to => {
            let source = rest.get(from..to).unwrap_or_default();
            let last = rest.get(to..).unwrap_or_default();
            (out.does, out.hitm) = data_source(source, last);
            (rest.get(..from).unwrap_or_default(), after_source(last))
        }
        _ => ("", rest),
    };
    let sourced = !before.is_empty();
    if sourced {
        // The address, and the data source as a number.
        let mut words = words(before).map(|(_, word)| word);
        if let (Some(address), Some(_)) = (words.next(), words.next()) {
            out.data = hex(address).map(Place::Address);
        }
    }
    let (numbers, name) = leading_numbers(behind);
    out.file = name.trim_end().ends_with(')');
    let numbers: Vec<&str> = numbers.collect();
    match numbers.as_slice() {
        [weights @ .., ip] if sourced => {
            out.weight = weights.first().and_then(|w| w.parse().ok()).unwrap_or(0);
            out.code_address = hex(ip);
        }
        [address, .., ip] => {
            out.data = hex(address).map(Place::Address);
            out.code_address = hex(ip);
        }
        [ip] => out.code_address = hex(ip),
        [] => {}
    }
    // An address of nothing: the event has none.
    out.data = out.data.filter(|data| *data != Place::Address(0));
    out.code = function(name).or_else(|| out.code_address.map(Place::Address));
    out
}

/// Words of hexadecimal digits in front, and the rest.
fn leading_numbers(text: &str) -> (impl Iterator<Item = &str>, &str) {
    let mut end = 0;
    let mut count = 0;
    for (at, word) in words(text) {
        // A function may be called `add` or `facade`.
        if hex(word).is_none() || !word.bytes().any(|b| b.is_ascii_digit()) {
            break;
        }
        (end, count) = (at + word.len(), count + 1);
    }
    let numbers = text.split_ascii_whitespace().take(count);
    (numbers, text.get(end..).unwrap_or_default())
}

/// `sym+0x12 (dso)`; names of C++ have blanks.
fn function(text: &str) -> Option<Place<'_>> {
    let text = text.trim();
    let (name, file) = match text.rsplit_once(" (") {
        Some((name, file)) => (name.trim(), file.strip_suffix(')')),
        None => match text.strip_prefix('(') {
            Some(file) => ("", file.strip_suffix(')')),
            None => (text, None),
        },
    };
    symbol(name.trim_end_matches(" (inlined)"), file.filter(|file| *file != "[unknown]" && *file != "inlined"))
}

/// `|OP LOAD|LVL L1 hit|SNP HitM|TLB N/A|LCK No|BLK  N/A`.
fn data_source(source: &str, last: &str) -> (Option<Does>, bool) {
    let field = |name: &str| {
        let all = source.split('|').chain(last.split('|'));
        all.map(str::trim_start).find_map(|f| f.strip_prefix(name)).unwrap_or_default()
    };
    let operation = field("OP ");
    let (reads, writes) = (operation.contains("LOAD"), operation.contains("STORE"));
    let locked = field("LCK ").starts_with("Yes");
    let does = (reads || writes).then_some(Does { reads, writes: writes || (locked && reads), locked });
    (does, field("SNP ").to_ascii_lowercase().contains("hitm"))
}

/// Behind the last field of a data source, whose words are no numbers.
fn after_source(last: &str) -> &str {
    let value = last.trim_start_matches(['|', ' ']);
    let mut end = last.len() - value.len();
    for (at, word) in words(value) {
        if hex(word).is_some() && word.bytes().next().is_some_and(|b| b.is_ascii_digit()) {
            break;
        }
        // An address may begin with a letter: the weight in front of it does not.
        if word.len() > 8 && hex(word).is_some() {
            break;
        }
        end = last.len() - value.len() + at + word.len();
    }
    last.get(end..).unwrap_or_default()
}

/// `PERF_RECORD_MMAP2 100/100: [0x1000(0x2000) @ 0x1000 00:00 0 0]: r-xp /path`.
fn mapping(line: &str, time: u64) -> Option<(Owner, Map<'_>)> {
    let (_, rest) = line.split_once("PERF_RECORD_MMAP")?;
    let (_, rest) = rest.split_once(' ')?;
    let (ids, rest) = rest.split_once(": [")?;
    let (inside, rest) = rest.split_once("]: ")?;
    let (start, rest_of) = inside.split_once('(')?;
    let (length, rest_of) = rest_of.split_once(") @ ")?;
    let offset = rest_of.split_ascii_whitespace().next()?;
    let (rights, file) = rest.split_once(' ')?;
    let (start, length) = (hex(start)?, hex(length)?);
    let offset = if offset == "0" { 0 } else { hex(offset)? };
    let process = identity(ids)?.0;
    let owner = process.map_or(Owner::Kernel, Owner::Process);
    let executable = Some(rights.contains('x'));
    let map = Map { start, end: start.checked_add(length)?, offset, executable, file, build_id: None, time, number: 0 };
    Some((owner, map))
}

pub(super) fn maps(text: &str) -> Maps<'_> {
    let mut maps = Maps::default();
    for line in text.lines().filter(|l| l.contains(": PERF_RECORD_")) {
        let (head, _) = head(line);
        let time = head.time.unwrap_or(0);
        if let Some((owner, map)) = mapping(line, time) {
            maps.add(owner, map);
        } else if let Some((_, rest)) = line.split_once("PERF_RECORD_COMM exec: ") {
            let process = rest.rsplit_once(':').and_then(|(_, ids)| identity(ids)?.0);
            process.into_iter().for_each(|process| maps.program(process, time));
        } else if let Some((_, rest)) = line.split_once("PERF_RECORD_FORK(") {
            // `(100:101):(50:50)`: the child and its parent, with their threads.
            let mut numbers = rest.split(['(', ')', ':']).filter_map(|n| n.parse().ok());
            if let (Some(child), Some(_), Some(parent)) = (numbers.next(), numbers.next(), numbers.next()) {
                maps.made(child, parent, time);
            }
        }
    }
    maps.sort();
    maps
}

pub(super) fn read<'a>(text: &'a str, sink: Sink<'_, 'a>, told: &mut Told) {
    let mut chained: Option<Sample<'a>> = None;
    for (at, line) in (1u64..).zip(text.lines()) {
        let indented = line.starts_with(['\t', ' ']);
        if let Some(sample) = &mut chained {
            // The first line of a chain is where the sample was taken; the others are its callers.
            if line.trim().is_empty() {
                chained.take().into_iter().for_each(&mut *sink);
                continue;
            }
            let frame = body(line);
            if indented && frame.code.is_some() && head(line).0.time.is_none() {
                if sample.code.is_none() {
                    (sample.code, sample.code_address) = (frame.code, frame.code_address);
                }
                continue;
            }
            chained.take().into_iter().for_each(&mut *sink);
        }
        if line.trim().is_empty() || line.starts_with('#') || line.contains(": PERF_RECORD_") {
            continue;
        }
        match parse(line) {
            Some(sample) if sample.code.is_none() && sample.data.is_none() => chained = Some(Sample { at, ..sample }),
            Some(sample) => sink(Sample { at, ..sample }),
            None => told.skip("lines that are no sample", 1),
        }
    }
    chained.into_iter().for_each(sink);
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Samples};
    use super::*;

    fn all(text: &str) -> (Vec<Sample<'_>>, Told) {
        let samples = Samples::open(text.as_bytes(), "it").unwrap();
        assert_eq!(samples.format, Format::PerfScript);
        let mut all = Vec::new();
        let told = samples.each(&mut |s| all.push(s)).unwrap();
        (all, told)
    }

    fn one(line: &str) -> Sample<'_> {
        let (mut all, told) = all(line);
        assert_eq!((all.len(), told), (1, Told::default()), "{line}");
        all.remove(0)
    }

    fn named<'a>(name: &'a str, offset: u64, file: &'a str) -> Option<Place<'a>> {
        Some(Place::Symbol { name, offset, file: Some(file) })
    }

    #[test]
    fn a_line_of_a_software_event() {
        let s = one(
            "            spin 11215 29238.795838:     250000 cpu-clock:      7f49237148f2 get_indices.constprop.0+0xf2 (/usr/lib/ld.so.2)\n",
        );
        assert_eq!((s.thread, s.time, s.cpu), (Some(11215), Some(29_238_795_838_000), None));
        assert_eq!(s.code, named("get_indices.constprop.0", 0xf2, "/usr/lib/ld.so.2"));
        assert_eq!((s.code_address, s.data, s.stands), (Some(0x7f49_2371_48f2), None, Stands::Code));
        let s = one("swapper     0 [007]  1.5: 1 cycles:P:  ffffffff822057e0 its_return_thunk ([kernel.kallsyms])\n");
        assert_eq!((s.cpu, s.thread, s.time), (Some(7), Some(0), Some(1_500_000_000)));
        assert_eq!(s.code, named("its_return_thunk", 0, "[kernel.kallsyms]"));
    }

    /// Blanks and colons in the command, colons in the event, blanks in C++.
    #[test]
    fn names_may_have_blanks_and_colons() {
        let s = one(
            "my worker:1 12 99/101 [000]     0.001001:       1000 cpu/mem-loads,ldlat=30/P:     555555558040          2800142 |OP LOAD|LVL L1 hit|SNP HitM|TLB N/A|LCK Yes|BLK  N/A              30     55555555513b ns::f(int, char*)+0x12 (/tmp/a b)\n",
        );
        assert_eq!((s.process, s.thread, s.cpu), (Some(99), Some(101), Some(0)));
        assert_eq!(s.code, named("ns::f(int, char*)", 0x12, "/tmp/a b"));
        assert_eq!((s.data, s.cycles, s.hitm), (Some(Place::Address(0x5555_5555_8040)), 30, 1));
        assert_eq!(s.does, Some(Does { reads: true, writes: true, locked: true }));
    }

    #[test]
    fn fields_may_be_missing() {
        let s = one("  100/101       555555558040     55555555513b\n");
        assert_eq!((s.process, s.thread), (Some(100), Some(101)));
        assert_eq!((s.data, s.code), (Some(Place::Address(0x5555_5555_8040)), Some(Place::Address(0x5555_5555_513b))));
        let s = one(
            " a 101 [001] 0.001001:         cpu/mem-stores/P:     555555558240             144 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK No  0     555555555142 main+0x19 (/a)\n",
        );
        assert_eq!((s.does, s.cycles, s.hitm), (Some(Does::WRITE), 0, 0));
        let s = one(" a 101 [001] 0.001001: cpu/mem-stores/P:   0  555555555142 [unknown] (/a)\n");
        assert_eq!((s.data, s.code, s.stands), (None, Some(Place::Address(0x5555_5555_5142)), Stands::Code));
        let s = one("    55555555513b main+0x12 (/a)\n");
        assert_eq!((s.code, s.cpu), (named("main", 0x12, "/a"), None));
    }

    #[test]
    fn a_chain_is_one_sample_of_its_innermost_function() {
        let text = "a 7 [001] 2.0:  1 cycles: \n\t    55555555513b leaf+0x1 (/a)\n\t  5555555551ff add+0x4 (/a)\n\n\
                    b 8 [002] 3.0:  1 cycles: \n\t    55555555513c leaf+0x2 (inlined)\n\nrubbish\n";
        let (all, told) = all(text);
        let found: Vec<_> = all.iter().map(|s| (s.at, s.cpu, s.code)).collect();
        let inlined = Some(Place::Symbol { name: "leaf", offset: 2, file: None });
        assert_eq!(found, [(1, Some(1), named("leaf", 1, "/a")), (5, Some(2), inlined)]);
        assert_eq!(told.skipped.values().sum::<u64>(), 1);
    }

    #[test]
    fn shown_mappings_are_read() {
        let text = "swapper 0 0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x120bb08) @ 0xffffffff81000000]: x [kernel.kallsyms]_text\n\
            spin 11215 2.0: PERF_RECORD_COMM exec: spin:11215/11215\n\
            spin 11215 2.1: PERF_RECORD_MMAP2 11215/11215: [0x55641da7a000(0x1000) @ 0x1000 fe:00 101 15]: r-xp /tmp/spin\n\
            spin 11215 2.2: PERF_RECORD_FORK(11300:11300):(11215:11215)\n\
            spin 11215 2.3:  1 cycles:  55641da7a010 main+0x3 (/tmp/spin)\n";
        let samples = Samples::open(text.as_bytes(), "it").unwrap();
        let kernel = &samples.maps.kernel()[0];
        assert_eq!(
            (kernel.start, kernel.offset, kernel.file),
            (0xffff_ffff_8100_0000, 0xffff_ffff_8100_0000, "[kernel.kallsyms]_text")
        );
        for process in [11215, 11300] {
            let map = samples.maps.of(process, None).next().unwrap();
            assert_eq!(
                (map.start, map.offset, map.executable, map.file),
                (0x5564_1da7_a000, 0x1000, Some(true), "/tmp/spin")
            );
        }
        assert_eq!(all(text).0.len(), 1);
    }
}
