//! Operations of `warpsmith::ops` on the device under test.

mod alignments;
mod arithmetic;
mod axis_reduce;
mod bad_input;
mod casts;
mod compact;
mod device_reduce;
mod elementwise;
mod gelu;
mod histogram;
mod layout;
mod matmul;
mod norm;
mod own;
mod reduce;
mod reduce_add;
mod scan;
mod select;
mod softmax;
mod sort;
mod special_numbers;
mod tokens;
mod train;
mod tuned;
pub mod views;
