//! Functions and operators of types that kernels cannot take.

use gpu_std::prelude::*;

#[elementwise]
fn of_text(x: bool) -> f32 {
    f32::from(x)
}

#[reduction(identity = 0)]
fn wrong_identity(a: f32, b: f32) -> f32 {
    a + b
}

#[derive(Clone, Copy)]
struct Pair(f32, f32);

#[reduction(identity = Pair(0.0, 0.0))]
fn of_a_plain_struct(a: Pair, b: Pair) -> Pair {
    Pair(a.0 + b.0, a.1 + b.1)
}

fn main() {}
