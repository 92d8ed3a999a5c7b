//! Parses bytes as PTX, and as a report of `ptxas -v`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpsmith_builder::fuzzed::ptx(bytes));
