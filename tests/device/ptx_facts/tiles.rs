//! Kernels with shared arrays: they use shared-memory instructions, have only the barriers of their operations, and
//! have no checks where the block shape is known.

use super::{count, ptx};

#[test]
fn shared_arrays_have_their_own_barriers() {
    let entries = &ptx()[&80];
    // Barriers of array operations, and of `sync_threads`. A first fill waits once; a histogram zeroes, and reads
    // again.
    for (symbol, of_arrays, of_block) in [
        ("heat_tiled", 1, 0),
        ("heat_raw", 0, 1),
        ("transpose_tiled", 1, 0),
        ("matmul_tiled__f32", 1, 0),
        ("matmul_tiled__f64", 1, 0),
        ("argmax_tiled", 9, 0),
        ("histogram_tiled__256", 3, 0),
        ("fill_without_returned", 19, 0),
    ] {
        let body = &entries[symbol];
        let barriers = |number: u32| {
            let line = format!("barrier.sync\t{number};");
            body.lines().filter(|text| text.split_whitespace().eq(line.split_whitespace())).count()
        };
        assert_eq!((barriers(1), barriers(0)), (of_arrays, of_block), "{symbol}:\n{body}");
    }
}

#[test]
fn safe_tiles_need_no_checks_or_generic_accesses() {
    let entries = &ptx()[&80];
    for symbol in [
        "heat_tiled",
        "transpose_tiled",
        "matmul_tiled__f32",
        "matmul_tiled__f64",
        "argmax_tiled",
        "histogram_tiled__16",
        "histogram_tiled__256",
    ] {
        let body = &entries[symbol];
        for absent in ["call", "trap", "ld.b", "st.b", "div.u64", "rem.u64", ".local"] {
            assert_eq!(count(body, absent), 0, "{absent} in {symbol}:\n{body}");
        }
        let shared = count(body, "ld.shared") + count(body, "atom.shared") + count(body, "red.shared");
        assert!(shared > 0 && count(body, "st.shared") > 0, "{symbol}:\n{body}");
    }
}

/// A block of known shape writes its elements in rounds that are unrolled, with checks in the last round only.
#[test]
fn fills_of_known_blocks_are_unrolled() {
    let entries = &ptx()[&80];
    for (symbol, stores) in [("heat_tiled", 2), ("transpose_tiled", 4), ("matmul_tiled__f32", 2)] {
        let body = &entries[symbol];
        assert_eq!(count(body, "st.shared"), stores, "{symbol}:\n{body}");
    }
}
