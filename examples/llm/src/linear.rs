//! [`Linear`]: a weight matrix in bf16, or quantized to 8 or 4 bits.

use half::bf16;
use warpsmith::ops::{self, Epilogue, Int4Weights, Int8Weights, Matrix};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::Packing;
use crate::error::Result;
use crate::model::Loader;
use crate::weights::Tensors;

/// Format of the weights on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum WeightFormat {
    /// 16 bits per weight.
    Bf16,
    /// 8 bits per weight, and a scale per group of 128 weights (W8A16). The weights are quantized when they are loaded.
    Int8,
    /// 4 bits per weight, and a scale per group of 128 weights (W4A16). The weights are quantized when they are loaded.
    /// Weights that are quantized in the files, by GPTQ or AWQ, always keep their 4 bits.
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
    Int4 { codes: DeviceBuffer<u8>, scales: DeviceBuffer<bf16>, zeros: Option<DeviceBuffer<u8>> },
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
        if let Loader::Folder(tensors, Some(packing)) = loader
            && !parts.iter().any(|(name, _)| tensors.contains(name))
        {
            let weights = Weights::packed(stream, tensors, *packing, parts, columns)?;
            return Ok(Self { rows, columns, weights });
        }
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
                Weights::Int4 { codes, scales: DeviceBuffer::from_host(stream, &scales)?, zeros: None }
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
            Weights::Int4 { codes, scales, zeros } => {
                let (codes, scales) = (codes.as_slice(), scales.as_slice());
                let zeros = zeros.as_ref().map(|zeros| zeros.as_slice());
                ops::matmul_4bit(stream, epilogue, x, &Int4Weights { codes, scales, zeros }, out)?;
            }
        }
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        match &self.weights {
            Weights::Bf16(weights) => 2 * weights.len() as u64,
            Weights::Int8 { codes, scales } => codes.len() as u64 + 2 * scales.len() as u64,
            Weights::Int4 { codes, scales, zeros } => {
                let zeros = zeros.as_ref().map_or(0, |zeros| zeros.len());
                codes.len() as u64 + 2 * scales.len() as u64 + zeros as u64
            }
        }
    }
}

impl Weights {
    /// Loads matrices that are quantized in the files.
    fn packed(
        stream: &Stream,
        tensors: &Tensors<'_>,
        packing: Packing,
        parts: &[(String, usize)],
        columns: usize,
    ) -> Result<Self> {
        const MIDDLE: u8 = 8;
        let (mut codes, mut scales, mut zeros) = (Vec::new(), Vec::new(), Vec::new());
        for (name, rows) in parts {
            let part = tensors.int4(name.trim_end_matches(".weight"), packing, [columns, *rows])?;
            let groups = part.scales.len();
            codes.extend(part.codes);
            scales.extend(part.scales);
            zeros.extend(part.zeros.unwrap_or_else(|| vec![MIDDLE; groups]));
        }
        let has_zeros = zeros.iter().any(|zero| *zero != MIDDLE);
        Ok(Weights::Int4 {
            codes: DeviceBuffer::from_host(stream, &codes)?,
            scales: DeviceBuffer::from_host(stream, &scales)?,
            zeros: has_zeros.then(|| DeviceBuffer::from_host(stream, &zeros)).transpose()?,
        })
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
