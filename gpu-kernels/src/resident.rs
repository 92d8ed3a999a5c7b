//! Register-resident rows: a thread loads all of its elements of a row at once, keeps them in registers, and stores
//! them at once.
//!
//! A row is divided into chunks, which have as many elements as the thread group can hold. Most rows consist of one
//! chunk. The threads take vectors of `N` elements in round-robin order. A vector has 16 bytes. In rows that do not
//! start and end on 16-byte boundaries, a vector is a single element. Loads beyond the end of the row return a neutral
//! value, so that computations on a chunk need few conditions. If a thread holds only one row, 16-bit elements stay
//! packed and are converted at each use, so that twice as many elements fit.

use gpu_std::scalar::Scalar;
use gpu_std::vectorized::{load, load_or, opaque, store};

use crate::thread_group::{ThreadGroup, each, lanewise};

/// Const argument that selects the instances for rows that fit in a thread group with this number of vectors per
/// thread. These instances contain no code for longer rows.
pub const FEW: usize = 2;
/// Const argument that selects the instances for longer rows.
pub const MANY: usize = 8;
/// Counterpart of [`FEW`] for instances that hold two rows.
pub const BACKWARD_FEW: usize = 1;
/// Counterpart of [`MANY`] for instances that hold two rows.
pub const BACKWARD_MANY: usize = 4;

/// Returns how many of a row's 16-byte vectors each thread holds: usually `items`. The number is halved for `f64`,
/// whose functions need more registers, and for 16-bit elements of two rows, which are stored as `f32`.
pub const fn resident_vectors<T>(items: usize) -> usize {
    let is_whole = size_of::<T>() == 4 || is_packed::<T>() && (items == FEW || items == MANY);
    if is_whole || items == 1 { items } else { items / 2 }
}

/// Returns whether elements stay packed, two per register, and are converted at each use, in threads that hold one row.
pub(crate) const fn is_packed<T>() -> bool {
    size_of::<T>() == 2
}

/// Returns the number of elements per thread for rows that are not accessed in vectors. `items` is the instance's const
/// argument.
pub const fn resident_elements(items: usize) -> usize {
    if items == FEW || items == MANY { 8 } else { 4 }
}

/// A thread's part of a chunk of a row, in vectors of `N` elements.
#[derive(Clone, Copy)]
pub(crate) struct Part<const N: usize> {
    /// Index of the thread's first vector. `step` is the stride between the thread's vectors.
    first: u32,
    step: u32,
    /// Vectors per row.
    vectors: u32,
}

impl<const N: usize> Part<N> {
    /// Creates the part for the first chunk of a row of `len` elements. `len` must be a multiple of `N`.
    #[inline(always)]
    pub fn new(group: &ThreadGroup, len: usize) -> Self {
        Self { first: group.rank as u32, step: group.size as u32, vectors: len as u32 / N as u32 }
    }

    /// Returns the same part, hidden from the optimizer. The compiler then recomputes indices and conditions, instead
    /// of keeping them in registers between rows, or between loads and stores.
    #[inline(always)]
    pub fn again(self) -> Self {
        Self { first: opaque(self.first), step: opaque(self.step), vectors: self.vectors }
    }

    /// Returns whether the row ends with this chunk, which has `V` vectors per thread.
    #[inline(always)]
    pub fn is_last<const V: usize>(&self) -> bool {
        // Chunks start at multiples of the group size, which is a power of two.
        self.vectors - (self.first & !(self.step - 1)) <= self.step * V as u32
    }

    /// Returns the part for the next chunk, which must exist.
    #[inline(always)]
    pub fn next<const V: usize>(self) -> Self {
        let again = self.again();
        Self { first: again.first + again.step * V as u32, ..again }
    }

    /// Returns the index in the row of the part's vector `item`, and whether the row contains that vector.
    #[inline(always)]
    fn vector(&self, item: usize) -> (usize, bool) {
        let vector = self.first.wrapping_add(self.step.wrapping_mul(item as u32));
        (vector as usize, vector < self.vectors)
    }

    /// Returns how many of the part's `V` vectors the row contains.
    #[inline(always)]
    pub fn count<const V: usize>(&self) -> u32 {
        let mut count = 0;
        each::<V>(|item| count += self.vector(item).1 as u32);
        count
    }

    /// Loads the thread's `V` vectors of the chunk. Vectors beyond the end of the row consist of `otherwise`. All loads
    /// are issued before the first vector is used.
    ///
    /// # Safety
    /// `row` must be valid for the row's length, and aligned to the size of a vector.
    #[inline(always)]
    pub unsafe fn load<T: Scalar, const V: usize>(&self, row: *const T, otherwise: T) -> [[T; N]; V] {
        lanewise(|i| {
            let (vector, has_it) = self.vector(i);
            // SAFETY: if `has_it`, the vector lies within the row, and it is aligned.
            unsafe { load_or::<T, N, false>(row.wrapping_add(vector * N), has_it, [otherwise; N]) }
        })
    }

