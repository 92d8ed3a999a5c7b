//! Random numbers on the device under test: order, distributions, generators, graphs.

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod distributions;
mod generators;
mod graphs;
mod model;
mod order;
mod permutations;
mod pytorch;
