//! Loads a model folder made from bytes: `config.json`, an index and a weight file.
#![no_main]

#[path = "../../examples/llm/tests/llm/fuzzed.rs"]
mod fuzzed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzed::load_folder(bytes));
