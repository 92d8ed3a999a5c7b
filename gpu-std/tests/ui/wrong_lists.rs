use gpu_std::prelude::*;

#[kernel(types(N = f32, f64; V = u8), consts(T = 1))]
fn wrong<T: Scalar, const N: usize>(x: &[T]) {}

fn main() {}
