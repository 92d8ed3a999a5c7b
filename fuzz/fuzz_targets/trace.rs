//! Parses bytes as a trace file. Run it with -rss_limit_mb=1024.
#![no_main]

#[path = "../../profiler/trace/tests/trace/fuzzed.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::trace(bytes));
