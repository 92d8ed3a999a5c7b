//! Random numbers: arrays of them, by Philox 4x32-10.
//!
//! Where the numbers come from: `seed` and `offset`, or, if `base` is not empty, `base[0]` for the seed and `base[1]` to be
//! added to the offset: so that a launch in a graph has other numbers each time. The offset is a multiple of 4.
//!
//! | module | kernels |
//! | --- | --- |
//! | `draw` | one number each of a distribution: `uniform`, `normal`, `exponential`, `integers`, `bernoulli`, in PyTorch's order |
//! | `masked` | `dropout` |
//! | `permute` | `permutation` |

mod draw;
mod masked;
mod permute;

pub use draw::{COLUMNS, WIDE_RANGE, bernoulli, exponential, integers, normal, uniform};
pub use masked::dropout;
pub use permute::{permutation, permuted_at, sides};

use gpu_std::prelude::*;

/// Writes the seed and the offset to `base`, as the other kernels read them.
#[kernel]
pub fn random_base(seed: u64, offset: u64, mut base: DisjointMut<u64>) {
    let index = thread::unique_index();
    if let Some(word) = base.get_mut(index) {
        *word = if index.get() == 0 { seed } else { offset };
    }
}

/// Where a launch's numbers begin.
#[derive(Clone, Copy)]
struct Place {
    seed: u64,
    /// In blocks of four words.
    block: u64,
}

impl Place {
    #[inline(always)]
    fn new(seed: u64, offset: u64, base: &[u64]) -> Self {
        match base {
            [seed, first, ..] => Self { seed: *seed, block: first.wrapping_add(offset) / 4 },
            _ => Self { seed, block: offset / 4 },
        }
    }
}
