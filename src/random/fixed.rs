//! Random numbers for benchmarks, generated from the start of a seed's sequence. The host computes the same numbers as
//! a reference.

use gpu_std::random::Philox;
use gpu_std::scalar::Float;
use rayon::prelude::*;
use warpsmith_runtime::{DeviceSliceMut, Result, Stream};

use super::generator::Numbers;
use super::layout::{Layout, parts};
use super::operations::{draw, lanes, normal_launch, uniform_launch};

fn numbers((seed, layout): (u64, Layout)) -> Numbers {
    Numbers { seed, offset: 0, layout, replay: None }
}

/// Like [`uniform`](super::uniform()), but with a new generator.
pub(crate) fn uniform<T: Float>(
    stream: &Stream,
    of: (u64, Layout),
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    let draw = draw("uniform", "uniform", lanes::<T>(), stream);
    draw.run_with(&numbers(of), out, uniform_launch(T::ZERO, T::ONE))
}

/// Like [`normal`](super::normal()), but with a new generator, a mean of 0 and a standard deviation of 1.
pub(crate) fn normal<T: Float>(stream: &Stream, of: (u64, Layout), out: DeviceSliceMut<'_, T>) -> Result<()> {
    let draw = draw("normal", "normal", lanes::<T>(), stream);
    draw.run_with(&numbers(of), out, normal_launch(0.0, 1.0))
}

/// Returns the numbers that these operations write to `n` elements. `numbers` computes the numbers from a block of
/// words.
pub(crate) fn expected<T: Float>(
    (seed, layout): (u64, Layout),
    n: usize,
    numbers: fn([u32; 4]) -> [T; 4],
) -> Vec<T> {
    let lanes = lanes::<T>();
    let parts = parts(n, size_of::<T>());
    let mut offset = if parts.len() > 1 { layout.increment(n, lanes) } else { 0 };
    let mut all = Vec::with_capacity(n);
    for part in parts.into_iter().filter(|part| *part > 0) {
        let threads = layout.threads(part) as usize;
        all.par_extend((0..part).into_par_iter().map(|i| {
            let (step, lane, thread) = (i / (lanes * threads), i % (lanes * threads) / threads, i % threads);
            numbers(Philox::new(seed, thread as u64, offset + 4 * step as u64).next4())[lane]
        }));
        offset += layout.increment(part, lanes);
    }
    all
}
