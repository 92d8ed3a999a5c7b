//! The kernels of the Peer backend of `warpsmith-collective`, and what they and their host side meet in.
//!
//! Every rank launches the same kernel in the same shape. Block b of one rank works on the same elements as block b of every
//! other, and waits for those blocks alone.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`number`] | how elements are reduced, on the host as well |
//! | [`mod@meeting`] | the memory in which ranks meet, and their barrier |
//! | [`words`] | elements that are pushed to other ranks with the epoch beside them |
//! | [`mod@push`] | reductions of few elements, by words |
//! | [`mod@reduce`] | reductions, in one shot and in two |
//! | [`mod@exchange`] | everything that moves elements and reduces none |
#![no_std]
#![deny(missing_docs)]

pub mod exchange;
pub mod meeting;
pub mod number;
mod packed;
pub mod push;
pub mod reduce;
mod vectors;
pub mod words;
