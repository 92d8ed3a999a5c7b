use gpu_std::prelude::*;
use gpu_std::thread::Unique2d;

/// Uses a claim of another kind.
#[kernel]
fn wrong_claim(mut out: DisjointMut2<f32>) {
    out.get_mut(thread::unique_index());
    out.get_mut((1, 2));
}

/// A claim cannot be constructed.
#[kernel]
fn made_up(mut out: DisjointMut2<f32>) {
    out.get_mut(Unique2d { row: 1, column: 2 });
}

/// Borrows two elements at the same time.
#[kernel]
fn two_at_once(mut out: DisjointMut2<f32>) {
    let first = out.get_mut(thread::unique_2d());
    let second = out.get_mut(thread::unique_2d());
    drop((first, second));
}

/// A view supports only the existing mappings.
#[kernel]
fn no_such_mapping(_out: DisjointMut2<f32, Chunks<4>>) {}

#[kernel]
fn no_kernel_type(_image: Slice2<&'static str>) {}

fn main() {}
