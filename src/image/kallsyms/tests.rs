//! A writer of the same table, after scripts/kallsyms.c, in every order and width that it has had.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Addresses behind the tokens.
    newer: bool,
    how: How,
    /// Of the markers and the number of names, in bytes: a pointer before 4.20.
    width: usize,
    sequence: Sequence,
    pointer: usize,
    big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Relative,
    PerCpu,
    Absolute,
    FromThemselves,
    /// As `Relative`, and the loader fills in the base.
    Relocated,
}

/// Where the sequence numbers by name stand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sequence {
    None,
    BeforeTokens,
    Last,
}

const BASE: u64 = 0x8100_0000;

/// The kernel in which a table is looked for: one at [`BASE`] whose table begins at [`AT`].
struct Kernel;

const AT: u64 = BASE + 0x10_0000;

impl Places for Kernel {
    fn address(&self, offset: usize) -> Option<u64> {
        Some(AT + offset as u64)
    }

    fn relocated<'n>(&self, _: usize, named: impl Iterator<Item = (&'n str, u64)>) -> Option<u64> {
        named.into_iter().find(|(name, _)| *name == "_text").map(|(_, offset)| BASE - offset)
    }

    fn begins(&self, _: u64, anchor: u64) -> bool {
        (BASE..BASE + 0x1000).contains(&anchor)
    }
}

struct Writer {
    bytes: Vec<u8>,
    layout: Layout,
}

impl Writer {
    fn number(&mut self, value: u64, width: usize) {
        let little = value.to_le_bytes();
        let mut bytes = little[..width].to_vec();
        if self.layout.big_endian {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(self.layout.pointer), 0);
    }
}

/// Pieces: each visible letter is its own code, and some pairs of them.
fn piece(code: u8) -> String {
    match code {
        b'!'..=b'~' => char::from(code).to_string(),
        0x80..=0x9f => format!("lock_{}", code - 0x80),
        0xa0 => "T_".into(),
        _ => String::new(),
    }
}

/// The longest piece first.
fn compress(text: &str) -> Vec<u8> {
    let mut codes = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.bytes().next() {
        let mut longer = (0x80..=0xa0u8).filter(|_| matches!(letter, b'l' | b'T'));
        let code = longer.find(|code| rest.starts_with(&piece(*code))).unwrap_or(letter);
        rest = &rest[piece(code).len()..];
        codes.push(code);
    }
    codes
}

