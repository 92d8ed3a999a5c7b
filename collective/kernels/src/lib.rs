//! Kernels of the Peer backend of `warpsmith-collective` and the memory layout that they share with the host code.
//!
//! Every rank launches the same kernel in the same shape. Block b of a rank works on the same elements as block b of
//! every other rank and waits only for those blocks.
//!
//! | module | content |
//! | --- | --- |
//! | [`number`] | arithmetic of reductions, also used on the host |
//! | [`mod@device_comm`] | the memory that ranks share and the barrier between ranks |
//! | [`words`] | LL protocol: elements pushed to other ranks together with the epoch |
//! | [`mod@low_latency`] | reductions of few elements with the LL protocol |
//! | [`mod@reduce`] | one-shot and two-shot reductions |
//! | [`mod@exchange`] | all operations that move elements without reducing them |
#![no_std]
#![deny(missing_docs)]

pub mod device_comm;
pub mod exchange;
pub mod low_latency;
pub mod number;
mod packed;
pub mod reduce;
mod vectors;
pub mod words;
