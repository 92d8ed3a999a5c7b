//! [`Indexed`]: a key-index pair, for argmin and argmax.

use bytemuck::{Pod, Zeroable};

use crate::element::{KernelType, KernelValue};
use crate::scalar::Scalar;

/// The key and the index of an element, for argmin and argmax. Kernels can reduce such pairs within threads, warps,
/// tiles and blocks ([`block::reduce`](crate::block::reduce)), and the host can reduce the blocks' results.
///
/// [`max`](Self::max) and [`min`](Self::min) are associative and commutative operators for such reductions. Of equal
/// keys, the lower index wins. A NaN key wins both the maximum and the minimum, as in `ops::argmax` and `ops::argmin`.
/// [`NONE`](Self::NONE) is the identity of both operators. The kernel computes an element's key, which can be a struct
/// field, a distance, or any other 32-bit or 64-bit number. (Convert smaller numbers first, which preserves their
/// order.)
///
/// ```
/// use gpu_std::Indexed;
/// use gpu_std::prelude::*;
///
/// /// The point farthest from the origin of each block's.
/// #[kernel]
/// fn farthest(points: &[[f32; 2]], mut out: DisjointMut<Indexed<f32>, PerBlock>) {
///     let mut own = Indexed::NONE;
///     for i in thread::grid_stride(points.len()) {
///         let [x, y] = points[i.get()];
///         own = own.max(Indexed::new(i.get(), x * x + y * y));
///     }
///     let best = block::reduce(own, Indexed::max);
///     if let Some(out) = out.get_mut(block::unique_index()) {
///         *out = best;
///     }
/// }
///
/// // As the host ends it.
/// let of_blocks = [Indexed::new(7, 2.0_f32), Indexed::NONE, Indexed::new(300, 5.0)];
/// let best = of_blocks.into_iter().fold(Indexed::NONE, Indexed::max);
/// assert_eq!(best.get(), Some((300, 5.0)));
/// ```
///
/// For an order that a number cannot express, reduce a struct of your own with your own operator.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Indexed<T> {
    key: T,
    /// Stored as bytes, so that the struct has no padding for any key type.
    index: [u8; 8],
}

impl<T: Scalar> Indexed<T> {
    /// Represents the absence of an element.
    pub const NONE: Self = Self { key: T::ZERO, index: [u8::MAX; 8] };

    /// Creates a pair of an element's index and key. The index must be less than `u64::MAX`.
    #[inline(always)]
    pub fn new(index: usize, key: T) -> Self {
        const { check_key::<T>() };
        Self { key, index: (index as u64).to_ne_bytes() }
    }

    /// Returns the index and key, or `None` for [`NONE`](Self::NONE).
    #[inline(always)]
    pub fn get(self) -> Option<(usize, T)> {
        (!self.is_none()).then(|| (self.number() as usize, self.key))
    }

    /// Returns the pair with the larger key. NaN counts as the largest; of equal keys, the lower index wins.
    #[inline(always)]
    pub fn max(self, other: Self) -> Self {
        self.better(other, other.key > self.key)
    }

    /// Returns the pair with the smaller key. NaN counts as the smallest; of equal keys, the lower index wins.
    #[inline(always)]
    pub fn min(self, other: Self) -> Self {
        self.better(other, other.key < self.key)
    }

    /// Returns `other` if its key beats the key of `self` according to `beats`, or if a NaN, an absent element or the
    /// index decides in its favor.
    #[inline(always)]
    fn better(self, other: Self, beats: bool) -> Self {
        let (is_nan, other_is_nan) = (is_nan(self.key), is_nan(other.key));
        let is_equal = (self.key == other.key) | (is_nan & other_is_nan);
        let is_better = beats | (other_is_nan & !is_nan) | (is_equal & (other.number() < self.number()));
        if self.is_none() | (is_better & !other.is_none()) { other } else { self }
    }

    #[inline(always)]
    fn number(self) -> u64 {
        u64::from_ne_bytes(self.index)
    }

    #[inline(always)]
    fn is_none(self) -> bool {
        self.number() == u64::MAX
    }
}

/// Rejects key types that would misalign the index. Threads exchange whole 32-bit words, so a value whose size is not a
/// multiple of 32 bits would be passed through memory.
const fn check_key<T>() {
    assert!(
        size_of::<T>() >= 4,
        "the key of an `Indexed` must have 32 or 64 bits: convert smaller types, such as f16 to f32 and u8 to u32"
    );
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<T: Scalar>(key: T) -> bool {
    key != key
}

/// Compares the results of `get`, so that two absent elements are equal.
impl<T: Scalar> PartialEq for Indexed<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Scalar> core::fmt::Debug for Indexed<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.get() {
            Some((index, key)) => {
                f.debug_struct("Indexed").field("index", &index).field("key", &key).finish()
            }
            None => f.write_str("Indexed::NONE"),
        }
    }
}

// SAFETY: zeros are a valid key and index.
unsafe impl<T: Scalar> Zeroable for Indexed<T> {}
// SAFETY: every bit pattern is a valid key and index. The alignment of a number divides 8, so there is no padding,
// which `HAS_PADDING` checks.
unsafe impl<T: Scalar> Pod for Indexed<T> {}
// SAFETY: `repr(C)` fixes the layout of the two plain fields.
#[diagnostic::do_not_recommend]
unsafe impl<T: Scalar> KernelValue for Indexed<T> {
    const SIGNATURE: u32 = gpu_spec::signature("Indexed", &[T::SIGNATURE]);
}
// SAFETY: every bit pattern is valid.
#[diagnostic::do_not_recommend]
unsafe impl<T: Scalar> KernelType for Indexed<T> {
    const HAS_PADDING: bool = {
        check_key::<T>();
        assert!(size_of::<Self>() == size_of::<T>() + 8);
        false
    };
}

#[cfg(test)]
mod tests {
    use super::Indexed;

    #[test]
    fn the_first_of_equal_keys_counts() {
        let (a, b, c) = (Indexed::new(4, 2), Indexed::new(1, 2), Indexed::new(0, 1));
        for all in [[a, b, c], [c, b, a], [b, c, a]] {
            assert_eq!(all.into_iter().fold(Indexed::NONE, Indexed::max).get(), Some((1, 2)));
            assert_eq!(all.into_iter().reduce(Indexed::min).unwrap().get(), Some((0, 1)));
        }
        let (zero, negative) = (Indexed::new(1, 0.0), Indexed::new(0, -0.0));
        assert_eq!(zero.max(negative).get().unwrap().0, 0, "they are equal");
    }

    #[test]
    fn nan_is_smallest_and_largest() {
        let keys = [f32::INFINITY, f32::NAN, f32::NEG_INFINITY, f32::NAN];
        let all = || keys.into_iter().enumerate().map(|(i, key)| Indexed::new(i, key));
        for best in [all().rev().reduce(Indexed::max), all().reduce(Indexed::min)] {
            assert_eq!(best.unwrap().get().unwrap().0, 1);
        }
    }

    #[test]
    fn no_element_is_neutral() {
        let none = Indexed::<i64>::NONE;
        let smallest = Indexed::new(3, i64::MIN);
        assert_eq!((none.max(none), none.get()), (none, None));
        assert_eq!(
            [none.max(smallest), smallest.max(none), none.min(smallest), smallest.min(none)],
            [smallest; 4]
        );
    }
}
