//! Kernels that fill arrays with random numbers from Philox 4x32-10.
//!
//! The parameters `seed` and `offset` determine the numbers. If `base` is not empty, the seed is `base[0]`, and
//! `base[1]` is added to the offset. With `base`, each launch of a graph can produce new numbers. The offset must be a
//! multiple of 4.
//!
//! | module | kernels |
//! | --- | --- |
//! | `draw` | one number per element in PyTorch's order, from a distribution: `uniform`, `normal`, `exponential`, `integers`, `bernoulli` |
//! | `masked` | `dropout` |
//! | `permute` | `permutation` |

mod draw;
mod masked;
mod permute;

pub use draw::{COLUMNS, WIDE_RANGE, bernoulli, exponential, integers, normal, uniform};
pub use masked::dropout;
pub use permute::{permutation, permuted_at, sides};

use gpu_std::prelude::*;

/// Writes the seed and the offset to `base`, from which the other kernels read them.
#[kernel]
pub fn random_base(seed: u64, offset: u64, mut base: DisjointMut<u64>) {
    let index = thread::unique_index();
    if let Some(word) = base.get_mut(index) {
        *word = if index.get() == 0 { seed } else { offset };
    }
}

/// Position at which a launch's numbers start.
#[derive(Clone, Copy)]
struct Place {
    seed: u64,
    /// Offset, in blocks of four words.
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
