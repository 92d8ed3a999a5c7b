//! Measures kernel configurations, checks their results, and searches for the fastest configuration.
//!
//! | module | contents |
//! | --- | --- |
//! | [`benchmark`] | description of a kernel to be measured; the benchmarks of a program |
//! | [`kernel`] | a shorter form of this description, for most kernels over arrays |
//! | [`value`], [`space`] | configurations and configuration spaces |
//! | [`case`] | a kernel with its buffers, ready to be launched and checked |
//! | [`size`] | parsing and formatting of element counts |
//! | [`run`] | a whole run: request, plan and records |
//! | [`measure`] | timing with events |
//! | [`probe`] | measured peaks of the device |
//! | `command` | the command line (feature `command`) |
//! | `criterion` | device times for criterion benches (feature `criterion`) |
//! | [`data`], [`verify`] | input data of kernels, and the comparison with a float64 reference |
//! | [`stats`] | medians, percentiles, confidence intervals |
//! | [`search`] | the search for the fastest configuration, independent of how configurations are measured |
//! | [`tune`] | a whole tuning run |
//! | [`document`] | the results document |
//! | [`compare`] | comparison of two documents to find kernels that became faster or slower |
//! | [`report`] | documents rendered as one HTML page with plots |
//!
//! The crate contains no kernels. `warpsmith::bench` describes the kernels of `warpsmith::ops` and re-exports this
//! crate. A program with its own kernels describes them with [`benchmark::Benchmark`].
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
mod harness;
pub mod kernel;
pub mod measure;
pub mod probe;
pub mod report;
pub mod run;
pub mod search;
pub mod size;
pub mod space;
pub mod stats;
pub mod tune;
pub mod value;
pub mod verify;
