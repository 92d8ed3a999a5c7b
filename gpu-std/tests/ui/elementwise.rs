//! Functions that are not elementwise.

use gpu_std::prelude::*;

#[elementwise]
fn of_slices(x: &[f32]) -> f32 {
    x[0]
}

#[elementwise]
fn of_nothing(x: f32) {}

#[elementwise(scalars(b))]
fn unknown_scalar(a: f32) -> f32 {
    a
}

#[elementwise(updates(x))]
fn updates_another(x: f32, y: f32) -> f32 {
    x + y
}

#[elementwise(block(32))]
fn of_a_block(x: f32) -> f32 {
    x
}

#[elementwise(consts(VECTOR = 32))]
fn too_wide(x: f32) -> f32 {
    x
}

#[elementwise]
fn without_types<T: Float>(x: T) -> T {
    x
}

#[elementwise]
unsafe fn not_safe(x: f32) -> f32 {
    x
}

#[elementwise]
struct NoFunction;

fn main() {}
