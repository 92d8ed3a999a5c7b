//! [`Number`]: elements of reductions, and the steps by which they are reduced in the order of ranks: ((x0 + x1) + x2) + …
//!
//! Guarantees: the same steps on a GPU and on the host, so the results have the same bits, but for those of a NaN. Integers wrap.

use gpu_std::scalar::Scalar;
use gpu_std::{bf16, f16};

/// A number as it is accumulated.
pub trait Accumulate: Copy {
    /// The sum.
    fn add(self, other: Self) -> Self;
    /// The product.
    fn multiply(self, other: Self) -> Self;
    /// The quotient; of integers, rounded towards zero.
    fn divide(self, ranks: u32) -> Self;
    /// The smaller; this one if they are equal, the other if this one is NaN.
    fn less(self, other: Self) -> Self;
    /// The greater, likewise.
    fn greater(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty, $wide:ty;)*) => { $(
        impl Accumulate for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                // No number of ranks makes it overflow, or is zero.
                (self as $wide).wrapping_div(ranks.max(1) as $wide) as Self
            }

            #[inline(always)]
            fn less(self, other: Self) -> Self {
                if other < self { other } else { self }
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
        }
    )* };
}

integers! {
    i8, i32;
    u8, u32;
    i32, i64;
    u32, u32;
    i64, i64;
    u64, u64;
}

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl Accumulate for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                self / ranks as Self
            }

            #[inline(always)]
            fn less(self, other: Self) -> Self {
                if other < self || self.is_nan() { other } else { self }
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if other > self || self.is_nan() { other } else { self }
            }
        }
    )* };
}

floats!(f32, f64);

/// An element, and how it is accumulated: numbers of 16 bits in `f32`, all others in their own type. The host has floating
/// point of 8 bits too, in `f32`.
pub trait Number: Copy {
    /// The type that it is accumulated in.
    type Wide: Accumulate;

    /// The same number.
    fn widen(self) -> Self::Wide;

    /// The nearest number.
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $wide:ty;)*) => { $(
        impl Number for $type {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                self.to_acc()
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                <Self as Scalar>::from_acc(wide)
            }
        }
    )* };
}

numbers! {
    i8, i8;
    u8, u8;
    i32, i32;
    u32, u32;
    i64, i64;
    u64, u64;
    f16, f32;
    f32, f32;
    f64, f64;
    bf16, f32;
}

/// An operator between two ranks' elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// The sum.
    Add = 0,
    /// The product.
    Multiply = 1,
    /// The smaller.
    Less = 2,
    /// The greater.
    Greater = 3,
}

impl Step {
    /// The step of this number; one that there is not is the last.
    #[inline(always)]
    pub const fn of(number: u32) -> Self {
        match number {
            0 => Self::Add,
            1 => Self::Multiply,
            2 => Self::Less,
            _ => Self::Greater,
        }
    }

    /// Reduces two numbers.
    #[inline(always)]
    pub fn apply<A: Accumulate>(self, a: A, b: A) -> A {
        match self {
            Self::Add => a.add(b),
            Self::Multiply => a.multiply(b),
            Self::Less => a.less(b),
            Self::Greater => a.greater(b),
        }
    }
}
