//! Hashes the sources, so that code which another state of the builder generated is not taken from the cache.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let mut files = Vec::new();
    find(Path::new("src"), &mut files);
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in &files {
        let contents = fs::read(file).unwrap_or_default();
        for byte in file.to_string_lossy().bytes().chain([0]).chain(contents) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=WARPSMITH_BUILDER_SOURCES={hash:016x}");
    println!("cargo:rerun-if-changed=src");
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { find(&path, files) } else { files.push(path) }
    }
}