/// The table alone, and before it bytes that are none.
fn write(symbols: &[Listed<'_>], layout: Layout) -> Vec<u8> {
    let mut w = Writer { bytes: Vec::new(), layout };
    for i in 0..500u64 {
        w.number(i * i, 4);
    }
    w.align();
    if !layout.newer {
        addresses(&mut w, symbols);
    }
    w.number(symbols.len() as u64, layout.width);
    w.align();
    let (first, mut markers) = (w.bytes.len(), Vec::new());
    for (i, symbol) in symbols.iter().enumerate() {
        if i % 256 == 0 {
            markers.push((w.bytes.len() - first) as u64);
        }
        let codes = compress(&format!("{}{}", char::from(symbol.letter), symbol.name));
        match codes.len() {
            length @ 0..0x80 => w.bytes.push(length as u8),
            length => w.bytes.extend([(length & 0x7f | 0x80) as u8, (length >> 7) as u8]),
        }
        w.bytes.extend(codes);
    }
    w.align();
    markers.iter().for_each(|marker| w.number(*marker, layout.width));
    w.align();
    let sequence = |w: &mut Writer| {
        (0..symbols.len()).rev().for_each(|i| w.bytes.extend(&(i as u32).to_be_bytes()[1..]));
        w.align();
    };
    if layout.sequence == Sequence::BeforeTokens {
        sequence(&mut w);
    }
    let (first, mut index) = (w.bytes.len(), Vec::new());
    for code in 0..=255 {
        index.push((w.bytes.len() - first) as u64);
        w.bytes.extend(piece(code).bytes().chain([0]));
    }
    w.align();
    index.iter().for_each(|at| w.number(*at, 2));
    w.align();
    if layout.newer {
        addresses(&mut w, symbols);
    }
    if layout.sequence == Sequence::Last {
        sequence(&mut w);
    }
    w.bytes
}

fn addresses(w: &mut Writer, symbols: &[Listed<'_>]) {
    for symbol in symbols {
        let address = symbol.address;
        match w.layout.how {
            How::Absolute => w.number(address, w.layout.pointer),
            How::Relative | How::Relocated => w.number(address - BASE, 4),
            How::PerCpu if address < BASE => w.number(address, 4),
            How::PerCpu => w.number(!(address - BASE) & 0xffff_ffff, 4),
            How::FromThemselves => {
                let here = AT + w.bytes.len() as u64;
                w.number(address.wrapping_sub(here) & 0xffff_ffff, 4);
            }
        }
    }
    w.align();
    match w.layout.how {
        How::Relative | How::PerCpu => w.number(BASE, w.layout.pointer),
        How::Relocated => w.number(0, w.layout.pointer),
        How::Absolute | How::FromThemselves => {}
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    use Sequence::{BeforeTokens, Last, None};
    let how =
        prop::sample::select(vec![How::Relative, How::PerCpu, How::Absolute, How::FromThemselves, How::Relocated]);
    // (newer, width as a pointer's, sequence)
    let order = prop::sample::select(vec![
        (false, true, None),
        (false, false, None),
        (false, false, BeforeTokens),
        (true, false, Last),
    ]);
    (how, order, any::<bool>(), any::<bool>()).prop_map(|(how, (newer, wide, sequence), narrow, big_endian)| {
        let pointer = if narrow { 4 } else { 8 };
        let newer = newer || how == How::FromThemselves;
        Layout { newer, how, width: if wide { pointer } else { 4 }, sequence, pointer, big_endian }
    })
}

/// Names of any length up to the longest, at rising addresses, some of them a CPU's own, which begin at 0.
fn symbols(layout: Layout, names: Vec<(String, u8)>) -> Vec<Listed<'static>> {
    let low = if layout.how == How::PerCpu { names.len() / 3 } else { 0 };
    let mut list = Vec::new();
    for (i, (name, letter)) in names.into_iter().enumerate() {
        if i == low {
            list.push(Listed { address: BASE, letter: b'T', name: "_text".into() });
        }
        let (address, letter) = if i < low { (8 * i as u64, b'A') } else { (BASE + 8 * (i - low) as u64, letter) };
        list.push(Listed { address, letter, name: name.into() });
    }
    list
}

fn names(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(String, u8)>> {
    let name = prop_oneof![9 => "[a-z_.]{1,12}(lock_1)?", 1 => "[a-z0-9_]{100,300}"];
    let letter = prop::sample::select(b"TtDdBbRrWV".to_vec());
    prop::collection::vec((name, letter), count)
}

fn read(bytes: &[u8], layout: Layout) -> Result<Option<Vec<Listed<'static>>>, String> {
    find(Words { bytes, big_endian: layout.big_endian, pointer: layout.pointer }, &Kernel)
}

const PLAIN: Layout =
    Layout { newer: true, how: How::Relative, width: 4, sequence: Sequence::Last, pointer: 8, big_endian: false };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_layout_is_read_as_it_was_written(layout in layouts(), names in names(3..600)) {
        let symbols = symbols(layout, names);
        let bytes = write(&symbols, layout);
        prop_assert_eq!(read(&bytes, layout), Ok(Some(symbols)));
    }

    /// What is cut or damaged is not read as something else: a name may change its letters, nothing more.
    #[test]
    fn damage_is_told(layout in layouts(), names in names(3..300), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let symbols = symbols(layout, names);
        let mut bytes = write(&symbols, layout);
        let at = 2000 + at.index(bytes.len() - 2000);
        bytes[at] ^= flip;
        if let Ok(Some(found)) = read(&bytes, layout) {
            prop_assert_eq!(found.len(), symbols.len());
            prop_assert!(found.iter().map(|s| s.address).is_sorted());
        }
    }
}

#[test]
fn a_table_that_is_cut_short_is_none() {
    let names = (0..400).map(|i| (format!("name_{i}"), b'T')).collect();
    let symbols = symbols(PLAIN, names);
    let bytes = write(&symbols, PLAIN);
    // Without the sequence numbers, which nobody here asks for, it is whole.
    let needed = bytes.len() - (3 * symbols.len()).next_multiple_of(8);
    for end in (0..needed).step_by(61).chain(needed - 9..needed) {
        assert!(!matches!(read(&bytes[..end], PLAIN), Ok(Some(_))), "cut at {end}");
    }
    assert_eq!(read(&bytes[..needed], PLAIN), Ok(Some(symbols)));
}

/// One part after another is made to disagree, and each is named.
#[test]
fn what_does_not_agree_is_said() {
    let names = (0..300).map(|i| (format!("name_{i}"), b'T')).collect();
    let symbols = symbols(PLAIN, names);
    let whole = write(&symbols, PLAIN);
    let place = |pattern: &[u8]| whole.windows(pattern.len()).position(|w| w == pattern).unwrap();
    let first = place(b"\x05\xa0text");
    let cases: [(usize, &[u8], &str); 3] = [
        // A name of control characters: their codes have no piece.
        (first + 8, &[1, 1, 1], "nonsense"),
        // Fewer than the markers say.
        (first - 8, &[10, 0], "tokens without names"),
        // The last addresses fall.
        (whole.len() - (3 * symbols.len()).next_multiple_of(8) - 16, &[1, 0, 0, 0], "no addresses"),
    ];
    for (at, bytes, want) in cases {
        let mut broken = whole.clone();
        broken[at..at + bytes.len()].copy_from_slice(bytes);
        let problem = read(&broken, PLAIN).map(|found| found.map(|list| list.len())).unwrap_err();
        assert!(problem.contains(want), "{want}: {problem}");
    }
    assert_eq!(find(Words { bytes: b"no table", big_endian: false, pointer: 8 }, &Kernel), Ok(None));
}
