//! Kernels for tensor cores.
//!
//! Most kernels copy boxes with TMA and multiply with `wgmma`, which require compute capability 9.0.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@attention`] | attention, forward pass |
//! | [`attention_backward`] | attention, backward pass |
//! | [`mod@attention_backward_mma`] | attention, backward pass with `mma.sync`; requires compute capability 8.0 |
//! | [`mod@attention_decode`] | attention for decoding; requires compute capability 8.0 |
//! | [`mod@attention_mma`] | attention, forward pass with `mma.sync`; requires compute capability 8.0 |
//! | [`mod@rotary_append`] | rotary position embedding and append to a KV cache; requires compute capability 8.0 |
//! | [`mod@dequantize`] | dequantization of int4 and int8 weights; requires compute capability 8.0 |
//! | [`epilogue`] | GEMM epilogues; GEMM with k = 0 |
//! | [`mod@experts`] | routing of mixture-of-experts layers; requires compute capability 8.0 |
//! | [`mod@skinny`] | skinny GEMM with 16-bit or packed int4 weights; requires compute capability 8.0 |
//! | [`grouped`] | grouped GEMM |
//! | [`mod@matmul`] | persistent GEMM; `product` is the body for kernels with other epilogues |
//! | [`mod@mixed`] | mixed-input GEMM with quantized weights, for batched decoding; requires compute capability 8.0 |
//! | [`mod@mma`] | GEMM of 16-bit elements with `mma.sync`; requires compute capability 8.0 |
//! | [`number4`] | no kernel: converts codes of 4 and 8 bits to 16-bit numbers |
//! | [`cache_element`] | no kernel: converts the elements of KV caches |
//! | [`non_persistent`] | non-persistent GEMM with split-K, for few or partial tiles; `product` is the body for kernels with other accumulators |
//! | [`scaled`] | block-scaled FP8 GEMM |
//! | [`simt`] | `f32` GEMM in full precision, without tensor cores; requires compute capability 8.0 |
//! | [`tf32x3`] | `f32` GEMM as three TF32 GEMMs (3xTF32) |
//! | [`tile_epilogue`] | no kernel: the epilogue that stores sums to rows of C, for kernels that call `non_persistent::product` |
//!
//! To run the kernels through a safe, typed API, use `warpsmith::ops`.
#![no_std]
#![deny(missing_docs)]

pub mod attention;
pub mod attention_backward;
pub mod attention_backward_mma;
pub mod attention_decode;
pub mod attention_mma;
pub mod cache_element;
pub mod dequantize;
pub mod epilogue;
pub mod experts;
pub mod grouped;
pub mod matmul;
pub mod mixed;
pub mod mma;
pub mod non_persistent;
pub mod number4;
pub mod rotary_append;
pub mod scaled;
pub mod sequences;
pub mod simt;
pub mod skinny;
mod softmax;
pub mod tf32x3;
pub mod tile_epilogue;
mod tiles;
