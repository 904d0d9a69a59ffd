//! [`Scan`] → [`Page`]: a summary by section, then the first findings.

use crate::finding::{Evidence, Finding, Sensitivity, Subject};
use crate::heat::Profile;
use crate::image::{Facts, Sizes, SymbolsFrom, TypesFrom};
use crate::rules::{LineMap, Scan, SectionCounts};

use super::drawn::{of_finding, of_maps};
use super::page::{Block, Page, Table, View};

const SECTIONS: usize = 12;
const FINDINGS: usize = 12;
/// Whose lines are drawn.
const DRAWN: usize = 30;

/// Its figures are in a document only.
#[must_use]
pub fn page(scan: &Scan, view: View) -> Page {
    let (image, totals) = (&scan.image, &scan.totals.counts);
    let mut page = Page { title: title(scan), sentence: sentence(scan), ..Page::default() };
    if !scan.maps.is_empty() {
        page.blocks.extend(of_maps(&scan.maps, image.line_size).filter(|_| view == View::Document));
        page.blocks.extend(scan.maps.iter().map(|m| map(m, image.line_size)));
    } else if totals.objects > 0 {
        page.blocks.push(Block::Table(sections(scan, view)));
        page.blocks.push(Block::Text(format!("classes: {}", listing(&scan.totals.classes))));
    }
    if !scan.findings.is_empty() {
        if view == View::Document && scan.maps.is_empty() {
            let drawn = top(&scan.findings, DRAWN).into_iter().filter_map(|f| of_finding(f, image.line_size));
            page.blocks.extend(drawn);
        }
        page.blocks.push(Block::Table(findings(scan, view)));
        page.blocks.extend(alternatives(top(&scan.findings, view.rows(FINDINGS)).into_iter()));
        let types = match image.types_from {
            None => "from symbols",
            Some(TypesFrom::Dwarf) => "from symbols and from types (locks, atomics, what is volatile)",
            Some(TypesFrom::Btf) => "from symbols and types of BTF (no alignment, no lines, few variables)",
        };
        let users = if scan.findings.iter().any(|f| f.measured.is_some()) {
            "who uses what is seen by the profile, and decoded from code where that says nothing"
        } else if scan.findings.iter().any(|f| f.evidence == Evidence::Decoded) {
            "who uses what is decoded from code: how often, and on how many CPUs, is not known"
        } else {
            "who reads and writes is not known"
        };
        page.notes.push(format!("Known {types}; {users}."));
        if scan.findings.iter().any(|f| f.sensitivity.is_some()) {
            page.notes.push(
                "fragile: at how many of the places that a change upstream in its section can give an object (in steps \
                 of its alignment, what follows moving along) it straddles or meets something contended."
                    .to_string(),
            );
        }
    }
    page.notes.extend(scan.profiles.iter().flat_map(profile));
    page.notes.extend(symbols(image).map(str::to_string));
    if image.sizes == Sizes::UpTo {
        page.notes.push(UP_TO.to_string());
    }
    page.notes.extend(scan.problems.iter().map(|p| format!("problem: {p}")));
    if !scan.skipped.is_empty() {
        page.notes.push(format!("left out: {}", listing(&scan.skipped)));
    }
    page
}

/// What became of the samples of a profile, and what is wrong with it.
pub(super) fn profile(profile: &Profile) -> Vec<String> {
    let members = profile.members.map_or_else(String::new, |n| format!(" ({n} of them to a member)"));
    let cpus = match profile.cpus {
        0 => "CPUs not told".to_string(),
        1 => "1 CPU".to_string(),
        n => format!("{n} CPUs"),
    };
    let mut elsewhere: Vec<(&String, &u64)> = profile.elsewhere.iter().collect();
    elsewhere.sort_by_key(|(reason, n)| (std::cmp::Reverse(**n), *reason));
    let elsewhere: String = elsewhere.iter().map(|(reason, n)| format!("; {n} {reason}")).collect();
    let told = format!(
        "profile {} ({}): {} samples, {cpus}: {} to an object{members}{elsewhere}",
        profile.path,
        profile.format.name(),
        profile.samples,
        profile.objects
    );
    let mut all = vec![told];
    all.extend(profile.problems.iter().map(|p| format!("problem: {}: {p}", profile.path)));
    if !profile.skipped.is_empty() {
        all.push(format!("left out of {}: {}", profile.path, listing(&profile.skipped)));
    }
    all
}

