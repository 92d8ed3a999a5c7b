//! Rows in registers: which elements of a row a thread of its team holds, loaded at once, stored at once.
//!
//! A row is cut into chunks of as many elements as the team holds; most rows are one chunk. A thread takes vectors of `N` elements
//! in turn: of 16 bytes, or, of rows that do not begin and end at multiples of 16 bytes, single elements. Loads beyond the end
//! of the row give a value that counts for nothing, so that what is computed of a chunk needs few conditions. Elements of 16 bits
//! stay packed, where a thread holds one row, and are converted for each use: twice as many fit.

use gpu_std::scalar::Scalar;
use gpu_std::vectorized::{load_or, opaque, store};

use crate::teams::{Team, each, lanewise};

/// The constant of the instances for rows that the team holds with this number of vectors a thread: they have no code for
/// longer rows.
pub const FEW: usize = 2;
/// The constant of the instances for longer rows.
pub const MANY: usize = 8;
/// The same of instances that hold two rows.
pub const BACKWARD_FEW: usize = 1;
/// The same of instances that hold two rows.
pub const BACKWARD_MANY: usize = 4;

/// The vectors of 16 bytes that a thread holds of a row: `items`, or half as many of f64, whose functions take more registers,
/// and of 16-bit elements of two rows, which are held in f32.
pub const fn held_vectors<T>(items: usize) -> usize {
    let is_whole = size_of::<T>() == 4 || is_packed::<T>() && (items == FEW || items == MANY);
    if is_whole || items == 1 { items } else { items / 2 }
}

/// Whether elements of one row are held as they are, two to a register, and converted wherever they are used.
pub(crate) const fn is_packed<T>() -> bool {
    size_of::<T>() == 2
}

/// The elements that a thread holds of a row that is not taken in vectors, by an instance with this constant.
pub const fn held_elements(items: usize) -> usize {
    if items == FEW || items == MANY { 8 } else { 4 }
}

/// A thread's part of a chunk of a row, in vectors of `N` elements.
#[derive(Clone, Copy)]
pub(crate) struct Part<const N: usize> {
    /// The thread's first vector, and the vectors from one of its own to the next.
    first: u32,
    step: u32,
    /// Vectors of the row.
    vectors: u32,
}

impl<const N: usize> Part<N> {
    /// That of the first chunk of a row of `len` elements, a multiple of `N`.
    #[inline(always)]
    pub fn new(team: &Team, len: usize) -> Self {
        Self { first: team.rank as u32, step: team.size as u32, vectors: len as u32 / N as u32 }
    }

    /// The same part, of which the compiler does not know that: it computes places and conditions again, instead of keeping
    /// them in registers from row to row, or from the loads to the stores.
    #[inline(always)]
    pub fn again(self) -> Self {
        Self { first: opaque(self.first), step: opaque(self.step), vectors: self.vectors }
    }

    /// Whether the row ends with the chunk, of `V` vectors a thread.
    #[inline(always)]
    pub fn is_last<const V: usize>(&self) -> bool {
        // Chunks begin at multiples of the team's size, a power of two.
        self.vectors - (self.first & !(self.step - 1)) <= self.step * V as u32
    }

    /// That of the next chunk of a row that has one.
    #[inline(always)]
    pub fn next<const V: usize>(self) -> Self {
        let again = self.again();
        Self { first: again.first + again.step * V as u32, ..again }
    }

    /// The index of vector `item` of the part, and whether the row has it.
    #[inline(always)]
    fn vector(&self, item: usize) -> (usize, bool) {
        let vector = self.first.wrapping_add(self.step.wrapping_mul(item as u32));
        (vector as usize, vector < self.vectors)
    }

    /// How many of `V` vectors the row has.
    #[inline(always)]
    pub fn count<const V: usize>(&self) -> u32 {
        let mut count = 0;
        each::<V>(|item| count += self.vector(item).1 as u32);
        count
    }

    /// The thread's `V` vectors of the chunk, `otherwise` beyond the end of the row. All loads are issued before the first is used.
    ///
    /// # Safety
    ///
    /// `row` is valid for the row's length, and aligned to the size of a vector.
    #[inline(always)]
    pub unsafe fn load<T: Scalar, const V: usize>(&self, row: *const T, otherwise: T) -> [[T; N]; V] {
        lanewise(|i| {
            let (vector, has_it) = self.vector(i);
            // SAFETY: the vector lies within the row where that has it, and is aligned.
            unsafe { load_or::<T, N, false>(row.wrapping_add(vector * N), has_it, [otherwise; N]) }
        })
    }

