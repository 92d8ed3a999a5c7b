use gpu_std::disjoint::{Tiles, TransposedTiles};
use gpu_std::prelude::*;

#[kernel]
fn none(_y: Option<DisjointMut<u64, Chunks<0>>>) {}

#[kernel]
fn no_chunk(_y: DisjointMut<u64, Chunks<0>>) {}

#[kernel(consts(N = 1, 0))]
fn no_chunk_of_some<const N: usize>(_y: DisjointMut<u64, Chunks<N>>) {}

#[kernel]
fn no_rows(_y: DisjointMut2<u64, Tiles<0, 32>>) {}

#[kernel]
fn too_wide(_y: DisjointMut2<u64, TransposedTiles<1, 4097>>) {}

fn main() {}
