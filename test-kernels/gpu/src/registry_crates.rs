//! Crates from the registry in a kernel: `heapless` formats a text, `sha2` hashes it.

use core::fmt::Write;

use gpu_std::prelude::*;
use heapless::String;
use sha2::{Digest, Sha256};

/// Digest `i` is the [`numbered_hash`] of `i`. `digests` has 32 bytes for each.
#[kernel(stack = 4096)]
pub fn numbered_hashes(prefix: u32, mut digests: DisjointMut<u8, Chunks<32>>) {
    for i in thread::grid_stride(digests.chunks()) {
        if let Some(digest) = digests.get_mut(i) {
            digest.copy_from_slice(&numbered_hash(prefix, i.get() as u64));
        }
    }
}

/// The SHA-256 of the text `prefix-number`, the prefix in hexadecimal.
pub fn numbered_hash(prefix: u32, number: u64) -> [u8; 32] {
    let mut text = String::<32>::new();
    // 8 digits, a dash, at most 20 digits: they fit.
    _ = write!(text, "{prefix:08x}-{number}");
    Sha256::digest(text.as_bytes()).into()
}
