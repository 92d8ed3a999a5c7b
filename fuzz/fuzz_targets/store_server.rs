//! Parses bytes as the requests of store clients.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpsmith_collective::store::fuzzed;

fuzz_target!(|bytes: &[u8]| fuzzed::server(bytes));
