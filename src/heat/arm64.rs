//! arm64, by `yaxpeax-arm`. SVE and the memory copies of FEAT_MOPS are unknown to it, and counted as such.

use yaxpeax_arch::{Arch, Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{ARMv8, Instruction, Opcode, Operand, SIMDSizeCode, ShiftStyle, SizeCode};

use super::Kind;
use super::atlas::{Atlas, local};
use super::ops::{Base, Instructions, Op, Place};
use crate::image::Field;

pub(super) fn decode(code: &[u8], address: u64, fields: &[Field<'_>], atlas: &Atlas<'_, '_>, out: &mut Instructions) {
    let decoder = <ARMv8 as Arch>::Decoder::default();
    let mut instruction = Instruction::default();
    let mut fields = fields.iter().peekable();
    for (word, at) in code.chunks_exact(4).zip((address..).step_by(4)) {
        out.ops.push(Op::At(at));
        let mut own = None;
        while let Some(field) = fields.next_if(|f| f.address < local(at).wrapping_add(4)) {
            own = Some(field);
        }
        if decoder.decode_into(&mut instruction, &mut U8Reader::new(word)).is_err() {
            out.unknown += 1;
            continue;
        }
        let target = own.filter(|_| atlas.separate).and_then(|f| Some((atlas.target(f, 0, false, 0)?, f.got)));
        One { instruction: &instruction, at, target }.ops(&mut out.ops);
    }
}

/// One instruction, and in a relocatable file what its relocation refers to (or whose entry of the offset table).
struct One<'o> {
    instruction: &'o Instruction,
    at: u64,
    target: Option<(Place, bool)>,
}

/// What a memory instruction does to its registers and its bytes.
struct Shape {
    kind: Kind,
    /// In bytes; `None`: that of the register.
    width: Option<u32>,
    /// Operands that are registers and written, as bits.
    written: u8,
    /// The operand whose size is that of the access.
    data: usize,
}

impl One<'_> {
    fn ops(&self, ops: &mut Vec<Op>) {
        let [first, second, third, _] = self.instruction.operands;
        match self.instruction.opcode {
            Opcode::B => ops.push(self.jump(first, false)),
            Opcode::Bcc(_) | Opcode::BCcc(_) => ops.extend(self.offset().map(|o| self.jump(o, true))),
            Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => {
                ops.extend(self.offset().map(|o| self.jump(o, true)));
            }
            Opcode::BL => ops.push(Op::Call(self.branch_target(first))),
            Opcode::BLR | Opcode::BLRAA | Opcode::BLRAAZ | Opcode::BLRAB | Opcode::BLRABZ => ops.push(Op::Call(None)),
            // A jump table, or a call that does not come back here.
            Opcode::BR | Opcode::BRAA | Opcode::BRAAZ | Opcode::BRAB | Opcode::BRABZ => {
                ops.extend([Op::Call(None), Op::End]);
            }
            Opcode::RET | Opcode::RETAA | Opcode::RETAB | Opcode::ERET | Opcode::UDF => ops.push(Op::End),
            Opcode::ADRP | Opcode::ADR => ops.extend(self.page(first, second)),
            Opcode::ADD | Opcode::SUB => ops.extend(self.sum(first, second, third)),
            Opcode::ORR => ops.extend(copied(first, second, third).or_else(|| clobber(first))),
            // Compare, prefetch, hint: no register changes.
            Opcode::CCMP | Opcode::CCMN | Opcode::PRFM | Opcode::PRFUM | Opcode::HINT | Opcode::MSR => {}
            _ => match shape(self.instruction.opcode) {
                Some(shape) => self.memory(&shape, ops),
                None => ops.extend(clobber(first)),
            },
        }
    }

    fn offset(&self) -> Option<Operand> {
        self.instruction.operands.into_iter().find(|o| matches!(o, Operand::PCOffset(_)))
    }

    fn branch_target(&self, operand: Operand) -> Option<u64> {
        match (self.target, operand) {
            (Some((place, _)), _) => Some(place.address),
            (None, Operand::PCOffset(offset)) => Some(self.at.wrapping_add_signed(offset)),
            _ => None,
        }
    }

    fn jump(&self, operand: Operand, conditional: bool) -> Op {
        self.branch_target(operand).map_or(Op::End, |target| Op::Jump { target, conditional })
    }

    /// `adrp` and `adr`. In a relocatable file the instruction that adds the rest names all of the address.
    fn page(&self, to: Operand, offset: Operand) -> Option<Op> {
        let (to, Operand::PCOffset(offset)) = (register(to)?, offset) else { return None };
        if self.target.is_some() {
            return clobber(Operand::Register(SizeCode::X, u16::from(to)));
        }
        Some(match self.instruction.opcode {
            Opcode::ADRP => Op::Page { to, page: (self.at & !0xfff).wrapping_add_signed(offset) },
            _ => {
                let place = Place::at(self.at.wrapping_add_signed(offset));
                Op::Set { to, from: Base::Fixed(place), loose: false }
            }
        })
    }

    fn sum(&self, first: Operand, second: Operand, third: Operand) -> Option<Op> {
        let Some(to) = register(first) else { return clobber(first) };
        if let Some((place, false)) = self.target {
            return Some(Op::Set { to, from: Base::Fixed(place), loose: false });
        }
        let Some(from) = register(second).filter(|_| wide(first)) else { return clobber(first) };
        let number = match third {
            Operand::Immediate(number) => Some(i64::from(number)),
            Operand::ImmShift(number, shift @ 0..=12) => Some(i64::from(number) << shift),
            _ => None,
        };
        let subtracts = self.instruction.opcode == Opcode::SUB;
        match number {
            Some(number) => {
                let number = if subtracts { -number } else { number };
                Some(Op::Set { to, from: Base::Register(from, number), loose: false })
            }
            // An index is added.
            None if !subtracts => Some(Op::Set { to, from: Base::Register(from, 0), loose: true }),
            None => clobber(first),
        }
    }

    fn memory(&self, shape: &Shape, ops: &mut Vec<Op>) {
        let operands = self.instruction.operands;
        let size = operands.get(shape.data).map_or(0, |o| size(*o));
        let pair = matches!(
            self.instruction.opcode,
            Opcode::LDP
                | Opcode::STP
                | Opcode::LDNP
                | Opcode::STNP
                | Opcode::LDPSW
                | Opcode::LDXP
                | Opcode::LDAXP
                | Opcode::STXP
                | Opcode::STLXP
                | Opcode::CASP(_)
        );
        let (width, kind) = (shape.width.unwrap_or(size) * if pair { 2 } else { 1 }, shape.kind);
        let mut push = |base, indexed| ops.push(Op::Access { base, width, kind, indexed });
        let mut back = None;
        for operand in operands {
            match (operand, self.target) {
                (Operand::RegPreIndex(..), Some((_, true))) => {}
                (Operand::RegPreIndex(..) | Operand::PCOffset(_), Some((place, false))) => {
                    push(Base::Fixed(place), false);
                }
                (Operand::RegPreIndex(base, offset, writes_back), None) => {
                    push(Base::Register(base as u8, offset.into()), false);
                    back = writes_back.then_some((base, Some(offset)));
                }
                (Operand::RegPostIndex(base, offset), _) => {
                    push(Base::Register(base as u8, 0), false);
                    back = Some((base, Some(offset)));
                }
                (Operand::RegPostIndexReg(base, _), _) => {
                    push(Base::Register(base as u8, 0), false);
                    back = Some((base, None));
                }
                (Operand::RegRegOffset(base, index, _, _, shift), _) => {
                    push(Base::Register(base as u8, 0), true);
                    // Of two registers that are added either can be the address.
                    if shift == 0 && index < 31 {
                        push(Base::Register(index as u8, 0), true);
                    }
                }
                (Operand::PCOffset(offset), None) => {
                    push(Base::Fixed(Place::at(self.at.wrapping_add_signed(offset))), false);
                }
                _ => {}
            }
        }
        let loaded = self.loaded();
        ops.extend(loaded);
        let written = if loaded.is_some() { 0 } else { shape.written };
        for (_, operand) in operands.into_iter().enumerate().filter(|(i, _)| written >> i & 1 == 1) {
            ops.extend(clobber(operand));
        }
        if let Some((base, offset)) = back.filter(|(base, _)| *base < 31) {
            let from = Base::Register(base as u8, offset.unwrap_or(0).into());
            ops.push(Op::Set { to: base as u8, from, loose: offset.is_none() });
        }
    }

    /// A load that may read an address from the global offset table.
    fn loaded(&self) -> Option<Op> {
        let [first, second, ..] = self.instruction.operands;
        let to = register(first).filter(|_| wide(first) && self.instruction.opcode == Opcode::LDR)?;
        match (self.target, second) {
            (Some((place, true)), _) => Some(Op::Set { to, from: Base::Fixed(place), loose: false }),
            (None, Operand::RegPreIndex(base, offset, false)) if base < 31 => {
                Some(Op::Load { to, from: Base::Register(base as u8, offset.into()) })
            }
            _ => None,
        }
    }
}

