//! Compiles, and so all files of the folder are built and not only checked.
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
