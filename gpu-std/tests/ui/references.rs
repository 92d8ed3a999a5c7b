use gpu_std::prelude::*;

#[kernel]
fn wrong(a: &f32, b: &mut u32, c: &'static [f32], d: DisjointMut<'static, f32>) {}

fn main() {}
