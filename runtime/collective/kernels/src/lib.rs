//! The kernels of the Peer backend of `warpsmith-collective`, and what they and their host side meet in.
//!
//! Every rank launches the same kernel in the same shape. Block b of one rank works on the same elements as block b of every
//! other, and waits for those blocks alone.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`number`] | how elements are reduced, on the host as well |
//! | [`mod@meeting`] | the memory in which ranks meet, and their barrier |
//! | [`mod@reduce`] | reductions, in one shot and in two |
//! | [`mod@exchange`] | everything that moves elements and reduces none |
#![no_std]
#![deny(missing_docs)]

pub mod exchange;
pub mod meeting;
pub mod number;
mod packed;
pub mod reduce;
mod vectors;
