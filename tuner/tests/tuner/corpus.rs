//! The seeds of the fuzz targets, and what they have found, are replayed.

use std::fs;
use std::path::Path;

use super::parsers;

fn replay(target: &str, run: fn(&[u8])) {
    // A bundle has no sources.
    if std::env::var_os("WARPSMITH_BIN").is_some() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&fs::read(path).unwrap());
        files += 1;
    }
    assert!(files > 1, "{target} has no seeds");
}

#[test]
fn seeds_of_fuzz_targets_break_nothing() {
    replay("document", parsers::document);
    replay("log_line", parsers::log_line);
    replay("store_line", parsers::store_line);
    replay("options", parsers::options);
}
