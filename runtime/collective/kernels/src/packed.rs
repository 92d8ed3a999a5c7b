//! [`Packed`]: the elements of one access of 16 bytes.

use gpu_std::{Vector, bf16, f16};

use crate::number::{Accumulate, Number, Step};

/// A number, of which several are moved and reduced at once.
pub trait Packed: Number {
    /// Elements in 16 bytes.
    const LANES: usize;

    /// So many elements.
    type Lanes: Copy;

    /// Reads [`Self::LANES`] elements in one access.
    ///
    /// # Safety
    /// They are valid for reads and aligned to 16 bytes.
    unsafe fn load(from: *const Self) -> Self::Lanes;

    /// Writes [`Self::LANES`] elements in one access.
    ///
    /// # Safety
    /// They are valid for writes and aligned to 16 bytes.
    unsafe fn store(lanes: Self::Lanes, to: *mut Self);

    /// Reduces the elements of the first `world` ranks, lane by lane.
    fn reduce<const WORLD: usize>(how: Reduce, of_ranks: [Self::Lanes; WORLD]) -> Self::Lanes;
}

/// How elements are reduced.
#[derive(Clone, Copy)]
pub struct Reduce {
    /// Between two ranks.
    pub step: Step,
    /// The number of ranks, at least one.
    pub world: u32,
    /// Whether the result is divided by it.
    pub is_average: bool,
}

impl Reduce {
    /// The end of a reduction.
    #[inline(always)]
    pub fn finish<T: Number>(self, wide: T::Wide) -> T {
        T::narrow(if self.is_average { wide.divide(self.world) } else { wide })
    }
}

macro_rules! packed {
    ($($type:ty, $lanes:literal;)*) => { $(
        impl Packed for $type {
            const LANES: usize = $lanes;

            type Lanes = [$type; $lanes];

            #[inline(always)]
            unsafe fn load(from: *const Self) -> Self::Lanes {
                // SAFETY: passed on from the caller.
                unsafe { Vector::<$type, $lanes>::load(from) }.to_array()
            }

            #[inline(always)]
            unsafe fn store(lanes: Self::Lanes, to: *mut Self) {
                // SAFETY: passed on from the caller.
                unsafe { Vector::from_array(lanes).store(to) }
            }

            #[inline(always)]
            fn reduce<const WORLD: usize>(how: Reduce, of_ranks: [Self::Lanes; WORLD]) -> Self::Lanes {
                macro_rules! by {
                    ($step:expr) => {{
                        let mut result = of_ranks[0];
                        let mut lane = 0;
                        while lane < $lanes {
                            let mut wide = of_ranks[0][lane].widen();
                            let mut rank = 1;
                            while rank < WORLD {
                                if (rank as u32) < how.world {
                                    wide = $step.apply(wide, of_ranks[rank][lane].widen());
                                }
                                rank += 1;
                            }
                            result[lane] = how.finish(wide);
                            lane += 1;
                        }
                        result
                    }};
                }
                match how.step {
                    Step::Add => by!(Step::Add),
                    Step::Multiply => by!(Step::Multiply),
                    Step::Less => by!(Step::Less),
                    Step::Greater => by!(Step::Greater),
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
