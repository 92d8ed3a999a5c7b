//! [`Linear`]: a weight matrix in bf16 or 4 bits.

use half::bf16;
use warpsmith::ops::{self, Epilogue, Int4Weights, Matrix};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::error::Result;
use crate::model::Loader;

/// Format of the weights on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum WeightFormat {
    /// 16 bits per weight.
    Bf16,
    /// 4 bits per weight, and a scale per group of 128 weights (W4A16). The weights are quantized when they are loaded.
    Int4,
}

/// Weights that share a scale.
const GROUP: usize = 128;

impl WeightFormat {
    /// Bytes of a number of weights.
    pub fn bytes(self, weights: u64) -> u64 {
        match self {
            WeightFormat::Bf16 => 2 * weights,
            WeightFormat::Int4 => weights / 2 + 2 * weights / GROUP as u64,
        }
    }
}

/// A weight matrix. Each row contains the weights of an output.
pub struct Linear {
    rows: usize,
    columns: usize,
    weights: Weights,
}

enum Weights {
    Bf16(DeviceBuffer<bf16>),
    Int4 { codes: DeviceBuffer<u8>, scales: DeviceBuffer<bf16> },
}

impl Linear {
    /// Loads matrices with these names and numbers of rows as one matrix.
    pub(crate) fn load(
        stream: &Stream,
        loader: &mut Loader<'_>,
        parts: &[(String, usize)],
        columns: usize,
        format: WeightFormat,
    ) -> Result<Self> {
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let weights = loader.load(stream, parts, columns)?;
        let weights = match format {
            WeightFormat::Int4 if columns.is_multiple_of(GROUP) => quantize(stream, &weights)?,
            _ => Weights::Bf16(weights),
        };
        Ok(Self { rows, columns, weights })
    }

    /// Enqueues the product of each row of `x` with the matrix.
    pub fn apply(
        &self,
        stream: &Stream,
        x: DeviceSlice2<'_, bf16>,
        out: DeviceSliceMut2<'_, bf16>,
    ) -> Result<()> {
        match &self.weights {
            Weights::Bf16(weights) => {
                let weights = Matrix::from(weights.as_2d(self.rows, self.columns)?).transposed();
                Ok(ops::matmul(stream, x, weights, out)?)
            }
            Weights::Int4 { codes, scales } => {
                let weights = Int4Weights { codes: codes.as_slice(), scales: scales.as_slice(), zeros: None };
                Ok(ops::matmul_4bit(stream, &Epilogue::default(), x, &weights, out)?)
            }
        }
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        match &self.weights {
            Weights::Bf16(weights) => 2 * weights.len() as u64,
            Weights::Int4 { codes, scales } => codes.len() as u64 + 2 * scales.len() as u64,
        }
    }
}

/// Rounds weights to 4 bits on the host. A group's largest weight becomes 7 or -7 times the scale.
fn quantize(stream: &Stream, weights: &DeviceBuffer<bf16>) -> Result<Weights> {
    let weights = weights.to_host()?;
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(16));
    let part = (weights.len() / GROUP).div_ceil(threads).max(1) * GROUP;
    let mut codes = vec![0u8; weights.len() / 2];
    let mut scales = vec![bf16::ZERO; weights.len() / GROUP];
    std::thread::scope(|scope| {
        let parts = weights.chunks(part).zip(codes.chunks_mut(part / 2)).zip(scales.chunks_mut(part / GROUP));
        for ((weights, codes), scales) in parts {
            scope.spawn(move || {
                let groups = weights.chunks(GROUP).zip(codes.chunks_mut(GROUP / 2)).zip(scales);
                for ((weights, codes), scale) in groups {
                    let largest = weights.iter().fold(0f32, |max, x| max.max(x.to_f32().abs()));
                    *scale = bf16::from_f32(largest / 7.0);
                    let inverse = if largest > 0.0 { scale.to_f32().recip() } else { 0.0 };
                    let code = |x: bf16| ((x.to_f32() * inverse).round().clamp(-8.0, 7.0) + 8.0) as u8;
                    for (out, [low, high]) in codes.iter_mut().zip(weights.as_chunks::<2>().0) {
                        *out = code(*low) | code(*high) << 4;
                    }
                }
            });
        }
    });
    Ok(Weights::Int4 {
        codes: DeviceBuffer::from_host(stream, &codes)?,
        scales: DeviceBuffer::from_host(stream, &scales)?,
    })
}