/// `mov`: a whole register, nothing added.
fn copied(to: Operand, zero: Operand, from: Operand) -> Option<Op> {
    let is_zero = matches!(zero, Operand::Register(SizeCode::X, 31));
    let from = match from {
        Operand::Register(SizeCode::X, from) | Operand::RegShift(ShiftStyle::LSL, 0, SizeCode::X, from) => from,
        _ => return None,
    };
    let (to, from) = (register(to)?, u8::try_from(from).ok().filter(|r| *r < 31)?);
    is_zero.then_some(Op::Set { to, from: Base::Register(from, 0), loose: false })
}

/// A general register that is followed; 31 is the stack or zero.
fn register(operand: Operand) -> Option<u8> {
    match operand {
        Operand::Register(_, number) | Operand::RegisterOrSP(_, number) => {
            u8::try_from(number).ok().filter(|n| *n < 31)
        }
        _ => None,
    }
}

fn wide(operand: Operand) -> bool {
    matches!(operand, Operand::Register(SizeCode::X, _) | Operand::RegisterOrSP(SizeCode::X, _))
}

fn clobber(operand: Operand) -> Option<Op> {
    match operand {
        // Two registers in a row.
        Operand::RegisterPair(_, number) if number < 31 => Some(Op::Clobber(0b11 << number)),
        _ => Some(Op::Clobber(1 << register(operand)?)),
    }
}

