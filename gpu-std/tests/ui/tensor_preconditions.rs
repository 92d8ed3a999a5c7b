use gpu_std::prelude::*;
use gpu_std::tensor::{Accumulator, warpgroup};

#[kernel]
fn in_a_branch(mut out: DisjointMut<u32>) {
    let index = thread::unique_index();
    if index.get() % 2 == 0 {
        let elected = warpgroup::elect();
        Accumulator::<64>::new().pending().wait();
        if let Some(out) = out.get_mut(index) {
            *out = elected.into();
        }
    }
}

fn main() {}
