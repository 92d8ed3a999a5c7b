//! [`Benchmark`]: what is to be known of a kernel so that it can be measured and tuned; [`Suite`]: the benchmarks of a program.

use std::collections::HashSet;

use gpu_spec::KernelSpec;
use warpsmith_runtime::{Device, GpuImage, Stream};

use crate::case::Case;
use crate::error::{Error, Result};
use crate::space::Space;
use crate::value::Configuration;

/// The traffic, arithmetic and memory of one launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes that it must read and write.
    pub bytes: u64,
    /// Floating-point operations; 0 where they do not matter.
    pub flops: u64,
    /// Bytes of device memory that one set of its buffers takes.
    pub footprint: u64,
    /// Bytes of device memory that are needed once, besides the sets.
    pub spare: u64,
}

/// The request for a case.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Where to launch.
    pub stream: &'a Stream,
    /// One of [`Benchmark::dtypes`].
    pub dtype: &'a str,
    /// Elements.
    pub n: usize,
    /// Sets of buffers to go round over, so that no launch finds its data in the cache.
    pub copies: usize,
    /// The seed of the data.
    pub seed: u64,
}

/// A kernel that can be measured.
///
/// [`ArrayKernel`](crate::kernel::ArrayKernel) is one for a kernel over arrays, in a few lines, in one to three dimensions
/// ([`ArrayKernel::shape`](crate::kernel::ArrayKernel::shape)). For others, implement the trait, over a
/// [`Case`] of your own or [`Arrays`](crate::case::Arrays):
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::{Device, GpuImage, Launch, Stream};
/// use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
/// use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
/// use warpsmith_tuner::data::{Values, generate};
/// use warpsmith_tuner::error::Result;
/// use warpsmith_tuner::space::Space;
/// use warpsmith_tuner::value::Configuration;
/// use warpsmith_tuner::verify::Tolerance;
///
/// /// Each row of `data` times an element of `factors`.
/// #[kernel]
/// pub fn scale_rows(factors: &[f32], data: Slice2<f32>, mut out: DisjointMut2<f32>) {
///     let cell = thread::unique_2d();
///     let [row, column] = cell.get();
///     let (value, factor) = (data.get([row, column]), factors.get(row));
///     if let (Some(out), Some(value), Some(factor)) = (out.get_mut(cell), value, factor) {
///         *out = value * factor;
///     }
/// }
///
/// // A program takes the image that its build.rs made: `warpsmith::include_image!("kernels")`.
/// static KERNELS: GpuImage =
///     GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "examples are not compiled for GPUs");
///
/// /// Square arrays: a size of n elements is the largest square in it.
/// struct ScaleRows;
///
/// impl Benchmark for ScaleRows {
///     fn name(&self) -> &str {
///         "scale_rows"
///     }
///
///     fn image(&self) -> &'static GpuImage {
///         &KERNELS
///     }
///
///     fn space(&self, _: &str, _: &Device) -> Space {
///         Space::new().axis("block", ["32x4", "32x8", "16x16"])
///     }
///
///     fn default_configuration(&self, _: &str, _: u64, _: &Device) -> Configuration {
///         Configuration::default().with("block", "32x8")
///     }
///
///     fn work(&self, _: &str, n: u64) -> Work {
///         let side = n.isqrt();
///         let bytes = 4 * (2 * side * side + side);
///         Work { bytes, flops: side * side, footprint: bytes, spare: 4 * side * side }
///     }
///
///     fn instance(&self, _: &str, _: &Configuration) -> Option<&'static gpu_std::KernelSpec> {
///         Some(<scale_rows as gpu_std::Kernel>::spec())
///     }
///
///     fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
///         let side = setup.n.isqrt();
///         let inputs: Vec<Vec<f32>> =
///             [side * side, side].iter().zip(0..).map(|(n, i)| generate(Values::Spread, setup.seed + i, *n)).collect();
///         let product = |i: usize| f64::from(inputs[0][i]) * f64::from(inputs[1][i / side]);
///         let kernel = setup.stream.device().load(&KERNELS)?.kernel::<scale_rows>()?;
///         let parts = Parts {
///             initial: vec![f32::NAN; side * side],
///             expected: Expected::All((0..side * side).map(product).collect()),
///             inputs,
///             choose: Box::new(move |configuration| Ok(kernel.prepare(configuration.cover((side, side))?)?)),
///             launch: Box::new(move |stream, kernel, inputs, out| {
///                 let (data, out) = (inputs[0].as_2d(side, side)?, out.as_2d_mut(side, side)?);
///                 Ok(kernel.launch(stream, (&inputs[1], data, out))?)
///             }),
///             tolerance: Tolerance { relative: 4.0, absolute: 4.0 },
///         };
///         Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let setup = Setup { stream: &stream, dtype: "f32", n: 1000, copies: 1, seed: 1 };
/// let mut case = ScaleRows.prepare(&setup)?;
/// case.select(&"block=16x16".parse()?)?;
/// assert!(case.check()?.correct());
/// # Ok(())
/// # }
/// ```
pub trait Benchmark: Send + Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &str;

    /// A short summary.
    fn summary(&self) -> &str {
        ""
    }

    /// The image that holds its code.
    fn image(&self) -> &'static GpuImage;

    /// The element types it can be measured with, the usual one first.
    fn dtypes(&self) -> Vec<&'static str> {
        vec!["f32"]
    }

    /// The sizes that are measured when none are given; none for the usual ones.
    fn sizes(&self, device: &Device) -> Vec<u64> {
        let _ = device;
        Vec::new()
    }

    /// Every configuration worth measuring.
    fn space(&self, dtype: &str, device: &Device) -> Space;

    /// The configuration without measurements: always measured, and first.
    fn default_configuration(&self, dtype: &str, n: u64, device: &Device) -> Configuration;

    /// The cost of a launch over `n` elements. Saturates at 64 bits.
    fn work(&self, dtype: &str, n: u64) -> Work;

    /// The instance that a configuration launches, under whose name its winner is kept.
    fn instance(&self, dtype: &str, configuration: &Configuration) -> Option<&'static KernelSpec>;

    /// Puts the buffers on the stream's device.
    ///
    /// # Errors
    /// Out of memory, and whatever else the runtime reports.
    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>>;
}

