//! Typed, checked and asynchronous operations on device memory, on any device.
//!
//! Every operation is enqueued on the given stream and returns before it has run, except for reductions that return a
//! value to the host. Inputs and outputs are [`DeviceBuffer`](crate::DeviceBuffer)s or slices of them, at any
//! alignment. Buffers must be on the stream's device, except for the inputs of [`reduce_add()`]. If lengths are
//! mismatched, the operation returns an error and enqueues nothing. Operations on zero elements launch nothing; only a
//! minimum or maximum over zero elements is an error.
//!
//! An operation uses the configuration that was tuned for the type, size, alignment and device ([`tuned_config`]). If
//! no tuned configuration exists, the operation uses the default ([`default_config`]). [`with_config`] runs an operation
//! with another configuration, and [`variants`] lists the available instances. The results of a floating-point
//! reduction may differ in the last bits between configurations. To make results independent of tuning, install an empty
//! store: `LaunchStore::in_memory().install(&device)`.
//!
//! All operations take their arguments in the same order: the stream, options (such as a sort order or a predicate),
//! inputs (first arrays, then numbers), and outputs. A full reduction such as `sum` waits for its value. Its
//! counterpart with the suffix `_into` is asynchronous and leaves the value on the device. Positions and element counts
//! that refer to a whole array are `u64`. Index arguments can have any [`Index`] type.
//!
//! Copies, elementwise operations, full reductions and random numbers are always available. The features `histogram`,
//! `rows`, `scan` and `sort` of this crate add the other families of operations. `families` enables all four.
//!
//! | operation | types |
//! | --- | --- |
//! | [`copy()`] | every [`DeviceCopy`](crate::DeviceCopy) |
//! | [`concat_rows()`], [`concat_columns()`], [`split_rows()`], [`split_columns()`], [`gather()`], [`gather_rows()`], [`scatter()`], [`scatter_rows()`] | every [`DeviceCopy`](crate::DeviceCopy) |
//! | [`transpose()`], [`transpose_batched()`] | every [`DeviceCopy`](crate::DeviceCopy) of 1, 2, 4, 8 or 16 bytes |
//! | [`fill()`] | every [`Element`] |
//! | [`cast()`] | from every [`Element`] to every [`Element`], including `bool` |
//! | [`add()`], [`sub()`], [`mul()`], [`div()`], [`minimum()`], [`maximum()`], [`neg()`], [`abs()`], [`sign()`], [`clamp()`] | every [`Scalar`] |
//! | [`eq()`], [`ne()`], [`lt()`], [`le()`], [`gt()`], [`ge()`], whose results are `Checked<bool>`; [`select()`] | every [`Element`] |
//! | [`not()`], [`bit_and()`], [`bit_or()`], [`bit_xor()`] | every [`Bits`] |
//! | [`shl()`], [`shr()`] | every [`Integer`] |
//! | [`sqrt()`], [`rsqrt()`], [`reciprocal()`], [`log()`], [`pow()`], [`sin()`], [`cos()`], [`tanh()`], [`silu()`], [`gelu_tanh()`], [`floor()`], [`ceil()`], [`round()`], [`trunc()`], [`lerp()`] | every [`Float`] |
//! | [`reduce_add()`], [`reduce_add_coalesced()`], for buffers on several devices | every [`Number`] |
//! | [`axpy()`], [`fma()`], [`relu()`], [`gelu()`], [`sigmoid()`], [`exp()`] | every [`Float`] |
//! | [`sum()`], [`prod()`], [`min()`], [`max()`], [`argmin()`], [`argmax()`]; also as methods of [`ReduceExt`] | every [`Number`] |
//! | [`mean()`] | every [`Float`] |
//! | [`sum_rows()`], [`sum_columns()`], [`sum_segments()`], and the same for `prod`, `min`, `max`, `argmin` and `argmax` | every [`Number`] |
//! | [`softmax()`], [`log_softmax()`], [`layer_norm()`] and [`rms_norm()`] of each row, and their backward passes; [`add_rms_norm()`] | every [`Float`] |
//! | [`dot()`] | every [`Number`] |
//! | [`count_if()`], [`any()`], [`all()`] | every [`Element`], including `bool` |
//! | [`variance()`], [`l1_norm()`], [`l2_norm()`] | every [`Float`] |
//! | [`swiglu()`], [`rotary()`], [`sample()`] | every [`Float`] |
//! | [`top_k()`] for each row | every [`Number`] |
//! | [`mean_rows()`], [`mean_columns()`], [`mean_segments()`] | every [`Float`] |
//! | [`map()`], [`reduce()`], [`inclusive_scan()`], [`exclusive_scan()`] | the types of your own function or operator, which a one-line attribute in a kernel crate turns into a kernel |
//! | [`inclusive_sum()`], [`exclusive_sum()`], [`inclusive_min()`], [`exclusive_min()`], [`inclusive_max()`], [`exclusive_max()`] | every [`Number`] |
//! | [`select_if()`], [`partition_if()`], [`unique()`], [`run_lengths()`], [`histogram_edges()`] | every [`Number`] |
//! | [`select_flagged()`], [`partition_flagged()`] | every [`Element`] |
//! | [`sort()`], [`sort_pairs()`], [`sort_segments()`] | every [`SortKey`] |
//! | [`lower_bound()`], [`upper_bound()`] | every [`Number`] |
//! | [`histogram_even()`] | f32, f64, f16, bf16, u8, i32, u32 |
//! | `matmul`, `matmul_fused`, with the feature `tensor` | `bf16`, `f16`, `i8`, FP8. Also: `matmul_f32`, `matmul_tf32x3` and `matmul_tf32` for `f32`; `matmul_grouped` for `bf16` and `f16`, with `Routing` for a mixture of experts; `matmul_4bit` and `matmul_8bit` for weight-only int4, MXFP4, NVFP4, int8 and FP8 (W4A16, W8A16) with `bf16` or `f16` activations; `matmul_scaled` for block-scaled FP8 |
//! | `attention`, `attention_with_lse`, `attention_backward`, `attention_decode`, `attention_decode_append`, `rotary_append`, with the feature `tensor` | `bf16`, `f16` |
//!
//! ```
//! use warpsmith::{ops, prelude::*};
//!
//! let stream = Stream::new(&Device::open("cpu")?)?;
//! let x = DeviceBuffer::from_host(&stream, &[-1.5f32, 0.0, 2.5, 4.0])?;
//! let mut y = DeviceBuffer::uninit(&stream, 4)?;
//! ops::relu(&stream, &x, &mut y)?;
//! assert_eq!(y.to_host()?, [0.0, 0.0, 2.5, 4.0]);
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! # Generic code
//! A function that is generic over the element type needs only one bound: [`Float`], [`Integer`], [`Number`] or
//! [`Scalar`]. Kernels use the same traits, which are defined in [`gpu_std::scalar`].
//!
//! ```
//! use warpsmith::ops::{self, Float};
//! use warpsmith::prelude::*;
//!
//! /// Euclidean norm.
//! fn norm<T: Float>(stream: &Stream, x: &DeviceBuffer<T>) -> Result<T, Error> {
//!     let mut squares = DeviceBuffer::uninit(stream, x.len())?;
//!     ops::mul(stream, x, x, &mut squares)?;
//!     let sum = DeviceBuffer::from_host(stream, &[ops::sum(stream, &squares)?])?;
//!     let mut norm = DeviceBuffer::uninit(stream, 1)?;
//!     ops::sqrt(stream, &sum, &mut norm)?;
//!     Ok(norm.to_host()?[0])
//! }
//!
//! let stream = Stream::new(&Device::open("cpu")?)?;
//! assert_eq!(norm(&stream, &DeviceBuffer::from_host(&stream, &[3.0_f32, 4.0])?)?, 5.0);
//! assert_eq!(norm(&stream, &DeviceBuffer::from_host(&stream, &[5.0_f64, 12.0])?)?, 13.0);
//! # Ok::<(), warpsmith::Error>(())
//! ```

