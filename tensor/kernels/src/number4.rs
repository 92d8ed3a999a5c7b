//! [`Number4`]: conversion of 4-bit codes to 16-bit numbers. The codes become the low mantissa bits of a power of two,
//! as in Marlin (Frantar et al. 2024) and FasterTransformer.

use gpu_std::prelude::*;
use gpu_std::tensor::mma::WarpOperand;

/// Number types to which 4-bit codes are converted.
pub trait Number4: WarpOperand {
    /// Bit pattern of the power of two whose unit in the last place (ulp) is 1.
    #[doc(hidden)]
    const UNIT: u32;
    /// Converts the number with this bit pattern to `f32`.
    #[doc(hidden)]
    fn widened(bits: u32) -> f32;
    /// Computes `x - y` in both halves; the differences must be exact.
    #[doc(hidden)]
    fn subtract(x: u32, y: u32) -> u32;
}

macro_rules! numbers {
    ($($ty:ident: $unit:literal;)*) => { $(
        impl Number4 for $ty {
            const UNIT: u32 = $unit;

            #[inline(always)]
            fn widened(bits: u32) -> f32 {
                $ty::from_bits(bits as u16).cast()
            }

            #[inline(always)]
            fn subtract(x: u32, y: u32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let difference: u32;
                    // SAFETY: the instruction only computes x * 1 + -y in both halves.
                    unsafe {
                        core::arch::asm!(
                            concat!("fma.rn.", stringify!($ty), "x2 {d}, {x}, {one}, {y};"),
                            d = out(reg32) difference, x = in(reg32) x, y = in(reg32) y ^ 0x8000_8000,
                            one = in(reg32) u32::from($ty::ONE.to_bits()) * 0x1_0001,
                            options(pure, nomem, nostack)
                        );
                    }
                    difference
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    let half = |shift: u32| {
                        let number = |bits: u32| $ty::from_bits((bits >> shift) as u16).to_f32();
                        u32::from($ty::from_f32(number(x) - number(y)).to_bits()) << shift
                    };
                    half(0) | half(16)
                }
            }
        }
    )* };
}
// These powers of two are 128 for `bf16` and 1024 for `f16`.
numbers! { bf16: 0x4300; f16: 0x6400; }
