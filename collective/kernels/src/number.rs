//! Reduction steps in rank order: ((x0 + x1) + x2) + …
//!
//! Guarantees: the GPU and the host execute the same steps, so results are bit-identical, except for the bits of NaN.
//! Integers wrap.

pub use gpu_std::scalar::Scalar;

/// Number in its accumulation type.
pub trait Accumulate: Copy {
    /// Returns the sum.
    fn add(self, other: Self) -> Self;
    /// Returns the product.
    fn multiply(self, other: Self) -> Self;
    /// Returns the quotient, rounded towards zero for integers.
    fn divide(self, ranks: u32) -> Self;
    /// Returns the smaller number. It returns `self` if both are equal, and `other` if `self` is NaN.
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
                // The wider type prevents overflow, and the minimum of 1 prevents division by zero, for every number of
                // ranks.
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
    /// Returns the step with this number, or the last step for an unknown number.
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
