use gpu_std::prelude::*;

#[kernel]
fn by_number(x: &[f32], mut y: DisjointMut<f32>) {
    let i = thread::index_1d() as usize;
    y[i] = x[i];
    y[0] += 1.0;
}

#[kernel]
fn by_claim(x: &[f32], y: DisjointMut<f32, Chunks<4>>) {
    let _ = y[thread::unique_index()] + x[0];
}

#[kernel]
fn in_rows(mut out: DisjointMut2<f32>, volume: DisjointMut3<f32>) {
    out[[1_usize, 2]] = 1.0;
    let _ = volume[[1_usize, 2, 3]];
}

fn main() {}