fn title(scan: &Scan) -> String {
    let image = &scan.image;
    let packed = image.packed.as_ref().map_or_else(String::new, |packed| format!(" ({packed})"));
    format!("{}: {} {}{packed}, line {} bytes", image.path, image.machine, kind(scan), image.line_size)
}

/// What is to be known of symbols that are not a linker's own table.
fn symbols(image: &Facts) -> Option<&'static str> {
    match image.symbols_from {
        SymbolsFrom::Symtab | SymbolsFrom::None => None,
        SymbolsFrom::Dynsym => {
            Some("Stripped: only the dynamic symbols (.dynsym) were read; local objects are not seen.")
        }
        SymbolsFrom::Kallsyms => Some("Symbols from the kallsyms inside this kernel: it has no .symtab."),
        SymbolsFrom::SystemMap => Some("Symbols from the System.map that was named: the image itself has no .symtab."),
        SymbolsFrom::ProcKallsyms => Some("Symbols from /proc/kallsyms."),
    }
}

const UP_TO: &str = "No size is known: each symbol is taken to reach up to the next one. So an object that straddles may \
                     not, and one that does not, surely does not; a shared line is told only of objects that begin on it.";

fn kind(scan: &Scan) -> &'static str {
    use crate::image::Kind as K;
    match scan.image.kind {
        K::Executable => "executable",
        K::Pie => "position-independent executable",
        K::Shared => "shared library",
        K::Object => "object file",
        K::Module => "kernel module",
        K::Vmlinux => "kernel",
    }
}

fn sentence(scan: &Scan) -> String {
    let c = &scan.totals.counts;
    if c.objects == 0 {
        return "No data objects: no symbol of data has a size here.".to_string();
    }
    let (may, up_to) = match scan.image.sizes {
        Sizes::Exact => ("", ""),
        Sizes::UpTo => ("may ", "up to "),
    };
    format!(
        "{} data objects; {} of the {} that fit a line {may}straddle one ({} of them metadata); {up_to}{} lines hold two \
         or more.",
        c.objects, c.straddling, c.small, c.straddling_metadata, c.lines_shared
    )
}

fn sections(scan: &Scan, view: View) -> Table {
    let heads =
        ["section", ">objects", ">fit a line", ">straddle", ">lines shared", ">metadata", ">metadata that straddles"];
    let mut table = Table::new("", &heads);
    let mut order: Vec<&SectionCounts> = scan.sections.iter().collect();
    if view != View::All {
        order.sort_by_key(|s| (std::cmp::Reverse(s.counts.objects), s.index));
    }
    let shown = view.rows(SECTIONS);
    for section in order.iter().take(shown) {
        let c = &section.counts;
        let numbers = [c.objects, c.small, c.straddling, c.lines_shared, c.metadata, c.straddling_metadata];
        table.rows.push(std::iter::once(section.name.clone()).chain(numbers.iter().map(u64::to_string)).collect());
    }
    table.more = more(order.len(), shown, "sections");
    table
}

