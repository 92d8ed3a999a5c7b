//! Exact assignment of numbers to bins of equal width.
//!
//! The bin of a float is estimated in the accumulator type, and the estimate is corrected by comparing the float with
//! bin edges. The edges are computed with integer comparisons, so the result is exact for any range. If a table
//! contains the edges in the float's own type, the estimate is never too high, and one comparison corrects it.
//! Otherwise, the float is compared only if the estimate is near an edge.

use core::cmp::Ordering;

use gpu_std::math::Math;
use gpu_std::prelude::*;

use crate::powers::{exponent, two_to};
use crate::tile::{each, lanewise};

/// Even bins. Bin i of `count` covers the interval from `lower` + i · width (inclusive) to the start of the next bin,
/// where the width is (`upper` - `lower`) / `count`. [`Binned::bins`] creates this value.
#[derive(Debug, Clone, Copy)]
pub struct Bins<T> {
    /// Number of bins.
    pub count: u32,
    /// Smallest number in the first bin.
    pub lower: T,
    /// Largest number in the last bin.
    pub last: T,
    /// Two factors. The first factor, a power of two (1 for integers), scales distances so that they neither overflow
    /// nor lose digits. The second factor is the number of bins per scaled distance of 1.
    pub factors: [f64; 2],
    /// Number of fractional bits of an estimated position, in units of bins, for floats.
    pub fraction: u32,
    /// Maximum error of the estimate, in units of its last bit.
    pub slack: u32,
}

/// A number type that supports even histograms.
pub trait Binned: Scalar {
    /// Returns the bin of a number, or `None` for NaN and numbers outside the range. Unless there are zero bins, the
    /// result is always below the number of bins. `edges` are the exact edges, as computed by [`edge()`]. For integers,
    /// they are not used.
    fn bin(self, bins: &Bins<Self>, edges: &[f64]) -> Option<u32>;

    /// Returns the bins of several numbers, like [`bin`](Self::bin), for fewer than 2¹⁵ bins. `table` contains the edges
    /// in this type (see [`at_or_above`](Self::at_or_above)).
    #[inline(always)]
    fn bins_of<const N: usize>(items: [Self; N], bins: &Bins<Self>, _table: &[Self]) -> [Option<u32>; N] {
        lanewise::<_, N>(|lane| items[lane].bin(bins, &[]))
    }

    /// Returns the smallest number that is not below an edge (see [`edge()`]).
    fn at_or_above(edge: f64) -> Self;

    /// Creates `count` bins from `lower` to `upper`. The last bin includes `upper` if `is_inclusive`. Returns `None` if
    /// the range is empty or not finite.
    fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>>;
}

/// Returns a power of two whose exponent is at most `most`, and the number of bins per scaled distance of 1.
fn factors(count: u32, [lower, upper]: [f64; 2], most: i32) -> [f64; 2] {
    // Half the distance is used, because the distance itself may overflow.
    let power = match lower.abs().max(upper.abs()) > 1.0 {
        true => -1 - exponent(upper / 2.0 - lower / 2.0),
        false => -exponent(upper - lower),
    };
    let unit = two_to(power.clamp(-most, most));
    [unit, f64::from(count) / (upper * unit - lower * unit)]
}

/// The product of a float and an integer, as a sign and a mantissa times a power of two.
#[derive(Clone, Copy)]
struct Term {
    is_negative: bool,
    exponent: i32,
    /// Mantissa. The mantissa is 0, or its highest set bit is bit 125. Bits 40 to 0 are clear, except in a sum.
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
        // A sum may have one additional bit, but then its lowest bit is clear.
        let mantissa = if zeros < 2 { mantissa >> 1 } else { mantissa << (zeros - 2) };
        Self { is_negative, exponent: exponent + 2 - zeros, mantissa }
    }

    fn magnitude(&self) -> (i32, u128) {
        (self.exponent, self.mantissa)
    }

    /// Returns the sign of the term as an ordering relative to 0.
    fn sign(&self) -> Ordering {
        match (self.mantissa == 0, self.is_negative) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Less,
            (_, false) => Ordering::Greater,
        }
    }

    /// Returns the sign of the sum of two terms, whose magnitudes can be in any order.
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

/// Returns the exact sign of the sum of three terms.
fn sign_of_sum(terms: [Term; 3]) -> Ordering {
    let [mut a, mut b, mut c] = terms;
    // Moves the term of largest magnitude to the front.
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
    // The magnitude of the first term exceeds the combined magnitude of the other two.
    if distance >= 2 {
        return a.sign();
    }
    let of_b = b.mantissa >> distance;
    let sum = if a.is_negative == b.is_negative { a.mantissa + of_b } else { a.mantissa - of_b };
    Term::normal(a.is_negative, a.exponent, sum).sign_of_sum(c)
}

