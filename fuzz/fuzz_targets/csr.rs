//! Makes sparse matrices of bytes, and multiplies with those that are matrices.
#![no_main]

#[allow(dead_code, reason = "each target uses one of its functions")]
#[path = "../../runtime/tests/common/fuzzed_csr.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::csr(bytes));
