//! [`Linear`]: a weight matrix in bf16, or quantized to 8 or 4 bits.

use half::bf16;
use warpsmith::ops::{self, Epilogue, Int4Weights, Int8Weights, Matrix};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::error::Result;
use crate::model::Loader;

/// Format of the weights on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum WeightFormat {
    /// 16 bits per weight.
    Bf16,
    /// 8 bits per weight, and a scale per group of 128 weights (W8A16). The weights are quantized when they are loaded.
    Int8,
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
            WeightFormat::Int8 => weights + 2 * weights / GROUP as u64,
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
    Int8 { codes: DeviceBuffer<i8>, scales: DeviceBuffer<bf16> },
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
        let weights = loader.load(stream, parts, Some(columns))?;
        let weights = match format {
            WeightFormat::Int8 if columns.is_multiple_of(GROUP) => {
                let (codes, scales) = quantize(&weights.to_host()?, 127.0);
                let codes = DeviceBuffer::from_host(stream, &codes)?;
                Weights::Int8 { codes, scales: DeviceBuffer::from_host(stream, &scales)? }
            }
            WeightFormat::Int4 if columns.is_multiple_of(GROUP) => {
                let (codes, scales) = quantize(&weights.to_host()?, 7.0);
                let nibble = |code: i8| (code + 8) as u8;
                let pairs = codes.as_chunks::<2>().0.iter();
                let packed: Vec<u8> = pairs.map(|[low, high]| nibble(*low) | nibble(*high) << 4).collect();
                let codes = DeviceBuffer::from_host(stream, &packed)?;
                Weights::Int4 { codes, scales: DeviceBuffer::from_host(stream, &scales)? }
            }
            _ => Weights::Bf16(weights),
        };
        Ok(Self { rows, columns, weights })
    }

    /// Enqueues the product of each row of `x` with the matrix.
    pub fn apply(
        &self,
        stream: &Stream,
        epilogue: &Epilogue<'_, bf16>,
        x: DeviceSlice2<'_, bf16>,
        out: DeviceSliceMut2<'_, bf16>,
    ) -> Result<()> {
        match &self.weights {
            Weights::Bf16(weights) => {
                let weights = Matrix::from(weights.as_2d(self.rows, self.columns)?).transposed();
                ops::matmul_fused(stream, epilogue, x, weights, out)?;
            }
            Weights::Int8 { codes, scales } => {
                let weights = Int8Weights { codes: codes.as_slice(), scales: scales.as_slice() };
                ops::matmul_8bit(stream, epilogue, x, &weights, out)?;
            }
            Weights::Int4 { codes, scales } => {
                let (codes, scales) = (codes.as_slice(), scales.as_slice());
                ops::matmul_4bit(stream, epilogue, x, &Int4Weights { codes, scales, zeros: None }, out)?;
            }
        }
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        match &self.weights {
            Weights::Bf16(weights) => 2 * weights.len() as u64,
            Weights::Int8 { codes, scales } => codes.len() as u64 + 2 * scales.len() as u64,
            Weights::Int4 { codes, scales } => codes.len() as u64 + 2 * scales.len() as u64,
        }
    }
}

/// Rounds weights to integers. A group's largest weight becomes `most` or `-most` times the group's scale.
fn quantize(weights: &[bf16], most: f32) -> (Vec<i8>, Vec<bf16>) {
    let mut codes = vec![0; weights.len()];
    let mut scales = vec![bf16::ZERO; weights.len() / GROUP];
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let part = scales.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts =
            weights.chunks(part * GROUP).zip(codes.chunks_mut(part * GROUP)).zip(scales.chunks_mut(part));
        for ((weights, codes), scales) in parts {
            scope.spawn(move || {
                let groups = weights.chunks(GROUP).zip(codes.chunks_mut(GROUP)).zip(scales);
                for ((weights, codes), scale) in groups {
                    let largest = weights.iter().fold(0f32, |max, x| max.max(x.to_f32().abs()));
                    *scale = bf16::from_f32(largest / most);
                    let inverse = if largest > 0.0 { scale.to_f32().recip() } else { 0.0 };
                    for (code, x) in codes.iter_mut().zip(weights) {
                        *code = (x.to_f32() * inverse).round().clamp(-most, most) as i8;
                    }
                }
            });
        }
    });
    (codes, scales)
}
