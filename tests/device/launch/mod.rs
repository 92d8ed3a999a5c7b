//! Launches on the device under test: typed, cooperative and dependent launches, launches by kernels, and graphs.

mod choice;
mod cooperative;
mod core_sorts;
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
mod thread_groups;
mod tiles;
mod typed;
