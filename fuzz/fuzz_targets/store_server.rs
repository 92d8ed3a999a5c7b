//! Reads bytes as those of clients of a store.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpsmith_collective::store::fuzzed;

fuzz_target!(|bytes: &[u8]| fuzzed::server(bytes));