    /// Like [`Self::load`] with zeros beyond the end, for rows that the kernel also writes.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::load`].
    #[inline(always)]
    pub unsafe fn load_written<T: Scalar, const V: usize>(&self, row: *const T) -> [[T; N]; V] {
        lanewise(|i| {
            let (vector, has_it) = self.vector(i);
            // SAFETY: the vector lies within the row and is aligned.
            if has_it { unsafe { load(row.add(vector * N)) } } else { [T::ZERO; N] }
        })
    }

    /// Loads vector `item` of the chunk from an array that has the row's length and that all rows share, such as a
    /// weight. Returns `otherwise` beyond the end of the array, and if the array is absent.
    ///
    /// # Safety
    /// The array must be aligned to the size of a vector if it is present.
    #[inline(always)]
    pub unsafe fn parameter<T: Scalar>(&self, array: Option<&[T]>, item: usize, otherwise: T) -> [T; N] {
        let (vector, has_it) = self.vector(item);
        let (start, has_it) = array.map_or((core::ptr::null(), false), |array| (array.as_ptr(), has_it));
        // SAFETY: as in `load`.
        unsafe { load_or::<T, N, true>(start.wrapping_add(vector * N), has_it, [otherwise; N]) }
    }

    /// Stores vector `item` of the chunk, unless the vector is beyond the end of the row.
    ///
    /// # Safety
    /// `row` must be valid for writes of the row's length, and aligned to the size of a vector.
    #[inline(always)]
    pub unsafe fn store<T: Scalar>(&self, row: *mut T, item: usize, values: [T; N]) {
        let (vector, has_it) = self.vector(item);
        if has_it {
            // SAFETY: the vector lies within the row and is aligned.
            unsafe { store(row.add(vector * N), values) };
        }
    }
}

/// Returns the number of vectors that a thread loads at once from a row that is too long for registers. The number is
/// smaller than for resident rows, because the thread also keeps more other values.
pub(crate) const fn streamed_vectors(held: usize) -> usize {
    if held > 1 { held / 2 } else { 1 }
}

/// `with_resident!((ITEMS, FEW, in_vectors), T, V, N, part, streams => body)` requires a `part: Part<N>` from
/// [`Part::new`], and expands to `body` with three constants. The constants are the number of vectors that a thread
/// loads at once, the number of elements per vector, and whether a row can have more than one chunk.
macro_rules! with_resident {
    (
        ($items:expr, $few:expr, $in_vectors:expr, $new:expr), $t:ty: $v:ident, $n:ident, $part:ident,
        $streams:ident => $body:expr
    ) => {
        if $in_vectors {
            with_lanes!(lanes::<$t>(16), $n => with_lanes!(resident_vectors::<$t>($items), $v => {
                let $part = $new;
                if $items == $few || $part.is_last::<$v>() {
                    let $streams = false;
                    $body
                } else {
                    with_lanes!($crate::resident::streamed_vectors(resident_vectors::<$t>($items)), $v => {
                        let $streams = true;
                        $body
                    })
                }
            }))
        } else {
            const $n: usize = 1;
            with_lanes!($crate::resident::resident_elements($items), $v => {
                let ($part, $streams) = ($new, true);
                $body
            })
        }
    };
}
pub(crate) use with_resident;

/// Converts all values to the accumulator type.
#[inline(always)]
pub(crate) fn widened<T: Scalar, const V: usize, const N: usize>(
    values: [[T; N]; V],
) -> [[T::Accumulator; N]; V] {
    kept(lanewise(|i| lanewise(|lane| values[i][lane].to_acc())))
}

/// Returns the values unchanged, but forces the compiler to compute them at this point. The compiler can then neither
/// recompute them at each use nor defer the computation, both of which would keep more than one register per value
/// alive.
#[inline(always)]
pub(crate) fn kept<A: Scalar, const V: usize, const N: usize>(values: [[A; N]; V]) -> [[A; N]; V] {
    lanewise(|i| lanewise(|lane| opaque(values[i][lane])))
}

/// Converts the elements of a vector to the accumulator type. Packed elements are hidden from the optimizer, which
/// would otherwise keep the results of an earlier conversion in registers.
#[inline(always)]
pub(crate) fn converted<T: Scalar, const N: usize>(vector: [T; N]) -> [T::Accumulator; N] {
    #[cfg(target_arch = "nvptx64")]
    let vector = if is_packed::<T>() && N * size_of::<T>() == 16 {
        // SAFETY: both types have 16 bytes, and any bytes are valid values.
        unsafe {
            let words: [u32; 4] = core::mem::transmute_copy(&vector);
            core::mem::transmute_copy(&lanewise::<u32, 4>(|word| opaque(words[word])))
        }
    } else {
        vector
    };
    lanewise(|lane| vector[lane].to_acc())
}

/// Folds values in a fixed order: first over the vectors, separately for each lane, and then over the lanes.
#[inline(always)]
pub(crate) fn fold<A: Copy, const V: usize, const N: usize>(
    values: &[[A; N]; V],
    combine: impl Fn(A, A) -> A,
) -> A {
    let mut lanes = values[0];
    each::<V>(|i| {
        if i > 0 {
            each::<N>(|lane| lanes[lane] = combine(lanes[lane], values[i][lane]));
        }
    });
    let mut total = lanes[0];
    each::<N>(|lane| {
        if lane > 0 {
            total = combine(total, lanes[lane]);
        }
    });
    total
}
