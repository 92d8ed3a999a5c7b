//! Benchmarks of the row operations, each at several row lengths. The row length is part of the name. A size of n
//! elements means as many whole rows as fit, but at least one.
//!
//! Each benchmark has only one configuration, because the row length determines the number of threads per row.

use gpu_spec::KernelSpec;
use gpu_std::scalar::{Float, Scalar};
use half::{bf16, f16};
use rayon::prelude::*;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::{Values, generate, poison};
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Tolerance;

use crate::ops;

/// Tolerance for exponentials and quotients of sums in f32.
const ROWS: Tolerance = Tolerance { relative: 64.0, absolute: 16.0 };
const EPSILON: f64 = 1e-5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    SumRows,
    SumColumns,
    ArgmaxRows,
    Softmax,
    SoftmaxBackward,
    LayerNorm,
    RmsNorm,
    Swiglu,
}

/// A row operation, measured at one row length.
///
/// ```
/// use warpsmith::bench::ROW_OPERATIONS;
/// use warpsmith::bench::benchmark::Benchmark;
///
/// assert!(ROW_OPERATIONS.iter().any(|operation| operation.name() == "softmax_1024"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowOperation {
    name: &'static str,
    summary: &'static str,
    kind: Kind,
    /// Elements per row.
    columns: u64,
}

macro_rules! operations {
    ($($kind:ident $name:literal $summary:literal: $($columns:literal)*;)*) => {
        /// Every row operation at every row length.
        pub const ROW_OPERATIONS: &[RowOperation] = &[$($(RowOperation {
            name: concat!($name, "_", $columns),
            summary: concat!($summary, " of rows of ", $columns),
            kind: Kind::$kind,
            columns: $columns,
        }),*),*];
    };
}

operations! {
    SumRows "sum_rows" "sums": 32 1024 4096 131072 1048576;
    SumColumns "sum_columns" "sums of columns": 32 1024 4096 131072;
    ArgmaxRows "argmax_rows" "indices of the largest elements": 1024 131072;
    Softmax "softmax" "softmax": 1024 4096 16384 131072 1048576;
    SoftmaxBackward "softmax_backward" "gradient of softmax": 1024 16384;
    LayerNorm "layer_norm" "layer norm with weight and bias": 1024 4096 16384 131072 1048576;
    RmsNorm "rms_norm" "RMS norm with weight": 1024 4096 16384 131072;
    Swiglu "swiglu" "SwiGLU": 4096;
}

impl RowOperation {
    /// Returns the numbers of rows and columns for a problem size.
    fn sides(&self, n: u64) -> (usize, usize) {
        let columns = self.columns.min(n.max(1));
        ((n / columns).max(1) as usize, columns as usize)
    }

    /// Returns how many arrays of the problem size are read, and how many are written.
    fn arrays(&self) -> (u64, u64) {
        match self.kind {
            Kind::SumRows | Kind::SumColumns | Kind::ArgmaxRows => (1, 0),
            Kind::Softmax | Kind::LayerNorm | Kind::RmsNorm => (1, 1),
            Kind::SoftmaxBackward | Kind::Swiglu => (2, 1),
        }
    }

