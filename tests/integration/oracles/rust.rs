//! Each program is two crates of one name that share their types: the second is built with `--cfg second`. For machines
//! whose `core` is not installed there is none: what follows is as much of it as statics need.
#![feature(no_core, lang_items, auto_traits)]
#![allow(internal_features, dead_code)]
#![no_core]
#![crate_type = "lib"]

#[lang = "pointee_sized"] pub trait PointeeSized {}
#[lang = "meta_sized"] pub trait MetaSized: PointeeSized {}
#[lang = "sized"] pub trait Sized: MetaSized {}
#[lang = "sync"] pub unsafe auto trait Sync {}
#[lang = "copy"] pub trait Copy {}
#[lang = "freeze"] unsafe auto trait Freeze {}
#[lang = "drop_in_place"] unsafe fn drop_in_place<T: PointeeSized>(_: *mut T) {}

pub mod inner {
    pub enum Maybe<T> { None, Some(T) }
    pub enum Shape { Dot, Circle(u16), Named { id: u64, flag: bool, tail: u8 }, Deep(Maybe<&'static u32>) }
    #[repr(u16)] pub enum Coded { A(u8) = 3, B { x: u32 } = 900, C = 7 }
    pub enum Plain { A, B = 200, C }
    pub enum Single { Only(u32, u8) }
    pub enum Wide { Small(u8), Large(u128) }
    pub union Bits { pub whole: u32, pub parts: [u8; 4] }
}
use inner::*;

pub struct Order { small: u8, large: u64, middle: u16, flag: bool, other: u32 }
#[repr(C)] pub struct Kept { small: u8, large: u64, middle: u16 }
#[repr(C, packed(2))] pub struct Packed { small: u8, large: u64 }
#[repr(align(64))] pub struct Apart(u8);
pub struct Unit;
pub struct Pair<A, B>(A, B);
pub struct Whole {
    order: Order,
    shape: Shape,
    niche: Maybe<&'static Order>,
    nested: Maybe<Maybe<bool>>,
    coded: Coded,
    plain: Plain,
    single: Single,
    wide: Wide,
    text: &'static str,
    slice: Maybe<&'static [u16]>,
    tuple: (u8, u32, Maybe<u8>),
    array: [Pair<u8, u32>; 3],
    unit: Unit,
    letter: char,
    call: fn(u32) -> u32,
    bits: Bits,
    apart: Apart,
    float: f64,
}

fn call(x: u32) -> u32 { x }

pub mod statics {
    use crate::*;
    #[used] pub static WHOLE: Whole = Whole {
        order: Order { small: 1, large: 2, middle: 3, flag: true, other: 4 },
        shape: Shape::Named { id: 1, flag: false, tail: 2 },
        niche: Maybe::None, nested: Maybe::Some(Maybe::Some(true)), coded: Coded::B { x: 1 }, plain: Plain::C,
        single: Single::Only(1, 2), wide: Wide::Small(1), text: "text", slice: Maybe::None, tuple: (1, 2, Maybe::Some(3)),
        array: [Pair(1, 2), Pair(3, 4), Pair(5, 6)], unit: Unit, letter: 'x', call, bits: Bits { whole: 1 },
        apart: Apart(1), float: 1.5,
    };
    #[used] pub static SHAPES: [Shape; 4] = [Shape::Dot, Shape::Circle(1), Shape::Deep(Maybe::None), Shape::Dot];
    #[used] static KEPT: [Kept; 2] = [Kept { small: 1, large: 2, middle: 3 }, Kept { small: 4, large: 5, middle: 6 }];
    #[used] static PACKED: Packed = Packed { small: 1, large: 2 };
    #[cfg(not(second))] #[used] static APART: [Apart; 3] = [Apart(1), Apart(2), Apart(3)];
    #[cfg(second)] #[used] static OTHER: Maybe<Shape> = Maybe::Some(Shape::Circle(2));
}
