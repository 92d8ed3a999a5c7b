//! [`KeyTransform`]: an order-preserving transform of keys to unsigned integers (CUB: Twiddle), for kernels that
//! compare only bits.

use core::ops::{BitAnd, BitOr};

use gpu_std::prelude::*;

/// The bit pattern of a key.
pub trait Bits: Scalar + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// Transforms the bits to an unsigned integer. The integers have the same order as the keys.
    fn transform(self, transform: KeyTransform<Self>) -> Self;

    /// Computes the inverse of [`transform`](Self::transform).
    fn inverse_transform(self, transform: KeyTransform<Self>) -> Self;

    /// Returns the eight bits that start at bit `shift`.
    fn digit(self, shift: u32) -> u32;

    /// All bits set.
    const ALL_ONES: Self;

    /// Bitwise NOT.
    fn not(self) -> Self;

    /// Returns the difference, which wraps around at the key's bit width.
    fn wrapping_sub(self, other: Self) -> Self;
}

/// Order-preserving key transform, which maps the bits of a type to unsigned integers with the same order.
#[derive(Debug, Clone, Copy)]
pub struct KeyTransform<K> {
    /// Bits to flip in a key whose highest bit is set. The mask does not include the highest bit.
    pub negative: K,
    /// Bits to flip in every key.
    pub always: K,
    /// Number of NaN bit patterns whose sign bit is set. It is subtracted afterwards, with wraparound, so that these
    /// NaNs sort after all other keys.
    pub nans: K,
}

/// Returns the key transform for the opposite order.
pub fn reversed<K: Bits>(transform: KeyTransform<K>) -> KeyTransform<K> {
    KeyTransform { always: transform.always.not(), nans: K::ZERO.wrapping_sub(transform.nans), ..transform }
}

macro_rules! bits {
    ($($t:ty, $signed:ty);*) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn transform(self, transform: KeyTransform<Self>) -> Self {
                let key = self ^ ((self as $signed >> (<$t>::BITS - 1)) as $t & transform.negative) ^ transform.always;
                <$t>::wrapping_sub(key, transform.nans)
            }
            #[inline(always)]
            fn inverse_transform(self, transform: KeyTransform<Self>) -> Self {
                let key = <$t>::wrapping_add(self, transform.nans) ^ transform.always;
                // The highest bit selects whether the bits of `negative` are flipped but is not one of them, so it
                // already has its original value here.
                key ^ ((key as $signed >> (<$t>::BITS - 1)) as $t & transform.negative)
            }
            #[inline(always)]
            fn digit(self, shift: u32) -> u32 {
                (self >> shift) as u8 as u32
            }
            const ALL_ONES: Self = <$t>::MAX;

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