    fn prepare_of<T: Float>(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        let (rows, columns) = self.sides(setup.n as u64);
        let data = |values, i| generate::<T>(values, setup.seed + i, rows * columns);
        let row_of = |data: &[T], row: usize| {
            data[row * columns..][..columns].iter().map(|value| value.cast::<f64>()).collect::<Vec<_>>()
        };
        // Calls `of` for each row of the arrays and concatenates the results.
        let of_rows = |arrays: &[Vec<T>], of: &(dyn Fn(&[Vec<f64>]) -> Vec<f64> + Sync)| -> Vec<f64> {
            let one = |row| of(&arrays.iter().map(|array| row_of(array, row)).collect::<Vec<_>>());
            (0..rows).into_par_iter().flat_map_iter(one).collect()
        };
        let parameters = || (0..2u64).map(|i| generate::<T>(Values::Spread, setup.seed + 7 + i, columns));
        match self.kind {
            Kind::SumRows => {
                let inputs = vec![data(Values::Whole, 0)];
                let expected = of_rows(&inputs, &|row| vec![row[0].iter().sum()]);
                case::<T, T::SumAccumulator>(setup, inputs, expected, Tolerance::EXACT, move |s, i, o| {
                    ops::sum_rows(s, i[0].as_2d(rows, columns)?, o)
                })
            }
            Kind::SumColumns => {
                let inputs = vec![data(Values::Whole, 0)];
                let mut expected = vec![0.0; columns];
                for row in inputs[0].chunks(columns) {
                    expected.iter_mut().zip(row).for_each(|(sum, value)| *sum += value.cast::<f64>());
                }
                case::<T, T::SumAccumulator>(setup, inputs, expected, Tolerance::EXACT, move |s, i, o| {
                    ops::sum_columns(s, i[0].as_2d(rows, columns)?, o)
                })
            }
            Kind::ArgmaxRows => {
                let inputs = vec![data(Values::Spread, 0)];
                let expected = of_rows(&inputs, &|row| {
                    let better = |best: usize, i: usize| if row[0][i] > row[0][best] { i } else { best };
                    vec![(0..columns).fold(0, better) as f64]
                });
                case::<T, u64>(setup, inputs, expected, Tolerance::EXACT, move |s, i, o| {
                    ops::argmax_rows(s, i[0].as_2d(rows, columns)?, o)
                })
            }
            Kind::Softmax => {
                let inputs = vec![data(Values::Spread, 0)];
                let expected = of_rows(&inputs, &|row| {
                    let most = row[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = row[0].iter().map(|value| (value - most).exp()).sum();
                    row[0].iter().map(|value| (value - most).exp() / sum).collect()
                });
                case::<T, T>(setup, inputs, expected, ROWS, move |s, i, o| {
                    ops::softmax(s, i[0].as_2d(rows, columns)?, o.as_2d_mut(rows, columns)?)
                })
            }
            Kind::SoftmaxBackward => {
                let inputs = vec![data(Values::Spread, 0), data(Values::Spread, 1)];
                let expected = of_rows(&inputs, &|of| {
                    let dot: f64 = of[0].iter().zip(&of[1]).map(|(y, dy)| y * dy).sum();
                    of[0].iter().zip(&of[1]).map(|(y, dy)| y * (dy - dot)).collect()
                });
                // The sum adds as many terms as there are columns. Each term is at most 16, and the terms are added in
                // a tree over chains of 32.
                let tolerance = Tolerance { relative: 4.0, absolute: 4.0 * 16.0 * columns as f64 };
                case::<T, T>(setup, inputs, expected, tolerance, move |s, i, o| {
                    let (y, dy) = (i[0].as_2d(rows, columns)?, i[1].as_2d(rows, columns)?);
                    ops::softmax_backward(s, y, dy, o.as_2d_mut(rows, columns)?)
                })
            }
            Kind::LayerNorm | Kind::RmsNorm => {
                let is_rms = self.kind == Kind::RmsNorm;
                let mut inputs = vec![data(Values::Spread, 0)];
                let [weight, bias]: [Vec<T>; 2] =
                    parameters().collect::<Vec<_>>().try_into().unwrap_or_default();
                let exact =
                    [&weight, &bias].map(|array| array.iter().map(|v| v.cast::<f64>()).collect::<Vec<_>>());
                let expected = of_rows(&inputs, &|row| {
                    let n = columns as f64;
                    let mean = if is_rms { 0.0 } else { row[0].iter().sum::<f64>() / n };
                    let variance =
                        row[0].iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
                    let inverse = 1.0 / (variance + EPSILON).sqrt();
                    let bias = |i: usize| if is_rms { 0.0 } else { exact[1][i] };
                    row[0]
                        .iter()
                        .enumerate()
                        .map(|(i, v)| (v - mean) * inverse * exact[0][i] + bias(i))
                        .collect()
                });
                inputs.extend([weight, bias]);
                case::<T, T>(setup, inputs, expected, ROWS, move |s, i, o| {
                    let (x, weight, bias) = (i[0].as_2d(rows, columns)?, i[1].as_slice(), i[2].as_slice());
                    let out = o.as_2d_mut(rows, columns)?;
                    match is_rms {
                        true => ops::rms_norm(s, x, Some(weight), EPSILON, out),
                        false => ops::layer_norm(s, x, Some(weight), Some(bias), EPSILON, out),
                    }
                })
            }
            Kind::Swiglu => {
                let inputs = vec![data(Values::Spread, 0), data(Values::Spread, 1)];
                let expected = of_rows(&inputs, &|of| {
                    of[0].iter().zip(&of[1]).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
                });
                case::<T, T>(setup, inputs, expected, ROWS, move |s, i, o| {
                    let (gate, up) = (i[0].as_2d(rows, columns)?, i[1].as_2d(rows, columns)?);
                    ops::swiglu(s, gate, up, o.as_2d_mut(rows, columns)?)
                })
            }
        }
    }
}

fn case<T: Scalar, O: Scalar>(
    setup: &Setup<'_>,
    inputs: Vec<Vec<T>>,
    expected: Vec<f64>,
    tolerance: Tolerance,
    launch: impl Fn(&Stream, &[DeviceBuffer<T>], &mut DeviceBuffer<O>) -> warpsmith_runtime::Result<()> + 'static,
) -> Result<Box<dyn Case>> {
    let parts = Parts {
        inputs,
        initial: vec![poison::<O>(); expected.len()],
        choose: Box::new(|_| Ok(())),
        launch: Box::new(move |stream, (), inputs, output| Ok(launch(stream, inputs, output)?)),
        expected: Expected::All(expected),
        tolerance,
    };
    Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
}

impl Benchmark for RowOperation {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn image(&self) -> &'static GpuImage {
        &crate::IMAGE
    }

