//! GEMM and attention tests on the device that `WARPSMITH_TEST_DEVICE` names, by default the emulated device. If the
//! device does not exist, the tests fail.

mod attention;
mod attention_backward;
mod attention_decode;
mod attention_on_gpu;
mod epilogues;
mod experts;
mod full_precision;
mod grouped;
mod matmul;
mod matmul_on_gpu;
mod mma;
mod number;
mod quantized;
mod repack;
mod rotary_append;
mod scaled;
mod schedules;
mod skinny;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;
