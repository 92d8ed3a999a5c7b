//! Sine and cosine of any argument, without local memory.
//!
//! The argument is reduced to r in [-π/4, π/4] and a number of quadrants. Below 10⁵, the reduction follows Cody and
//! Waite, who subtract multiples of π / 2 in three parts. For larger arguments, it follows Payne and Hanek, who
//! multiply by the significant bits of 2 / π (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions",
//! 1980; M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983). Unlike libdevice's reduction,
//! this one keeps the product in registers, not on the stack. The results are within 2 units in the last place.

// On the host, only the tests call these functions.
#![cfg_attr(not(target_arch = "nvptx64"), allow(dead_code))]
// The constants have their published digits, and the negated comparisons must hold for NaN.
#![allow(clippy::excessive_precision, clippy::neg_cmp_op_on_partial_ord)]

use super::Math;

/// The Payne-Hanek reduction is used for arguments of at least this magnitude.
const LARGE: f64 = 105_414.0;

/// Returns the sine of x, or its cosine if `quadrants` is 1.
#[inline(always)]
pub fn f32(x: f32, quadrants: u32) -> f32 {
    let turns = Math::round_ties_even(x * core::f32::consts::FRAC_2_PI);
    if !(Math::abs(x) < LARGE as f32) {
        return large_f32(x, quadrants);
    }
    // π / 2 in three parts, each with at most 24 significant bits.
    let r = Math::mul_add(turns, -1.570_796_013, x);
    let r = Math::mul_add(turns, -3.139_164_733e-7, r);
    let r = Math::mul_add(turns, -5.390_302_53e-15, r);
    let r = if turns == 0.0 { x } else { r };
    reduced_f32(r, quadrants.wrapping_add(turns as i32 as u32))
}

/// Computes the sine or cosine of an argument in [-π/4, π/4], with the polynomials of S. L. Moshier's Cephes library.
#[inline(always)]
fn reduced_f32(r: f32, quadrants: u32) -> f32 {
    let z = r * r;
    let sine = Math::mul_add(z, -1.951_529_6e-4, 8.332_161e-3);
    let sine = Math::mul_add(Math::mul_add(z, sine, -1.666_665_5e-1) * z, r, r);
    let cosine = Math::mul_add(z, 2.443_315_7e-5, -1.388_731_6e-3);
    let cosine = Math::mul_add(z, Math::mul_add(z, cosine, 4.166_664_6e-2), -0.5);
    let cosine = Math::mul_add(z, cosine, 1.0);
    // Preserves the sign of -0.
    let sine = if r == 0.0 { r } else { sine };
    let value = if quadrants & 1 == 0 { sine } else { cosine };
    if quadrants & 2 == 0 { value } else { -value }
}

/// Bits of 2 / π, preceded by one word of zeros.
static WORDS: [u32; 8] =
    [0x0000_0000, 0xA2F9_836E, 0x4E44_1529, 0xFC27_57D1, 0xF534_DDC0, 0xDB62_9599, 0x3C43_9041, 0xFE51_63AB];

/// Computes the sine or cosine of an argument whose magnitude is at least [`LARGE`]. Returns NaN for infinities and
/// NaN.
#[inline(never)]
fn large_f32(x: f32, quadrants: u32) -> f32 {
    let bits = x.to_bits();
    let exponent = bits >> 23 & 0xFF;
    if exponent == 0xFF {
        return f32::NAN;
    }
    let mantissa = u64::from(bits & 0x7F_FFFF | 0x80_0000);
    // x is the mantissa times 2^(exponent - 150). Bits of 2 / π that contribute only whole turns to the product, which
    // are multiples of four quadrants, are dropped.
    let first = exponent.wrapping_sub(150 + 2 - 32);
    let (word, shift) = (first as usize / 32, first % 32);
    let window = |i: usize| {
        // SAFETY: the exponent is at most 254, for which the last word is WORDS[4 + 3], and here it is at least 143.
        let [high, low] = unsafe { [*WORDS.get_unchecked(word + i), *WORDS.get_unchecked(word + i + 1)] };
        (((u64::from(high) << 32 | u64::from(low)) << shift) >> 32) * mantissa
    };
    let low = window(2);
    let middle = window(1) + (low >> 32);
    let high = window(0) + (middle >> 32);
    // The product in units of quadrants, with two integer bits and 62 fraction bits.
    let product = high << 32 | middle & 0xFFFF_FFFF;
    let whole = (product.wrapping_add(1 << 61) >> 62) as u32;
    let rest = (product << 2) as i64;
    let r = (rest as f64 * (core::f64::consts::FRAC_PI_2 / 18_446_744_073_709_551_616.0)) as f32;
    let is_negative = bits >> 31 == 1;
    let (r, whole) = if is_negative { (-r, whole.wrapping_neg()) } else { (r, whole) };
    reduced_f32(r, quadrants.wrapping_add(whole))
}