    fn dtypes(&self) -> Vec<&'static str> {
        vec![f32::NAME, f64::NAME, f16::NAME, bf16::NAME]
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        Space::new()
    }

    fn default_configuration(&self, _: &str, _: u64, _: &Device) -> Configuration {
        Configuration::default()
    }

    fn work(&self, dtype: &str, n: u64) -> Work {
        let size = match dtype {
            "f64" => 8,
            "f32" => 4,
            _ => 2,
        };
        let (rows, columns) = self.sides(n);
        let array = (rows as u64).saturating_mul(columns as u64).saturating_mul(size);
        let (reads, writes) = self.arrays();
        let moved = array.saturating_mul(reads + writes);
        Work { bytes: moved, flops: 0, footprint: moved, spare: array.saturating_mul(writes) }
    }

    /// The instance depends only on the row length, so no tuning result is stored.
    fn instance(&self, _: &str, _: &Configuration) -> Option<&'static KernelSpec> {
        None
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        match setup.dtype {
            "f32" => self.prepare_of::<f32>(setup),
            "f64" => self.prepare_of::<f64>(setup),
            "f16" => self.prepare_of::<f16>(setup),
            "bf16" => self.prepare_of::<bf16>(setup),
            other => Err(Error::UnknownDtype {
                dtype: other.to_owned(),
                kernel: self.name.to_owned(),
                known: self.dtypes().into_iter().map(str::to_owned).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::suite;

    #[test]
    fn every_row_operation_is_correct() {
        let device = Device::emulated(0).unwrap();
        let stream = device.default_stream();
        for operation in ROW_OPERATIONS.iter().filter(|operation| operation.columns <= 1024) {
            for dtype in ["f32", "bf16"] {
                let setup = Setup { stream: &stream, dtype, n: 5000, copies: 1, seed: 3 };
                let mut case = operation.prepare(&setup).unwrap();
                case.select(&operation.default_configuration(dtype, 5000, &device)).unwrap();
                let check = case.check().unwrap();
                assert!(check.correct(), "{} of {dtype}: {check:?}", operation.name);
            }
        }
    }

    #[test]
    fn row_operations_are_in_the_suite() {
        let suite = suite(Vec::new());
        for operation in ROW_OPERATIONS {
            assert_eq!(suite.find(operation.name).unwrap().name(), operation.name);
        }
    }

    #[test]
    fn work_is_of_whole_rows() {
        let softmax = ROW_OPERATIONS.iter().find(|operation| operation.name == "softmax_1024").unwrap();
        assert_eq!(softmax.work("f32", 2000).bytes, 2 * 4 * 1024);
        assert_eq!(softmax.work("bf16", 100).bytes, 2 * 2 * 100, "a shorter row for less");
    }
}
