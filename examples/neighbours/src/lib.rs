//! Warpsmith's kernels on tensors of candle and on memory of cudarc, without copies.
#![deny(missing_docs)]

pub mod memory;
pub mod swiglu;
