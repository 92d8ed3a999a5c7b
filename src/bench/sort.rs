//! Benchmark of the sort operation. It is not an [`Operation`](super::Operation), because its kernels have only one
//! configuration.

use gpu_spec::KernelSpec;
use gpu_std::Kernel;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::poison;
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Tolerance;

use crate::ops::{self, Order, SortKey};

/// A sort of random keys. The reported bytes include the transfers of all passes.
///
/// ```
/// use warpsmith::bench::Sort;
/// use warpsmith::bench::benchmark::Benchmark;
///
/// assert_eq!(Sort.name(), "radix_pass");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Sort;

impl Sort {
    /// Returns the number of bytes per key, or 0 if the name is not a key type.
    fn bytes(dtype: &str) -> u64 {
        match dtype {
            "f32" | "i32" | "u32" => 4,
            "f64" | "i64" | "u64" => 8,
            _ => 0,
        }
    }
}

impl Benchmark for Sort {
    fn name(&self) -> &str {
        "radix_pass"
    }

    fn summary(&self) -> &str {
        "ops::sort: keys in ascending order"
    }

    fn image(&self) -> &'static GpuImage {
        &crate::IMAGE
    }

    fn dtypes(&self) -> Vec<&'static str> {
        vec!["f32", "f64", "i32", "u32", "i64", "u64"]
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        Space::new().axis("block", [gpu_kernels::sort::THREADS as u32])
    }

    fn default_configuration(&self, _: &str, _: u64, _: &Device) -> Configuration {
        Configuration::default().with("block", gpu_kernels::sort::THREADS as u32)
    }

    fn work(&self, dtype: &str, n: u64) -> Work {
        let bytes = Self::bytes(dtype);
        let array = n.saturating_mul(bytes);
        // The sort reads the keys once to count digits and then reads and writes them once for each byte of a key.
        Work {
            bytes: array.saturating_mul(1 + 2 * bytes),
            flops: 0,
            footprint: array.saturating_mul(2),
            spare: array.saturating_mul(2),
        }
    }

    fn instance(&self, dtype: &str, _: &Configuration) -> Option<&'static KernelSpec> {
        match Self::bytes(dtype) {
            4 => Some(gpu_kernels::sort::radix_pass::<u32>::spec()),
            8 => Some(gpu_kernels::sort::radix_pass::<u64>::spec()),
            _ => None,
        }
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        match setup.dtype {
            "f32" => keys::<f32>(setup, f32::total_cmp),
            "f64" => keys::<f64>(setup, f64::total_cmp),
            "i32" => keys::<i32>(setup, i32::cmp),
            "u32" => keys::<u32>(setup, u32::cmp),
            "i64" => keys::<i64>(setup, i64::cmp),
            "u64" => keys::<u64>(setup, u64::cmp),
            _ => Err(Error::UnknownDtype {
                dtype: setup.dtype.to_owned(),
                kernel: self.name().to_owned(),
                known: self.dtypes().into_iter().map(str::to_owned).collect(),
            }),
        }
    }
}

/// Prepares random keys. NaN is excluded because it has no order.
fn keys<T: SortKey>(setup: &Setup<'_>, order: fn(&T, &T) -> std::cmp::Ordering) -> Result<Box<dyn Case>> {
    let bits: Vec<u64> =
        (0..setup.n as u64).map(|i| setup.seed.wrapping_add(i).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mixed = bits.into_iter().map(|bits| (bits ^ bits >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9));
    let key = |bits: u64| -> T {
        bytemuck::pod_read_unaligned(&(bits ^ bits >> 32).to_le_bytes()[..size_of::<T>()])
    };
    let data: Vec<T> =
        mixed.map(key).map(|key| if key.cast::<f64>().is_nan() { T::from_f64(1.0) } else { key }).collect();
    let mut expected = data.clone();
    rayon::slice::ParallelSliceMut::par_sort_unstable_by(&mut expected[..], order);
    let parts = Parts {
        inputs: vec![data],
        initial: vec![poison::<T>(); setup.n],
        choose: Box::new(|_: &Configuration| Ok(())),
        launch: Box::new(|stream, (), inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            Ok(ops::sort(stream, Order::Ascending, &inputs[0], output)?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
}
