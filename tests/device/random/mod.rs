//! Random numbers on the device under test: order, distributions, generators, graphs.

mod bad_input;
mod distributions;
mod generators;
mod graphs;
mod model;
mod order;
mod permutations;
mod pytorch;
