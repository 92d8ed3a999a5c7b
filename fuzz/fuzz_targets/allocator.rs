//! Turns bytes into a program for the caching allocator and checks every guarantee after each step.
#![no_main]

#[allow(dead_code, reason = "tests use all of it")]
#[path = "../../runtime/tests/emulated/support/allocator_program.rs"]
mod allocator_program;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    allocator_program::run(&mut allocator_program::Bytes(bytes), 2000);
});
