//! arm64. Every instruction is a word, and what can hold a part of an address are a handful of encodings (Arm ARM,
//! C4.1): those are all that is looked at. A page and the rest of an address come from two instructions; a register is
//! followed from one to the other in the order of the code.

use super::{Body, Function, Link, To};

/// Where in a word a number is that makes up an address.
#[derive(Clone, Copy)]
enum Part {
    /// From this instruction, in bytes.
    Relative(i64),
    Page {
        to: u32,
        pages: i64,
    },
    /// Added to a register: `to` gets the sum, where it is kept.
    Low {
        base: u32,
        to: Option<u32>,
        add: u64,
        width: u32,
    },
}

pub(super) fn body<'r, 'a: 'r>(function: &Function<'_, 'r, 'a>) -> Body<'r> {
    let mut body = Body { bytes: function.code.to_vec(), decoded: true, ..Body::default() };
    let mut pages: [Option<u64>; 32] = [None; 32];
    let mut fields = function.fields.iter().peekable();
    let mut followed = false;
    for (bytes, at) in function.code.chunks_exact(4).zip((0u32..).step_by(4)) {
        let word = bytes.iter().rev().fold(0u32, |w, b| w << 8 | u32::from(*b));
        let address = function.start.wrapping_add(at.into());
        let mut field = None;
        while let Some(next) = fields.next_if(|f| f.address < address.wrapping_add(4)) {
            field = Some(next);
        }
        let part = part(word);
        let (mut to, mut width) = (None, 0);
        match part {
            Some((Part::Relative(by), _)) => {
                let target = address.wrapping_add_signed(by);
                let jumps_back = is_jump(word) && by <= 0 && field.is_none();
                if let (true, Some(head)) = (jumps_back, function.inside(target)) {
                    body.jump_back(head, at.saturating_add(4));
                }
                to = match field {
                    Some(field) => Some(function.reader.target(field, Some(target), 0)),
                    None => function.inside(target).is_none().then(|| function.place(target)),
                };
            }
            Some((Part::Page { to: register, pages: by }, _)) => {
                followed = true;
                set(&mut pages, register, Some((address & !0xfff).wrapping_add_signed(by << 12)));
                // Which page it is, says nothing; what is added to it says all.
                to = Some(field.map_or(To::Page, |field| function.reader.target(field, None, 0)));
            }
            Some((Part::Low { base, to: register, add, width: bytes }, _)) => {
                width = bytes;
                let page = pages.get(base as usize).copied().flatten();
                to = match (field, page) {
                    (Some(field), _) => Some(function.reader.target(field, None, 0)),
                    (None, Some(page)) => Some(function.place(page.wrapping_add(add))),
                    // The frame is never an address of the image.
                    (None, None) => (followed && base < 29).then_some(To::Part(add)),
                };
                if let Some(register) = register {
                    set(&mut pages, register, None);
                }
            }
            None => {
                if let Some(field) = field {
                    to = Some(function.reader.target(field, None, 0));
                }
                copied_or_written(word, &mut pages);
            }
        }
        if let Some(to) = to {
            let mask = part.map_or(0, |(_, mask)| mask);
            let masked = word & !mask;
            let start = at as usize;
            if let Some(slot) = body.bytes.get_mut(start..start + 4) {
                slot.copy_from_slice(&masked.to_le_bytes());
            }
            body.links.push(Link { at, certain: true, width, to });
        }
    }
    body.finish()
}

fn set(pages: &mut [Option<u64>; 32], register: u32, page: Option<u64>) {
    if let Some(slot) = pages.get_mut(register as usize) {
        *slot = page;
    }
}

