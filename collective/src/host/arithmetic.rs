//! Reductions of elements in rank order: ((x0 + x1) + x2) + …
//!
//! Guarantee: the result depends only on the elements and their order. The kernels that reduce over peers use the same
//! steps, so their results are bit-identical.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use warpsmith_collective_kernels::number::{Accumulate, Number};

use crate::element::{ElementType, Operator, Reduction};
use crate::exchange::Bytes;

/// Reads element `index` of these bytes.
fn read<T: Copy>(bytes: Bytes, index: usize) -> T {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: it is in bounds, by the assertion above; all bit patterns are valid numbers.
    unsafe { bytes.ptr().cast::<T>().add(index).read_unaligned() }
}

fn write<T: Copy>(bytes: Bytes, index: usize, value: T) {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: as in `read`.
    unsafe { bytes.ptr().cast::<T>().add(index).write_unaligned(value) }
}

/// 8-bit floating point, which kernels do not reduce.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct F8<T>(T);

macro_rules! f8 {
    ($($type:ty),*) => { $(
        impl Number for F8<$type> {
            type Wide = f32;

            fn widen(self) -> f32 {
                self.0.to_f32()
            }

            fn narrow(wide: f32) -> Self {
                Self(<$type>::from_f32(wide))
            }
        }
    )* };
}

f8!(F8E4M3, F8E5M2);

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
            ElementType::F8E4M3 => $function::<F8<F8E4M3>>($($argument),*),
            ElementType::F8E5M2 => $function::<F8<F8E5M2>>($($argument),*),
        }
    };
}

/// Reduces the inputs of all ranks, each as long as the result. Factors must already be applied.
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
                value = value.divide(ranks as u32);
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

/// Multiplies elements by the factor of the reduction, rounded to their type, into `result` of the same length.
pub(super) fn scale(reduction: Reduction, of_rank: Bytes, result: Bytes) {
    with_type!(reduction.element, scale_typed(reduction.factor, of_rank, result))
}

fn scale_typed<T: Number>(mut factor: [u8; 8], of_rank: Bytes, result: Bytes) {
    let factor = read::<T>(Bytes::of(&mut factor), 0).widen();
    for index in 0..result.len / size_of::<T>() {
        write(result, index, T::narrow(read::<T>(of_rank, index).widen().multiply(factor)));
    }
}
