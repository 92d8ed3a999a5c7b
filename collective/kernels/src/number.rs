//! Reduction steps in rank order: ((x0 + x1) + x2) + …
//!
//! Guarantees: GPU and host use the same steps, so results are bit-identical, except for NaN bits. Integers wrap.

pub use gpu_std::scalar::Scalar;

/// A number in its accumulation type.
pub trait Accumulate: Copy {
    /// Returns the sum.
    fn add(self, other: Self) -> Self;
    /// Returns the product.
    fn multiply(self, other: Self) -> Self;
    /// Returns the quotient; rounded towards zero for integers.
    fn divide(self, ranks: u32) -> Self;
    /// Returns the smaller number: this one if they are equal, the other if this one is NaN.
    fn less(self, other: Self) -> Self;
    /// Returns the greater number, with the same rules.
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
                // No number of ranks causes an overflow or a division by zero.
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

/// Operator that combines two ranks' elements.
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
    /// Returns the step with this number; the last one for an unknown number.
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