/// The part of an address that a word holds, and the bits that hold it.
fn part(word: u32) -> Option<(Part, u32)> {
    let (to, base) = (word & 31, word >> 5 & 31);
    let relative = |number: u32, bits: u32| Part::Relative(signed(number, bits) << 2);
    Some(match word {
        // b, bl
        w if w & 0x7c00_0000 == 0x1400_0000 => (relative(w & 0x03ff_ffff, 26), 0x03ff_ffff),
        // b.cond, bc.cond; cbz, cbnz; ldr (literal)
        w if w & 0xff00_0000 == 0x5400_0000 || w & 0x7e00_0000 == 0x3400_0000 || w & 0x3b00_0000 == 0x1800_0000 => {
            (relative(w >> 5 & 0x7_ffff, 19), 0x00ff_ffe0)
        }
        // tbz, tbnz
        w if w & 0x7e00_0000 == 0x3600_0000 => (relative(w >> 5 & 0x3fff, 14), 0x0007_ffe0),
        // adr, adrp
        w if w & 0x1f00_0000 == 0x1000_0000 => {
            let number = signed((w >> 5 & 0x7_ffff) << 2 | w >> 29 & 3, 21);
            let part = if w >> 31 == 1 { Part::Page { to, pages: number } } else { Part::Relative(number) };
            (part, 0x60ff_ffe0)
        }
        // add, 64 bits, a number that is not shifted
        w if w & 0xffc0_0000 == 0x9100_0000 => {
            (Part::Low { base, to: Some(to), add: (w >> 10 & 0xfff).into(), width: 0 }, 0x003f_fc00)
        }
        // loads and stores with a number that is scaled
        w if w & 0x3b00_0000 == 0x3900_0000 => {
            let vector = w >> 26 & 1 == 1;
            // 128 bits, of vectors only.
            let size = if vector && w >> 30 == 0 && w >> 23 & 1 == 1 { 4 } else { w >> 30 };
            let loads = !vector && w >> 22 & 3 != 0;
            let add = u64::from(w >> 10 & 0xfff) << size;
            (Part::Low { base, to: loads.then_some(to), add, width: 1 << size }, 0x003f_fc00)
        }
        _ => return None,
    })
}

fn signed(number: u32, bits: u32) -> i64 {
    i64::from((number << (32 - bits)).cast_signed() >> (32 - bits))
}

/// Not a call, not a load.
fn is_jump(word: u32) -> bool {
    word & 0xfc00_0000 == 0x1400_0000
        || word & 0xff00_0000 == 0x5400_0000
        || matches!(word & 0x7e00_0000, 0x3400_0000 | 0x3600_0000)
}

/// What another instruction does to registers that hold pages: `mov` copies one, a call leaves only some, and most of the
/// rest writes the register that its lowest bits name. Stores do not: a page that they end is one that is not known.
fn copied_or_written(word: u32, pages: &mut [Option<u64>; 32]) {
    let to = word & 31;
    match word {
        w if w & 0xffe0_ffe0 == 0xaa00_03e0 => {
            let from = pages.get((w >> 16 & 31) as usize).copied().flatten();
            set(pages, to, from);
        }
        // blr
        w if w & 0xffff_fc1f == 0xd63f_0000 => pages.iter_mut().take(19).for_each(|page| *page = None),
        // Branches to registers, system instructions, and stores of pairs and with other modes: no register is written.
        w if w & 0xfe00_0000 == 0xd600_0000 || w & 0xff00_0000 == 0xd500_0000 => {}
        w if w & 0x3a00_0000 == 0x2800_0000 && w >> 22 & 1 == 0 => {}
        w if w & 0x3b20_0c00 == 0x3800_0000 && w >> 22 & 3 == 0 => {}
        _ => set(pages, to, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_addresses_are_found() {
        let relative = |word| match part(word) {
            Some((Part::Relative(by), _)) => by,
            _ => panic!("{word:#x}"),
        };
        assert_eq!(relative(0x17ff_ffff), -4, "b .-4");
        assert_eq!(relative(0x9400_0002), 8, "bl .+8");
        assert_eq!(relative(0x54ff_ffc1), -8, "b.ne .-8");
        assert_eq!(relative(0x3700_0040), 8, "tbnz w0, #0, .+8");
        let low = |word| match part(word) {
            Some((Part::Low { base, add, width, .. }, _)) => (base, add, width),
            _ => panic!("{word:#x}"),
        };
        assert_eq!(low(0x9104_0420), (1, 0x101, 0), "add x0, x1, #0x101");
        assert_eq!(low(0xb940_0c41), (2, 12, 4), "ldr w1, [x2, #12]");
        assert_eq!(low(0x3dc0_0443), (2, 16, 16), "ldr q3, [x2, #16]");
        assert!(matches!(part(0xb000_0000), Some((Part::Page { to: 0, pages: 1 }, _))), "adrp x0, .+0x1000");
        assert!(part(0xaa01_03e0).is_none(), "mov x0, x1");
    }
}
