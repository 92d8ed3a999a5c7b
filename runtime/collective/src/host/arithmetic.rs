//! Reductions of elements, in the order of ranks: ((x0 + x1) + x2) + …
//!
//! Guarantees: the result depends on the elements and their order alone. Kernels that reduce over peers do the same steps,
//! so their results have the same bits.

use half::{bf16, f16};

use super::exchange::Bytes;
use crate::element::{ElementType, Operator, Reduction};

/// A number as it is accumulated.
trait Accumulate: Copy {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// The quotient; of integers, rounded towards zero.
    fn divide(self, ranks: usize) -> Self;
    /// The smaller; this one if they are equal, the other if this one is NaN.
    fn less(self, other: Self) -> Self;
    /// The greater, likewise.
    fn greater(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty, $wide:ty;)*) => { $(
        impl Accumulate for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn divide(self, ranks: usize) -> Self {
                (self as $wide / ranks as $wide) as Self
            }

            fn less(self, other: Self) -> Self {
                self.min(other)
            }

            fn greater(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )* };
}

integers! {
    i8, i128;
    u8, i128;
    i32, i128;
    u32, i128;
    i64, i128;
    u64, i128;
}

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl Accumulate for $type {
            fn add(self, other: Self) -> Self {
                self + other
            }

            fn multiply(self, other: Self) -> Self {
                self * other
            }

            fn divide(self, ranks: usize) -> Self {
                self / ranks as Self
            }

            fn less(self, other: Self) -> Self {
                if other < self || self.is_nan() { other } else { self }
            }

            fn greater(self, other: Self) -> Self {
                if other > self || self.is_nan() { other } else { self }
            }
        }
    )* };
}

floats!(f32, f64);

/// An element, and how it is accumulated.
trait Number: Copy {
    type Wide: Accumulate;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $wide:ty, |$x:ident| $widen:expr, |$y:ident| $narrow:expr;)*) => { $(
        impl Number for $type {
            type Wide = $wide;

            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }

            fn narrow($y: $wide) -> Self {
                $narrow
            }
        }
    )* };
}

numbers! {
    i8, i8, |x| x, |x| x;
    u8, u8, |x| x, |x| x;
    i32, i32, |x| x, |x| x;
    u32, u32, |x| x, |x| x;
    i64, i64, |x| x, |x| x;
    u64, u64, |x| x, |x| x;
    f16, f32, |x| x.to_f32(), |x| f16::from_f32(x);
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    bf16, f32, |x| x.to_f32(), |x| bf16::from_f32(x);
}

/// Element `index` of these bytes.
fn read<T: Copy>(bytes: Bytes, index: usize) -> T {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: it is inside, by the line above; any bits are a number.
    unsafe { bytes.ptr().cast::<T>().add(index).read_unaligned() }
}

fn write<T: Copy>(bytes: Bytes, index: usize, value: T) {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: as in `read`.
    unsafe { bytes.ptr().cast::<T>().add(index).write_unaligned(value) }
}

macro_rules! with_type {
    ($element:expr, $function:ident($($argument:expr),*)) => {
        match $element {
            ElementType::I8 => $function::<i8>($($argument),*),
            ElementType::U8 => $function::<u8>($($argument),*),
            ElementType::I32 => $function::<i32>($($argument),*),
            ElementType::U32 => $function::<u32>($($argument),*),
            ElementType::I64 => $function::<i64>($($argument),*),
            ElementType::U64 => $function::<u64>($($argument),*),
            ElementType::F16 => $function::<f16>($($argument),*),
            ElementType::F32 => $function::<f32>($($argument),*),
            ElementType::F64 => $function::<f64>($($argument),*),
            ElementType::Bf16 => $function::<bf16>($($argument),*),
        }
    };
}

/// Reduces what all ranks have, which is as long as the result. Factors were applied before.
pub(super) fn reduce(reduction: Reduction, of_ranks: &[Bytes], result: Bytes) {
    with_type!(reduction.element, reduce_typed(reduction.operator, of_ranks, result))
}

fn reduce_typed<T: Number>(operator: Operator, of_ranks: &[Bytes], result: Bytes) {
    let ranks = of_ranks.len();
    let fold = |step: fn(T::Wide, T::Wide) -> T::Wide| {
        for index in 0..result.len / size_of::<T>() {
            let mut values = of_ranks.iter().map(|bytes| read::<T>(*bytes, index).widen());
            let Some(first) = values.next() else { return };
            let mut value = values.fold(first, step);
            if operator == Operator::Avg {
                value = value.divide(ranks);
            }
            write(result, index, T::narrow(value));
        }
    };
    match operator {
        Operator::Sum | Operator::Avg | Operator::PreMulSum => fold(T::Wide::add),
        Operator::Prod => fold(T::Wide::multiply),
        Operator::Min => fold(T::Wide::less),
        Operator::Max => fold(T::Wide::greater),
    }
}

/// Multiplies elements by the factor of the reduction, rounded to their type, into `result`, which is as long.
pub(super) fn scale(reduction: Reduction, of_rank: Bytes, result: Bytes) {
    with_type!(reduction.element, scale_typed(reduction.factor, of_rank, result))
}

fn scale_typed<T: Number>(mut factor: [u8; 8], of_rank: Bytes, result: Bytes) {
    let factor = read::<T>(Bytes::of(&mut factor), 0).widen();
    for index in 0..result.len / size_of::<T>() {
        write(result, index, T::narrow(read::<T>(of_rank, index).widen().multiply(factor)));
    }
}
