//! Parses bytes as the pickle of a snapshot. Run it with -rss_limit_mb=1024.
#![no_main]

#[allow(dead_code, reason = "each target uses one of its functions")]
#[path = "../../runtime/tests/common/fuzzed.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::snapshot(bytes));
