use gpu_std::prelude::*;

#[kernel(launch_bounds(2048))]
fn too_large() {}

#[kernel(arch = 9)]
fn old() {}

#[kernel(consts(N = 1 + 1))]
fn computed<const N: usize>() {}

#[kernel(types(T = f32, U = f64))]
fn comma<T, U>() {}

#[kernel(stack = 0)]
fn no_stack() {}

#[kernel(stack = 1048576)]
fn large_stack() {}

fn main() {}
