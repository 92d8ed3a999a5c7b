//! PyTorch's order of random numbers, element by element on the host.

use warpsmith::gpu_std::random::Philox;
use warpsmith::prelude::*;
use warpsmith::random::{Generator, Layout};

use crate::common::device;

/// Layouts so small that arrays of a few thousand elements have many steps.
pub const LAYOUTS: [(u32, u32); 3] = [(1, 256), (3, 600), (2, 2048)];

/// Makes a generator with this layout, seed and offset.
pub fn generator((multiprocessors, threads): (u32, u32), seed: u64, offset: u64) -> Generator {
    let generator = Generator::new(&device());
    generator.set_layout(Layout::new(multiprocessors, threads).unwrap()).unwrap();
    generator.manual_seed(seed).unwrap();
    generator.set_offset(offset).unwrap();
    generator
}

/// Number of virtual threads for `n` elements: whole blocks of 256, up to the number that are resident on the device.
pub fn threads(n: usize, (multiprocessors, threads): (u32, u32)) -> usize {
    256 * n.div_ceil(256).min((multiprocessors * (threads / 256)) as usize)
}

/// Source of element `i` of `n`: the block of words, and the index of the number in it.
pub fn place(
    i: usize,
    n: usize,
    lanes: usize,
    layout: (u32, u32),
    seed: u64,
    offset: u64,
) -> ([u32; 4], usize) {
    let threads = threads(n, layout);
    let (step, lane, thread) = (i / (lanes * threads), i % (lanes * threads) / threads, i % threads);
    (Philox::new(seed, thread as u64, offset + 4 * step as u64).next4(), lane)
}

/// Advance of the offset by `n` elements.
pub fn increment(n: usize, lanes: usize, layout: (u32, u32)) -> u64 {
    if n == 0 { 0 } else { 4 * n.div_ceil(lanes * threads(n, layout)) as u64 }
}

/// Lengths around the boundaries of threads, lanes and steps.
pub fn lengths(layout: (u32, u32), lanes: usize) -> Vec<usize> {
    let threads = threads(1 << 20, layout);
    let step = lanes * threads;
    let mut lengths = vec![0, 1, 3, 4, 5, 255, 256, 257, threads - 1, threads, threads + 1];
    lengths.extend([step - 1, step, step + 1, step + threads + 2, 2 * step, 5 * step + 4 * threads + 1]);
    lengths
}

/// Fills a new buffer with `fill`, and copies it to the host.
pub fn filled<T: DeviceCopy>(
    stream: &Stream,
    n: usize,
    fill: impl FnOnce(&mut DeviceBuffer<T>) -> warpsmith::Result<()>,
) -> Vec<T> {
    let mut buffer = DeviceBuffer::uninit(stream, n).unwrap();
    fill(&mut buffer).unwrap();
    buffer.to_host().unwrap()
}
