//! Which of some bins of equal width a number lies in, exactly.
//!
//! A float's place is estimated in its accumulator's type. Where an edge is nearer than the estimate may be off, the bin is
//! found by comparing integers, which are exact whatever the range is.

use core::cmp::Ordering;

use gpu_std::math::Math;
use gpu_std::prelude::*;

/// Even bins: bin i of `count` has the numbers from `lower` + i · width on, below the next, for a width of
/// (`upper` - `lower`) / `count`. Made by [`Binned::bins`].
#[derive(Debug, Clone, Copy)]
pub struct Bins<T> {
    /// How many.
    pub count: u32,
    /// The least number of the first bin.
    pub lower: T,
    /// The greatest number of the last bin.
    pub last: T,
    /// Where the last bin ends, of floats; of integers that is the one after `last`.
    pub upper: T,
    /// A power of two, by which distances are multiplied so that they neither leave the range nor lose digits (1 for integers);
    /// and how many bins a distance of 1 then has.
    pub factors: [f64; 2],
    /// How far from an edge, in bins, an estimate counts; of floats.
    pub slack: f64,
}

/// A number of which an even histogram is made.
pub trait Binned: Scalar {
    /// The bin of a number; `None` outside, and of NaN. Whatever the bins are, it is below their number, if there are any.
    fn bin(self, bins: &Bins<Self>) -> Option<u32>;

    /// `count` bins from `lower` to `upper`, which is in the last one if the range `is_inclusive`. `None` for a range that is
    /// empty or not finite.
    fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>>;
}