/// Returns the smallest `f64` in bin `i` or a later bin, for `count` bins from `lower` to `upper`. No smaller number
/// reaches the exact edge.
pub fn edge(lower: f64, upper: f64, i: u32, count: u32) -> f64 {
    if i == 0 || i >= count {
        return lower;
    }
    // The comparison is: count · x < (count - i) · lower + i · upper.
    let edge = [Term::new(lower, count - i, true), Term::new(upper, i, true)];
    let is_below = |ordinal: i64| {
        let x = Term::new(of_ordinal(ordinal), count, false);
        sign_of_sum([x, edge[0], edge[1]]) == Ordering::Less
    };
    let [first, last] = [lower, upper].map(ordinal);
    let share = f64::from(i) / f64::from(count);
    let estimate = ordinal(lower * (1.0 - share) + upper * share);
    let estimate = if estimate < first {
        first
    } else if estimate > last {
        last
    } else {
        estimate
    };
    // The number at `low` is below the edge, and the number at `high` is not. The step from the estimate doubles until
    // the edge lies between the two numbers.
    let is_up = is_below(estimate);
    let (mut low, mut high) = if is_up { (estimate, last) } else { (first, estimate) };
    let mut step = 1_u64;
    loop {
        let gap = high.wrapping_sub(low) as u64;
        if gap <= 1 {
            return of_ordinal(high);
        }
        let half = if step < gap / 2 { step } else { gap / 2 };
        let middle = if is_up { low.wrapping_add(half as i64) } else { high.wrapping_sub(half as i64) };
        let was_below = is_below(middle);
        (low, high) = if was_below { (middle, high) } else { (low, middle) };
        step = if was_below == is_up { step.saturating_mul(2) } else { u64::MAX };
    }
}

/// Returns a number's position in the order of all floats. The next larger number has the next ordinal, and both zeros
/// have ordinal 0.
fn ordinal(x: f64) -> i64 {
    let magnitude = (x.to_bits() << 1 >> 1) as i64;
    if x.to_bits() >> 63 == 0 { magnitude } else { -magnitude }
}

/// Returns the number with this ordinal.
fn of_ordinal(ordinal: i64) -> f64 {
    f64::from_bits(ordinal.unsigned_abs() | if ordinal < 0 { 1 << 63 } else { 0 })
}

/// Expands to the position of a number in bins, as a fixed-point number in the lowest bits of a float, to the bits of
/// position 0, and to the mask of the fractional bits.
macro_rules! place {
    ($x:expr, $bins:expr, $acc:ty as $acc_bits:ty, $digits:expr) => {{
        let [unit, scale] = $bins.factors.map(|factor| factor as $acc);
        let distance = Math::mul_add($x, unit, -($bins.lower.to_acc() * unit));
        // Adding 1.5 times a power of two moves the position, in bins, to the lowest bits of the sum.
        let exponent = <$acc>::MAX_EXP - 1 + $digits - $bins.fraction as i32;
        let shift = <$acc>::from_bits((exponent as $acc_bits) << $digits | 1 << ($digits - 1));
        (Math::mul_add(distance, scale, shift).to_bits(), shift.to_bits(), (1_u32 << $bins.fraction) - 1)
    }};
}

