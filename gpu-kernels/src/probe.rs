//! A compute-only kernel that measures the device's peak FMA throughput.

use gpu_std::math::Math;
use gpu_std::prelude::*;

/// Number of independent FMA chains per thread. Several chains hide the latency of FMAs.
const CHAINS: usize = 8;

/// Number of floating-point operations per thread and round.
pub const FLOPS_PER_ROUND: u64 = 2 * CHAINS as u64;

/// Performs `rounds` rounds of FMAs in the registers of each thread. `out` stays unchanged, because the kernel stores
/// only a result that never occurs.
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