/// In bytes.
fn size(operand: Operand) -> u32 {
    match operand {
        Operand::Register(SizeCode::W, _) | Operand::RegisterPair(SizeCode::W, _) => 4,
        Operand::Register(SizeCode::X, _) | Operand::RegisterPair(SizeCode::X, _) => 8,
        Operand::SIMDRegister(size, _) => match size {
            SIMDSizeCode::B => 1,
            SIMDSizeCode::H => 2,
            SIMDSizeCode::S => 4,
            SIMDSizeCode::D => 8,
            SIMDSizeCode::Q => 16,
        },
        _ => 0,
    }
}

/// Of an instruction that touches memory.
fn shape(opcode: Opcode) -> Option<Shape> {
    use Opcode as O;
    let load = |width| Some(Shape { kind: Kind::Read, width, written: 0b1, data: 0 });
    let store = |width| Some(Shape { kind: Kind::Write, width, written: 0, data: 0 });
    // The first register says whether it was done.
    let exclusive = |width| Some(Shape { kind: Kind::Atomic, width, written: 0b1, data: 1 });
    // The second register gets the old value; of `cas` the first.
    let atomic = |width| Some(Shape { kind: Kind::Atomic, width, written: 0b10, data: 0 });
    let swapped = |width| Some(Shape { kind: Kind::Atomic, width, written: 0b11, data: 0 });
    match opcode {
        O::LDR | O::LDUR | O::LDTR | O::LDAR | O::LDLAR | O::LDAPR | O::LDAPUR | O::LDXR | O::LDAXR => load(None),
        O::LDRAA | O::LDRAB => load(Some(8)),
        O::LDRB | O::LDRSB | O::LDURB | O::LDURSB | O::LDTRB | O::LDTRSB | O::LDARB | O::LDLARB => load(Some(1)),
        O::LDAPRB | O::LDAPURB | O::LDAPURSB | O::LDXRB | O::LDAXRB => load(Some(1)),
        O::LDRH | O::LDRSH | O::LDURH | O::LDURSH | O::LDTRH | O::LDTRSH | O::LDARH | O::LDLARH => load(Some(2)),
        O::LDAPRH | O::LDAPURH | O::LDAPURSH | O::LDXRH | O::LDAXRH => load(Some(2)),
        O::LDRSW | O::LDURSW | O::LDTRSW | O::LDAPURSW => load(Some(4)),
        O::LDPSW => Some(Shape { kind: Kind::Read, width: Some(4), written: 0b11, data: 0 }),
        O::LDP | O::LDNP | O::LDXP | O::LDAXP => Some(Shape { kind: Kind::Read, width: None, written: 0b11, data: 0 }),
        O::LD1 | O::LD2 | O::LD3 | O::LD4 | O::LD1R | O::LD2R | O::LD3R | O::LD4R => load(None),
        O::STR | O::STUR | O::STTR | O::STLR | O::STLLR | O::STLUR | O::STP | O::STNP => store(None),
        O::STRB | O::STURB | O::STTRB | O::STLRB | O::STLLRB | O::STLURB => store(Some(1)),
        O::STRH | O::STURH | O::STTRH | O::STLRH | O::STLLRH | O::STLURH => store(Some(2)),
        O::ST1 | O::ST2 | O::ST3 | O::ST4 => store(None),
        O::STXR | O::STLXR | O::STXP | O::STLXP => exclusive(None),
        O::STXRB | O::STLXRB => exclusive(Some(1)),
        O::STXRH | O::STLXRH => exclusive(Some(2)),
        O::CAS(_) | O::CASP(_) => swapped(None),
        O::CASB(_) => swapped(Some(1)),
        O::CASH(_) => swapped(Some(2)),
        O::SWP(_) | O::LDADD(_) | O::LDCLR(_) | O::LDEOR(_) | O::LDSET(_) => atomic(None),
        O::LDSMAX(_) | O::LDSMIN(_) | O::LDUMAX(_) | O::LDUMIN(_) => atomic(None),
        O::SWPB(_) | O::LDADDB(_) | O::LDCLRB(_) | O::LDEORB(_) | O::LDSETB(_) => atomic(Some(1)),
        O::LDSMAXB(_) | O::LDSMINB(_) | O::LDUMAXB(_) | O::LDUMINB(_) => atomic(Some(1)),
        O::SWPH(_) | O::LDADDH(_) | O::LDCLRH(_) | O::LDEORH(_) | O::LDSETH(_) => atomic(Some(2)),
        O::LDSMAXH(_) | O::LDSMINH(_) | O::LDUMAXH(_) | O::LDUMINH(_) => atomic(Some(2)),
        _ => None,
    }
}
