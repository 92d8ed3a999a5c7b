//! The device library, on the emulator.

mod async_copies;
mod atomic;
mod block;
mod blocks;
mod common;
mod forbidden;
mod groups;
mod in_gdb;
mod indices;
mod look_back;
mod mappings;
mod mma;
mod parameters;
mod planes;
mod printf;
mod random;
mod registry;
mod shared;
mod shared_slices;
mod signatures;
mod structs;
mod tensor;
mod tensor_fragments;
mod tensor_products;
mod values;
mod warp;
