//! Replays the corpus of the fuzz target for sparse matrices.

#[path = "../../runtime/tests/common/fuzzed_csr.rs"]
mod fuzzed;
#[path = "../../fuzz/replay.rs"]
mod replay;

#[test]
fn sparse_matrices_do_no_harm() {
    replay::replay("csr", fuzzed::csr);
}
