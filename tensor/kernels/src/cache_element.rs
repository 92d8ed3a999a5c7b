//! [`CacheElement`]: the elements of KV caches, and their conversion.

use gpu_std::prelude::*;
use gpu_std::tensor::F8E4M3;

use crate::number4::{Number4, e4m3, signed, to_e4m3, to_signed};

/// Elements of a KV cache, for queries of type `T`: `T` itself, or numbers of 8 bits.
pub trait CacheElement<T>: KernelType {
    /// Converts four elements of 8 bits: elements 0 and 2, and elements 1 and 3.
    #[doc(hidden)]
    fn pairs(word: u32) -> [u32; 2];
}

/// Elements of a KV cache, as they are appended.
pub trait Rounded: KernelType {
    /// Rounds a number to nearest even. Numbers of 8 bits saturate.
    #[doc(hidden)]
    fn rounded(x: f32) -> Self;
}

macro_rules! same {
    ($($ty:ty),*) => { $(
        impl CacheElement<$ty> for $ty {
            #[inline(always)]
            fn pairs(word: u32) -> [u32; 2] {
                [word; 2]
            }
        }

        impl Rounded for $ty {
            #[inline(always)]
            fn rounded(x: f32) -> Self {
                Self::from_acc(x)
            }
        }
    )* };
}
same!(bf16, f16);

macro_rules! narrow {
    ($($ty:ty: $pairs:ident, $rounded:expr;)*) => { $(
        impl<T: Number4> CacheElement<T> for $ty {
            #[inline(always)]
            fn pairs(word: u32) -> [u32; 2] {
                $pairs::<T>(word)
            }
        }

        impl Rounded for $ty {
            #[inline(always)]
            fn rounded(x: f32) -> Self {
                let rounded: fn(f32) -> $ty = $rounded;
                rounded(x)
            }
        }
    )* };
}
narrow! {
    i8: signed, to_signed;
    F8E4M3: e4m3, |x| F8E4M3::from_bits(to_e4m3(x));
}
