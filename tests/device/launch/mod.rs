//! Launches on the device under test: of kernels by their type, cooperative and dependent ones, by kernels, graphs.

mod choice;
mod cooperative;
mod core_sorts;
mod dynamic;
mod graphs;
mod interop_on_gpu;
mod loaded_on_gpu;
mod mapped;
mod planes;
mod registry_crates;
mod rust_values;
mod shared_slices;
mod stack;
mod structs;
mod teams;
mod tiles;
mod typed;
