//! A kernel that only computes: how fast the device multiplies and adds is measured with it.

use gpu_std::math::Math;
use gpu_std::prelude::*;

/// Values that a thread works on at once, so that no multiplication waits for the one before.
const CHAINS: usize = 8;

/// Floating-point operations that a thread does in a round.
pub const FLOPS_PER_ROUND: u64 = 2 * CHAINS as u64;

/// Each thread does `rounds` rounds of multiplications and additions in registers. `out` keeps what it holds: the results
/// are never as large as would be written.
#[kernel]
pub fn fma_probe(rounds: u32, mut out: DisjointMut<f32>) {
    let index = thread::unique_index();
    let start = (index.get() % 1024) as f32;
    let mut values = [0f32; CHAINS];
    for (chain, value) in values.iter_mut().enumerate() {
        *value = start + chain as f32;
    }
    for _ in 0..rounds {
        for value in &mut values {
            *value = Math::mul_add(*value, 0.999, 0.5);
        }
    }
    let sum: f32 = values.iter().sum();
    if sum > 1e30
        && let Some(out) = out.get_mut(index)
    {
        *out = sum;
    }
}
