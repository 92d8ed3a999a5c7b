//! Functions that are not operators.

use gpu_std::prelude::*;

#[reduction]
fn without_identity(a: f32, b: f32) -> f32 {
    a + b
}

#[reduction(identity = 0.0)]
fn of_two_types(a: f32, b: f64) -> f32 {
    a + b as f32
}

#[reduction(identity = 0.0, fold = |sum, x| sum + x)]
fn without_element(a: f32, b: f32) -> f32 {
    a + b
}

#[reduction(identity = 0.0, finish = |sum| sum as u32)]
fn without_result(a: f32, b: f32) -> f32 {
    a + b
}

fn main() {}
