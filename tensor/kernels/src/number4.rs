//! [`Number4`]: conversion of codes of 4 and 8 bits to 16-bit numbers. Integers become the low mantissa bits of a power
//! of two, as in Marlin (Frantar et al. 2024) and FasterTransformer.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::mma::WarpOperand;

/// Number types to which 4-bit codes are converted.
pub trait Number4: WarpOperand<Sum = f32> + Float<Accumulator = f32> {
    /// Bit pattern of the power of two whose unit in the last place (ulp) is 1.
    #[doc(hidden)]
    const UNIT: u32;
    /// Bit pattern that codes of weights are inserted into: [`Self::UNIT`] for `bf16`, and 0 for `f16`, whose codes
    /// become subnormal numbers.
    #[doc(hidden)]
    const CODE: u32;
    /// Number with the bit pattern [`Self::CODE`], in codes.
    #[doc(hidden)]
    const CODE_ZERO: f32;
    /// Bit pattern of a code of -1, without [`Self::CODE_ZERO`].
    #[doc(hidden)]
    const MINUS_CODE: u32;
    /// Reciprocal of the difference between two adjacent codes.
    #[doc(hidden)]
    const CODE_SCALE: f32;
    /// Number of bits by which codes are shifted up to be subnormal numbers, and bit pattern of the power of two that
    /// makes them multiples of 1/64.
    #[doc(hidden)]
    const SUBNORMAL: [u32; 2];
    /// Bit pattern of the power of two for codes that are shifted up by four more bits.
    #[doc(hidden)]
    const SUBNORMAL_UPPER: u32;
    /// Converts the number with this bit pattern to `f32`.
    #[doc(hidden)]
    fn widened(bits: u32) -> f32;
    /// Bit pattern of 1.
    #[doc(hidden)]
    const ONE: u32;
    /// Number of bits by which an E4M3 number without its sign is shifted to become a number of this type, and bit
    /// pattern of the power of two by which that number is then multiplied.
    #[doc(hidden)]
    const E4M3: [u32; 2];
    /// Number of bits by which the exponent and mantissa of an E2M1 number are shifted up to become those of a number
    /// of this type, which is smaller by a power of two.
    #[doc(hidden)]
    const E2M1: u32;
    /// Power of two by which the scales of E2M1 numbers are multiplied in kernels, so that their products with the
    /// shifted numbers are in the middle of the range.
    #[doc(hidden)]
    const FP4_SCALE: f32;
    /// Power of two by which sums of products with E2M1 numbers are multiplied.
    #[doc(hidden)]
    const FP4_SUM: f32;
    /// Rounds a number, and returns its bit pattern.
    #[doc(hidden)]
    fn narrowed(x: f32) -> u32;
    /// Computes `x * y + z` in both halves. The results must be exact, unless z is -0 or NaN.
    #[doc(hidden)]
    fn multiply_add(x: u32, y: u32, z: u32) -> u32;
}

/// Converts four signed integers of 8 bits: elements 0 and 2, and elements 1 and 3.
#[inline(always)]
pub(crate) fn signed<T: Number4>(word: u32) -> [u32; 2] {
    // The sign bit becomes the same power of two as the unit, or for `f16`, is added to it, so that the difference is
    // exact.
    let one = both(<T as Number4>::ONE);
    let [plus, minus] = [both(T::UNIT), both(T::UNIT | 0x8000)];
    [word, word >> 8].map(|x| T::multiply_add(insert::<0x7f>(x, plus), one, insert::<0x80>(x, minus)))
}

/// Converts four E4M3 numbers: elements 0 and 2, and elements 1 and 3.
#[inline(always)]
pub(crate) fn e4m3<T: Number4>(word: u32) -> [u32; 2] {
    let [shift, factor] = T::E4M3;
    // The largest magnitude is NaN: adding 1 sets the high bit of its byte. The bits of NaN are all ones.
    let nan = (word & 0x7f7f_7f7f) + 0x0101_0101;
    [(word, signs::<0xaa88>(nan)), (word >> 8, signs::<0xbb99>(nan))]
        .map(|(x, nan)| T::multiply_add((x & both(0x80)) << 8 | (x & both(0x7f)) << shift, both(factor), nan))
}

