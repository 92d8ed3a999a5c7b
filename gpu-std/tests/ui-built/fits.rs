//! Compiles, so that trybuild builds all files of the folder instead of only checking them.
use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Pair([f32; 2]);

#[kernel]
fn pairs(mut tile: Shared<[[Pair; 18]; 18]>) {
    tile.fill(|[row, column]| Pair([row as f32, column as f32]));
}

fn main() {
    println!("{}", <pairs as gpu_std::Kernel>::spec().symbol);
}
