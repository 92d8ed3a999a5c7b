//! Tests of hand-written kernels on the emulator: threads, blocks, warps, sets of blocks, faults.

#[macro_use]
mod common;

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
mod arrays;
mod blocks;
mod endless;
mod faults;
mod livelock;
mod redzones;
mod sets;
mod warps;