/// Returns the sine of x, or its cosine if `quadrants` is 1.
#[inline(always)]
pub fn f64(x: f64, quadrants: u32) -> f64 {
    let turns = Math::round_ties_even(x * core::f64::consts::FRAC_2_PI);
    if !(Math::abs(x) < LARGE) {
        return large_f64(x, quadrants);
    }
    let r = Math::mul_add(turns, -HALF_PI[0], x);
    let r = Math::mul_add(turns, -HALF_PI[1], r);
    let r = Math::mul_add(turns, -HALF_PI[2], r);
    let r = if turns == 0.0 { x } else { r };
    reduced_f64(r, quadrants.wrapping_add(turns as i32 as u32))
}

/// π / 2, split into three parts.
const HALF_PI: [f64; 3] =
    [core::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// Computes the sine or cosine of an argument in [-π/4, π/4], with the polynomials of Sun's FDLIBM.
#[inline(always)]
fn reduced_f64(r: f64, quadrants: u32) -> f64 {
    let z = r * r;
    let polynomial = |coefficients: [f64; 6]| {
        let [a, b, c, d, e, f] = coefficients;
        let high = Math::mul_add(z, Math::mul_add(z, f, e), d);
        Math::mul_add(z, Math::mul_add(z, Math::mul_add(z, high, c), b), a)
    };
    let is_sine = quadrants & 1 == 0;
    let value = polynomial(if is_sine { SINE } else { COSINE });
    let value = if is_sine {
        if r == 0.0 { r } else { Math::mul_add(value * z, r, r) }
    } else {
        let half = 0.5 * z;
        let head = 1.0 - half;
        head + Math::mul_add(z * z, value, (1.0 - head) - half)
    };
    if quadrants & 2 == 0 { value } else { -value }
}

const SINE: [f64; 6] = [
    -1.666_666_666_666_663_2e-1,
    8.333_333_333_322_49e-3,
    -1.984_126_982_985_795e-4,
    2.755_731_370_707_006_8e-6,
    -2.505_076_025_340_686_4e-8,
    1.589_690_995_211_550_1e-10,
];
const COSINE: [f64; 6] = [
    4.166_666_666_666_66e-2,
    -1.388_888_888_887_411e-3,
    2.480_158_728_947_673e-5,
    -2.755_731_435_139_066_3e-7,
    2.087_572_321_298_175e-9,
    -1.135_964_755_778_82e-11,
];

/// Bits of 2 / π, as in [`WORDS`].
static LONG_WORDS: [u64; 20] = [
    0x0000_0000_0000_0000,
    0xA2F9_836E_4E44_1529,
    0xFC27_57D1_F534_DDC0,
    0xDB62_9599_3C43_9041,
    0xFE51_63AB_DEBB_C561,
    0xB724_6E3A_424D_D2E0,
    0x0649_2EEA_09D1_921C,
    0xFE1D_EB1C_B129_A73E,
    0xE882_35F5_2EBB_4484,
    0xE99C_7026_B45F_7E41,
    0x3991_D639_8353_39F4,
    0x9C84_5F8B_BDF9_283B,
    0x1FF8_97FF_DE05_980F,
    0xEF2F_118B_5A0A_6D1F,
    0x6D36_7ECF_27CB_09B7,
    0x4F46_3F66_9E5F_EA2D,
    0x7527_BAC7_EBE5_F17B,
    0x3D07_39F7_8A52_92EA,
    0x6BFB_5FB1_1F8D_5D08,
    0x5603_3046_FC7B_6BAB,
];

/// Counterpart of [`large_f32`] for `f64`.
#[inline(never)]
fn large_f64(x: f64, quadrants: u32) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as u32 & 0x7FF;
    if exponent == 0x7FF {
        return f64::NAN;
    }
    let mantissa = u128::from(bits & 0xF_FFFF_FFFF_FFFF | 1 << 52);
    let first = exponent.wrapping_sub(1075 + 2 - 64);
    let (word, shift) = (first as usize / 64, first % 64);
    let window = |i: usize| {
        // SAFETY: the exponent is at most 2046, for which the last word is LONG_WORDS[16 + 3], and here it is at
        // least 1039.
        let [high, low] =
            unsafe { [*LONG_WORDS.get_unchecked(word + i), *LONG_WORDS.get_unchecked(word + i + 1)] };
        let bits = if shift == 0 { high } else { high << shift | low >> (64 - shift) };
        u128::from(bits) * mantissa
    };
    let low = window(2);
    let middle = window(1) + (low >> 64);
    let high = (window(0) + (middle >> 64)) as u64;
    let middle = middle as u64;
    // The product in units of quadrants, with two integer bits and 126 fraction bits. The remainder is between -1/2 and
    // 1/2.
    let whole = (high.wrapping_add(1 << 61) >> 62) as u32;
    let (high, low) = (high << 2 | middle >> 62, middle << 2);
    let is_above = high >> 63 == 1;
    let (high, low) = if is_above { (!high, !low) } else { (high, low) };
    // The first 64 significant bits of the remainder. No float has a remainder with more than 64 leading zeros.
    let zeros = high.leading_zeros() % 64;
    let first = if zeros == 0 { high } else { high << zeros | low >> (64 - zeros) };
    let scale = f64::from_bits(u64::from(1023 - 64 - zeros) << 52);
    let (head, tail) = ((first & !0x7FF) as f64 * scale, (first & 0x7FF) as f64 * scale);
    let r = Math::mul_add(head, HALF_PI[0], Math::mul_add(head, HALF_PI[1], tail * HALF_PI[0]));
    let r = if is_above { -r } else { r };
    let (r, whole) = if bits >> 63 == 1 { (-r, whole.wrapping_neg()) } else { (r, whole) };
    reduced_f64(r, quadrants.wrapping_add(whole))
}

