use gpu_std::prelude::*;

const BLOCK: usize = 2048;

#[kernel(block(BLOCK))]
fn large_constant() {}

#[kernel(consts(TILE = 16, 64), block(TILE, TILE))]
fn one_large_instance<const TILE: usize>() {}

#[kernel(launch_bounds(BLOCK))]
fn large_bounds() {}

#[kernel(launch_bounds(BLOCK / 4), block(32, 32))]
fn larger_than_its_bounds() {}

#[kernel(block(16, 16))]
fn line_in_planes(_out: DisjointMut<f32>) {}

#[kernel(block(4, 4, 4))]
fn plane_in_volume(_out: DisjointMut2<f32>, _more: DisjointMut3<f32>) {}

fn main() {}
