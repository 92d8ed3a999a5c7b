//! Corpus of the fuzz target that reads traces.

#[path = "fuzzed.rs"]
mod fuzzed;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn fuzzed_traces_do_no_harm() {
    replay::replay("trace", fuzzed::trace);
}
