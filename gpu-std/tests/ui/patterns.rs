use gpu_std::prelude::*;

#[kernel]
fn wrong((a, b): (f32, f32), _: u32) {}

fn main() {}
