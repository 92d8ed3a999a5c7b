use gpu_std::prelude::*;

#[kernel]
fn no_elements(_tile: Shared<[f32; 0]>) {}

#[kernel(consts(N = 1024, 4096))]
fn too_large<const N: usize>(_tile: Shared<[f32; N]>, _pair: DoubleBuffer<[[f32; 2]; N]>) {}

#[kernel]
fn large(_tile: Shared<[f32; 4096]>, _pair: DoubleBuffer<[f32; 4096]>) {}

#[derive(Clone, Copy, KernelType)]
#[repr(C, align(32))]
struct Wide([u64; 4]);

#[kernel]
fn too_aligned(_tile: Shared<[Wide]>) {}

#[kernel]
fn no_bytes(_tile: Shared<[()]>) {}

fn main() {}
