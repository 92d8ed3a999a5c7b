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

#[kernel(types(T = f32))]
fn no_instances<T: Scalar, U: Scalar, const N: usize>(x: &[T], y: &[U]) {}

#[kernel(blocks = 256)]
fn unknown_option() {}

#[kernel(types(N = f32, f64; V = u8), consts(T = 1))]
fn wrong_lists<T: Scalar, const N: usize>(x: &[T]) {}

fn main() {}
