use gpu_std::prelude::*;

#[kernel]
fn refilled_while_read(mut tile: Shared<[f32; 64]>) {
    let first = tile.fill(|[i]| i as f32);
    let second = tile.fill(|[_]| 0.0);
    drop((first[0], second[0]));
}

#[kernel]
fn copied(tile: Shared<[f32; 64]>) {
    drop(tile);
    drop(tile);
}

#[kernel]
fn written_through_the_reference(mut tile: Shared<[f32; 64]>) {
    tile.zeroed()[3] = 1.0;
}

#[kernel]
fn kept(tile: Shared<'static, [f32; 64]>, pair: DoubleBuffer<'static, [f32; 64]>) {
    drop((tile, pair));
}

#[kernel]
fn unnamed(tile: Shared, pair: DoubleBuffer) {}

#[kernel]
fn not_plain(_tile: Shared<[bool; 64]>, _pair: DoubleBuffer<[Option<u32>; 2]>) {}

fn is_send<T: Send>(_: T) {}

fn sent(tile: Shared<[f32; 64]>) {
    is_send(tile);
}

fn wrong_indices(mut tile: Shared<[[f32; 8]; 8]>) {
    tile.fill(|[_, _, _]| 0.0);
}

#[kernel]
#[rustfmt::skip]
fn too_many(
    _a: Shared<[u8; 1]>, _b: Shared<[u8; 1]>, _c: Shared<[u8; 1]>, _d: Shared<[u8; 1]>, _e: Shared<[u8; 1]>,
    _f: Shared<[u8; 1]>, _g: Shared<[u8; 1]>, _h: Shared<[u8; 1]>, _i: Shared<[u8; 1]>, _j: Shared<[u8; 1]>,
    _k: Shared<[u8; 1]>, _l: Shared<[u8; 1]>, _m: Shared<[u8; 1]>, _n: Shared<[u8; 1]>, _o: Shared<[u8; 1]>,
    _p: DoubleBuffer<[u8; 1]>,
) {}

fn main() {}