/// Converts eight E2M1 numbers, and multiplies them by the number in both halves of `scale`: elements i and i + 4. Each
/// is smaller by the power of two that [`Number4::E2M1`] implies.
#[inline(always)]
pub(crate) fn e2m1<T: Number4>(word: u32, scale: u32) -> [u32; 4] {
    from_fn(|i| {
        let place = if i % 2 == 0 { 0 } else { 4 };
        let code = word >> (i / 2 * 8) & both(0xf << place);
        // The exponent and mantissa are shifted to their place. The addition carries the sign to bit 15 of each half.
        let carry = both(0x8000 - (8 << T::E2M1));
        let number = code.wrapping_mul(1 << T::E2M1 >> place).wrapping_add(carry);
        T::multiply_add(number & both(0x8000 | 7 << T::E2M1), scale, both(0x8000))
    })
}

/// Converts an E8M0 number, a power of two whose exponent has the bias 127.
#[inline(always)]
pub(crate) fn e8m0(byte: u32) -> f32 {
    // The smallest power is subnormal, and 255 is NaN. Both have the high bit of the mantissa.
    let high = if (byte + 1) & 0xff < 2 { 0x40_0000 } else { 0 };
    f32::from_bits(byte << 23 | high)
}

/// Converts two scales of E2M1 numbers: adjacent E4M3 scales of groups of 16, or the E8M0 scale of a group of 32,
/// twice. They are multiplied by [`Number4::FP4_SCALE`].
#[inline(always)]
pub(crate) fn scales_of_fp4<T: Number4>(bytes: u32, group: u32) -> u32 {
    if group == 16 {
        let [first, second] = e4m3::<T>(bytes);
        let factor = both(T::narrowed(T::FP4_SCALE));
        return T::multiply_add(halves::<0>(first, second), factor, both(0x8000));
    }
    both(T::narrowed(e8m0(bytes & 0xff) * T::FP4_SCALE))
}

/// Replicates the high bits of two bytes to both bytes of each half. `BYTES` is the selector of `prmt`: each hexadecimal
/// digit is a byte index plus 8, which replicates the sign bit of that byte.
#[inline(always)]
fn signs<const BYTES: u32>(x: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let halves: u32;
        // SAFETY: the instruction only computes a number.
        unsafe {
            core::arch::asm!(
                "prmt.b32 {halves}, {x}, 0, {bytes};",
                halves = out(reg32) halves, x = in(reg32) x, bytes = const BYTES,
                options(pure, nomem, nostack)
            );
        }
        halves
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let byte = |digit: u32| 0xff * (x >> (8 * (BYTES >> (4 * digit) & 3)) >> 7 & 1);
        byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
    }
}

