//! Measures kernel configurations, checks their results and searches for the fastest.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`benchmark`] | what is to be known of a kernel; the benchmarks of a program |
//! | [`kernel`] | the same for most kernels of one's own, in a few lines |
//! | [`value`], [`space`] | configurations, and the spaces they come from |
//! | [`case`] | a kernel with its buffers, ready to launch and to check |
//! | [`size`] | element counts as people write them |
//! | [`run`] | a whole run: request, plan, records |
//! | [`measure`] | timing by events |
//! | [`probe`] | what the device reaches beside the kernels |
//! | `command` | the command line, with the feature `command` |
//! | `criterion` | times on the device for criterion benches, with the feature `criterion` |
//! | [`data`], [`verify`] | what kernels are run on, and the comparison with a float64 reference |
//! | [`stats`] | medians, percentiles, confidence intervals |
//! | [`search`] | the search for the fastest, apart from measuring |
//! | [`tune`] | a whole tuning run |
//! | [`document`] | the document of results |
//! | [`compare`] | whether a change made kernels faster or slower |
//! | [`report`] | documents as one HTML page with plots |
//!
//! The crate knows no kernel. Those of `warpsmith::ops` are described in `warpsmith::bench`, which also offers all of
//! this crate; a program with kernels of its own describes them with [`benchmark::Benchmark`].
#![deny(missing_docs)]

pub mod benchmark;
pub mod case;
#[cfg(feature = "command")]
pub mod command;
pub mod compare;
#[cfg(feature = "criterion")]
pub mod criterion;
pub mod data;
pub mod document;
pub mod error;
mod file;
pub mod kernel;
pub mod measure;
pub mod probe;
pub mod report;
mod rig;
pub mod run;
pub mod search;
pub mod size;
pub mod space;
pub mod stats;
pub mod tune;
pub mod value;
pub mod verify;
