//! Parses bytes as the LLVM IR of kernels, and rewrites it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpsmith_builder::fuzzed::rewrite(bytes));
