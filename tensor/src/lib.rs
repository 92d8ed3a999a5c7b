//! GEMM and attention on tensor cores, in kernels written in Rust.
//!
//! | function | computation |
//! | --- | --- |
//! | [`matmul()`] | `c = a * b`, for a matrix or a batch |
//! | [`matmul_fused()`] | `c = activation(scale * a * b + bias)` |
//! | [`matmul_f32()`] | `matmul_fused` for `f32`, computed in full precision without tensor cores |
//! | [`matmul_tf32x3()`] | `matmul_fused` for `f32`, computed in nearly full precision on tensor cores (3xTF32) |
//! | [`matmul_grouped()`] | grouped GEMM: each group of rows has its own matrix |
//! | [`Routing`] | routing of a mixture of experts: top k, dispatch and combine |
//! | [`matmul_scaled()`] | block-scaled FP8 GEMM |
//! | [`matmul_4bit()`], [`matmul_8bit()`] | weight-only int4, MXFP4, NVFP4, int8 and FP8 GEMM (W4A16, W8A16) |
//! | [`attention()`], [`attention_with_lse()`] | `softmax(scale * q * k^T) * v`; the latter also stores the log-sum-exp |
//! | [`attention_decode()`] | attention for decoding: one query per sequence, with a contiguous or paged KV cache |
//! | [`attention_decode_append()`] | a decoding step: `rotary_append` and `attention_decode` in one kernel |
//! | [`rotary_append()`] | rotary position embedding of new tokens, which are appended to a KV cache |
//! | [`attention_backward()`] | gradients of attention |
//!
//! [`matmul_with()`] accepts a [`Schedule`]. [`GemmElement`] lists the types. The kernels support compute capability
//! 9.0 and the emulated device. [`matmul()`], [`matmul_fused()`], [`matmul_grouped()`], W4A16, W8A16, full-precision
//! `f32`, [`attention()`], [`attention_backward()`], [`attention_decode()`], [`attention_decode_append()`] and
//! [`rotary_append()`] require only compute capability 8.0. [`matmul()`], [`matmul_fused()`] and full-precision `f32`
//! support any layout and alignment.
//!
//! On other devices, and for matrices whose alignment the kernels do not support (see [`TensorError`]), the functions
//! fail before anything is enqueued. Use cuBLAS in these cases.
//!
//! ```
//! use half::bf16;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! let stream = Stream::new(&Device::emulated(0)?)?;
//! let numbers = |count, of: fn(usize) -> f32| (0..count).map(|i| bf16::from_f32(of(i))).collect::<Vec<_>>();
//! // 2 rows of 8, and 8 rows of 8 that are the identity.
//! let a = DeviceBuffer::from_host(&stream, &numbers(16, |i| i as f32))?;
//! let b = DeviceBuffer::from_host(&stream, &numbers(64, |i| if i % 9 == 0 { 1.0 } else { 0.0 }))?;
//! let mut c = DeviceBuffer::<bf16>::zeros(&stream, 16)?;
//! warpsmith_tensor::matmul(&stream, a.as_2d(2, 8)?, b.as_2d(8, 8)?, c.as_2d_mut(2, 8)?)?;
//! assert_eq!(c.to_host()?, a.to_host()?);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
#![deny(missing_docs)]

mod attention;
mod attention_decode;
mod epilogue;
mod error;
mod experts;
mod grouped;
mod heads;
mod kv_cache;
mod matmul;
mod matrix;
mod mixed;
mod mma;
mod non_persistent;
mod quantized;
mod repack;
mod rotary_append;
mod scaled;
mod schedule;
mod simt;
mod skinny;
mod tf32x3;

pub use attention::{
    Attended, Attention, Gradients, HeadElement, Offsets, attention, attention_backward,
    attention_backward_mma, attention_mma, attention_with_lse,
};
pub use attention_decode::{
    AttentionDecode, CacheElement, DecodeElement, NewTokens, attention_decode, attention_decode_append,
};
pub use epilogue::{Activation, Epilogue, RmsNorm};
pub use error::TensorError;
pub use experts::{Routing, RoutingElement};
pub use gpu_std::tensor::{F8E4M3, F8E5M2};
pub use grouped::{GroupedElement, matmul_grouped, matmul_grouped_mma};
pub use heads::{Heads, HeadsMut};
pub use kv_cache::{KvCache, KvCacheMut};
pub use matmul::{GemmElement, matmul, matmul_fused, matmul_mma, matmul_or_library, matmul_with};
pub use matrix::{Matrix, MatrixMut};
pub use quantized::{
    Fp8Weights, Int4Weights, Int8Weights, Mxfp4Weights, Nvfp4Weights, Weights4Bit, Weights8Bit, matmul_4bit,
    matmul_8bit,
};
pub use repack::{Int4Buffer, Int4Host, Int8Buffer, Int8Host, PackedWords};
pub use rotary_append::{AppendElement, HeadNorm, Rotary, rotary_append};
pub use scaled::{BlockScales, matmul_scaled};
pub use schedule::Schedule;
pub use simt::matmul_f32;
pub use skinny::Element4;
pub use tf32x3::matmul_tf32x3;

use warpsmith_runtime::GpuImage;

/// GPU code of `warpsmith-tensor-kernels`, compiled for `sm_80` and `sm_90a` when this crate was built.
pub static IMAGE: GpuImage = warpsmith_runtime::include_image!("warpsmith_tensor_kernels");
