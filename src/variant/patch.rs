//! Pads and alignments, written into the headers of an object.
//!
//! Only section headers change, and content is moved, never edited: offsets inside a section stay, so symbols,
//! relocations, groups and debug information stay valid whatever compiler wrote them. The alternative, to rebuild the
//! object with a writer library, loses what the library does not know (COMDAT groups, clang's address tables).
//!
//! The fields are those of the ELF specification ("Sections"). The reader of the product (`object`) has no part here,
//! and the reader that checks the result (`verify`) has none either.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// What to do to one section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Bytes appended to its end.
    pub pad: u64,
    /// Raise `sh_addralign` to this; never lowered.
    pub align: Option<u64>,
}

const SHT_NOBITS: u64 = 8;
const SHF_EXECINSTR: u64 = 4;
/// No plan asks for more; it keeps a wrong one from filling the disk.
const MOST: u64 = 1 << 24;

/// A copy of the object `bytes` with the edits made, by ELF section index. Fails on anything that is not a whole
/// relocatable ELF file, on an index that is not there, and on pads above 16 MiB.
pub fn patch(bytes: &[u8], edits: &BTreeMap<usize, Edit>) -> Result<Vec<u8>> {
    let wrong = |why: &str| Error::input("patching an object", why);
    let mut elf = Elf::open(bytes).ok_or_else(|| wrong("its ELF header or section table is damaged"))?;
    for (&index, edit) in edits {
        if edit.pad > MOST || edit.align.is_some_and(|a| !a.is_power_of_two() || a > MOST) {
            return Err(wrong(&format!("a pad of {} or an alignment of {:?} is out of range", edit.pad, edit.align)));
        }
        elf.edit(index, *edit).ok_or_else(|| wrong(&format!("section {index} is missing or leaves the file")))?;
    }
    Ok(elf.bytes)
}

/// Where a field of a section header lies, and how wide it is, in the two classes.
#[derive(Clone, Copy)]
enum Field {
    Type,
    Flags,
    Offset,
    Size,
    Align,
}

impl Field {
    /// (offset, width) in `Elf64_Shdr` or `Elf32_Shdr`.
    fn place(self, wide: bool) -> (usize, usize) {
        match (self, wide) {
            (Field::Type, _) => (4, 4),
            (Field::Flags, true) => (8, 8),
            (Field::Flags, false) => (8, 4),
            (Field::Offset, true) => (24, 8),
            (Field::Offset, false) => (16, 4),
            (Field::Size, true) => (32, 8),
            (Field::Size, false) => (20, 4),
            (Field::Align, true) => (48, 8),
            (Field::Align, false) => (32, 4),
        }
    }
}

struct Elf {
    bytes: Vec<u8>,
    wide: bool,
    little: bool,
    machine: u64,
    table: usize,
    entry: usize,
    count: usize,
}

impl Elf {
    fn open(bytes: &[u8]) -> Option<Elf> {
        let wide = match bytes.get(..5)? {
            [0x7f, b'E', b'L', b'F', 2] => true,
            [0x7f, b'E', b'L', b'F', 1] => false,
            _ => return None,
        };
        let little = match bytes.get(5)? {
            1 => true,
            2 => false,
            _ => return None,
        };
        let mut elf = Elf { bytes: bytes.to_vec(), wide, little, machine: 0, table: 0, entry: 0, count: 0 };
        if elf.number(16, 2)? != 1 {
            return None; // ET_REL
        }
        elf.machine = elf.number(18, 2)?;
        let (shoff, shentsize, shnum) = if wide { ((40, 8), 58, 60) } else { ((32, 4), 46, 48) };
        elf.table = usize::try_from(elf.number(shoff.0, shoff.1)?).ok()?;
        elf.entry = usize::try_from(elf.number(shentsize, 2)?).ok()?;
        elf.count = usize::try_from(elf.number(shnum, 2)?).ok()?;
        if elf.entry < if wide { 64 } else { 40 } || elf.table == 0 {
            return None;
        }
        if elf.count == 0 {
            // 65,280 sections and more: the count is the size of section 0.
            elf.count = 1;
            elf.count = usize::try_from(elf.get(0, Field::Size)?).ok()?;
        }
        let end = elf.table.checked_add(elf.entry.checked_mul(elf.count)?)?;
        (end <= bytes.len()).then_some(elf)
    }

    fn edit(&mut self, index: usize, edit: Edit) -> Option<()> {
        if let Some(align) = edit.align
            && align > self.get(index, Field::Align)?
        {
            self.set(index, Field::Align, align)?;
        }
        if edit.pad == 0 {
            return self.get(index, Field::Size).map(|_| ());
        }
        let size = self.get(index, Field::Size)?;
        if self.get(index, Field::Type)? != SHT_NOBITS {
            let text = self.get(index, Field::Flags)? & SHF_EXECINSTR != 0;
            let from = usize::try_from(self.get(index, Field::Offset)?).ok()?;
            let until = from.checked_add(usize::try_from(size).ok()?)?;
            self.bytes.get(from..until)?;
            let align = usize::try_from(self.get(index, Field::Align)?.clamp(1, 4096)).ok()?;
            self.bytes.resize(self.bytes.len().checked_next_multiple_of(align)?, 0);
            self.set(index, Field::Offset, self.bytes.len() as u64)?;
            self.bytes.extend_from_within(from..until);
            self.fill(usize::try_from(edit.pad).ok()?, text);
        }
        self.set(index, Field::Size, size.checked_add(edit.pad)?)
    }

    /// Code is followed by what nobody falls through: `int3` on x86, whole `nop`s on arm64, elsewhere zeros.
    fn fill(&mut self, pad: usize, text: bool) {
        let pattern: &[u8] = match (text, self.machine) {
            (true, 3 | 62) => &[0xcc],
            (true, 183) => &[0x1f, 0x20, 0x03, 0xd5], // instructions are little-endian in both byte orders
            _ => &[0],
        };
        self.bytes.extend(pattern.iter().cycle().take(pad));
    }

