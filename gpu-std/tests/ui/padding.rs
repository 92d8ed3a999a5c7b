use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Inside {
    kind: u8,
    mass: f32,
}

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct AtTheEnd {
    mass: f64,
    kind: u8,
}

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Tuple(u16, [u64; 2]);

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Pair<T>(u32, T);

#[kernel]
fn generic(_fits: &[Pair<f32>], _padded: &[Pair<f64>]) {}

fn main() {}