/// Rounds a number to E4M3, to nearest even. Numbers beyond the largest finite number become that number.
#[inline(always)]
pub(crate) fn to_e4m3(x: f32) -> u8 {
    const LARGEST: f32 = 448.0;
    /// Number whose unit in the last place equals the spacing of E4M3's subnormal numbers.
    const SUBNORMAL: f32 = 16384.0;
    let (magnitude, sign) = (x.abs(), (x.to_bits() >> 24) & 0x80);
    if magnitude.is_nan() {
        return 0x7f | sign as u8;
    }
    let magnitude = magnitude.min(LARGEST);
    let code = if magnitude < 1.0 / 64.0 {
        (magnitude + SUBNORMAL).to_bits() - SUBNORMAL.to_bits()
    } else {
        let bits = magnitude.to_bits();
        ((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)
    };
    (sign | code) as u8
}

/// Rounds a number to an integer of 8 bits, to nearest even. Numbers beyond -127 and 127 become these numbers, and NaN
/// becomes -127.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` returns NaN for NaN")]
pub(crate) fn to_signed(x: f32) -> i8 {
    /// Number whose unit in the last place is 1, with room for negative numbers.
    const UNIT: f32 = 12_582_912.0;
    (x.max(-127.0).min(127.0) + UNIT).to_bits() as i8
}

/// Returns 2 to the power of `exponent`.
const fn power(exponent: u32) -> f32 {
    f32::from_bits((127 + exponent) << 23)
}

/// Returns a word with `half` in both halves.
pub(crate) const fn both(half: u32) -> u32 {
    half * 0x1_0001
}

macro_rules! numbers {
    ($($ty:ident: $unit:literal, $code:expr, $e4m3:expr, $e2m1:expr, $subnormal:expr;)*) => { $(
        impl Number4 for $ty {
            const UNIT: u32 = $unit;
            const CODE: u32 = $code.0;
            const CODE_ZERO: f32 = $code.1;
            const MINUS_CODE: u32 = $code.2;
            const CODE_SCALE: f32 = $code.3;
            const ONE: u32 = $ty::ONE.to_bits() as u32;
            const E4M3: [u32; 2] = $e4m3;
            const E2M1: u32 = $e2m1.0;
            const FP4_SCALE: f32 = $e2m1.1;
            const FP4_SUM: f32 = $e2m1.2;
            const SUBNORMAL: [u32; 2] = [$subnormal[0], $subnormal[1]];
            const SUBNORMAL_UPPER: u32 = $subnormal[2];

            #[inline(always)]
            fn narrowed(x: f32) -> u32 {
                x.cast::<$ty>().to_bits().into()
            }

            #[inline(always)]
            fn widened(bits: u32) -> f32 {
                $ty::from_bits(bits as u16).cast()
            }

            #[inline(always)]
            fn multiply_add(x: u32, y: u32, z: u32) -> u32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let result: u32;
                    // SAFETY: the instruction only computes numbers.
                    unsafe {
                        core::arch::asm!(
                            concat!("fma.rn.", stringify!($ty), "x2 {d}, {x}, {y}, {z};"),
                            d = out(reg32) result, x = in(reg32) x, y = in(reg32) y, z = in(reg32) z,
                            options(pure, nomem, nostack)
                        );
                    }
                    result
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    let half = |shift: u32| {
                        let number = |bits: u32| $ty::from_bits((bits >> shift) as u16).to_f32();
                        u32::from($ty::from_f32(number(x) * number(y) + number(z)).to_bits()) << shift
                    };
                    half(0) | half(16)
                }
            }
        }
    )* };
}
// The units belong to 128 for `bf16` and 1024 for `f16`. The exponents of E4M3 have the bias 7, and those of E2M1 the
// bias 1: as numbers of these types, they are smaller by 2^126 and 2^14.
numbers! {
    bf16: 0x4300, (0x4300, 128.0, 0xbf80, 1.0), [4, 0x7b80], (6, power(62), power(64)), [0, 0x7f00, 0x7d00];
    f16: 0x6400, (0, 0.0, 0x8001, 16_777_216.0), [7, 0x5c00], (9, power(7), power(7)), [3, 0x7800, 0x6800];
}

/// Inserts the bits `MASK` of both halves of `codes` into `into`, in which these bits are 0.
#[inline(always)]
pub(crate) fn insert<const MASK: u32>(codes: u32, into: u32) -> u32 {
    let mask = both(MASK);
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: the instruction only computes a number. Without the inline assembly, ptxas emits two instructions
        // instead of one.
        unsafe {
            core::arch::asm!(
                "lop3.b32 {both}, {codes}, {mask}, {into}, 0xea;",
                both = out(reg32) both, codes = in(reg32) codes, mask = in(reg32) mask, into = in(reg32) into,
                options(pure, nomem, nostack)
            );
        }
        both
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        codes & mask | into
    }
}

/// Combines the lower halves of two words, or the upper halves if `UPPER` is 1.
#[inline(always)]
pub(crate) fn halves<const UPPER: u32>(x: u32, y: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: the instruction only computes a number.
        unsafe {
            core::arch::asm!(
                "prmt.b32 {both}, {x}, {y}, {selected};",
                both = out(reg32) both, x = in(reg32) x, y = in(reg32) y,
                selected = const if UPPER == 0 { 0x5410 } else { 0x7632 },
                options(pure, nomem, nostack)
            );
        }
        both
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        (x >> (16 * UPPER)) & 0xffff | (y >> (16 * UPPER)) << 16
    }
}
