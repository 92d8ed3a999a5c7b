//! [`Packed`]: the elements of one 16-byte access.

use gpu_std::{Vector, bf16, f16};

use crate::number::{Accumulate, Scalar, Step};
use crate::vectors::once;

/// Element type that can be accessed and reduced as vectors.
pub trait Packed: Scalar<Accumulator: Accumulate> {
    /// Number of elements in 16 bytes.
    const LANES: usize;

    /// Vector of [`Self::LANES`] elements.
    type Lanes: Copy;

    /// Reads [`Self::LANES`] elements in a single access.
    ///
    /// # Safety
    /// The elements must be valid for reads and aligned to 16 bytes.
    unsafe fn load(from: *const Self) -> Self::Lanes;

    /// Writes [`Self::LANES`] elements in a single access.
    ///
    /// # Safety
    /// The elements must be valid for writes and aligned to 16 bytes.
    unsafe fn store(lanes: Self::Lanes, to: *mut Self);

    /// Reads the first `lanes` elements, at most [`Self::LANES`]; the remaining lanes are zero.
    ///
    /// # Safety
    /// The elements must be valid for reads.
    unsafe fn load_first(from: *const Self, lanes: usize) -> Self::Lanes;

    /// Writes the first `count` elements, at most [`Self::LANES`].
    ///
    /// # Safety
    /// The elements must be valid for writes.
    unsafe fn store_first(lanes: Self::Lanes, to: *mut Self, count: usize);

    /// Reinterprets the bits of words as elements.
    fn of_words(words: [u32; 4]) -> Self::Lanes;

    /// Reinterprets the bits of elements as words.
    fn to_words(lanes: Self::Lanes) -> [u32; 4];

    /// Reduces the elements of the first `world` ranks, lane by lane.
    fn reduce<const WORLD: usize>(how: Reduce, of_ranks: [Self::Lanes; WORLD]) -> Self::Lanes;
}

/// Parameters of a reduction.
#[derive(Clone, Copy)]
pub struct Reduce {
    /// Operator that combines the elements of two ranks.
    pub step: Step,
    /// Number of ranks, at least one.
    pub world: u32,
    /// True if the sum is divided by the number of ranks.
    pub is_average: bool,
}

impl Reduce {
    /// Finishes a reduction: divides the sum if the result is an average, and converts the result to the element type.
    #[inline(always)]
    pub fn finish<T: Packed>(self, wide: T::Accumulator) -> T {
        T::from_acc(if self.is_average { wide.divide(self.world) } else { wide })
    }
}

macro_rules! packed {
    ($($type:ty, $lanes:literal;)*) => { $(
        impl Packed for $type {
            const LANES: usize = $lanes;

            type Lanes = [$type; $lanes];

            #[inline(always)]
            unsafe fn load(from: *const Self) -> Self::Lanes {
                // SAFETY: guaranteed by the caller.
                unsafe { Vector::<$type, $lanes>::load(from) }.to_array()
            }

            #[inline(always)]
            unsafe fn store(lanes: Self::Lanes, to: *mut Self) {
                // SAFETY: guaranteed by the caller.
                unsafe { Vector::from_array(lanes).store(to) }
            }

            #[inline(always)]
            unsafe fn load_first(from: *const Self, lanes: usize) -> Self::Lanes {
                let mut values = Self::of_words([0; 4]);
                let mut lane = 0;
                while lane < $lanes {
                    if lane < lanes {
                        // SAFETY: guaranteed by the caller.
                        values[lane] = unsafe { from.add(lane).read() };
                    }
                    lane += 1;
                }
                values
            }

            #[inline(always)]
            unsafe fn store_first(lanes: Self::Lanes, to: *mut Self, count: usize) {
                let mut lane = 0;
                while lane < $lanes {
                    if lane < count {
                        // SAFETY: guaranteed by the caller.
                        unsafe { to.add(lane).write(lanes[lane]) };
                    }
                    lane += 1;
                }
            }

            #[inline(always)]
            fn of_words(words: [u32; 4]) -> Self::Lanes {
                // SAFETY: both types have a size of 16 bytes, and all bit patterns are valid numbers.
                unsafe { core::mem::transmute_copy(&words) }
            }

            #[inline(always)]
            fn to_words(lanes: Self::Lanes) -> [u32; 4] {
                // SAFETY: both types have a size of 16 bytes, and all bit patterns are valid numbers.
                unsafe { core::mem::transmute_copy(&lanes) }
            }

            #[inline(always)]
            fn reduce<const WORLD: usize>(how: Reduce, of_ranks: [Self::Lanes; WORLD]) -> Self::Lanes {
                macro_rules! by {
                    ($step:expr, $end:expr) => {{
                        let mut result = of_ranks[0];
                        let mut lane = 0;
                        while lane < $lanes {
                            let mut wide = of_ranks[0][lane].to_acc();
                            let mut rank = 1;
                            while rank < WORLD {
                                if (rank as u32) < how.world {
                                    wide = $step.apply(wide, of_ranks[rank][lane].to_acc());
                                }
                                rank += 1;
                            }
                            result[lane] = $end(wide);
                            lane += 1;
                        }
                        result
                    }};
                }
                // The plain sum is checked first to avoid a jump table and an unneeded division.
                if how.step == Step::Add && !how.is_average {
                    return by!(Step::Add, Self::from_acc);
                }
                once();
                match how.step {
                    Step::Add => by!(Step::Add, |wide| how.finish(wide)),
                    Step::Multiply => by!(Step::Multiply, Self::from_acc),
                    Step::Less => by!(Step::Less, Self::from_acc),
                    Step::Greater => by!(Step::Greater, Self::from_acc),
                }
            }
        }
    )* };
}

packed! {
    i8, 16;
    u8, 16;
    i32, 4;
    u32, 4;
    i64, 2;
    u64, 2;
    f16, 8;
    f32, 4;
    f64, 2;
    bf16, 8;
}
