//! Norms for rows whose moments exceed the range or precision of the accumulator type. In such a row, squares or sums
//! overflow or underflow, or the spread is lost in the rounding of the mean.
//!
//! Such rows are rare. The thread group reads them several times, one element at a time, and computes in `f64`. The
//! elements are scaled by a power of two so that the largest is about 1.

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::powers::{exponent, two_to};
use crate::thread_group::ThreadGroup;

/// Statistics that normalize a row: the mean, a correction of the mean, the reciprocal of √(variance + epsilon), and a
/// scale for all of them.
pub(crate) type Statistics<A> = [A; 4];

/// Normalizes an element.
#[inline(always)]
pub(crate) fn normalized<A: Math>(x: A, [mean, rest, inverse, scale]: Statistics<A>) -> A {
    (x.mul_add(scale, -mean) - rest) * inverse
}

/// A row, and the parameters of its norm.
pub(crate) struct Row<T> {
    pub x: *const T,
    pub width: usize,
    pub is_rms: bool,
    pub epsilon: f64,
}

/// Statistics of a row. Its elements are scaled by 2 to the power of `power`, and its gradients by 2 to the power of
/// `of_gradients`.
struct Found {
    power: i32,
    mean: f64,
    rest: f64,
    inverse: f64,
    of_gradients: i32,
    /// Mean of the gradients. `product` is the mean of the products of the gradients and the normalized elements.
    gradient: f64,
    product: f64,
}

impl Found {
    #[inline(always)]
    fn statistics(&self) -> Statistics<f64> {
        [self.mean, self.rest, self.inverse, two_to(self.power)]
    }
}

/// Number of passes over a row in the forward direction. The passes compute the largest magnitude, the mean, the error
/// of the mean, and the squares. `BACKWARD` includes three more passes, for the largest magnitude, the sum and the
/// products of the gradients.
const FORWARD: u32 = 4;
const BACKWARD: u32 = 7;

/// Returns the exponent of the power of two that scales a number to about 1, clamped to the exponent range of the type.
#[inline(always)]
fn power<A>(largest: f64) -> i32 {
    let most = if size_of::<A>() == 4 { 126 } else { 1022 };
    let power = if largest > 0.0 { -exponent(largest) } else { 0 };
    if power > most {
        most
    } else if power < -most {
        -most
    } else {
        power
    }
}

impl<T: Float> Row<T> {
    /// # Safety
    /// The row must be valid and contain the element.
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> f64 {
        // SAFETY: guaranteed by this function's contract.
        unsafe { self.x.add(i).read() }.cast()
    }

    /// Computes the statistics in the first `passes` passes. `gradient` returns an element's gradient and weight.
    ///
    /// All passes share one loop. The compiler must not split the loop, because the code would be large for a rare
    /// case.
    ///
    /// # Safety
    /// `x` must be valid for reads of `width` elements.
    #[inline(always)]
    unsafe fn find(
        &self,
        passes: u32,
        gradient: impl Fn(usize) -> [f64; 2],
        group: &mut ThreadGroup,
    ) -> Found {
        let count = self.width as f64;
        let mut found = Found {
            power: 0,
            mean: 0.0,
            rest: 0.0,
            inverse: 1.0,
            of_gradients: 0,
            gradient: 0.0,
            product: 0.0,
        };
        let mut pass = 0;
        loop {
            let is_largest = (pass == 0) | (pass == FORWARD);
            let combine = |a: f64, b: f64| match is_largest {
                true => {
                    if a > b {
                        a
                    } else {
                        b
                    }
                }
                false => a + b,
            };
            let scale = two_to(found.power);
            let (mut result, mut i) = (0.0, group.rank);
            while i < self.width {
                // SAFETY: `i` is less than the width.
                let x = unsafe { self.at(i) } * scale;
                let value = if pass < FORWARD {
                    let difference = x - found.mean - found.rest;
                    match pass {
                        0 => Math::abs(x),
                        3 => difference * difference,
                        _ => difference,
                    }
                } else {
                    let [gradient, weight] = gradient(i);
                    let weighted = gradient * two_to(found.of_gradients) * weight;
                    match pass {
                        FORWARD => Math::abs(gradient),
                        5 => weighted,
                        _ => weighted * (x - found.mean - found.rest) * found.inverse,
                    }
                };
                result = combine(result, value);
                i += group.size;
            }
            let result = group.combine(result, combine);
            let mean = result / count;
            match pass {
                0 => found.power = power::<T::Accumulator>(result),
                // RMS norm does not subtract the mean.
                1 if !self.is_rms => found.mean = mean,
                2 if !self.is_rms => {
                    let sum = found.mean + mean;
                    found.rest = mean - (sum - found.mean);
                    found.mean = sum;
                }
                3 => {
                    let variance = mean + self.epsilon * scale * scale;
                    // A row of equal elements becomes 0 for any epsilon.
                    found.inverse = if variance == 0.0 { 1.0 } else { Math::rsqrt(variance) };
                }
                FORWARD => found.of_gradients = power::<f64>(result),
                // The mean of the gradients has no effect if the norm subtracts no mean.
                5 if !self.is_rms => found.gradient = mean,
                6 => found.product = mean,
                _ => {}
            }
            pass = opaque(pass + 1);
            if pass >= passes {
                return found;
            }
        }
    }
}

