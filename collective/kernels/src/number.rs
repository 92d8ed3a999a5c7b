//! Reduction steps in rank order: ((x0 + x1) + x2) + …
//!
//! The GPU and the host execute the same steps, so that results are bit-identical, except for the bits of NaN. Integers
//! wrap around on overflow.

pub use gpu_std::scalar::Scalar;

/// Number in its accumulation type.
pub trait Accumulate: Copy {
    /// Returns the sum.
    fn add(self, other: Self) -> Self;
    /// Returns the product.
    fn multiply(self, other: Self) -> Self;
    /// Returns the quotient; for integers, it is rounded toward zero.
    fn divide(self, ranks: u32) -> Self;
    /// Returns the smaller number. Returns `self` if both numbers are equal, and `other` if `self` is NaN.
    fn less(self, other: Self) -> Self;
    /// Returns the larger number, with the same rules for equal numbers and NaN.
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
                // The wider type can represent any number of ranks, and the minimum of 1 prevents a division by zero.
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

/// Operator that combines the elements of two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Sum.
    Add = 0,
    /// Product.
    Multiply = 1,
    /// Minimum.
    Less = 2,
    /// Maximum.
    Greater = 3,
}

impl Step {
    /// Returns the step with the given number, or the last step if there is none.
    #[inline(always)]
    pub const fn of(number: u32) -> Self {
        match number {
            0 => Self::Add,
            1 => Self::Multiply,
            2 => Self::Less,
            _ => Self::Greater,
        }
    }

    /// Combines two numbers.
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
