//! Kernels that use numeric crates.

use az::{CheckedAs, SaturatingAs, WrappingAs};
use difftest_support::*;
use ethnum::{I256, U256};
use fixed::types::{I16F16, I32F32, U8F8};
use half::slice::HalfFloatSliceExt;
use num_complex::Complex;
use num_integer::{Integer, Roots};
use num_rational::Ratio;
use num_traits::{CheckedAdd, FromPrimitive, PrimInt, ToPrimitive};
use ordered_float::OrderedFloat;

kernels! {
    /// `libm`: functions that give the same bits on every host.
    libm_exact(c, s) {
        let (x, y) = (c.f32(3), c.f64(4));
        s.add(bits32(libm::floorf(x)));
        s.add(bits32(libm::ceilf(x)));
        s.add(bits32(libm::truncf(x)));
        s.add(bits32(libm::sqrtf(x)));
        s.add(bits64(libm::sqrt(y)));
        s.add(bits64(libm::rint(y)));
        s.add(bits32(libm::fmodf(x, c.f32(5))));
        s.add(bits64(libm::fmod(y, c.f64(6))));
        s.add(bits64(libm::scalbn(y, (c.w(7) & 63) as i32 - 32)));
        let (mantissa, exponent) = libm::frexp(number64(y));
        s.add(bits64(mantissa));
        s.add(if y.is_finite() { exponent as u64 } else { 0 });
        s.add(bits64(libm::cbrt((c.w(8) as i16) as f64)) >> 8);
        s.add(bits32(libm::nextafterf(x, 0.5)));
    }

    /// `num-traits`: generic functions of integers and floats.
    num_traits_generic(c, s) {
        fn bits<T: PrimInt + ToPrimitive + FromPrimitive + CheckedAdd>(x: T, y: T) -> u64 {
            let sum = x.checked_add(&y).unwrap_or_else(T::max_value);
            let turned = sum.rotate_left(5).swap_bytes();
            turned.to_u64().unwrap_or(3) ^ u64::from(turned.count_ones()) ^ T::from_u8(7).and_then(|x| x.to_u64()).unwrap_or(0)
        }
        s.add(bits(c.w(1) as u8, c.w(2) as u8));
        s.add(bits(c.w(1) as i32, c.w(2) as i32));
        s.add(bits(c.w(1) as u64, c.w(2)));
        s.add(bits(c.w(1) as i128, c.w(2) as i128));
        s.add(bits32(num_traits::clamp(number32(c.f32(3)), -1.0, 2.0)));
        let x: f64 = num_traits::NumCast::from(c.w(4)).unwrap_or(0.5);
        s.add(bits64(num_traits::Float::floor(x)));
        s.add(num_traits::pow::checked_pow(c.w(5) as u32 as u64, 2).unwrap_or(1));
    }

    /// `num-integer`: divisions, roots, gcd.
    num_integer_divisions(c, s) {
        let (x, y) = (c.w(1), c.w(2) | 1);
        s.add(x.gcd(&y));
        s.add((x as u32 as u64).lcm(&(y as u16 as u64)));
        s.add(x.sqrt());
        s.add(x.cbrt());
        s.add((x as u128 * y as u128).nth_root(5) as u64);
        let (q, r) = (x as i64 >> 1).div_mod_floor(&(y as i64));
        s.add(q as u64);
        s.add(r as u64);
        s.add(num_integer::binomial(20u64, x % 21));
        let e = (x as i32 as i64).extended_gcd(&(y as i32 as i64 | 1));
        s.add(e.gcd as u64);
    }

    /// `num-complex`: integers, so that nothing is contracted.
    num_complex_products(c, s) {
        let mut z = Complex::new(c.w(1) as i16 as i64, c.w(2) as i16 as i64);
        let w = Complex::new(c.w(3) as i8 as i64, c.w(4) as i8 as i64 | 1);
        for _ in 0..5 {
            z = z * w + Complex::i();
            z = Complex::new(z.re % 99991, z.im % 99991);
        }
        s.add(z.re as u64);
        s.add(z.im as u64);
        s.add(z.norm_sqr() as u64);
        s.add((z / w).re as u64);
        s.add((z.conj() - w).im as u64);
    }

    /// `num-rational`: sums of fractions.
    num_rational_sums(c, s) {
        let mut sum = Ratio::new(c.w(1) as i8 as i64, (c.w(2) & 63) as i64 + 1);
        for k in 0..4 {
            sum += Ratio::new(c.w(k + 3) as i8 as i64, (c.w(k) & 31) as i64 + 1);
            sum = sum * Ratio::new(2, 3);
        }
        s.add(*sum.numer() as u64);
        s.add(*sum.denom() as u64);
        s.add(sum.floor().to_integer() as u64);
        s.add((sum > Ratio::from_integer(1)) as u64);
    }

    /// `fixed`: arithmetic of fixed-point numbers.
    fixed_arithmetic(c, s) {
        let (x, y) = (I16F16::from_bits(c.w(1) as i32), I16F16::from_bits(c.w(2) as i32 | 1));
        s.add(x.wrapping_mul(y).to_bits() as u64);
        s.add(x.wrapping_div(y).to_bits() as u64);
        s.add(x.saturating_add(y).to_bits() as u64);
        s.add(x.round_ties_even_hash());
        let z = I32F32::from_bits(c.w(3) as i64);
        s.add(z.wrapping_mul(z).to_bits() as u64);
        s.add(U8F8::saturating_from_num(z).to_bits() as u64);
        s.add(U8F8::from_bits(c.w(4) as u16).wrapping_sqrt().to_bits() as u64);
    }

    /// `az`: casts.
    az_casts(c, s) {
        let (x, y) = (c.w(1) as i64, c.f64(2));
        s.add(x.saturating_as::<i8>() as u64);
        s.add(x.wrapping_as::<u16>() as u64);
        s.add(x.checked_as::<u32>().map_or(1, u64::from));
        s.add(number64(y).saturating_as::<i32>() as u64);
        s.add(y.checked_as::<i64>().map_or(2, |x| x as u64));
    }

    /// `micromath`: integer square roots and vectors.
    micromath_vectors(c, s) {
        use micromath::vector::{I32x3, Vector};
        let a = I32x3 { x: c.w(1) as i8 as i32, y: c.w(2) as i8 as i32, z: c.w(3) as i8 as i32 };
        let b = a * 3 + I32x3 { x: 1, y: 2, z: 3 };
        s.add(a.dot(b) as i64 as u64);
        s.add(b.iter().fold(0, |h, x| mix(h, x as u64)));
    }

    /// `ethnum`: 256-bit integers.
    ethnum_wide(c, s) {
        let x = U256::from_words(u128::from(c.w(1)) << 64 | u128::from(c.w(2)), u128::from(c.w(3)) << 64 | u128::from(c.w(4)));
        let y = U256::from(c.w(5)) << (c.w(6) as u32 & 127) | U256::ONE;
        let mut add = |x: U256| { let (high, low) = x.into_words(); s.add_wide(high); s.add_wide(low); };
        add(x.wrapping_mul(y));
        add(x / y);
        add(x % y);
        add(x >> (c.w(7) as u32 & 255));
        add(x.rotate_left(c.w(8) as u32 & 255));
        add(I256::from(c.w(9) as i64).wrapping_sub(I256::from(c.w(10) as i64)).as_u256());
        s.add(u64::from(x.leading_zeros()) ^ u64::from(y.trailing_zeros()));
    }

    /// `ordered-float`: sorted floats.
    ordered_float_sort(c, s) {
        let mut a: [OrderedFloat<f32>; 30] = core::array::from_fn(|k| OrderedFloat(number32(c.f32(k as u64 * 3)) + 0.0));
        a.sort_unstable();
        for x in a { s.add(bits32(x.0)); }
        s.add((a[0] < a[1]) as u64 ^ a.iter().max().map_or(0, |x| bits32(x.0)));
    }

    /// `half`: conversions of slices, and classes of numbers.
    half_slices(c, s) {
        let source: [f32; 8] = core::array::from_fn(|k| number32(c.f32(k as u64)));
        let mut halves = [f16::ZERO; 8];
        halves.convert_from_f32_slice(&source);
        let mut back = [0.0; 8];
        halves.convert_to_f32_slice(&mut back);
        for (half, x) in halves.iter().zip(back) {
            s.add(bits16(*half) ^ bits32(x) << 16);
            s.add(half.is_normal() as u64 | (half.is_finite() as u64) << 1 | (half.is_sign_negative() as u64) << 2);
        }
        s.add(halves.iter().max_by(|a, b| a.total_cmp(b)).map_or(0, |x| bits16(*x)));
        s.add(bits16(num_traits::Float::floor(f16::from_f32(c.f32(9)))));
        s.add(bitsb16(num_traits::Float::abs(bf16::from_f32(c.f32(10)))));
    }

    /// `lexical-core`: floats and integers as text, and back.
    lexical_round_trips(c, s) {
        let mut buffer = [0; 256];
        let text = lexical_core::write(c.w(1) as i64, &mut buffer);
        s.add(text.iter().fold(0, |h, b| mix(h, u64::from(*b))));
        s.add(lexical_core::parse::<i64>(text).map_or(1, |x| x as u64));
        let text = lexical_core::write(number64(c.f64(2)), &mut buffer);
        s.add(text.iter().fold(0, |h, b| mix(h, u64::from(*b))));
        s.add(lexical_core::parse::<f64>(text).map_or(2, bits64));
        s.add(lexical_core::parse::<f32>(text).map_or(3, bits32));
        s.add(lexical_core::parse::<u8>(&text[..2]).map_or(4, u64::from));
    }
}

/// Hash of rounding results.
trait Rounds {
    fn round_ties_even_hash(self) -> u64;
}

impl Rounds for I16F16 {
    fn round_ties_even_hash(self) -> u64 {
        let (floor, _) = self.overflowing_floor();
        let (round, over) = self.overflowing_round_ties_even();
        floor.to_bits() as u64 ^ (round.to_bits() as u64).rotate_left(20) ^ u64::from(over)
    }
}
