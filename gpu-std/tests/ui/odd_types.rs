use gpu_std::prelude::*;

#[kernel]
fn wrong(f: impl Fn(f32), g: fn(f32), h: DisjointMut, s: [f32]) {}

fn main() {}
