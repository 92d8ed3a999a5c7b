use gpu_std::prelude::*;

#[kernel]
fn wrong(x: &[f32], out: &mut [f32]) {}

fn main() {}
