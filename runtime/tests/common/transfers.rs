//! Shared code for the copy tests.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::{Device, HostMemory, PinnedBuffer, PinnedRange};

/// Lengths in bytes that are edge cases for chunked copies, including both sides of the size limit for small copies.
pub const LENGTHS: [usize; 9] = [
    0,
    1,
    (256 << 10),
    (256 << 10) + 1,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    2 * CHUNK_BYTES,
    3 * CHUNK_BYTES + 7,
];

/// Returns bytes that differ from chunk to chunk.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let block: Vec<u8> = (0..4096).map(|i| (i ^ (i >> 8)) as u8 ^ seed).collect();
    let mut bytes = block.repeat(length.div_ceil(block.len()));
    bytes.truncate(length);
    // Every block begins with its number.
    for (number, block) in bytes.chunks_exact_mut(4096).enumerate() {
        block[..4].copy_from_slice(&(number as u32).to_ne_bytes());
    }
    bytes
}

/// Host memory of every kind.
pub trait Kind: HostMemory<Element = u8> + Deref<Target = [u8]> + DerefMut + Debug {
    const NAME: &'static str;
    fn make(device: &Device, bytes: &[u8]) -> Self;
}

impl Kind for PinnedBuffer<u8> {
    const NAME: &'static str = "PinnedBuffer";
    fn make(device: &Device, bytes: &[u8]) -> Self {
        PinnedBuffer::from_slice(device, bytes).unwrap()
    }
}

impl Kind for PinnedRange<u8> {
    const NAME: &'static str = "PinnedRange";
    fn make(device: &Device, bytes: &[u8]) -> Self {
        let mut buffer = PinnedBuffer::zeroed(device, bytes.len() + 5).unwrap();
        buffer[3..bytes.len() + 3].copy_from_slice(bytes);
        buffer.into_range(3..bytes.len() + 3)
    }
}

impl Kind for Vec<u8> {
    const NAME: &'static str = "Vec";
    fn make(_: &Device, bytes: &[u8]) -> Self {
        bytes.to_vec()
    }
}

impl Kind for Box<[u8]> {
    const NAME: &'static str = "Box";
    fn make(_: &Device, bytes: &[u8]) -> Self {
        bytes.into()
    }
}

/// Compares without printing megabytes.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    if found == expected {
        return;
    }
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        panic!("{what}: byte {at} of {} is {}, not {}", found.len(), found[at], expected[at]);
    }
}