#[cfg(test)]
mod tests {
    /// Returns the error of an f32 or f64 result, in units in the last place.
    fn units(found: f64, expected: f64, bits: i32) -> f64 {
        let exponent = expected.abs().max(1e-300).log2().floor() as i32;
        (found - expected).abs() / f64::exp2(f64::from(exponent - bits))
    }

    /// Returns arguments of all magnitudes, including the neighbors of multiples of π / 2.
    fn arguments() -> impl Iterator<Item = f64> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..200_000).flat_map(move |i| {
            let size = 2.0_f64.powf(random.f64() * 1060.0 - 40.0);
            let next = f64::from(i) * core::f64::consts::FRAC_PI_2;
            [size, -size, next, f64::from(i) * 0.01, random.f64() * 1e9]
        })
    }

    #[test]
    fn results_are_within_two_units_in_the_last_place() {
        for x in arguments() {
            for (quadrants, exact) in [(0, libm::sin(x)), (1, libm::cos(x))] {
                let found = super::f64(x, quadrants);
                assert!(units(found, exact, 52) <= 2.0, "{x:e} {quadrants}: {found:e} for {exact:e}");
            }
            let x = x as f32;
            if x.is_finite() {
                let x64 = f64::from(x);
                for (quadrants, exact) in [(0, libm::sin(x64)), (1, libm::cos(x64))] {
                    let found = super::f32(x, quadrants);
                    assert!(
                        units(found.into(), exact, 23) <= 2.0,
                        "{x:e} {quadrants}: {found:e} for {exact:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn special_arguments_have_special_results() {
        assert_eq!(super::f32(-0.0, 0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(super::f64(-0.0, 0).to_bits(), (-0.0_f64).to_bits());
        assert_eq!((super::f32(1e-42, 0), super::f64(5e-324, 0)), (1e-42, 5e-324));
        assert_eq!((super::f32(0.0, 1), super::f64(0.0, 1)), (1.0, 1.0));
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(super::f64(x, 0).is_nan() && super::f32(x as f32, 1).is_nan());
        }
        for x in [f64::MAX, -f64::MAX, 105_414.0, 105_413.999] {
            assert!(units(super::f64(x, 0), libm::sin(x), 52) <= 2.0, "{x:e}");
        }
        assert!(units(super::f32(f32::MAX, 1).into(), libm::cos(f64::from(f32::MAX)), 23) <= 2.0);
    }
}