fn findings(scan: &Scan, view: View) -> Table {
    let size = match scan.image.sizes {
        Sizes::Exact => ">size (bytes)",
        Sizes::UpTo => ">size (bytes, up to)",
    };
    let mut heads =
        vec!["severity", "rule", "object", "section", size, ">phase", "with", ">fragile", ">cost (bytes)", "advice"];
    let typed = scan.image.types_from.is_some();
    if typed {
        heads.insert(3, "declared");
    }
    let mut table = Table::new("findings", &heads);
    let shown = view.rows(FINDINGS);
    for finding in top(&scan.findings, shown) {
        let subject = &finding.subject;
        let mut row = vec![
            format!("{:?}", finding.severity).to_lowercase(),
            finding.rule.to_string(),
            subject.name.clone(),
            subject.section.clone(),
            subject.size.to_string(),
            subject.phase.to_string(),
            with(finding, view == View::All),
            of_places(finding.sensitivity),
            finding.cost_bytes.map_or_else(|| "?".to_string(), |c| c.to_string()),
            finding.advice.clone(),
        ];
        if typed {
            row.insert(3, declared(subject));
        }
        table.rows.push(row);
    }
    table.more = more(scan.findings.len(), shown, "findings");
    table
}

/// `3 of 8`; nothing where it is not known.
pub(super) fn of_places(sensitivity: Option<Sensitivity>) -> String {
    sensitivity.map_or_else(String::new, |s| format!("{} of {}", s.either, s.of))
}

/// What else could be done about each, where there is a choice, with all prices.
pub(super) fn alternatives<'f>(findings: impl Iterator<Item = &'f Finding>) -> Option<Block> {
    let choices = findings.filter(|f| f.alternatives.len() > 1).flat_map(|finding| {
        finding.alternatives.iter().map(|a| {
            format!(
                "{}: {}: {} bytes on {} lines ({} bytes more)",
                finding.subject.name, a.advice, a.size, a.lines, a.cost_bytes
            )
        })
    });
    let items: Vec<String> = choices.collect();
    (!items.is_empty()).then(|| Block::List { heading: "alternatives and what each costs".to_string(), items })
}

/// A line drawn byte by byte, and who is who.
fn map(map: &LineMap, line: u64) -> Block {
    let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    // An object that begins inside another one is drawn over it.
    let letter = |at: u64| {
        let on = map.objects.iter().zip(letters.chars().chain(std::iter::repeat('#')));
        on.filter(|(o, _)| o.from <= at && at < o.to).last().map_or('.', |(_, letter)| letter)
    };
    let bytes: Vec<char> = (0..line).map(letter).collect();
    let drawn = bytes.chunks(8).map(|eight| eight.iter().collect::<String>()).collect::<Vec<_>>().join(" ");
    let items = map.objects.iter().zip(letters.chars().chain(std::iter::repeat('#'))).map(|(o, letter)| {
        let kind = o.object.type_name.as_deref().map_or_else(String::new, |t| format!(", {t}"));
        let contended = o.contended.map_or_else(String::new, |c| format!(", contended: {c:?}").to_lowercase());
        let asked = if o.asked { " ←" } else { "" };
        format!(
            "{letter} {}: bytes {} to {} of the line, {} bytes in all{kind}{contended}{asked}",
            o.object.name,
            o.from,
            o.to.saturating_sub(1),
            o.object.size
        )
    });
    Block::List {
        heading: format!("{} line {}", map.section, map.address),
        items: std::iter::once(drawn).chain(items).collect(),
    }
}

/// The first ones, but no rule takes more than half while another has some left: fifty locks that straddle must not
/// hide the first line that is shared.
fn top(findings: &[Finding], shown: usize) -> Vec<&Finding> {
    if findings.len() <= shown {
        return findings.iter().collect();
    }
    let mut seen = std::collections::BTreeMap::new();
    let (mut picked, mut rest) = (Vec::new(), Vec::new());
    for (rank, finding) in findings.iter().enumerate() {
        let n: &mut usize = seen.entry(finding.rule).or_default();
        *n += 1;
        if *n <= shown / 2 { picked.push(rank) } else { rest.push(rank) }
    }
    picked.extend(rest.into_iter().take(shown.saturating_sub(picked.len())));
    picked.sort_unstable();
    picked.into_iter().take(shown).filter_map(|rank| findings.get(rank)).collect()
}

