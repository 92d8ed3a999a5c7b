//! The device library, on the emulator.

mod atomic;
mod block;
mod common;
mod dynamic;
mod groups;
mod indices;
mod parameters;
mod planes;
mod printf;
mod random;
mod registry;
mod shared;
mod shared_slices;
mod structs;
mod values;
mod warp;
