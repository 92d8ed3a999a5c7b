//! Parses bytes as the text of the allocator's options.
#![no_main]

#[allow(dead_code, reason = "each target uses one of its functions")]
#[path = "../../runtime/tests/common/fuzzed.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::allocator_options(bytes));
