//! Kernels for the tensor cores of compute capability 9.0.
//!
//! They copy boxes of tensors asynchronously and multiply them by `wgmma`, which no other compute capability has. So they are
//! compiled for `sm_90a` alone, apart from `gpu-kernels`.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@attention`] | attention of heads, forward |
//! | [`epilogue`] | what becomes of sums before they are stored; the sum of parts |
//! | [`mod@matmul`] | products of matrices, with `product` for kernels with other epilogues |
//!
//! The safe, typed way to run them is `warpsmith::ops`.
#![no_std]
#![deny(missing_docs)]

pub mod attention;
pub mod epilogue;
pub mod matmul;
pub mod sequences;
mod softmax;
mod tiles;