mod arithmetic;
#[cfg(any(feature = "rows", feature = "scan"))]
mod bit_layout;
mod collective;
#[cfg(feature = "scan")]
mod compact;
mod config;
mod data;
mod elementwise;
mod example;
#[cfg(feature = "histogram")]
mod histogram;
mod index_check;
mod indices;
pub(crate) mod launch;
mod layout;
#[cfg(feature = "tensor")]
mod matmul;
mod methods;
#[cfg(any(feature = "rows", feature = "sort"))]
mod offset_check;
mod operand;
mod own;
mod reduce;
#[cfg(feature = "rows")]
mod rows;
#[cfg(feature = "scan")]
mod scan;
#[cfg(feature = "sort")]
mod sort;
#[cfg(any(feature = "scan", feature = "sort"))]
mod tile_queue;
mod tuned;
mod workspace;

#[cfg(feature = "tensor")]
pub use crate::tensor::{
    Attended, Attention, AttentionDecode, Gradients, HeadNorm, Heads, HeadsMut, KvCache, KvCacheMut,
    NewTokens, Offsets, Rotary, attention, attention_backward, attention_decode, attention_decode_append,
    attention_with_lse, rotary_append,
};
pub use arithmetic::{
    abs, add, bit_and, bit_or, bit_xor, ceil, clamp, cos, div, eq, floor, ge, gelu_tanh, gt, le, lerp, log,
    lt, maximum, minimum, mul, ne, neg, not, pow, reciprocal, round, rsqrt, select, shl, shr, sign, silu,
    sin, sqrt, sub, tanh, trunc,
};
pub use collective::{reduce_add, reduce_add_coalesced};
#[cfg(feature = "scan")]
pub use compact::{
    Comparison, partition_flagged, partition_if, run_lengths, select_flagged, select_if, unique,
};
pub(crate) use config::take_forced;
pub use config::{Config, GridRule, Variant, default_config, variants, with_config};
#[cfg(feature = "bench")]
pub(crate) use config::{Instances, default_of, instances_of};
pub use data::{cast, copy, fill};
pub use elementwise::{axpy, exp, fma, gelu, relu, sigmoid};
pub use gpu_std::scalar::{Bits, Element, Float, Integer, Number, Scalar};
#[cfg(feature = "histogram")]
pub use histogram::{BinRange, histogram_edges, histogram_even};
pub use indices::{Index, Indices, gather, gather_rows, scatter, scatter_rows};
pub use layout::{concat_columns, concat_rows, split_columns, split_rows, transpose, transpose_batched};
#[cfg(feature = "tensor")]
pub use matmul::{
    Activation, BlockScales, Epilogue, F8E4M3, Fp8Weights, GroupedElement, Int4Buffer, Int4Host, Int4Weights,
    Int8Buffer, Int8Host, Int8Weights, Matrix, MatrixMut, MatrixNumber, Mxfp4Weights, Nvfp4Weights,
    PackedWords, RmsNorm, Routing, RoutingElement, Weights4Bit, Weights8Bit, matmul, matmul_4bit,
    matmul_8bit, matmul_f32, matmul_fused, matmul_grouped, matmul_scaled, matmul_tf32, matmul_tf32x3,
};
pub use methods::ReduceExt;
pub use operand::{Operand, column, row};
pub use own::{map, reduce, reduce_into};
pub use reduce::{
    argmax, argmax_into, argmin, argmin_into, max, max_into, mean, min, min_into, prod, prod_into, sum,
    sum_into,
};
// These items are listed by name so that, for a missing item, the compiler can name the feature that enables it.
#[cfg(feature = "rows")]
pub use rows::{
    Predicate, RotaryPairs, Sampling, add_rms_norm, all, any, argmax_columns, argmax_rows, argmax_segments,
    argmin_columns, argmin_rows, argmin_segments, count_if, count_if_into, dot, dot_into, l1_norm,
    l1_norm_into, l2_norm, l2_norm_into, layer_norm, layer_norm_backward, log_softmax, log_softmax_backward,
    max_columns, max_rows, max_segments, mean_columns, mean_into, mean_rows, mean_segments, min_columns,
    min_rows, min_segments, prod_columns, prod_rows, prod_segments, rms_norm, rms_norm_backward, rotary,
    sample, softmax, softmax_backward, sum_columns, sum_rows, sum_segments, swiglu, top_k, variance,
    variance_into,
};
#[cfg(feature = "scan")]
pub use scan::{
    exclusive_max, exclusive_min, exclusive_scan, exclusive_sum, inclusive_max, inclusive_min,
    inclusive_scan, inclusive_sum,
};
#[cfg(feature = "sort")]
pub use sort::{Order, SortKey, lower_bound, sort, sort_pairs, sort_segments, upper_bound};
pub use tuned::tuned_config;
