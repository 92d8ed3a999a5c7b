use gpu_std::prelude::*;
use gpu_std::tensor::{Accumulator, Fragments, MnMajor, SharedTile};

unsafe fn used_in_flight(b: SharedTile<bf16, 64>) {
    let scores = Accumulator::<64>::new();
    let fragments = Fragments::<bf16, 64>::new(scores.registers());
    let sums = Accumulator::<64>::new();
    let mut batch = unsafe { sums.pending().begin_with(fragments) };
    unsafe { batch.mma_fragments::<MnMajor>(0, b, false) };
    let pending = batch.commit();
    let _ = unsafe { scores.pending().begin_with(fragments) };
    let _ = sums.registers();
    let _ = pending.wait();
}

fn main() {}
