//! Units and offsets as types, so that what is illegal cannot be written.
//!
//! An alignment is an exponent, a phase always knows its line, a span knows which lines it touches.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize, Serializer};

/// A virtual address (or, in a relocatable object, an offset into a section).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// JSON rounds 64-bit numbers (`jq` does), so addresses are strings.
impl Serialize for Addr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The alignment of an object or section: a power of two, kept as its exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Align {
    exponent: u8,
}

impl Align {
    /// One byte: no constraint.
    pub const ONE: Align = Align { exponent: 0 };

    /// `None` unless `bytes` is a power of two. ELF writes "no constraint" as 0 or 1; both are [`Align::ONE`].
    #[must_use]
    pub fn new(bytes: u64) -> Option<Align> {
        match bytes {
            0 => Some(Align::ONE),
            n if n.is_power_of_two() => Some(Align { exponent: n.trailing_zeros() as u8 }),
            _ => None,
        }
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.exponent
    }

    /// The first multiple of this alignment at or after `address`; saturates at the end of the space.
    #[must_use]
    pub fn up(self, address: u64) -> u64 {
        let mask = self.bytes() - 1;
        address.checked_add(mask).map_or(!mask, |a| a & !mask)
    }
}

/// The size of a cache line in bytes: a power of two, at least 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineSize {
    exponent: u8,
}

impl LineSize {
    /// x86, most arm64, riscv.
    pub const B64: LineSize = LineSize { exponent: 6 };
    /// ppc64, Apple arm64.
    pub const B128: LineSize = LineSize { exponent: 7 };
    /// s390x.
    pub const B256: LineSize = LineSize { exponent: 8 };

    /// `None` unless a power of two from 16 to 4096.
    #[must_use]
    pub fn new(bytes: u64) -> Option<LineSize> {
        (bytes.is_power_of_two() && (16..=4096).contains(&bytes))
            .then(|| LineSize { exponent: bytes.trailing_zeros() as u8 })
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.exponent
    }

    /// The number of the line that holds `address`.
    #[must_use]
    pub fn line_of(self, address: Addr) -> u64 {
        address.0 >> self.exponent
    }

    /// Where in its line `address` lies, in bytes.
    #[must_use]
    pub fn phase_of(self, address: Addr) -> Phase {
        Phase((address.0 & (self.bytes() - 1)) as u32)
    }
}

/// `address mod line`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Phase(pub u32);

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of bytes: where it starts and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub start: Addr,
    pub size: u64,
}

impl Span {
    /// The lines this span touches, by number. A span of no bytes touches the line of its start, and a
    /// span that would wrap ends at the end of the address space.
    #[must_use]
    pub fn lines(self, line: LineSize) -> RangeInclusive<u64> {
        let last = self.start.0.saturating_add(self.size.saturating_sub(1));
        line.line_of(self.start)..=line.line_of(Addr(last))
    }

    /// Fits a line by its size, yet lies on two: moving it would cost nothing and halve its lines.
    /// (An object larger than a line touches several wherever it lies; that is no straddle.)
    #[must_use]
    pub fn straddles(self, line: LineSize) -> bool {
        let lines = self.lines(line);
        self.size <= line.bytes() && lines.start() != lines.end()
    }

    /// One past the last byte; saturates.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start.0.saturating_add(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn alignments_are_powers_of_two() {
        assert_eq!(Align::new(0), Some(Align::ONE));
        assert_eq!(Align::new(64).map(Align::bytes), Some(64));
        assert_eq!(Align::new(48), None);
        assert_eq!(Align::new(16).map(|a| a.up(33)), Some(48));
        assert_eq!(Align::new(16).map(|a| a.up(u64::MAX)), Some(!15));
    }

    /// Case A18: a 32-byte object that is only 8-aligned straddles at phases 40, 48 and 56, nowhere else.
    #[test]
    fn a_half_line_object_straddles_at_three_of_eight_phases() {
        let at = |phase| Span { start: Addr(0x4000 + phase), size: 32 }.straddles(LineSize::B64);
        let bad: Vec<u64> = (0..64).step_by(8).filter(|&p| at(p)).collect();
        assert_eq!(bad, [40, 48, 56]);
    }

    /// Case A1's trap: decimal 120 splits an eight-byte `count` from `owner`; 0x120 does not.
    #[test]
    fn radix_decides() {
        let line = |a| LineSize::B64.line_of(Addr(a));
        assert_ne!(line(120), line(128));
        assert_eq!(line(0x120), line(0x128));
    }

    proptest! {
        #[test]
        fn a_span_straddles_iff_first_and_last_byte_differ_in_line(start in 0u64..4096, size in 1u64..=64) {
            let span = Span { start: Addr(start), size };
            prop_assert_eq!(span.straddles(LineSize::B64), start / 64 != (start + size - 1) / 64);
        }
    }
}
