//! [`Linear`]: a weight matrix in bf16, or quantized to 8 or 4 bits.

use half::bf16;
use warpsmith::ops::{self, Epilogue, Int4Buffer, Int4Host, Int8Buffer, Int8Host, Matrix};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::Packing;
use crate::error::Result;
use crate::weights::Folder;

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

/// Loads weights from a folder. Without a folder, they are normally distributed random numbers.
#[derive(Clone, Copy)]
pub(crate) struct Loader<'a> {
    pub stream: &'a Stream,
    pub folder: Option<&'a Folder>,
    pub generator: &'a Generator,
    pub format: WeightFormat,
    /// Format of quantized weights in the files.
    pub packing: Option<Packing>,
    /// Start of the names of tensors.
    pub prefix: &'a str,
}

impl Loader<'_> {
    /// Loads the weights of a norm.
    pub fn norm(&self, name: &str, len: usize) -> Result<DeviceBuffer<bf16>> {
        let name = format!("{}{name}.weight", self.prefix);
        Ok(match self.folder {
            Some(folder) => DeviceBuffer::from_host(self.stream, &folder.bf16(&name, &[len])?)?,
            None => DeviceBuffer::filled(self.stream, len, bf16::ONE)?,
        })
    }

    /// Loads matrices with these names and numbers of rows as one matrix.
    pub fn matrix(&self, parts: &[(&str, usize)], columns: usize) -> Result<DeviceBuffer<bf16>> {
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        let mut buffer = DeviceBuffer::uninit(self.stream, rows * columns)?;
        let Some(folder) = self.folder else {
            random::normal(self.stream, self.generator, 0.0, 0.02, &mut buffer)?;
            return Ok(buffer);
        };
        let mut start = 0;
        for (name, rows) in parts {
            let elements = folder.bf16(&format!("{}{name}.weight", self.prefix), &[*rows, columns])?;
            let end = start + elements.len();
            // The runtime copies slices through page-locked memory, at the bandwidth of the bus.
            buffer.slice_mut(start..end).copy_from_host(&elements)?;
            start = end;
        }
        Ok(buffer)
    }

    /// Like [`Self::matrix`], but in the format of this loader.
    pub fn linear(&self, parts: &[(&str, usize)], columns: usize) -> Result<Linear> {
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let is_plain = |folder: &&Folder| folder.contains(&format!("{}{}.weight", self.prefix, parts[0].0));
        let weights = match (self.folder.filter(|folder| !is_plain(folder)), self.packing) {
            (Some(folder), Some(packing)) => {
                let load = |(name, rows): &(&str, usize)| {
                    folder.int4(&format!("{}{name}", self.prefix), packing, [columns, *rows])
                };
                let mut joined = load(&parts[0])?;
                for part in &parts[1..] {
                    joined.append(load(part)?);
                }
                Weights::Int4(joined.to_device(self.stream)?)
            }
            _ => {
                let weights = self.matrix(parts, columns)?;
                let (stream, shape) = (self.stream, [columns, rows]);
                let host = || -> Result<_> { Ok(weights.to_host()?) };
                match self.format {
                    WeightFormat::Int8 if columns.is_multiple_of(GROUP) => {
                        Weights::Int8(Int8Host::quantize(shape, GROUP, &host()?)?.to_device(stream)?)
                    }
                    WeightFormat::Int4 if columns.is_multiple_of(GROUP) => {
                        Weights::Int4(Int4Host::quantize(shape, GROUP, &host()?)?.to_device(stream)?)
                    }
                    _ => Weights::Bf16(weights),
                }
            }
        };
        Ok(Linear { rows, columns, weights })
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
    Int8(Int8Buffer<bf16>),
    Int4(Int4Buffer<bf16>),
}

impl Linear {
    /// Enqueues the product of each row of `x` with the matrix.
    pub fn apply(
        &self,
        stream: &Stream,
        epilogue: &Epilogue<'_, bf16>,
        x: DeviceSlice2<'_, bf16>,
        out: DeviceSliceMut2<'_, bf16>,
    ) -> Result<()> {
        Ok(match &self.weights {
            Weights::Bf16(weights) => {
                let weights = Matrix::from(weights.as_2d(self.rows, self.columns)?).transposed();
                ops::matmul_fused(stream, epilogue, x, weights, out)?;
            }
            Weights::Int8(weights) => ops::matmul_8bit(stream, epilogue, x, &weights.weights(), out)?,
            Weights::Int4(weights) => ops::matmul_4bit(stream, epilogue, x, &weights.weights(), out)?,
        })
    }
}