    fn get(&self, index: usize, field: Field) -> Option<u64> {
        let (at, width) = self.locate(index, field)?;
        self.number(at, width)
    }

    fn set(&mut self, index: usize, field: Field, value: u64) -> Option<()> {
        let (at, width) = self.locate(index, field)?;
        if width == 4 && u32::try_from(value).is_err() {
            return None;
        }
        let bytes = if self.little { value.to_le_bytes() } else { value.to_be_bytes() };
        let bytes = if self.little { bytes.get(..width)? } else { bytes.get(8 - width..)? };
        self.bytes.get_mut(at..at + width)?.copy_from_slice(bytes);
        Some(())
    }

    fn locate(&self, index: usize, field: Field) -> Option<(usize, usize)> {
        let (at, width) = field.place(self.wide);
        let head = (index < self.count).then(|| self.entry.checked_mul(index)?.checked_add(self.table))??;
        Some((head.checked_add(at)?, width))
    }

    fn number(&self, at: usize, width: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(width)?)?;
        let push = |n: u64, byte: &u8| (n << 8) | u64::from(*byte);
        Some(if self.little { bytes.iter().rev().fold(0, push) } else { bytes.iter().fold(0, push) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::{classify, object, verify};
    use proptest::prelude::*;
    use std::sync::LazyLock;

    const SOURCE: &str = "extern int other(int); static int hidden[5] = {1, 2}; int *table[] = {hidden, hidden + 3};\n\
        const char *name(int i) { static const char *const names[] = {\"a\", \"b\"}; return names[i & 1]; }\n\
        int zero[9]; __thread int tls = 3; int call(int x) { return other(x) + zero[x & 7] + tls + *table[1]; }\n";

    /// What gcc makes of [`SOURCE`], for both ELF classes.
    #[allow(clippy::disallowed_methods, reason = "a test asks the compiler for a real object")]
    static OBJECTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let (c, o) = (dir.path().join("x.c"), dir.path().join("x.o"));
        std::fs::write(&c, SOURCE).unwrap();
        let build = |flags: &[&str]| {
            let run = std::process::Command::new("gcc").args(flags).arg("-c").arg(&c).arg("-o").arg(&o).status();
            assert!(run.unwrap().success());
            std::fs::read(&o).unwrap()
        };
        vec![
            build(&["-O2", "-g"]),
            build(&["-O1", "-m32", "-fPIC"]),
            build(&["-ffunction-sections", "-fdata-sections"]),
        ]
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn landing_edits_leave_symbols_relocations_and_content_alone(
            which in 0usize..3, picks in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..200, 0u32..8), 1..6),
        ) {
            let pristine = &OBJECTS[which];
            let before = object::parse("x.o", pristine).unwrap();
            let movable: Vec<usize> =
                (0..before.sections.len()).filter(|&i| classify::classify(&before.sections[i]).paddable()).collect();
            prop_assert!(movable.len() >= 4);
            let edits: BTreeMap<usize, Edit> = picks
                .iter()
                .map(|&(pick, pad, e)| (*pick.get(&movable), Edit { pad, align: (e > 0).then(|| 1 << e) }))
                .collect();
            let patched = patch(pristine, &edits).unwrap();
            prop_assert_eq!(verify::patched(pristine, &patched, &edits), Ok(()));
            let after = object::parse("x.o", &patched).unwrap();
            for (i, (a, b)) in before.sections.iter().zip(&after.sections).enumerate() {
                prop_assert_eq!((&a.symbols, &a.masks), (&b.symbols, &b.masks));
                prop_assert_eq!(b.size, a.size + edits.get(&i).map_or(0, |e| e.pad));
            }
            // The checker is no echo: one step more or less is seen.
            let (&at, &edit) = edits.first_key_value().unwrap();
            let other = BTreeMap::from([(at, Edit { pad: edit.pad + 8, ..edit })]);
            let mut wrong = edits.clone();
            wrong.extend(other);
            prop_assert!(verify::patched(pristine, &patched, &wrong).is_err());
        }

        #[test]
        fn damaged_objects_never_panic(
            which in 0usize..3, hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            head in proptest::option::of((0usize..64, any::<u8>())), keep in any::<prop::sample::Index>(), cut: bool,
        ) {
            let mut bytes = OBJECTS[which].clone();
            let len = bytes.len();
            hits.iter().for_each(|(at, byte)| bytes[at.index(len)] = *byte);
            head.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            if cut {
                bytes.truncate(keep.index(len));
            }
            let _ = object::kind(&bytes);
            if let Ok(object) = object::parse("x.o", &bytes) {
                object.sections.iter().for_each(|s| drop(classify::classify(s)));
            }
            let edits = (0..40).map(|i| (i, Edit { pad: 8, align: Some(64) })).collect();
            if let Ok(patched) = patch(&bytes, &edits) {
                let _ = verify::patched(&bytes, &patched, &edits);
            }
            for i in 0..40 {
                let _ = patch(&bytes, &BTreeMap::from([(i, Edit { pad: 8, align: Some(64) })]));
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let refuse = |index, pad, align| {
            patch(&OBJECTS[0], &BTreeMap::from([(index, Edit { pad, align })])).unwrap_err().to_string()
        };
        assert!(refuse(999, 8, None).contains("section 999 is missing"));
        assert!(refuse(1, u64::MAX, None).contains("out of range"));
        assert!(refuse(1, 0, Some(48)).contains("out of range"));
        assert!(patch(b"\x7fELF\x02\x01", &BTreeMap::new()).is_err());
    }
}
