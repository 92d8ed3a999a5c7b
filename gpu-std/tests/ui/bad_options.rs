use gpu_std::prelude::*;

#[kernel(launch_bounds(2048))]
fn too_large() {}

#[kernel(arch = 9)]
fn old() {}

#[kernel(consts(N = 1 + 1))]
fn computed<const N: usize>() {}

#[kernel(types(T = f32, U = f64))]
fn comma<T, U>() {}

fn main() {}
