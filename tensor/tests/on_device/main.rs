//! GEMM and attention tests on the device named by `WARPSMITH_TEST_DEVICE`, by default the emulated one. If the device
//! does not exist, the tests fail.

mod attention;
mod attention_backward;
mod attention_on_gpu;
mod epilogues;
mod full_precision;
mod grouped;
mod matmul;
mod matmul_on_gpu;
mod number;
mod scaled;
mod schedules;
mod skinny;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;
