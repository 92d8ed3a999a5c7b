//! [`Operand`], [`Multiply`], [`Sum`] and [`Output`]: operand types, accumulator types and output types.

use float8::{F8E4M3, F8E5M2};

use super::SharedTile;
#[cfg(target_arch = "nvptx64")]
use super::major::Major;
#[cfg(target_arch = "nvptx64")]
use super::width::{Columns, Width};
use crate::scalar::Scalar;
use crate::{KernelType, bf16, f16};

/// An accumulator type: `f32` or `i32`. The trait is sealed.
///
/// ```
/// use gpu_std::scalar::Scalar;
/// use gpu_std::tensor::Operand;
///
/// /// Returns the accumulator's value for 1.
/// fn one<T: Operand>() -> T::Sum {
///     T::Sum::ONE
/// }
/// assert_eq!((one::<i8>(), one::<f32>()), (1_i32, 1.0_f32));
/// ```
pub trait Sum: Scalar + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i32 {}
}

impl Sum for f32 {}
impl Sum for i32 {}

/// An operand type of `wgmma`.
///
/// | type | sums | columns per tile |
/// | --- | --- | --- |
/// | `bf16`, `f16` | `f32` | 64 |
/// | `f32`, of which only the upper 19 bits are read (TF32, with 10 mantissa bits, truncated) | `f32` | 32 |
/// | [`F8E4M3`], [`F8E5M2`] | `f32`, of which an instruction keeps about 14 mantissa bits | 128 |
/// | `i8`, `u8` | `i32`, wrapping | 128 |
///
/// See the [example](crate::tensor#example).
pub trait Operand: KernelType {
    /// Accumulator type.
    type Sum: Sum;
    /// Converts the element to the value that the product uses.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn to_sum(self) -> Self::Sum;
}

/// A supported product: two matrices of one type, of two 8-bit floating-point types, or of two 8-bit integer types.
///
/// See the [example](crate::tensor#example).
pub trait Multiply<B: Operand<Sum = Self::Sum> = Self>: Operand {
    /// Issues a product of two tiles over 32 bytes of each row. The arguments include the tiles' descriptors.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn issue<const N: usize, AM: Major, BM: Major>(
        d: &mut <Columns<N> as Width>::Registers<Self::Sum>,
        a: u64,
        b: u64,
        accumulate: u32,
    ) where
        Columns<N>: Width;
}

macro_rules! operands {
    ($($ty:ident: $sum:ty, $to_sum:expr;)*) => { $(
        impl Operand for $ty {
            type Sum = $sum;
            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn to_sum(self) -> $sum {
                let to_sum: fn($ty) -> $sum = $to_sum;
                to_sum(self)
            }
        }
    )* };
}

operands! {
    bf16: f32, |x| x.to_f32();
    f16: f32, |x| x.to_f32();
    f32: f32, |x| f32::from_bits(x.to_bits() & !0x1fff);
    F8E4M3: f32, |x| x.to_f32();
    F8E5M2: f32, |x| x.to_f32();
    i8: i32, i32::from;
    u8: i32, i32::from;
}

macro_rules! products {
    ($($a:ident * $b:ident: $name:ident),* $(,)?) => { $(
        impl Multiply<$b> for $a {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn issue<const N: usize, AM: Major, BM: Major>(
                d: &mut <Columns<N> as Width>::Registers<Self::Sum>,
                a: u64,
                b: u64,
                accumulate: u32,
            ) where
                Columns<N>: Width,
            {
                // SAFETY: guaranteed by the caller.
                unsafe { Columns::<N>::$name::<AM, BM>(d, a, b, accumulate) }
            }
        }
    )* };
}

products! {
    bf16 * bf16: bf16_bf16, f16 * f16: f16_f16, f32 * f32: tf32_tf32,
    F8E4M3 * F8E4M3: e4m3_e4m3, F8E4M3 * F8E5M2: e4m3_e5m2, F8E5M2 * F8E4M3: e5m2_e4m3, F8E5M2 * F8E5M2: e5m2_e5m2,
    i8 * i8: s8_s8, i8 * u8: s8_u8, u8 * i8: u8_s8, u8 * u8: u8_u8,
}

/// A 16-bit floating-point type that can be multiplied from registers: `bf16` or `f16`. The trait is sealed.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::tensor::Half;
///
/// assert_eq!(bf16::pack(1.0, 2.0), 0x4000_3f80);
/// ```
pub trait Half: Multiply<Sum = f32> + Output<f32> + half_sealed::Sealed {
    /// Packs two numbers, rounded to nearest even, with the first in the low half.
    fn pack(low: f32, high: f32) -> u32;
    /// Issues a product of 16 columns of fragments and 32 bytes of each row of a tile. The arguments include the tile's
    /// descriptor.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn issue_fragment<const N: usize, BM: Major>(
        d: &mut <Columns<N> as Width>::Registers<f32>,
        a: [u32; 4],
        b: u64,
        accumulate: u32,
    ) where
        Columns<N>: Width;
    /// Returns the number with these bits.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_bits(bits: u16) -> f32;
}

