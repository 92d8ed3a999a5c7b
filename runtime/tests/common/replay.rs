//! Replaying the corpus of a fuzz target.

use std::path::Path;

/// Calls `run` with every file of the corpus.
pub fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let mut files = 0;
    for file in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = file.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}
