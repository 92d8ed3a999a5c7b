//! Parses bytes as the replies of a store server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpsmith_collective::store::fuzzed;

fuzz_target!(|bytes: &[u8]| fuzzed::client(bytes));