macro_rules! float_bins {
    ($($t:ty: $bits:ty, $acc:ty as $acc_bits:ty, $digits:expr, $most:expr;)*) => { $(
        impl Binned for $t {
            #[inline(always)]
            fn bin(self, bins: &Bins<Self>, edges: &[f64]) -> Option<u32> {
                let (x, lower, last) = (self.to_acc(), bins.lower.to_acc(), bins.last.to_acc());
                if !(x >= lower && x <= last) {
                    return None;
                }
                let (place, shift, mask) = place!(x, bins, $acc as $acc_bits, $digits);
                let place = place.wrapping_sub(shift);
                let bin = (place >> bins.fraction) as u32;
                let bin = if bin < bins.count { bin } else { bins.count - 1 };
                if (place as u32).wrapping_add(bins.slack) & mask >= 2 * bins.slack {
                    return Some(bin);
                }
                // The estimate is near an edge. For up to 2²⁰ bins, the estimate is off by at most one bin.
                let x: f64 = self.cast();
                let is_below = edges.get(bin as usize).is_some_and(|edge| x < *edge);
                let is_above = edges.get(bin as usize + 1).is_some_and(|edge| x >= *edge) && bin + 1 < bins.count;
                Some((bin + is_above as u32).saturating_sub(is_below as u32))
            }

            #[inline(always)]
            fn bins_of<const N: usize>(items: [Self; N], bins: &Bins<Self>, table: &[Self]) -> [Option<u32>; N] {
                let x = lanewise::<_, N>(|lane| items[lane].to_acc());
                let (lower, last) = (bins.lower.to_acc(), bins.last.to_acc());
                // Estimates minus their error. A number is in this bin or the next one, because a bin is wider than
                // twice the error. Bins are counted from 1 here, because the estimate of a number in the first bin can
                // fall below that bin.
                let places = lanewise::<_, N>(|lane| {
                    let (place, shift, _) = place!(x[lane], bins, $acc as $acc_bits, $digits);
                    place.wrapping_sub((shift + bins.slack as $acc_bits).wrapping_sub(1 << bins.fraction))
                });
                let mut found = lanewise::<_, N>(|lane| (places[lane] >> bins.fraction) as u32);
                let mask = (1_u32 << bins.fraction) - 1;
                let limit = mask.saturating_sub(2 * bins.slack);
                let parts = lanewise::<_, N>(|lane| places[lane] as u32 & mask);
                let mut largest = parts[0];
                each::<N>(|lane| largest = if parts[lane] > largest { parts[lane] } else { largest });
                if largest > limit {
                    // Few numbers are near enough to the next bin that its edge decides.
                    each::<N>(|lane| {
                        let edge = if parts[lane] > limit { table.get(found[lane] as usize) } else { None };
                        let is_above = edge.is_some_and(|edge| x[lane] >= edge.to_acc());
                        found[lane] = found[lane].wrapping_add(is_above as u32);
                    });
                }
                let last_bin = bins.count.wrapping_sub(1);
                lanewise::<_, N>(|lane| {
                    let bin = found[lane].wrapping_sub(1);
                    let bin = if bin < last_bin { bin } else { last_bin };
                    ((x[lane] >= lower) & (x[lane] <= last)).then_some(bin)
                })
            }

            fn at_or_above(edge: f64) -> Self {
                let nearest: Self = edge.cast();
                match nearest.to_bits() {
                    _ if nearest.cast::<f64>() >= edge => nearest,
                    bits if edge > 0.0 => Self::from_bits(bits + 1),
                    // The nearest number is negative and not zero, so the next larger number has smaller bits.
                    bits => Self::from_bits(bits - 1),
                }
            }

            fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>> {
                if !(lower < upper && lower.is_finite() && upper.is_finite()) {
                    return None;
                }
                // The largest number below `upper`.
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let before = match upper.to_bits() {
                    bits if upper > Self::ZERO => bits - 1,
                    _ if upper == Self::ZERO => SIGN | 1,
                    bits => bits + 1,
                };
                let last = if is_inclusive { upper } else { <$t>::from_bits(before) };
                let factors = factors(count, [lower, upper].map(Scalar::cast::<f64>), $most);
                let whole = u32::BITS - count.leading_zeros();
                let fraction = ($digits - 1_u32).saturating_sub(whole).min(24);
                // The error consists of three roundings of the position, the rounding of each factor, and the rounding
                // to the fractional bits.
                let off = (f64::from(count) + 1.0) * two_to(1 - $digits) * two_to(fraction as i32);
                Some(Bins { count, lower, last, factors, fraction, slack: off as u32 + 2 })
            }
        }
    )* };
}
float_bins! {
    f32: u32, f32 as u32, 23, 126;
    f16: u16, f32 as u32, 23, 126;
    bf16: u16, f32 as u32, 23, 126;
    f64: u64, f64 as u64, 52, 1000;
}

macro_rules! integer_bins {
    ($($t:ty),*) => { $(
        impl Binned for $t {
            /// The result is exact, because for up to 2²⁰ bins, the estimate is off by at most one bin.
            #[inline(always)]
            fn bin(self, bins: &Bins<Self>, _: &[f64]) -> Option<u32> {
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
                // Invalid factors can lead to any estimate.
                Some(if bin < bins.count { bin } else { bins.count - 1 })
            }

            fn at_or_above(edge: f64) -> Self {
                edge as Self
            }

            fn bins(count: u32, lower: Self, upper: Self, is_inclusive: bool) -> Option<Bins<Self>> {
                let last = if is_inclusive { upper } else { upper.checked_sub(1)? };
                let range = last as i64 - lower as i64 + 1;
                let factors = [1.0, f64::from(count) / range as f64];
                (range > 0).then_some(Bins { count, lower, last, factors, fraction: 0, slack: 0 })
            }
        }
    )* };
}
integer_bins!(u8, i32, u32);
