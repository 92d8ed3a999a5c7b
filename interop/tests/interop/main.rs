//! Tests of tensors exchanged with other code. Each test has its own emulated device; those in modules `*_on_gpu` use
//! the device under test.

mod corpus;
mod cuda_array;
mod deleters;
mod foreign;
#[path = "../../../runtime/tests/emulated/heap.rs"]
mod heap;
mod refusals;
mod round_trips;
mod streams;
mod streams_on_gpu;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;