    /// Vector `item` of the chunk, of an array that is as long as a row and used for all rows: `otherwise` beyond its end, and
    /// where there is no array.
    ///
    /// # Safety
    ///
    /// The array, if it is there, is aligned to the size of a vector.
    #[inline(always)]
    pub unsafe fn parameter<T: Scalar>(&self, array: Option<&[T]>, item: usize, otherwise: T) -> [T; N] {
        let (vector, has_it) = self.vector(item);
        let (start, has_it) = array.map_or((core::ptr::null(), false), |array| (array.as_ptr(), has_it));
        // SAFETY: as in `load`.
        unsafe { load_or::<T, N, true>(start.wrapping_add(vector * N), has_it, [otherwise; N]) }
    }

    /// Writes vector `item` of the chunk, unless it lies beyond the end of the row.
    ///
    /// # Safety
    ///
    /// `row` is valid for writes of the row's length, and aligned to the size of a vector.
    #[inline(always)]
    pub unsafe fn store<T: Scalar>(&self, row: *mut T, item: usize, values: [T; N]) {
        let (vector, has_it) = self.vector(item);
        if has_it {
            // SAFETY: the vector lies within the row, and is aligned.
            unsafe { store(row.add(vector * N), values) };
        }
    }
}

/// The vectors that a thread takes at once of a row that its team cannot hold: fewer, as it keeps more beside them.
pub(crate) const fn streamed_vectors(held: usize) -> usize {
    if held > 1 { held / 2 } else { 1 }
}

/// `with_held!((ITEMS, FEW, in_vectors), T, V, N, part, streams => body)`, of a `part: Part<N>` that is made by `new`: runs `body`
/// with the number of vectors that a thread takes at once, their elements, and whether a row may have more than one chunk.
macro_rules! with_held {
    (
        ($items:expr, $few:expr, $in_vectors:expr, $new:expr), $t:ty: $v:ident, $n:ident, $part:ident,
        $streams:ident => $body:expr
    ) => {
        if $in_vectors {
            with_lanes!(lanes::<$t>(16), $n => with_lanes!(held_vectors::<$t>($items), $v => {
                let $part = $new;
                if $items == $few || $part.is_last::<$v>() {
                    let $streams = false;
                    $body
                } else {
                    with_lanes!($crate::held::streamed_vectors(held_vectors::<$t>($items)), $v => {
                        let $streams = true;
                        $body
                    })
                }
            }))
        } else {
            const $n: usize = 1;
            with_lanes!($crate::held::held_elements($items), $v => {
                let ($part, $streams) = ($new, true);
                $body
            })
        }
    };
}
pub(crate) use with_held;

/// The values in the type that they are computed in.
#[inline(always)]
pub(crate) fn widened<T: Scalar, const V: usize, const N: usize>(
    values: [[T; N]; V],
) -> [[T::Accumulator; N]; V] {
    kept(lanewise(|i| lanewise(|lane| values[i][lane].to_acc())))
}

/// The values as they are, computed here: the compiler neither computes them again where they are used nor puts off what
/// they are computed with, which would keep more than one register alive for each.
#[inline(always)]
pub(crate) fn kept<A: Scalar, const V: usize, const N: usize>(values: [[A; N]; V]) -> [[A; N]; V] {
    lanewise(|i| lanewise(|lane| opaque(values[i][lane])))
}

/// The elements of a vector in the type that they are computed in. Of packed elements the compiler does not know that they are
/// those that were converted before, whose results it would keep.
#[inline(always)]
pub(crate) fn converted<T: Scalar, const N: usize>(vector: [T; N]) -> [T::Accumulator; N] {
    #[cfg(target_arch = "nvptx64")]
    let vector = if is_packed::<T>() && N * size_of::<T>() == 16 {
        // SAFETY: both have 16 bytes, of which any are a value.
        unsafe {
            let words: [u32; 4] = core::mem::transmute_copy(&vector);
            core::mem::transmute_copy(&lanewise::<u32, 4>(|word| opaque(words[word])))
        }
    } else {
        vector
    };
    lanewise(|lane| vector[lane].to_acc())
}

/// Folds values in a fixed order: those of the same lane of all vectors first.
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
