//! Kernels for tensor cores.
//!
//! Most copy boxes of tensors asynchronously and multiply them by `wgmma`, which compute capability 9.0 alone has.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@attention`] | attention of heads, forward |
//! | [`epilogue`] | what becomes of sums before they are stored; the sum of parts |
//! | [`mod@few_rows`] | products of few rows, by numbers of 16 or 4 bits; of compute capability 8.0 too |
//! | [`simt`] | products of `f32` in full precision, without tensor cores; of compute capability 8.0 too |
//! | [`mod@matmul`] | products of matrices, with `product` for kernels with other epilogues |
//!
//! The safe, typed way to run them is `warpsmith::ops`.
#![no_std]
#![deny(missing_docs)]

pub mod attention;
pub mod epilogue;
pub mod few_rows;
pub mod matmul;
pub mod sequences;
pub mod simt;
mod softmax;
mod tiles;