/// 2 to a power from -1022 to 1023.
const fn two_to(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The power of two that is next below a positive number.
fn exponent(x: f64) -> i32 {
    let of_normal = |x: f64| (x.to_bits() >> 52) as i32 - 1023;
    if x < two_to(-1000) { of_normal(x * two_to(600)) - 600 } else { of_normal(x) }
}

/// Power of two and scale of bins, for a power of at most this exponent.
fn factors(count: u32, [lower, upper]: [f64; 2], most: i32) -> [f64; 2] {
    // Half of a distance that may leave the range.
    let power = match lower.abs().max(upper.abs()) > 1.0 {
        true => -1 - exponent(upper / 2.0 - lower / 2.0),
        false => -exponent(upper - lower),
    };
    let unit = two_to(power.clamp(-most, most));
    [unit, f64::from(count) / (upper * unit - lower * unit)]
}

/// A float times a whole number, as a sign and a mantissa times a power of two.
#[derive(Clone, Copy)]
struct Term {
    is_negative: bool,
    exponent: i32,
    /// 0, or the highest bit is bit 125, and bits 40 to 0 are not set but in a sum.
    mantissa: u128,
}

impl Term {
    fn new(x: f64, times: u32, is_subtracted: bool) -> Self {
        let bits = x.to_bits();
        let (exponent, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
        let (exponent, mantissa) = if exponent == 0 { (1, fraction) } else { (exponent, fraction | 1 << 52) };
        Self::normal((bits >> 63 != 0) != is_subtracted, exponent, mantissa as u128 * times as u128)
    }

    fn normal(is_negative: bool, exponent: i32, mantissa: u128) -> Self {
        if mantissa == 0 {
            return Self { is_negative, exponent: i32::MIN / 2, mantissa };
        }
        let zeros = mantissa.leading_zeros() as i32;
        // A sum may have one bit more, and its lowest one is not set.
        let mantissa = if zeros < 2 { mantissa >> 1 } else { mantissa << (zeros - 2) };
        Self { is_negative, exponent: exponent + 2 - zeros, mantissa }
    }

    fn magnitude(&self) -> (i32, u128) {
        (self.exponent, self.mantissa)
    }

    /// The sign of a number with this magnitude.
    fn sign(&self) -> Ordering {
        match (self.mantissa == 0, self.is_negative) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Less,
            (_, false) => Ordering::Greater,
        }
    }

    /// The sign of the sum of two, of which neither need be the greater.
    fn sign_of_sum(self, other: Self) -> Ordering {
        match self.magnitude().cmp(&other.magnitude()) {
            _ if self.is_negative == other.is_negative => {
                if self.mantissa == 0 {
                    other.sign()
                } else {
                    self.sign()
                }
            }
            Ordering::Less => other.sign(),
            Ordering::Equal => Ordering::Equal,
            Ordering::Greater => self.sign(),
        }
    }
}

/// The sign of the sum of three, exactly.
fn sign_of_sum(terms: [Term; 3]) -> Ordering {
    let [mut a, mut b, mut c] = terms;
    // The greatest magnitude first.
    if a.magnitude() < b.magnitude() {
        (a, b) = (b, a);
    }
    if a.magnitude() < c.magnitude() {
        (a, c) = (c, a);
    }
    if b.magnitude() < c.magnitude() {
        (b, c) = (c, b);
    }
    let distance = a.exponent - b.exponent;
    // More than both others together.
    if distance >= 2 {
        return a.sign();
    }
    let of_b = b.mantissa >> distance;
    let sum = if a.is_negative == b.is_negative { a.mantissa + of_b } else { a.mantissa - of_b };
    Term::normal(a.is_negative, a.exponent, sum).sign_of_sum(c)
}

/// The bin of a number next to an edge, from `lower` to `upper`: exactly. It is between both.
#[inline(never)]
fn exact_bin(x: f64, lower: f64, upper: f64, [unit, scale]: [f64; 2], count: u32) -> u32 {
    let (of_x, of_lower) = (x * unit, lower * unit);
    let distance = of_x - of_lower;
    let is_exact = |a: f64, b: f64, difference: f64| a - difference == b && difference + b == a;
    let (width, place, whole) = (upper * unit - of_lower, distance * scale, f64::from(count));
    // Without a rounding on the way, as where bins have the width of a whole number.
    if distance == 0.0
        || [x * unit / unit, lower * unit / unit] == [x, lower]
            && is_exact(of_x, of_lower, distance)
            && is_exact(upper * unit, of_lower, width)
            && Math::mul_add(distance, scale, -place) == 0.0
            && Math::mul_add(width, scale, -whole) == 0.0
    {
        return place as u32;
    }
    // Below edge i: count · x < (count - i) · lower + i · upper.
    let is_below = |i: u32| {
        let terms =
            [Term::new(x, count, false), Term::new(lower, count - i, true), Term::new(upper, i, true)];
        sign_of_sum(terms) == Ordering::Less
    };
    let estimate = place as u32;
    let mut bin = if estimate < count { estimate } else { count.saturating_sub(1) };
    while bin > 0 && is_below(bin) {
        bin -= 1;
    }
    while bin + 1 < count && !is_below(bin + 1) {
        bin += 1;
    }
    bin
}

macro_rules! float_bins {
    ($($t:ty: $bits:ty, $acc:ty, $shift:expr, $most:expr, $rounding:expr;)*) => { $(
        impl Binned for $t {
            #[inline(always)]
            fn bin(self, bins: &Bins<Self>) -> Option<u32> {
                let (x, lower, last) = (self.to_acc(), bins.lower.to_acc(), bins.last.to_acc());
                if !(x >= lower && x <= last) {
                    return None;
                }
                let [unit, scale] = bins.factors.map(|factor| factor as $acc);
                let distance = Math::mul_add(x, unit, -(lower * unit));
                // Rounded to a whole number, which is in the lowest bits of the sum: the bin, unless an edge is near.
                const SHIFT: $acc = $shift;
                let place = Math::mul_add(distance, scale, -0.5);
                let shifted = place + SHIFT;
                let off = Math::abs(place - (shifted - SHIFT));
                let bin = if off <= 0.5 - bins.slack as $acc {
                    (shifted.to_bits() as u32).wrapping_sub(SHIFT.to_bits() as u32)
                } else {
                    let [x, lower, upper] = [self, bins.lower, bins.upper].map(Scalar::cast::<f64>);
                    exact_bin(x, lower, upper, bins.factors, bins.count)
                };
                Some(if bin < bins.count { bin } else { bins.count - 1 })
            }

            fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>> {
                if !(lower < upper && lower.is_finite() && upper.is_finite()) {
                    return None;
                }
                // The number before it.
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = upper.to_bits();
                let before = if upper > Self::ZERO {
                    bits - 1
                } else if upper == Self::ZERO {
                    SIGN | 1
                } else {
                    bits + 1
                };
                let last = if is_inclusive { upper } else { <$t>::from_bits(before) };
                let factors = factors(count, [lower, upper].map(Scalar::cast::<f64>), $most);
                // Three roundings of the place, and those of what is multiplied.
                let slack = (f64::from(count) + 1.0) * $rounding;
                Some(Bins { count, lower, last, upper, factors, slack })
            }
        }
    )* };
}
float_bins! {
    f32: u32, f32, 12_582_912.0, 126, two_to(-22);
    f16: u16, f32, 12_582_912.0, 126, two_to(-22);
    bf16: u16, f32, 12_582_912.0, 126, two_to(-22);
    f64: u64, f64, 6_755_399_441_055_744.0, 1000, two_to(-50);
}

macro_rules! integer_bins {
    ($($t:ty),*) => { $(
        impl Binned for $t {
            /// Exact: the estimate is off by one at most, as long as there are 2²⁰ bins at most.
            #[inline(always)]
            fn bin(self, bins: &Bins<Self>) -> Option<u32> {
                if !(self >= bins.lower && self <= bins.last) {
                    return None;
                }
                let distance = (self as i64 - bins.lower as i64) as u32;
                let range = (bins.last as i64 - bins.lower as i64 + 1) as u64;
                let estimate = (distance as f32 * bins.factors[1] as f32) as u32;
                let (exact, floor) = (distance as u64 * bins.count as u64, estimate as u64 * range);
                let bin = if exact < floor {
                    estimate - 1
                } else if exact - floor >= range {
                    estimate + 1
                } else {
                    estimate
                };
                // Of other factors it may be any.
                Some(if bin < bins.count { bin } else { bins.count - 1 })
            }

            fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>> {
                let last = if is_inclusive { upper } else { upper.checked_sub(1)? };
                let range = last as i64 - lower as i64 + 1;
                let factors = [1.0, f64::from(count) / range as f64];
                (range > 0).then_some(Bins { count, lower, last, upper, factors, slack: 0.0 })
            }
        }
    )* };
}
integer_bins!(u8, i32, u32);
