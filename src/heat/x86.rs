//! x86, 32 and 64 bits, by `iced-x86`.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess,
    OpKind, Register, UsedMemory,
};

use super::Kind;
use super::atlas::{Atlas, local};
use super::ops::{Base, Instructions, Op, Place};
use crate::image::Field;

pub(super) fn decode(
    bits: u32,
    code: &[u8],
    address: u64,
    fields: &[Field<'_>],
    atlas: &Atlas<'_, '_>,
    out: &mut Instructions,
) {
    let mut decoder = Decoder::with_ip(bits, code, address, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let mut fields = fields.iter().peekable();
    let mut own: Vec<&Field<'_>> = Vec::with_capacity(4);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        out.ops.push(Op::At(instruction.ip()));
        if instruction.code() == Code::INVALID {
            out.unknown += 1;
            out.ops.push(Op::End);
            continue;
        }
        let end = local(instruction.ip()).wrapping_add(instruction.len() as u64);
        own.clear();
        while let Some(field) = fields.next_if(|f| f.address < end) {
            own.push(field);
        }
        let offsets = decoder.get_constant_offsets(&instruction);
        let start = local(instruction.ip());
        let at = |offset: usize, there: bool| {
            there.then(|| own.iter().find(|f| f.address == start.wrapping_add(offset as u64)).copied()).flatten()
        };
        let one = One {
            instruction: &instruction,
            displacement: at(offsets.displacement_offset(), offsets.has_displacement()),
            immediate: at(offsets.immediate_offset(), offsets.has_immediate()),
            atlas,
            end,
        };
        one.ops(&mut factory, &mut out.ops);
    }
}

/// One instruction, with the relocations of its two fields that can hold an address.
struct One<'o, 'h, 'i> {
    instruction: &'o Instruction,
    displacement: Option<&'o Field<'i>>,
    immediate: Option<&'o Field<'i>>,
    atlas: &'o Atlas<'h, 'i>,
    /// In its section.
    end: u64,
}

