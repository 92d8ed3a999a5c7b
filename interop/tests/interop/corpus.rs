//! Replays the corpus of the fuzz target.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn dlpack() {
    replay::replay("dlpack", warpsmith_interop::dlpack::fuzzed::reader);
}
