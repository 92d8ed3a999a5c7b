//! The corpora of the fuzz targets, among them files that did harm once.

#[path = "../common/fuzzed.rs"]
mod fuzzed;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus")).join(target);
    let mut files = 0;
    for file in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = file.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn pickles_do_no_harm() {
    replay("pickle", fuzzed::snapshot);
}

#[test]
fn json_snapshots_do_no_harm() {
    replay("json_snapshot", fuzzed::snapshot);
}

#[test]
fn option_texts_do_no_harm() {
    replay("allocator_options", fuzzed::allocator_options);
}

#[test]
fn device_lists_do_no_harm() {
    replay("device_lists", fuzzed::device_lists);
}

#[test]
fn sparse_matrices_do_no_harm() {
    replay("csr", fuzzed::csr);
}
