//! Replays the corpus of a fuzz target; included as a module by the tests that replay one.

use std::path::Path;

/// Calls `run` with every file of the corpus.
pub fn replay(target: &str, run: fn(&[u8])) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = package.ancestors().map(|above| above.join("fuzz/corpus")).find(|corpus| corpus.is_dir());
    let folder = folder.expect("a folder above the package has the corpora").join(target);
    let mut files = 0;
    for file in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = file.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files > 1, "{} has no seeds", folder.display());
}
