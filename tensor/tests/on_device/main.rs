//! Products on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A device that is not there
//! fails the tests.

mod attention;
mod attention_backward;
mod attention_on_gpu;
mod epilogues;
mod few_rows;
mod full_precision;
mod grouped;
mod matmul;
mod matmul_on_gpu;
mod number;
mod scaled;
mod schedules;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;
