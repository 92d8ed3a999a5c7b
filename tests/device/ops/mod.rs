//! The operations of `warpsmith::ops` on the device under test.

mod bad_input;
mod casts;
mod elementwise;
mod reduce;
mod reduce_add;
mod train;
mod tuned;
