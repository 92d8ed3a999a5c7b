//! Scans, selection, histograms and sorts as benchmarks: their data and the right results; and [`Sort`], which is no
//! [`Operation`](super::Operation), because its kernels have one configuration.

use gpu_kernels::histogram::{Binned, Edges, edge};
use gpu_spec::KernelSpec;
use gpu_std::Kernel;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::{Element, Values, generate};
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Tolerance;

use super::operations::config;
use super::prepare::Prepared;
use crate::ops::{self, Comparison, Config, Number, Order, SortKey};

/// Bins of a histogram.
const BINS: usize = 256;

/// Enqueues one scan: stream, configuration, input, output.
type Scan<T> = fn(&Stream, Config, &DeviceBuffer<T>, &mut DeviceBuffer<T>) -> warpsmith_runtime::Result<()>;

/// A scan whose results are exact.
pub(super) fn scan<T: Element + Number>(
    setup: &Setup<'_>,
    values: Values,
    launch: Scan<T>,
    step: fn(f64, f64) -> f64,
) -> Prepared {
    let data: Vec<T> = generate(values, setup.seed, setup.n);
    let running = data.iter().map(|value| value.to_f64()).scan(None, |so_far, value| {
        *so_far = Some(so_far.map_or(value, |so_far| step(so_far, value)));
        *so_far
    });
    let expected: Vec<T> = running.map(<T as Element>::from_f64).collect();
    let parts = Parts {
        inputs: vec![data],
        initial: vec![T::poison(); setup.n],
        choose: Box::new(config),
        launch: Box::new(move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            Ok(launch(stream, *config, &inputs[0], output)?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}

/// Selection of about half of the elements.
pub(super) fn select<T: Element + Number>(setup: &Setup<'_>) -> Prepared {
    let limit = <T as Element>::from_f64(if T::SIGNED { 0.0 } else { 49.0 });
    let data: Vec<T> = generate(Values::Spread, setup.seed, setup.n);
    let mut expected = vec![T::poison(); setup.n];
    let kept = data.iter().filter(|value| value.to_f64() > limit.to_f64());
    expected.iter_mut().zip(kept).for_each(|(place, value)| *place = *value);
    let parts = Parts {
        inputs: vec![data],
        initial: vec![T::poison(); setup.n],
        choose: Box::new(config),
        launch: Box::new(move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            let mut count = DeviceBuffer::<u64>::uninit(stream, 1)?;
            Ok(ops::select_if_with(
                stream,
                *config,
                &inputs[0],
                Comparison::Greater,
                limit,
                output,
                &mut count,
            )?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}

/// A histogram of 256 even bins, of which the data is in about 200.
pub(super) fn histogram<T: Element + Number + Binned>(setup: &Setup<'_>) -> Prepared {
    let is_float = T::EPSILON > 0.0;
    let [lower, upper] = match (is_float, T::SIGNED) {
        (true, _) => [-4.0, 6.0],
        (false, true) => [-100.0, 156.0],
        (false, false) => [0.0, 256.0],
    };
    let [lower, upper] = [lower, upper].map(<T as Element>::from_f64);
    let bins = T::bins(BINS as u32, lower, upper, false).expect("a finite range");
    let data: Vec<T> = generate(Values::Spread, setup.seed, setup.n);
    let mut expected = vec![0_u64; BINS];
    let [first, last] = [lower, upper].map(|end| end.cast::<f64>());
    let edges: Vec<f64> = (0..BINS as u32).map(|i| edge(first, last, i, BINS as u32)).collect();
    for bin in data.iter().filter_map(|value| value.bin(&bins, Edges::Exact(&edges))) {
        expected[bin as usize] += 1;
    }
    let parts = Parts {
        inputs: vec![data],
        initial: vec![u64::poison(); BINS],
        choose: Box::new(config),
        launch: Box::new(
            move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<u64>| {
                Ok(ops::histogram_even_with(stream, *config, 1, &inputs[0], lower..upper, output)?)
            },
        ),
        expected: Expected::All(expected.into_iter().map(|count| count as f64).collect()),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}

/// The sort of keys whose bits are random. Its work is what all passes move.
#[derive(Debug, Clone, Copy)]
pub struct Sort;

impl Sort {
    /// Bytes of a key; 0 of no type of keys.
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
        // One read for the counts, then a read and a write for each byte of a key.
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

/// Keys of random bits, without NaN, which compares with nothing.
fn keys<T: Element + SortKey>(
    setup: &Setup<'_>,
    order: fn(&T, &T) -> std::cmp::Ordering,
) -> Result<Box<dyn Case>> {
    let bits: Vec<u64> =
        (0..setup.n as u64).map(|i| setup.seed.wrapping_add(i).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mixed = bits.into_iter().map(|bits| (bits ^ bits >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9));
    let key = |bits: u64| -> T {
        bytemuck::pod_read_unaligned(&(bits ^ bits >> 32).to_le_bytes()[..size_of::<T>()])
    };
    let data: Vec<T> = mixed
        .map(key)
        .map(|key| if key.to_f64().is_nan() { <T as Element>::from_f64(1.0) } else { key })
        .collect();
    let mut expected = data.clone();
    rayon::slice::ParallelSliceMut::par_sort_unstable_by(&mut expected[..], order);
    let parts = Parts {
        inputs: vec![data],
        initial: vec![T::poison(); setup.n],
        choose: Box::new(|_: &Configuration| Ok(())),
        launch: Box::new(|stream, (), inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            Ok(ops::sort(stream, &inputs[0], Order::Ascending, output)?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
}
