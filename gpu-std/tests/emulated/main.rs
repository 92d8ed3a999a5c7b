//! The device library, on the emulator.

mod atomic;
mod block;
mod common;
mod dynamic;
mod groups;
mod indices;
mod printf;
mod random;
mod registry;
mod shared;
mod values;
mod warp;
