//! Imports tensors made of bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpsmith_interop::dlpack::fuzzed;

fuzz_target!(|bytes: &[u8]| fuzzed::reader(bytes));