mod half_sealed {
    pub trait Sealed {}
    impl Sealed for crate::bf16 {}
    impl Sealed for crate::f16 {}
}

macro_rules! halves {
    ($($ty:ident $cvt:literal $fragment:ident),*) => { $(
        impl Half for $ty {
            #[inline(always)]
            fn pack(low: f32, high: f32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let packed: u32;
                    // SAFETY: the instruction accesses only registers.
                    unsafe {
                        core::arch::asm!(
                            concat!($cvt, " {r}, {h}, {l};"),
                            r = out(reg32) packed, h = in(reg32) high, l = in(reg32) low,
                            options(pure, nomem, nostack)
                        );
                    }
                    packed
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    let [low, high] = [low, high].map(|x| u32::from(Self::from_f32(x).to_bits()));
                    low | high << 16
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn issue_fragment<const N: usize, BM: Major>(
                d: &mut <Columns<N> as Width>::Registers<f32>,
                a: [u32; 4],
                b: u64,
                accumulate: u32,
            ) where
                Columns<N>: Width,
            {
                // SAFETY: guaranteed by the caller.
                unsafe { Columns::<N>::$fragment::<BM>(d, a, b, accumulate) }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn of_bits(bits: u16) -> f32 {
                Self::from_bits(bits).to_f32()
            }
        }
    )* };
}
halves!(bf16 "cvt.rn.bf16x2.f32" bf16_fragment, f16 "cvt.rn.f16x2.f32" f16_fragment);

/// An output type that sums of type `S` can be converted to when an accumulator's registers are stored to a tile.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::tensor::{Accumulator, Output, SharedTile};
///
/// /// Stores the rows of the calling warp, rounded to `bf16`, in a tile.
/// ///
/// /// # Safety
/// /// All threads of the warpgroup must call the function, and nothing else may use the tile.
/// #[inline(always)]
/// unsafe fn store(sums: &Accumulator<64>, tile: SharedTile<bf16, 64>) {
///     let row = thread::linear_in_block() / 32 * 16;
///     for (block, sums) in sums.registers().as_chunks::<8>().0.iter().enumerate() {
///         // SAFETY: guaranteed by the caller; each warp has 16 rows.
///         unsafe { bf16::store(tile, row, block as u32, *sums) };
///     }
/// }
/// ```
pub trait Output<S: Sum>: KernelType {
    /// Stores the 16 rows that start at `row`, in the 16 columns that start at `16 * block`. Each thread of a warp
    /// passes eight of the sums, in the order of eight consecutive registers of an [`Accumulator`](super::Accumulator).
    /// All threads of the warp must call this function.
    ///
    /// See the example of [`Output`].
    ///
    /// # Safety
    /// The tile must contain these rows and columns. `row` must be the same in all threads of the warp, and a multiple
    /// of 16. No copy or other thread may access these elements concurrently.
    unsafe fn store<const ROWS: usize>(tile: SharedTile<Self, ROWS>, row: u32, block: u32, sums: [S; 8]);
}

macro_rules! outputs_of_16_bits {
    ($($ty:ident),*) => { $(
        impl Output<f32> for $ty {
            #[inline(always)]
            unsafe fn store<const ROWS: usize>(tile: SharedTile<Self, ROWS>, row: u32, block: u32, sums: [f32; 8]) {
                let [a, b, c, d, e, f, g, h] = sums;
                let pack = <$ty as Half>::pack;
                // SAFETY: guaranteed by the caller.
                unsafe { tile.store_matrices(row, 2 * block, [pack(a, b), pack(c, d), pack(e, f), pack(g, h)]) }
            }
        }
    )* };
}
outputs_of_16_bits!(bf16, f16);

macro_rules! outputs_of_32_bits {
    ($($ty:ident),*) => { $(
        impl Output<$ty> for $ty {
            #[inline(always)]
            unsafe fn store<const ROWS: usize>(tile: SharedTile<Self, ROWS>, row: u32, block: u32, sums: [$ty; 8]) {
                let [a, b, c, d, e, f, g, h] = sums;
                // SAFETY: guaranteed by the caller.
                unsafe { tile.store_pairs(row, 4 * block, [[a, b], [c, d], [e, f], [g, h]]) }
            }
        }
    )* };
}
outputs_of_32_bits!(f32, i32);
