//! x86, 32 and 64 bits, by `iced-x86`.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Body, Function, Link};

pub(super) fn body<'r, 'a: 'r>(function: &Function<'_, 'r, 'a>, bits: u32) -> Body<'r> {
    let mut body = Body { bytes: function.code.to_vec(), decoded: true, ..Body::default() };
    let mut decoder = Decoder::with_ip(bits, function.code, function.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut fields = function.fields.iter().peekable();
    let mut own = Vec::with_capacity(4);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let end = instruction.next_ip();
        own.clear();
        while let Some(field) = fields.next_if(|f| f.address < end) {
            own.push(field);
        }
        let offsets = decoder.get_constant_offsets(&instruction);
        let field_at = |offset: usize| {
            let address = instruction.ip().wrapping_add(offset as u64);
            own.iter().find(|f| f.address == address).copied()
        };
        let mut link = |offset: usize, size: usize, decoded: u64, relative: bool, width: u32| {
            let Ok(at) = u32::try_from(instruction.ip().wrapping_sub(function.start).wrapping_add(offset as u64))
            else {
                return;
            };
            let field = field_at(offset);
            let rest = if relative { i64::try_from(instruction.len() - offset).unwrap_or(0) } else { 0 };
            let plain = size >= 4 && !function.reader.exact && function.reader.holds(decoded);
            let to = match field {
                Some(field) => function.reader.target(field, Some(decoded), rest),
                // What lies inside keeps its distance, which is compared as it is.
                None if relative && function.inside(decoded).is_none() => function.place(decoded),
                None if !relative && plain => function.reader.place(decoded),
                None => return,
            };
            let certain = field.is_some() || relative;
            body.mask(at, size, Link { at, certain, width, to });
        };
        if offsets.has_displacement() {
            let relative = instruction.is_ip_rel_memory_operand();
            let decoded =
                if relative { instruction.ip_rel_memory_address() } else { instruction.memory_displacement64() };
            let width = u32::try_from(instruction.memory_size().size()).unwrap_or(0);
            link(offsets.displacement_offset(), offsets.displacement_size(), decoded, relative, width);
        }
        let branch =
            matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
        if offsets.has_immediate() {
            let decoded = if branch { instruction.near_branch_target() } else { immediate(&instruction) };
            link(offsets.immediate_offset(), offsets.immediate_size(), decoded, branch, 0);
        }
        let jumps =
            matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        if branch
            && jumps
            && field_at(offsets.immediate_offset()).is_none()
            && let Some(head) = function.inside(instruction.near_branch_target())
            && instruction.near_branch_target() <= instruction.ip()
            && let Ok(end) = u32::try_from(end.wrapping_sub(function.start))
        {
            body.jump_back(head, end);
        }
    }
    body.finish()
}

fn immediate(instruction: &Instruction) -> u64 {
    let is = |kind| {
        matches!(kind, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 | OpKind::Immediate8to64)
    };
    (0..instruction.op_count()).find(|i| is(instruction.op_kind(*i))).map_or(0, |i| instruction.immediate(i))
}
