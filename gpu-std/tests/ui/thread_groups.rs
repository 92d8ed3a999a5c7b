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

#[kernel]
fn no_planes(_y: DisjointMut<f32, Planes<0>>) {}

#[kernel]
fn unnamed_planes(_x: SlicePlanes<f32>) {}

/// Borrows two columns at once, and one element twice.
#[kernel]
fn two_columns(mut y: DisjointMut<f32, Planes<2>>) {
    let first = y.get_mut(thread::unique_index());
    let second = y.get_mut(thread::unique_index());
    drop((first, second));
    if let Some(mut column) = y.get_mut(thread::unique_index()) {
        let (a, b) = (&mut column[0], &mut column[0]);
        core::mem::swap(a, b);
    }
}

/// A column cannot be shared with another thread.
fn is_shared<T: Sync>(_: &T) {}
#[kernel]
fn shared_column(mut y: DisjointMut<f32, Planes<2>>) {
    if let Some(column) = y.get_mut(thread::unique_index()) {
        is_shared(&column);
    }
}

fn main() {}
