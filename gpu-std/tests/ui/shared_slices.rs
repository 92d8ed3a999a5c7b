use gpu_std::prelude::*;

#[kernel]
fn refilled_while_read(mut tile: Shared<[f32]>) {
    let first = tile.fill(|[i]| i as f32);
    let second = tile.fill(|[_]| 0.0);
    drop((first[0], second[0]));
}

#[kernel]
fn written_through_the_reference(mut tile: Shared<[f32]>) {
    tile.zeroed()[3] = 1.0;
}

#[kernel]
fn optional(_tile: Option<Shared<[f32]>>) {}

#[kernel]
fn not_plain(_flags: Shared<[bool]>) {}

fn wrong_indices(mut tile: Shared<[f32]>) {
    tile.fill(|[_, _]| 0.0);
}

fn main() {}
