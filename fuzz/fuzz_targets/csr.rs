//! Makes sparse matrices from bytes, and multiplies with the valid ones.
#![no_main]

#[allow(dead_code, reason = "each target uses one of its functions")]
#[path = "../../runtime/tests/common/fuzzed_csr.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::csr(bytes));
