use gpu_std::prelude::*;

#[kernel(same_len(x, z))]
fn unknown(_x: &[f32], _y: DisjointMut<f32>) {}

#[kernel(same_len(x, n))]
fn value(n: u32, x: &[f32]) {
    let _ = (n, x);
}

#[kernel(same_len(x))]
fn alone(x: &[f32]) {
    let _ = x;
}

#[kernel(same_len())]
fn none(_x: &[f32]) {}

#[kernel(same_len = x)]
fn equals(_x: &[f32]) {}

fn main() {}
