use gpu_std::prelude::*;

/// Uses the index of a smaller tile, with which two tiles would access the same element.
#[kernel]
fn another_tile(mut y: DisjointMut<f32, PerTile<32>>) {
    let _ = y.get_mut(Tile::<16>::current().unique_index());
}

/// Uses the index of a thread, the index of a block, and a number.
#[kernel]
fn another_index(mut y: DisjointMut<f32, PerTile<8>>) {
    let _ = y.get_mut(thread::unique_index());
    let _ = y.get_mut(block::unique_index());
    let _ = y.get_mut(3);
}

/// Uses the index of a tile for the elements of threads.
#[kernel]
fn of_threads(mut y: DisjointMut<f32>) {
    let _ = y.get_mut(Tile::<1>::current().unique_index());
}

/// Uses an index that may belong to another tile.
#[kernel]
fn exchanged(mut y: DisjointMut<f32, PerTile<4>>) {
    let tile = Tile::<4>::current();
    let index = warp::shuffle(warp::FULL_MASK, tile.unique_index(), 0);
    let _ = y.get_mut(index);
}

#[kernel]
fn no_such_tile(_y: DisjointMut<f32, PerTile<12>>) {}

fn main() {}
