//! Kernels for tensor cores.
//!
//! Most copy boxes of tensors asynchronously and multiply them by `wgmma`, which compute capability 9.0 alone has.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@attention`] | attention of heads, forward |
//! | [`attention_backward`] | its backward pass |
//! | [`epilogue`] | what becomes of sums before they are stored; products of nothing |
//! | [`mod@few_rows`] | products of few rows, by numbers of 16 or 4 bits; of compute capability 8.0 too |
//! | [`grouped`] | products of groups of rows, each by a matrix of its own |
//! | [`mod@matmul`] | products of matrices, with `product` for kernels with other epilogues |
//! | [`number4`] | none: numbers of 16 bits made of codes of 4 |
//! | [`one_tile`] | products of few tiles, or of tiles that end in the middle, with `product` for kernels that add otherwise |
//! | [`scaled`] | products of 8-bit floating-point numbers with scales for blocks |
//! | [`simt`] | products of `f32` in full precision, without tensor cores; of compute capability 8.0 too |
//! | [`tf32x3`] | products of `f32` by three products of TF32 |
//! | [`tile_end`] | none: how sums become rows of C, for kernels that call `one_tile::product` |
//!
//! The safe, typed way to run them is `warpsmith::ops`.
#![no_std]
#![deny(missing_docs)]

pub mod attention;
pub mod attention_backward;
pub mod epilogue;
pub mod few_rows;
pub mod grouped;
pub mod matmul;
pub mod number4;
pub mod one_tile;
pub mod scaled;
pub mod sequences;
pub mod simt;
mod softmax;
pub mod tf32x3;
pub mod tile_end;
mod tiles;
