//! [`Packed`]: the elements of one access of 16 bytes.

use gpu_std::{Vector, bf16, f16};

use crate::number::{Accumulate, Number, Step};

/// A number, of which several are moved and reduced at once.
pub trait Packed: Number {
    /// Elements in 16 bytes.
    const LANES: usize;

    /// So many numbers as they are accumulated.
    type Wides: Copy;

    /// Reads [`Self::LANES`] elements in one access.
    ///
    /// # Safety
    /// They are valid for reads and aligned to 16 bytes.
    unsafe fn load(from: *const Self) -> Self::Wides;

    /// Reads the first `count` elements, the others are zeros.
    ///
    /// # Safety
    /// They are valid for reads.
    unsafe fn load_some(from: *const Self, count: usize) -> Self::Wides;

    /// Writes [`Self::LANES`] elements in one access.
    ///
    /// # Safety
    /// They are valid for writes and aligned to 16 bytes.
    unsafe fn store(wides: Self::Wides, to: *mut Self);

    /// Writes the first `count` elements.
    ///
    /// # Safety
    /// They are valid for writes.
    unsafe fn store_some(wides: Self::Wides, to: *mut Self, count: usize);

    /// Reduces two.
    fn step(step: Step, a: Self::Wides, b: Self::Wides) -> Self::Wides;

    /// Divides each.
    fn divide(wides: Self::Wides, ranks: u32) -> Self::Wides;

    /// Multiplies each, rounded to the type of the elements.
    fn scale(wides: Self::Wides, factor: Self) -> Self::Wides;
}

macro_rules! packed {
    ($($type:ty, $lanes:literal;)*) => { $(
        impl Packed for $type {
            const LANES: usize = $lanes;

            type Wides = [<$type as Number>::Wide; $lanes];

            #[inline(always)]
            unsafe fn load(from: *const Self) -> Self::Wides {
                // SAFETY: passed on from the caller.
                unsafe { Vector::<$type, $lanes>::load(from) }.to_array().map(Number::widen)
            }

            #[inline(always)]
            unsafe fn load_some(from: *const Self, count: usize) -> Self::Wides {
                let mut wides = [Self::default().widen(); $lanes];
                let mut lane = 0;
                while lane < $lanes {
                    if lane < count {
                        // SAFETY: passed on from the caller.
                        wides[lane] = unsafe { from.add(lane).read() }.widen();
                    }
                    lane += 1;
                }
                wides
            }

            #[inline(always)]
            unsafe fn store(wides: Self::Wides, to: *mut Self) {
                // SAFETY: passed on from the caller.
                unsafe { Vector::from_array(wides.map(<$type as Number>::narrow)).store(to) }
            }

            #[inline(always)]
            unsafe fn store_some(wides: Self::Wides, to: *mut Self, count: usize) {
                let mut lane = 0;
                while lane < $lanes {
                    if lane < count {
                        // SAFETY: passed on from the caller.
                        unsafe { to.add(lane).write(Self::narrow(wides[lane])) };
                    }
                    lane += 1;
                }
            }

            #[inline(always)]
            fn step(step: Step, mut a: Self::Wides, b: Self::Wides) -> Self::Wides {
                let mut lane = 0;
                while lane < $lanes {
                    a[lane] = step.apply(a[lane], b[lane]);
                    lane += 1;
                }
                a
            }

            #[inline(always)]
            fn divide(wides: Self::Wides, ranks: u32) -> Self::Wides {
                wides.map(|wide| wide.divide(ranks))
            }

            #[inline(always)]
            fn scale(wides: Self::Wides, factor: Self) -> Self::Wides {
                wides.map(|wide| Self::narrow(wide.multiply(factor.widen())).widen())
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
