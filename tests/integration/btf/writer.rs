//! Writes BTF as `include/uapi/linux/btf.h` describes it, of either byte order, right or wrong as asked.

/// One type after the other; numbers and strings may continue those of another.
#[derive(Clone)]
pub struct Writer {
    big_endian: bool,
    strings: Vec<u8>,
    types: Vec<u8>,
    layouts: Vec<u8>,
    first_string: u32,
    next: u32,
}

pub const INT: u32 = 1;
pub const PTR: u32 = 2;
pub const ARRAY: u32 = 3;
pub const STRUCT: u32 = 4;
pub const UNION: u32 = 5;
pub const ENUM: u32 = 6;
pub const FWD: u32 = 7;
pub const TYPEDEF: u32 = 8;
pub const VOLATILE: u32 = 9;
pub const CONST: u32 = 10;
pub const RESTRICT: u32 = 11;
pub const FUNC: u32 = 12;
pub const FUNC_PROTO: u32 = 13;
pub const VAR: u32 = 14;
pub const DATASEC: u32 = 15;
pub const FLOAT: u32 = 16;
pub const DECL_TAG: u32 = 17;
pub const TYPE_TAG: u32 = 18;
pub const ENUM64: u32 = 19;
/// Bit 31 of `info`.
pub const FLAG: u32 = 1 << 31;

impl Writer {
    pub fn new(big_endian: bool) -> Writer {
        Writer { big_endian, strings: vec![0], types: Vec::new(), layouts: Vec::new(), first_string: 0, next: 1 }
    }

    pub fn split(base: &Writer) -> Writer {
        let first_string = base.first_string + base.strings.len() as u32;
        Writer { strings: Vec::new(), types: Vec::new(), first_string, ..base.clone() }
    }

    pub fn name(&mut self, name: &str) -> u32 {
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn word(&self, word: u32) -> [u8; 4] {
        if self.big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    /// Returns the number of the type. `kind` may carry [`FLAG`]; `rest` is what follows the three words.
    pub fn add(&mut self, kind: u32, name: &str, count: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = if name.is_empty() { 0 } else { self.name(name) };
        let info = (kind & FLAG) | (kind & !FLAG) << 24 | count;
        for word in [name, info, size_or_type].iter().chain(rest) {
            self.types.extend(self.word(*word));
        }
        self.next += 1;
        self.next - 1
    }

    pub fn int(&mut self, name: &str, size: u32) -> u32 {
        self.add(INT, name, 0, size, &[size.wrapping_mul(8)])
    }

    /// Members: name, type, offset as it is written.
    pub fn structure(&mut self, kind: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let mut words = Vec::new();
        for (name, of, at) in members {
            let name = if name.is_empty() { 0 } else { self.name(name) };
            words.extend([name, *of, *at]);
        }
        self.add(kind, name, members.len() as u32, size, &words)
    }

    /// What the kind with this number has behind the type: bytes once, and bytes for each of its count.
    pub fn layout(&mut self, kind: usize, once: u8, each: u8) {
        self.layouts.resize(self.layouts.len().max(4 * kind + 4), 0);
        self.layouts[4 * kind] = once;
        self.layouts[4 * kind + 1] = each;
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (types, strings, layouts) = (self.types.len() as u32, self.strings.len() as u32, self.layouts.len() as u32);
        let header = if layouts > 0 { 32 } else { 24 };
        let mut out = if self.big_endian { vec![0xeb, 0x9f, 1, 0] } else { vec![0x9f, 0xeb, 1, 0] };
        let words = [header, layouts, types, layouts + types, strings, 0, layouts];
        out.extend(words.iter().take(header as usize / 4 - 1).flat_map(|w| self.word(*w)));
        out.extend(self.layouts.iter().chain(&self.types).chain(&self.strings));
        out
    }
}
