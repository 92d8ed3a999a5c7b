//! Launches on the device under test: of kernels by their type, cooperative and dependent ones, by kernels, graphs.

mod choice;
#[path = "../common/mod.rs"]
mod common;
mod cooperative;
mod dynamic;
mod graphs;
mod typed;
