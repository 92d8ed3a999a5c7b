//! See `options` in `tuner/tests/tuner/parsers.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one of them")]
#[path = "../../tuner/tests/tuner/parsers.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::options(bytes));
