//! PyTorch's own numbers, from files that it wrote on a GPU.

use std::path::Path;

use warpsmith::random;

use crate::common::stream;
use crate::model::{filled, generator};

/// The number behind `key=` in a file's name.
fn named(path: &Path, key: &str) -> u64 {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let found = name.split('_').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    found
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no `{key}=…` in the name {path:?}"))
}

/// Compares with the files that `WARPSMITH_PYTORCH_UNIFORM` names, separated by commas: raw numbers of `torch.rand` in f32,
/// named `…_seed=…_offset=…_n=…_mps=…_threads=….bin`, the last two for the multiprocessors of the GPU and the threads of each.
#[test]
#[ignore = "needs files that PyTorch wrote"]
fn uniform_is_pytorchs() {
    let files =
        std::env::var("WARPSMITH_PYTORCH_UNIFORM").expect("WARPSMITH_PYTORCH_UNIFORM names the files");
    let stream = stream();
    for path in files.split(',').map(Path::new) {
        let of = |key| named(path, key);
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let n = of("n") as usize;
        assert_eq!(bytes.len(), 4 * n, "{path:?}");
        let generator = generator((of("mps") as u32, of("threads") as u32), of("seed"), of("offset"));
        let found: Vec<f32> = filled(&stream, n, |out| random::uniform(&stream, &generator, out));
        let expected = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let differ = found.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differ, None, "the first element that differs, of {path:?}");
    }
}