/// `file:line`, with the last part of the file's path.
fn declared(subject: &Subject) -> String {
    let file = subject.file.as_deref().and_then(|f| f.rsplit('/').next());
    file.zip(subject.line).map_or_else(String::new, |(file, line)| format!("{file}:{line}"))
}

/// The others on the line; two of them unless all are wanted.
fn with(finding: &Finding, all: bool) -> String {
    let shown = if all { finding.others.len() } else { 2 };
    let mut names: Vec<String> = finding.others.iter().take(shown).map(|o| o.name.clone()).collect();
    if finding.others.len() > shown {
        names.push(format!("{} more", finding.others.len() - shown));
    }
    names.join(", ")
}

pub(super) fn more(of: usize, shown: usize, what: &str) -> Option<String> {
    (of > shown).then(|| format!("{} more {what}: --all", of - shown))
}

pub(super) fn listing<K: AsRef<str>>(counts: &std::collections::BTreeMap<K, u64>) -> String {
    counts.iter().map(|(name, n)| format!("{n} {}", name.as_ref())).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Alternative, Severity};
    use crate::image::{Class, Kind};
    use crate::layout::Counts;
    use crate::rules::{SCHEMA, Totals};
    use crate::units::{Addr, Phase};

    fn subject(name: &str, address: u64, size: u64, type_name: &str) -> Subject {
        Subject {
            name: name.to_string(),
            section: ".bss".to_string(),
            address: Addr(address),
            size,
            phase: Phase((address % 64) as u32),
            type_name: Some(type_name.to_string()),
            file: Some("src/io/threads.c".to_string()),
            line: Some(12),
        }
    }

    fn finding(rule: &'static str, subject: Subject, others: Vec<Subject>, advice: &str, cost: u64) -> Finding {
        let finding = Finding::about(rule, Severity::Medium, Evidence::Typed, subject);
        Finding { others, advice: advice.to_string(), cost_bytes: Some(cost), ..finding }
    }

    #[test]
    fn what_types_tell() {
        let facts = Facts {
            path: "server".to_string(),
            packed: None,
            kind: Kind::Pie,
            machine: "x86_64".to_string(),
            class: Class::Elf64,
            build_id: None,
            line_size: 64,
            symbols_from: SymbolsFrom::Symtab,
            sizes: Sizes::Exact,
            types_from: Some(TypesFrom::Dwarf),
        };
        let counts = Counts { objects: 3, small: 3, lines_shared: 1, ..Counts::default() };
        let reads = subject("io_reads", 0x4040, 64, "_Atomic long[8]");
        let (lock, stats) = (subject("lock", 0x4080, 40, "pthread_mutex_t"), subject("stats", 0x40a8, 8, "long"));
        let scan = Scan {
            schema: SCHEMA,
            problems: Vec::new(),
            skipped: [("types of another size than their symbol".to_string(), 1)].into(),
            image: facts,
            totals: Totals { counts, classes: [("bss", 3)].into() },
            sections: vec![SectionCounts { name: ".bss".to_string(), index: 24, counts }],
            findings: vec![
                Finding {
                    sensitivity: Some(Sensitivity { of: 8, straddles: 7, meets: 1, either: 7 }),
                    alternatives: [(512, 8), (1024, 16)]
                        .map(|(size, lines)| Alternative {
                            advice: format!("aligned({})", size / 8),
                            size,
                            lines,
                            cost_bytes: size - 64,
                        })
                        .into(),
                    ..finding("shared-elements", reads, Vec::new(), "an aligned start does not separate them", 448)
                },
                finding("shared-tail", lock, vec![stats], "tail line still shared with stats", 24),
            ],
            maps: Vec::new(),
            profiles: Vec::new(),
        };
        let mut out = Vec::new();
        crate::report::table::write(&page(&scan, View::Screen), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }
}