/// A probe of the device's limit: a kernel that does nothing but move data or compute.
pub struct Probe {
    /// `copy`, `read` or `fma`.
    pub name: &'static str,
    /// The work of one launch.
    pub work: Work,
    /// Its launch.
    pub configuration: Configuration,
    /// Its buffers.
    pub case: Box<dyn Case>,
}

/// The benchmarks of a program.
pub struct Suite {
    /// In the order in which they are listed, each with a name of its own.
    pub benchmarks: Vec<Box<dyn Benchmark>>,
    /// Benchmarks of cargo features that are off: prefix of their names, and the feature.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// Makes the probes that results are held against.
    pub probes: fn(&Stream) -> Result<Vec<Probe>>,
}

impl Suite {
    /// Whether each benchmark has a name of its own.
    ///
    /// # Errors
    /// [`Error::SameName`] with one that two have.
    pub fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        match self.benchmarks.iter().find(|benchmark| !names.insert(benchmark.name())) {
            Some(second) => Err(Error::SameName { name: second.name().to_owned() }),
            None => Ok(()),
        }
    }

    /// Finds a benchmark by name; a leading `reduce_` may be left out.
    ///
    /// # Errors
    /// [`Error::LeftOut`] with the feature that brings it; [`Error::UnknownKernel`] with the nearest names, or all of them when
    /// none is near. As [`Self::check`].
    pub fn find(&self, name: &str) -> Result<&dyn Benchmark> {
        self.check()?;
        let all = || self.benchmarks.iter().map(|benchmark| &**benchmark);
        let exact = all().find(|benchmark| benchmark.name() == name);
        exact.or_else(|| all().find(|benchmark| short(benchmark.name()) == name)).ok_or_else(|| {
            if let Some((_, feature)) = self.left_out.iter().find(|(start, _)| name.starts_with(start)) {
                return Error::LeftOut { name: name.to_owned(), feature };
            }
            Error::UnknownKernel { name: name.to_owned(), hint: nearest(name, all().map(|b| b.name())) }
        })
    }
}

/// The name of type `text` as the benchmark knows it.
///
/// # Errors
/// [`Error::UnknownDtype`] with the types there are.
pub fn dtype(benchmark: &dyn Benchmark, text: &str) -> Result<&'static str> {
    let known = benchmark.dtypes();
    known.iter().copied().find(|&name| name == text).ok_or_else(|| Error::UnknownDtype {
        dtype: text.to_owned(),
        kernel: benchmark.name().to_owned(),
        known: known.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn short(name: &str) -> &str {
    name.strip_prefix("reduce_").unwrap_or(name)
}

/// Suggests names among `known` that are near `name`.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name = name.to_lowercase();
    let known: Vec<&str> = known.collect();
    let likeness = |candidate: &str| {
        strsim::jaro_winkler(&name, candidate).max(strsim::jaro_winkler(&name, short(candidate)))
    };
    let mut near: Vec<(f64, &str)> =
        known.iter().map(|&candidate| (likeness(candidate), candidate)).filter(|&(l, _)| l > 0.75).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(3);
    if near.is_empty() {
        format!("there are {}", known.join(", "))
    } else {
        format!("did you mean {}?", near.iter().map(|&(_, n)| n).collect::<Vec<_>>().join(", "))
    }
}
