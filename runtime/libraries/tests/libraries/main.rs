//! Operations of libraries on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A
//! device or a library that is not there fails the tests.

mod blas;
mod dnn;
mod fft;
mod numbers;
mod rand;
mod sparse;
#[path = "../../../tests/common/under_test.rs"]
mod under_test;
