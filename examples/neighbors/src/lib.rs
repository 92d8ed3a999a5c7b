//! Runs Warpsmith kernels on candle tensors and on memory of cudarc, without copies.
#![deny(missing_docs)]

pub mod memory;
pub mod swiglu;
