//! [`Sealed`]: supertrait of traits that no other crate may implement, because `unsafe` code relies on them.

use half::{bf16, f16};

pub trait Sealed {}

macro_rules! sealed {
    ($($t:ty)*) => { $(impl Sealed for $t {})* };
}
sealed! { bool char u8 i8 u16 i16 u32 i32 u64 i64 usize isize f16 bf16 f32 f64 }
