//! Launches on the device under test: of kernels by their type, cooperative and dependent ones, by kernels, graphs.

mod choice;
mod cooperative;
mod dynamic;
mod graphs;
mod loaded;
mod stack;
mod typed;
