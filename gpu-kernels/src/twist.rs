//! [`Twist`]: the order of a type's values as that of unsigned integers, for kernels that compare bits alone.

use core::ops::{BitAnd, BitOr};

use gpu_std::prelude::*;

/// A key's bits.
pub trait Bits: Scalar + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// The bits that are compared.
    fn twist(self, twist: Twist<Self>) -> Self;

    /// The key of which [`twist`](Self::twist) makes these bits.
    fn untwist(self, twist: Twist<Self>) -> Self;

    /// The eight bits from bit `shift` on.
    fn digit(self, shift: u32) -> u32;

    /// All bits set.
    const MOST: Self;

    /// The other bits.
    fn not(self) -> Self;

    /// The difference, modulo the number of keys.
    fn wrapping_sub(self, other: Self) -> Self;
}

/// What makes unsigned integers, which are compared as such, of a type's bits.
#[derive(Debug, Clone, Copy)]
pub struct Twist<K> {
    /// The bits that change in a key whose highest bit is set; not that one.
    pub negative: K,
    /// The bits that change in any key.
    pub always: K,
    /// What is subtracted then, modulo the number of keys: how many NaN have the sign bit, so that they come after all others.
    pub nans: K,
}

/// The twist of the opposite order.
pub fn reversed<K: Bits>(twist: Twist<K>) -> Twist<K> {
    Twist { always: twist.always.not(), nans: K::ZERO.wrapping_sub(twist.nans), ..twist }
}

macro_rules! bits {
    ($($t:ty, $signed:ty);*) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn twist(self, twist: Twist<Self>) -> Self {
                let key = self ^ ((self as $signed >> (<$t>::BITS - 1)) as $t & twist.negative) ^ twist.always;
                <$t>::wrapping_sub(key, twist.nans)
            }
            #[inline(always)]
            fn untwist(self, twist: Twist<Self>) -> Self {
                let key = <$t>::wrapping_add(self, twist.nans) ^ twist.always;
                // The highest bit of a key is none of those that it decides on.
                key ^ ((key as $signed >> (<$t>::BITS - 1)) as $t & twist.negative)
            }
            #[inline(always)]
            fn digit(self, shift: u32) -> u32 {
                (self >> shift) as u8 as u32
            }
            const MOST: Self = <$t>::MAX;

            #[inline(always)]
            fn not(self) -> Self {
                !self
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                <$t>::wrapping_sub(self, other)
            }
        }
    )* };
}
bits!(u16, i16; u32, i32; u64, i64);
