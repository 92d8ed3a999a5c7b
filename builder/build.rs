//! Hashes the builder's sources. The hash is part of the key of cached code, because a different builder may generate
//! different code.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() {
    let mut files = Vec::new();
    find(Path::new("src"), &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| (file, fs::read(file).unwrap_or_default()).hash(&mut hasher));
    println!("cargo:rustc-env=WARPSMITH_BUILDER_SOURCES={:016x}", hasher.finish());
    println!("cargo:rerun-if-changed=src");
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { find(&path, files) } else { files.push(path) }
    }
}
