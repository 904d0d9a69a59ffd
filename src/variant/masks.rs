//! How many bytes each relocation type changes: what must be masked when two links of one section are compared.
//!
//! Sources: the psABI supplements (x86-64 table 4.9, i386 table 2.1, AArch64 ELF section 5.7).

const EM_386: u16 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;

/// Bytes covered by a relocation of `kind`, from its offset on. A type or machine that is not known here covers 8:
/// masking too much weakens one check, masking too little would refuse a good variant.
#[must_use]
pub fn width(machine: u16, kind: u32) -> u64 {
    match machine {
        EM_X86_64 => x86_64(kind),
        EM_386 => i386(kind),
        EM_AARCH64 => aarch64(kind),
        _ => 8,
    }
}

fn x86_64(kind: u32) -> u64 {
    match kind {
        0 | 35 => 0,                                  // NONE, TLSDESC_CALL
        14 | 15 => 1,                                 // 8, PC8
        12 | 13 => 2,                                 // 16, PC16
        2..=4 | 9..=11 | 19..=23 | 26 | 32 | 34 => 4, // PC32, GOT32, PLT32, GOTPCREL, 32, 32S, TLS, SIZE32, …
        41 | 42 => 4,                                 // GOTPCRELX, REX_GOTPCRELX
        1 | 5..=8 | 16..=18 | 24 | 25 | 27..=31 => 8, // 64, DTPMOD64, DTPOFF64, TPOFF64, PC64, GOTOFF64, …
        36 => 16,                                     // TLSDESC: two words
        _ => 8,
    }
}

fn i386(kind: u32) -> u64 {
    match kind {
        0 | 40 => 0,  // NONE, TLS_DESC_CALL
        22 | 23 => 1, // 8, PC8
        20 | 21 => 2, // 16, PC16
        41 => 8,      // TLS_DESC
        _ => 4,
    }
}

fn aarch64(kind: u32) -> u64 {
    match kind {
        0 | 256 => 0,
        257 | 260 => 8, // ABS64, PREL64
        259 | 262 => 2, // ABS16, PREL16
        1024.. => 8,    // dynamic: not in objects
        _ => 4,         // ABS32, PREL32 and every instruction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_the_psabi() {
        let x86: Vec<u64> = [1, 2, 4, 10, 11, 12, 14, 24, 42].map(|k| width(EM_X86_64, k)).to_vec();
        assert_eq!(x86, [8, 4, 4, 4, 4, 2, 1, 8, 4]);
        assert_eq!([1, 20, 23].map(|k| width(EM_386, k)), [4, 2, 1]);
        assert_eq!([257, 258, 283, 275].map(|k| width(EM_AARCH64, k)), [8, 4, 4, 4]);
        assert_eq!(width(243, 1), 8);
    }
}
