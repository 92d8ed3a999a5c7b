//! [`Linear`]: a weight matrix in bf16, or quantized to 8 or 4 bits.

use half::bf16;
use warpsmith::ops::{self, Epilogue, Int4Buffer, Int4Host, Int8Buffer, Int8Host, Matrix};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::Packing;
use crate::error::{Error, Result};
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

    /// Format of the output layer. With 4 bits, the logits would be less accurate.
    pub(crate) fn of_output_layer(self) -> Self {
        if self == WeightFormat::Int4 { WeightFormat::Int8 } else { self }
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
    /// Number of the part of the matrices to load, and number of parts.
    pub part: [usize; 2],
}

/// Division of matrices among several GPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// A part has some of the outputs.
    Outputs,
    /// A part has the weights of some of the inputs.
    Inputs,
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

    /// Loads this part of the rows of a matrix, or of several matrices as one. Each has a name and a number of rows.
    pub fn matrix(
        &self,
        names: &[(&str, usize)],
        columns: usize,
        split: Split,
    ) -> Result<DeviceBuffer<bf16>> {
        let rows: usize = names.iter().map(|(_, rows)| rows).sum();
        let mut buffer = DeviceBuffer::uninit(self.stream, rows * columns)?;
        let Some(folder) = self.folder else {
            random::normal(self.stream, self.generator, 0.0, 0.02, &mut buffer)?;
            return Ok(buffer);
        };
        let ([part, parts], mut start) = (self.part, 0);
        for (name, rows) in names {
            let name = format!("{}{name}.weight", self.prefix);
            let end = start + rows * columns;
            let mut target = buffer.slice_mut(start..end);
            // The runtime copies slices through page-locked memory, at the bandwidth of the bus.
            match split {
                Split::Outputs => {
                    let whole = folder.bf16(&name, &[rows * parts, columns])?;
                    target.copy_from_host(&whole[part * rows * columns..][..rows * columns])?;
                }
                Split::Inputs => {
                    let whole = folder.bf16(&name, &[*rows, columns * parts])?;
                    let of_rows =
                        whole.chunks(columns * parts).flat_map(|row| &row[part * columns..][..columns]);
                    target.copy_from_host(&of_rows.copied().collect::<Vec<_>>())?;
                }
            }
            start = end;
        }
        Ok(buffer)
    }

    /// Like [`Self::matrix`], but in the format of this loader.
    pub fn linear(&self, names: &[(&str, usize)], columns: usize, split: Split) -> Result<Linear> {
        let (stream, rows) = (self.stream, names.iter().map(|(_, rows)| rows).sum());
        let [part, parts] = self.part;
        let is_plain = |folder: &&Folder| folder.contains(&format!("{}{}.weight", self.prefix, names[0].0));
        let packed = self.packing.zip(self.folder.filter(|folder| !is_plain(folder)));
        let is_quantized = packed.is_some() || self.format != WeightFormat::Bf16;
        let has_groups = columns.is_multiple_of(GROUP);
        if is_quantized && split == Split::Inputs && !has_groups && (columns * parts).is_multiple_of(GROUP) {
            let problem =
                format!("{parts} GPUs cannot divide its {} inputs into groups of {GROUP}", columns * parts);
            return Err(Error::at(format!("the matrix `{}{}`", self.prefix, names[0].0))(problem));
        }
        let weights = if let Some((packing, folder)) = packed {
            let load = |(name, rows): &(&str, usize)| -> Result<_> {
                let name = format!("{}{name}", self.prefix);
                let whole = |shape| folder.int4(&name, packing, shape);
                Ok(match split {
                    Split::Outputs => {
                        let whole = whole([columns, rows * parts])?;
                        whole.part(columns, 0..columns, part * rows..(part + 1) * rows)?
                    }
                    Split::Inputs => {
                        let (k, inputs) = (columns * parts, part * columns..(part + 1) * columns);
                        whole([k, *rows])?.part(k, inputs, 0..*rows)?
                    }
                })
            };
            let mut joined = load(&names[0])?;
            for name in &names[1..] {
                joined.append(load(name)?);
            }
            Weights::Int4(joined.to_device(stream)?)
        } else {
            let weights = self.matrix(names, columns, split)?;
            let (host, shape) = (|| weights.to_host(), [columns, rows]);
            match self.format {
                WeightFormat::Int8 if has_groups => {
                    Weights::Int8(Int8Host::quantize(shape, GROUP, &host()?)?.to_device(stream)?)
                }
                WeightFormat::Int4 if has_groups => {
                    Weights::Int4(Int4Host::quantize(shape, GROUP, &host()?)?.to_device(stream)?)
                }
                _ => Weights::Bf16(weights),
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
        match &self.weights {
            Weights::Bf16(weights) => {
                let weights = Matrix::from(weights.as_2d(self.rows, self.columns)?).transposed();
                ops::matmul_fused(stream, epilogue, x, weights, out)?;
            }
            Weights::Int8(weights) => ops::matmul_8bit(stream, epilogue, x, &weights.weights(), out)?,
            Weights::Int4(weights) => ops::matmul_4bit(stream, epilogue, x, &weights.weights(), out)?,
        }
        Ok(())
    }
}
