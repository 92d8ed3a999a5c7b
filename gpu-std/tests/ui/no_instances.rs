use gpu_std::prelude::*;

#[kernel(types(T = f32))]
fn wrong<T: Scalar, U: Scalar, const N: usize>(x: &[T], y: &[U]) {}

fn main() {}
