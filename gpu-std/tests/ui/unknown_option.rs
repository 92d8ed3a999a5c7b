use gpu_std::prelude::*;

#[kernel(block = 256)]
fn wrong() {}

fn main() {}
