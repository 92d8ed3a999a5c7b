//! [`Linear`]: a weight matrix in bf16, or quantized to 8 or 4 bits.

use std::borrow::Cow;
use std::ops::Range;

use half::bf16;
use safetensors::Dtype;
use warpsmith::ops::{self, Epilogue, Fp8Weights, Int4Buffer, Int4Host, Int8Buffer, Int8Host, Matrix};
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
    /// Weights that are quantized in the files always keep their bits.
    Int4,
}

/// Weights that share a scale.
pub(crate) const GROUP: usize = 128;

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

    /// Loads this part of a matrix, or of several matrices as one. Each has a name and a number of rows.
    pub fn matrix(
        &self,
        names: &[(&str, usize)],
        columns: usize,
        split: Split,
    ) -> Result<DeviceBuffer<bf16>> {
        if let Some(folder) = self.folder {
            let read = |name: &str, shape: &[usize]| folder.bf16(&format!("{name}.weight"), shape);
            return self.parts(names, columns, split, read);
        }
        let rows: usize = names.iter().map(|(_, rows)| rows).sum();
        let mut buffer = DeviceBuffer::uninit(self.stream, rows * columns)?;
        random::normal(self.stream, self.generator, 0.0, 0.02, &mut buffer)?;
        Ok(buffer)
    }

    /// Like [`Self::matrix`], with the elements of a whole matrix from `read`.
    fn parts<'f, T: DeviceCopy>(
        &self,
        names: &[(&str, usize)],
        columns: usize,
        split: Split,
        read: impl Fn(&str, &[usize]) -> Result<Cow<'f, [T]>>,
    ) -> Result<DeviceBuffer<T>> {
        let (sum, mut start) = (names.iter().map(|(_, rows)| rows).sum::<usize>(), 0);
        let mut buffer = DeviceBuffer::uninit(self.stream, sum * columns)?;
        for (name, rows) in names {
            let (shape, of_rows, of_columns) = self.part_of([*rows, columns], split);
            let whole = read(&format!("{}{name}", self.prefix), &shape)?;
            let whole = &whole[of_rows.start * shape[1]..of_rows.end * shape[1]];
            let mut target = buffer.slice_mut(start..start + rows * columns);
            // The runtime copies slices through page-locked memory, at the bandwidth of the bus.
            if columns == shape[1] {
                target.copy_from_host(whole)?;
            } else {
                let part = whole.chunks(shape[1]).flat_map(|row| &row[of_columns.clone()]);
                target.copy_from_host(&part.copied().collect::<Vec<_>>())?;
            }
            start += rows * columns;
        }
        Ok(buffer)
    }

    /// Returns the shape of a whole matrix, and the rows and the columns of this part, which has the given shape.
    fn part_of(&self, [rows, columns]: [usize; 2], split: Split) -> ([usize; 2], Range<usize>, Range<usize>) {
        let [part, parts] = self.part;
        let of = |size| part * size..(part + 1) * size;
        match split {
            Split::Outputs => ([rows * parts, columns], of(rows), 0..columns),
            Split::Inputs => ([rows, columns * parts], 0..rows, of(columns)),
        }
    }

    /// Like [`Self::matrix`], but in the format of this loader.
    pub fn linear(&self, names: &[(&str, usize)], columns: usize, split: Split) -> Result<Linear> {
        let (stream, rows) = (self.stream, names.iter().map(|(_, rows)| rows).sum());
        let dtype = |folder: &Folder| folder.dtype(&format!("{}{}.weight", self.prefix, names[0].0));
        let is_packed = |folder: &&Folder| dtype(folder).is_none_or(|dtype| dtype == Dtype::F8_E4M3);
        let packed = self.packing.zip(self.folder.filter(is_packed));
        let is_quantized = packed.is_some() || self.format != WeightFormat::Bf16;
        let (has_groups, parts) = (columns.is_multiple_of(GROUP), self.part[1]);
        let inputs = self.part_of([rows, columns], split).0[1];
        let must_have_groups = inputs.is_multiple_of(GROUP) || matches!(packed, Some((Packing::Fp8, _)));
        if is_quantized && must_have_groups && !has_groups {
            let problem = format!("{parts} GPU(s) cannot divide its {inputs} inputs into groups of {GROUP}");
            return Err(Error::at(format!("the matrix `{}{}`", self.prefix, names[0].0))(problem));
        }
        let weights = if let Some((Packing::Fp8, folder)) = packed {
            let numbers = |name: &str, shape: &[usize]| folder.fp8(name, shape);
            let scales = |name: &str, shape: &[usize]| folder.fp8_scales(name, shape);
            let numbers = self.parts(names, columns, split, numbers)?;
            Weights::Fp8(numbers, self.parts(names, columns / GROUP, split, scales)?)
        } else if let Some((packing, folder)) = packed {
            let load = |(name, rows): &(&str, usize)| -> Result<_> {
                let ([n, k], outputs, inputs) = self.part_of([*rows, columns], split);
                let whole = folder.int4(&format!("{}{name}", self.prefix), packing, [k, n])?;
                Ok(whole.part(k, inputs, outputs)?)
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
    /// E4M3 numbers and their scales.
    Fp8(DeviceBuffer<u8>, DeviceBuffer<bf16>),
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
            Weights::Fp8(numbers, scales) => {
                let weights = Fp8Weights { numbers: numbers.as_slice().cast()?, scales: scales.as_slice() };
                ops::matmul_8bit(stream, epilogue, x, &weights, out)?;
            }
        }
        Ok(())
    }
}