impl One<'_, '_, '_> {
    fn ops(&self, factory: &mut InstructionInfoFactory, ops: &mut Vec<Op>) {
        let instruction = self.instruction;
        let info = factory.info(instruction);
        for memory in info.used_memory() {
            self.memory(memory, ops);
        }
        match instruction.flow_control() {
            FlowControl::ConditionalBranch => ops.extend(self.branch(true)),
            FlowControl::UnconditionalBranch => ops.extend(self.branch(false)),
            FlowControl::Call => ops.push(Op::Call(self.branch_target())),
            FlowControl::IndirectCall => ops.push(Op::Call(None)),
            // A jump table, or a call that does not come back here.
            FlowControl::IndirectBranch => ops.extend([Op::Call(None), Op::End]),
            FlowControl::Return | FlowControl::Interrupt => ops.push(Op::End),
            // `ud2` marks a warning in a kernel: it goes on after it.
            FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => {
                let immediate = self.immediate();
                if let Some(set) = self.set(immediate) {
                    ops.push(set);
                    return;
                }
                ops.extend(immediate.map(Op::Mention));
                let mut written = 0;
                for used in info.used_registers() {
                    let full = used.register().full_register();
                    if writes(used.access()) && full.is_gpr64() {
                        written |= 1u32 << full.number();
                    }
                }
                if written != 0 {
                    ops.push(Op::Clobber(written));
                }
            }
        }
    }

    fn branch_target(&self) -> Option<u64> {
        let decoded = self.instruction.near_branch_target();
        match self.immediate {
            Some(field) => Some(self.atlas.target(field, decoded, true, self.end)?.address),
            None => Some(decoded),
        }
    }

    fn branch(&self, conditional: bool) -> Option<Op> {
        match self.branch_target() {
            Some(target) => Some(Op::Jump { target, conditional }),
            // To another file.
            None => (!conditional).then_some(Op::End),
        }
    }

    fn memory(&self, memory: &UsedMemory, ops: &mut Vec<Op>) {
        let Some(mut kind) = kind(memory.access()) else { return };
        let instruction = self.instruction;
        if kind.writes() && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg) {
            kind = Kind::Atomic;
        }
        let (base, index) = (memory.base(), memory.index());
        let width = size(memory.memory_size());
        let indexed = index != Register::None || instruction.is_string_instruction() || bit_string(instruction);
        let mut push = |base: Base, indexed: bool| ops.push(Op::Access { base, width, kind, indexed });
        if memory.segment() == Register::GS || memory.segment() == Register::FS {
            if let Some(place) = self.per_cpu(memory).filter(|_| memory.segment() == Register::GS) {
                push(Base::Fixed(place), indexed);
            }
            return;
        }
        if let Some(place) = self.fixed(memory) {
            push(Base::Fixed(place), indexed || base != Register::None);
            return;
        }
        if let Some(register) = tracked(base) {
            push(Base::Register(register, memory.displacement().cast_signed()), indexed);
        }
        // Of two registers that are added either can be the address.
        if let Some(register) = tracked(index).filter(|_| memory.scale() == 1) {
            push(Base::Register(register, memory.displacement().cast_signed()), indexed);
        }
    }

    /// The address that a memory operand names.
    fn fixed(&self, memory: &UsedMemory) -> Option<Place> {
        let alone = memory.base() == Register::None && memory.index() == Register::None;
        let decoded = memory.displacement();
        // String instructions and the like have memory that no field describes.
        if self.instruction.memory_displ_size() < 4 && self.displacement.is_none() {
            return None;
        }
        if let Some(field) = self.displacement {
            return if field.got { None } else { self.displaced(field, decoded) };
        }
        if alone {
            return Some(Place::at(decoded)).filter(|_| !self.atlas.separate);
        }
        let plain = self.atlas.absolute && !self.atlas.exact;
        Some(Place::at(decoded)).filter(|p| plain && self.atlas.find(*p, true).is_some())
    }

    fn displaced(&self, field: &Field<'_>, decoded: u64) -> Option<Place> {
        self.atlas.target(field, decoded, self.instruction.is_ip_rel_memory_operand(), self.end)
    }

    fn per_cpu(&self, memory: &UsedMemory) -> Option<Place> {
        let decoded = memory.displacement();
        match self.displacement {
            Some(field) => {
                let place = self.displaced(field, decoded)?;
                Some(Place { address: self.atlas.per_cpu(place.address).unwrap_or(place.address), ..place })
            }
            None if memory.base() == Register::None && memory.index() == Register::None => {
                self.atlas.per_cpu(decoded).map(Place::at)
            }
            None => None,
        }
    }

    /// An immediate operand that is an address.
    fn immediate(&self) -> Option<Place> {
        let instruction = self.instruction;
        let wide = |kind| matches!(kind, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64);
        let operand = (0..instruction.op_count()).find(|i| wide(instruction.op_kind(*i)))?;
        let decoded = instruction.immediate(operand);
        if let Some(field) = self.immediate {
            return self.atlas.target(field, decoded, false, self.end);
        }
        let plain = self.atlas.absolute && !self.atlas.exact;
        let carries = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Add);
        let place = Some(Place::at(decoded)).filter(|_| plain && carries)?;
        self.atlas.find(place, false).map(|_| place)
    }

    /// Where all that an instruction does is to put an address, or a register plus a number, into a register.
    fn set(&self, immediate: Option<Place>) -> Option<Op> {
        let i = self.instruction;
        let to = tracked(i.op0_register()).filter(|_| i.op0_kind() == OpKind::Register)?;
        let whole = i.op0_register().is_gpr64() || i.op0_register().is_gpr32();
        let set = |from, loose| Some(Op::Set { to, from, loose });
        match i.mnemonic() {
            Mnemonic::Mov if whole => match i.op1_kind() {
                OpKind::Register if i.op1_register().is_gpr64() => {
                    set(Base::Register(tracked(i.op1_register())?, 0), false)
                }
                OpKind::Memory if i.op0_register().is_gpr64() => self.loaded(to),
                _ => set(Base::Fixed(immediate?), false),
            },
            Mnemonic::Lea if whole => self.lea(to),
            Mnemonic::Add if i.op0_register().is_gpr64() => match (immediate, i.op1_kind()) {
                (Some(place), _) => set(Base::Fixed(place), true),
                (None, OpKind::Register) => None,
                // The start of a CPU's copy, an index.
                (None, OpKind::Memory) => set(Base::Register(to, 0), true),
                _ => set(Base::Register(to, number(i)?), false),
            },
            Mnemonic::Sub if i.op0_register().is_gpr64() && immediate.is_none() => {
                set(Base::Register(to, number(i)?.checked_neg()?), false)
            }
            _ => None,
        }
    }

    fn lea(&self, to: u8) -> Option<Op> {
        let i = self.instruction;
        let (base, index) = (i.memory_base(), i.memory_index());
        let decoded = i.memory_displacement64();
        let loose = index != Register::None;
        if let Some(field) = self.displacement {
            let place = self.displaced(field, decoded).filter(|_| !field.got)?;
            let loose = loose || !matches!(base, Register::None | Register::RIP | Register::EIP);
            return Some(Op::Set { to, from: Base::Fixed(place), loose });
        }
        if matches!(base, Register::None | Register::RIP | Register::EIP) && !loose {
            let place = Some(Place::at(decoded)).filter(|_| !self.atlas.separate)?;
            return Some(Op::Set { to, from: Base::Fixed(place), loose });
        }
        let plain = self.atlas.absolute && !self.atlas.exact && i.memory_displ_size() >= 4;
        if plain && self.atlas.find(Place::at(decoded), true).is_some() {
            return Some(Op::Set { to, from: Base::Fixed(Place::at(decoded)), loose: true });
        }
        let register = tracked(base)?;
        Some(Op::Set { to, from: Base::Register(register, decoded.cast_signed()), loose })
    }

    /// A load that may read an address from the global offset table.
    fn loaded(&self, to: u8) -> Option<Op> {
        let i = self.instruction;
        match self.displacement.filter(|f| f.got && self.atlas.separate) {
            Some(field) => Some(Op::Set { to, from: Base::Fixed(self.displaced(field, 0)?), loose: false }),
            None if i.is_ip_rel_memory_operand() && !self.atlas.separate => {
                Some(Op::Load { to, from: Base::Fixed(Place::at(i.ip_rel_memory_address())) })
            }
            None => None,
        }
    }
}

/// Its number in encodings; `None` for what is not followed (the stack, segments, none).
fn tracked(register: Register) -> Option<u8> {
    let full = register.full_register();
    (full.is_gpr64() && full != Register::RSP).then(|| full.number() as u8)
}

/// An immediate that is a number.
fn number(instruction: &Instruction) -> Option<i64> {
    let kind = instruction.op1_kind();
    let known = matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64);
    known.then(|| instruction.immediate(1).cast_signed())
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn kind(access: OpAccess) -> Option<Kind> {
    Some(match access {
        OpAccess::Read | OpAccess::CondRead => Kind::Read,
        OpAccess::Write | OpAccess::CondWrite => Kind::Write,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Kind::ReadWrite,
        OpAccess::None | OpAccess::NoMemAccess => return None,
    })
}

/// `bts %rax, x`: the bit's number picks the word.
fn bit_string(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && instruction.op1_kind() == OpKind::Register
}

fn size(memory: MemorySize) -> u32 {
    u32::try_from(memory.size()).unwrap_or(0)
}
