//! Reductions of elements in rank order: ((x0 + x1) + x2) + …
//!
//! The result depends only on the elements and their order. The kernels of the Peer backend execute the same steps, so
//! the results of both backends are bit-identical.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use warpsmith_collective_kernels::number::{Accumulate, Scalar};

use crate::element::{ElementType, ReduceOp, Reduction};
use crate::exchange::Bytes;

/// Reads the element with index `index` from the bytes.
fn read<T: Copy>(bytes: Bytes, index: usize) -> T {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: the assertion above ensures that the element is in bounds; every bit pattern is a valid number.
    unsafe { bytes.ptr().cast::<T>().add(index).read_unaligned() }
}

fn write<T: Copy>(bytes: Bytes, index: usize, value: T) {
    assert!((index + 1) * size_of::<T>() <= bytes.len);
    // SAFETY: as in `read`.
    unsafe { bytes.ptr().cast::<T>().add(index).write_unaligned(value) }
}

/// Calls `$function` with the given arguments, followed by the functions that convert `$element` to its accumulation
/// type and back. 8-bit floating-point elements are accumulated in `f32`; the kernels do not reduce them.
macro_rules! with_type {
    ($element:expr, $function:ident($($argument:expr),*)) => {
        match $element {
            ElementType::I8 => $function($($argument,)* i8::to_acc, i8::from_acc),
            ElementType::U8 => $function($($argument,)* u8::to_acc, u8::from_acc),
            ElementType::I32 => $function($($argument,)* i32::to_acc, i32::from_acc),
            ElementType::U32 => $function($($argument,)* u32::to_acc, u32::from_acc),
            ElementType::I64 => $function($($argument,)* i64::to_acc, i64::from_acc),
            ElementType::U64 => $function($($argument,)* u64::to_acc, u64::from_acc),
            ElementType::F16 => $function($($argument,)* f16::to_acc, f16::from_acc),
            ElementType::F32 => $function($($argument,)* f32::to_acc, f32::from_acc),
            ElementType::F64 => $function($($argument,)* f64::to_acc, f64::from_acc),
            ElementType::Bf16 => $function($($argument,)* bf16::to_acc, bf16::from_acc),
            ElementType::F8E4M3 => $function($($argument,)* |x: F8E4M3| x.to_f32(), F8E4M3::from_f32),
            ElementType::F8E5M2 => $function($($argument,)* |x: F8E5M2| x.to_f32(), F8E5M2::from_f32),
        }
    };
}

/// Reduces the inputs of all ranks; each input must have the length of the result.
pub(super) fn reduce(reduction: Reduction, of_ranks: &[Bytes], result: Bytes) {
    with_type!(reduction.element, reduce_typed(reduction.operator, of_ranks, result))
}

fn reduce_typed<T: Copy, W: Accumulate>(
    operator: ReduceOp,
    of_ranks: &[Bytes],
    result: Bytes,
    widen: impl Fn(T) -> W,
    narrow: impl Fn(W) -> T,
) {
    let ranks = of_ranks.len();
    let fold = |step: fn(W, W) -> W| {
        for index in 0..result.len / size_of::<T>() {
            let mut values = of_ranks.iter().map(|bytes| widen(read(*bytes, index)));
            let Some(first) = values.next() else { return };
            let mut value = values.fold(first, step);
            if operator == ReduceOp::Avg {
                value = value.divide(ranks as u32);
            }
            write(result, index, narrow(value));
        }
    };
    match operator {
        ReduceOp::Sum | ReduceOp::Avg => fold(W::add),
        ReduceOp::Prod => fold(W::multiply),
        ReduceOp::Min => fold(W::less),
        ReduceOp::Max => fold(W::greater),
    }
}
