//! Warpsmith's kernels: copy, fill, cast, elementwise operations and full reductions.
//!
//! The same source runs on a GPU and on the emulated device. Every kernel here
//!
//! - is right for any length, any alignment of its arrays and any grid: blocks walk over tiles until none is
//!   left, so a grid smaller than the work only takes longer;
//! - moves the bulk of its data in accesses of `VECTOR` bytes, `ITEMS` of them in flight in each thread, with
//!   single elements up to the first aligned address and after the last whole vector;
//! - uses the first row of a launch (threads and blocks whose y and z are 0) and lets any others return.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@copy`] | `copy`, by element size |
//! | [`mod@fill`] | `fill`, by element size |
//! | [`mod@cast`] | `cast` between number types |
//! | [`elementwise`] | `axpy`, `add`, `mul`, `fma`, `relu`, `gelu`, `sigmoid`, `exp` |
//! | [`reduce`] | `reduce_sum`, `reduce_prod`, `reduce_min`, `reduce_max` |
//! | [`arg_reduce`] | `reduce_argmin`, `reduce_argmax` |
//! | [`probe`] | `fma_probe`, which only computes |
//! | [`random`] | `uniform`, `normal`, `exponential`, `integers`, `bernoulli`, `dropout`, `permutation` |
//!
//! The safe, typed way to run them is `warpsmith::ops`, and `warpsmith::random`.
#![no_std]
#![deny(missing_docs)]

pub mod arg_reduce;
mod block_reduce;
pub mod cast;
pub mod copy;
pub mod elementwise;
pub mod fill;
mod map;
pub mod probe;
pub mod random;
pub mod reduce;
mod tile;
