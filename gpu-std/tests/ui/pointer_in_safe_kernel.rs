use gpu_std::prelude::*;

#[kernel]
fn wrong(x: *const f32, out: *mut f32) {}

fn main() {}