/// Writes the normalized row, multiplied by `weight`, with `bias` added.
///
/// # Safety
/// The row and `target` must be valid for the row's width, and each parameter that is present must have as many
/// elements. Nothing else may access `target`.
#[inline(always)]
pub(crate) unsafe fn forward<T: Float>(
    row: &Row<T>,
    target: *mut T,
    [weight, bias]: [Option<&[T]>; 2],
    group: &mut ThreadGroup,
) {
    // SAFETY: guaranteed by this function's contract.
    let statistics = unsafe { row.find(FORWARD, |_| [0.0; 2], group) }.statistics();
    let mut i = group.rank;
    while i < row.width {
        let [weight, bias] = [(weight, 1.0), (bias, 0.0)].map(|(array, otherwise)| {
            array.and_then(|array| array.get(i)).map_or(otherwise, |value| value.cast::<f64>())
        });
        // SAFETY: `i` is less than the width.
        unsafe {
            let result = Math::mul_add(normalized(row.at(i), statistics), weight, bias);
            target.add(i).write(result.cast());
        }
        i += group.size;
    }
}

/// Writes the gradient of a row's input, computed from the gradient `dy` of the norm's output, and the row's
/// statistics.
///
/// # Safety
/// The caller must uphold the safety contract of [`forward`], both to `x` and to `dy`, and `statistics` must be the
/// slot of this row.
#[inline(always)]
pub(crate) unsafe fn backward<T: Float>(
    row: &Row<T>,
    dy: *const T,
    target: *mut T,
    weight: Option<&[T]>,
    statistics: *mut Statistics<T::Accumulator>,
    group: &mut ThreadGroup,
) {
    let gradient = |i: usize| {
        let weight = weight.and_then(|array| array.get(i)).map_or(1.0, |value| value.cast());
        // SAFETY: all indices passed to this closure are less than the width.
        [unsafe { dy.add(i).read() }.cast::<f64>(), weight]
    };
    // SAFETY: guaranteed by this function's contract.
    let found = unsafe { row.find(BACKWARD, gradient, group) };
    let own = found.statistics();
    let [mean, rest, inverse, scale] = own;
    if group.rank == 0 {
        let rounded: T::Accumulator = mean.cast();
        let rest = mean - rounded.cast::<f64>() + rest;
        // SAFETY: this slot belongs to the row, and only one thread writes it.
        unsafe { statistics.write([rounded, rest.cast(), inverse.cast(), scale.cast()]) };
    }
    // The product has three factors because a single factor could overflow even if the result does not.
    let power = found.power - found.of_gradients;
    let factors = [two_to(power / 3), two_to(power - power / 3 * 2)];
    let mut i = group.rank;
    while i < row.width {
        let [gradient, weight] = gradient(i);
        let weighted = gradient * two_to(found.of_gradients) * weight;
        // SAFETY: `i` is less than the width.
        unsafe {
            let left = weighted - found.gradient - normalized(row.at(i), own) * found.product;
            target.add(i).write((left * inverse * factors[1] * factors[0] * factors[0]).cast());
        }
        i += group.size;
    }
}
