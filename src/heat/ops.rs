//! Instructions as the machine-independent rest of this room sees them: what they access, and what they do to registers.

use super::Kind;
use super::atlas::Atlas;
use crate::image::{Class, Field, Image};

/// Where an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The instruction names it.
    Fixed(Place),
    /// A register plus a number.
    Register(u8, i64),
}

/// An address, in the one space of [`Atlas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: u64,
    /// The object that a relocation names: then the address may lie outside it (`&array[i - 1]`). [`NO_OBJECT`] where
    /// only the address tells.
    pub(super) object: u32,
}

pub(super) const NO_OBJECT: u32 = u32::MAX;

impl Place {
    pub(super) fn at(address: u64) -> Place {
        Place { address, object: NO_OBJECT }
    }

    pub(super) fn plus(self, offset: i64) -> Place {
        Place { address: self.address.wrapping_add_signed(offset), ..self }
    }
}

/// One effect of an instruction. Accesses come before what the same instruction does to registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// What follows belongs to the instruction at this address.
    At(u64),
    Access {
        base: Base,
        width: u32,
        kind: Kind,
        indexed: bool,
    },
    /// An address that is stored, pushed or compared.
    Mention(Place),
    /// `loose`: an index that is not known is added.
    Set {
        to: u8,
        from: Base,
        loose: bool,
    },
    /// A load that may read an address from the global offset table.
    Load {
        to: u8,
        from: Base,
    },
    /// arm64's `adrp`: the page of an address, useless until the rest is added.
    Page {
        to: u8,
        page: u64,
    },
    /// Registers that hold something else now, as bits.
    Clobber(u32),
    Call(Option<u64>),
    Jump {
        target: u64,
        conditional: bool,
    },
    /// Nothing falls through.
    End,
}

/// The instructions of one function.
#[derive(Debug, Default)]
pub(super) struct Instructions {
    pub(super) ops: Vec<Op>,
    /// Bytes or words that are no known instruction.
    pub(super) unknown: u64,
}

/// Which registers hold what at a call.
#[derive(Debug)]
pub(super) struct Abi {
    /// Of arguments, first one first.
    pub(super) arguments: &'static [u8],
    /// Those that a callee returns its result in, as bits. No code reads another one after a call that did not keep it:
    /// so that what is read is what was there before, also where caller and callee have an agreement of their own.
    pub(super) results: u32,
}

/// The instruction set of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    X86,
    X86_64,
    Arm64,
}

impl Decoder {
    pub(super) fn of(image: &Image<'_>) -> Option<Decoder> {
        match (image.machine.0, image.class) {
            (3, Class::Elf32) => Some(Decoder::X86),
            (62, Class::Elf64) => Some(Decoder::X86_64),
            (183, Class::Elf64) => Some(Decoder::Arm64),
            _ => None,
        }
    }

    /// Appends the instructions of `code`, which lies at `address` of the atlas; `fields` are its relocations, at
    /// addresses of their section.
    pub(super) fn decode(
        self,
        code: &[u8],
        address: u64,
        fields: &[Field<'_>],
        atlas: &Atlas<'_, '_>,
        out: &mut Instructions,
    ) {
        match self {
            Decoder::X86 => super::x86::decode(32, code, address, fields, atlas, out),
            Decoder::X86_64 => super::x86::decode(64, code, address, fields, atlas, out),
            Decoder::Arm64 => super::arm64::decode(code, address, fields, atlas, out),
        }
    }

    /// The System V ABI; AAPCS64. 32-bit x86 hands arguments over on the stack, which is not followed.
    pub(super) fn abi(self) -> &'static Abi {
        match self {
            Decoder::X86 => &Abi { arguments: &[], results: 0b0101 },
            Decoder::X86_64 => &Abi { arguments: &[7, 6, 2, 1, 8, 9], results: 0b0101 },
            Decoder::Arm64 => &Abi { arguments: &[0, 1, 2, 3, 4, 5, 6, 7], results: 0b11 },
        }
    }
}
