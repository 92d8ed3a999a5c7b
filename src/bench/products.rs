//! Benchmarks of GEMM, whose configurations are the available schedules. The default schedule depends only on the
//! sizes. A program can select another one with [`matmul_with`](crate::tensor::matmul_with).
//!
//! For a size of n elements, `b` is the largest square matrix that fits and whose sides are multiples of 8. `a` has as
//! many rows as `b`, or the number of rows in the benchmark's name.

use gpu_spec::KernelSpec;
use gpu_std::scalar::Scalar;
use half::{bf16, f16};
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work, dtype};
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::{Values, generate, poison};
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Tolerance;

use crate::tensor::{self, Epilogue, Matrix, Schedule, matmul_with};

/// Tolerance that allows for reordered additions and one rounding.
const SUMS: Tolerance = Tolerance { relative: 2.0, absolute: 64.0 };

/// A GEMM of 16-bit matrices, with row-major `a` and transposed `b`.
///
/// ```
/// use warpsmith::bench::PRODUCTS;
/// use warpsmith::bench::benchmark::Benchmark;
///
/// assert_eq!(PRODUCTS[0].name(), "matmul");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    name: &'static str,
    summary: &'static str,
    /// Number of rows in `a`, or `None` for a square GEMM.
    rows: Option<u64>,
}

/// All GEMMs that can be measured.
pub const PRODUCTS: &[Product] = &[
    Product { name: "matmul", summary: "products of square matrices", rows: None },
    Product { name: "matmul_64", summary: "products of 64 rows and a square matrix", rows: Some(64) },
    Product { name: "matmul_256", summary: "products of 256 rows and a square matrix", rows: Some(256) },
];

impl Product {
    /// Returns m (the number of rows of `a`) and the side length of `b`.
    fn sides(&self, n: u64) -> [u64; 2] {
        let side = (n.isqrt() / 8 * 8).max(8);
        [self.rows.unwrap_or(side), side]
    }
}

impl Benchmark for Product {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn image(&self) -> &'static GpuImage {
        &tensor::IMAGE
    }

    fn dtypes(&self) -> Vec<&'static str> {
        vec!["bf16", "f16"]
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        let names = Schedule::TILES.map(|[rows, columns]| format!("{rows}x{columns}"));
        Space::new()
            .axis("tile", names.each_ref().map(String::as_str))
            .axis("tiles", [1, 2])
            .axis("split_k", Schedule::SPLIT_K)
            .restrict("existing schedules", |configuration| {
                schedule(configuration).is_ok_and(|schedule| schedule.exists())
            })
    }

    fn default_configuration(&self, _: &str, n: u64, device: &Device) -> Configuration {
        let [m, side] = self.sides(n).map(|side| side as usize);
        let Schedule { tile: [rows, columns], cluster, split_k } =
            Schedule::of_product(device, [m, side, side]);
        let tile = format!("{rows}x{columns}");
        Configuration::default().with("tile", tile.as_str()).with("tiles", cluster).with("split_k", split_k)
    }

    fn work(&self, _: &str, n: u64) -> Work {
        let [m, side] = self.sides(n);
        let bytes = (2 * m * side + side * side).saturating_mul(2);
        Work { bytes, flops: (2 * m * side).saturating_mul(side), footprint: bytes, spare: 2 * m * side }
    }

    fn instance(&self, _: &str, _: &Configuration) -> Option<&'static KernelSpec> {
        // No launch looks up a tuned schedule, so the result is not stored for any instance.
        None
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        match dtype(self, setup.dtype)? {
            "bf16" => self.case::<bf16>(setup),
            _ => self.case::<f16>(setup),
        }
    }
}

fn schedule(configuration: &Configuration) -> Result<Schedule> {
    let text = configuration.get("tile").map(ToString::to_string).unwrap_or_default();
    let tile = Schedule::TILES.into_iter().find(|[rows, columns]| format!("{rows}x{columns}") == text);
    let unknown = || Error::Axis {
        axis: "tile".to_owned(),
        text: text.clone(),
        reason: "use 128x256, 128x128, 64x256 or 64x128".to_owned(),
    };
    let (cluster, split_k) = (configuration.number("tiles")?, configuration.number("split_k")?);
    Ok(Schedule { tile: tile.ok_or_else(unknown)?, cluster, split_k })
}

impl Product {
    fn case<T>(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>>
    where
        T: Scalar + tensor::GemmElement<Sum = f32, Output = T>,
    {
        let [m, side] = self.sides(setup.n as u64).map(|side| side as usize);
        // Each row is the same row scaled by plus or minus a power of two, so the host can compute the expected result
        // without a GEMM.
        let factor = |row: usize| f64::from([1.0f32, -1.0, 0.5, 2.0, -0.5, -2.0, 0.25][row % 7]);
        let of = |seed: u64, rows: usize| -> (Vec<f64>, Vec<T>) {
            let row: Vec<T> = generate(Values::Spread, seed, side);
            let row: Vec<f64> = row.into_iter().map(Scalar::cast).collect();
            let all = (0..rows).flat_map(|i| row.iter().map(move |x| T::from_f64(factor(i) * x))).collect();
            (row, all)
        };
        let ((a_row, a), (b_row, b)) = (of(setup.seed, m), of(setup.seed + 1, side));
        let sum: f64 = a_row.iter().zip(&b_row).map(|(x, y)| x * y).sum();
        let expected = (0..m).flat_map(|i| (0..side).map(move |j| factor(i) * factor(j) * sum)).collect();
        let parts = Parts {
            inputs: vec![a, b],
            initial: vec![poison::<T>(); m * side],
            choose: Box::new(|configuration: &Configuration| Ok(schedule(configuration)?)),
            launch: Box::new(move |stream: &Stream, schedule: &Schedule, inputs: &[DeviceBuffer<T>], c| {
                let (a, b) = (inputs[0].as_2d(m, side)?, inputs[1].as_2d(side, side)?);
                let (epilogue, b) = (Epilogue::default(), Matrix::from(b).transposed());
                Ok(matmul_with(stream, *schedule, &epilogue, a, b, c.as_2d_mut(m, side)?)?)
            }),
            expected: Expected::All(expected),
            tolerance: SUMS,
        };
        Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
    }
}
