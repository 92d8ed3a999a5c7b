//! [`Benchmark`] describes a kernel so that the kernel can be measured and tuned. [`Suite`] contains the benchmarks of
//! a program.

use std::collections::HashSet;

use gpu_spec::KernelSpec;
use warpsmith_runtime::{Device, GpuImage, Stream};

use crate::case::Case;
use crate::error::{Error, Result};
use crate::space::Space;
use crate::value::Configuration;

/// Memory traffic, arithmetic and memory footprint of one launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Minimum number of bytes that a launch reads and writes.
    pub bytes: u64,
    /// Floating-point operations; 0 if they are irrelevant to the kernel's speed.
    pub flops: u64,
    /// Bytes of device memory per set of buffers.
    pub footprint: u64,
    /// Bytes of device memory that are required once, in addition to the sets of buffers.
    pub spare: u64,
}

/// Parameters for preparing a case.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Stream on which to launch.
    pub stream: &'a Stream,
    /// Element type: one of [`Benchmark::dtypes`].
    pub dtype: &'a str,
    /// Number of elements to process.
    pub n: usize,
    /// Number of sets of buffers through which launches cycle, so that no launch finds its data in the cache.
    pub copies: usize,
    /// Seed for the input data.
    pub seed: u64,
}

/// Kernel that can be measured.
///
/// For kernels over arrays of one to three dimensions, [`ArrayKernel`](crate::kernel::ArrayKernel) implements this
/// trait in a few lines (see [`ArrayKernel::shape`](crate::kernel::ArrayKernel::shape)). For other kernels, implement
/// the trait with your own [`Case`] or with [`Arrays`](crate::case::Arrays):
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
    /// Returns the benchmark's name on the command line and in results.
    fn name(&self) -> &str;

    /// Returns a summary of the kernel in a few words.
    fn summary(&self) -> &str {
        ""
    }

    /// Returns the image that contains the kernel's code.
    fn image(&self) -> &'static GpuImage;

    /// Returns the element types with which the kernel can be measured, the default first.
    fn dtypes(&self) -> Vec<&'static str> {
        vec!["f32"]
    }

    /// Returns the sizes that are measured if the user specifies no sizes. An empty list selects the default sizes.
    fn sizes(&self, device: &Device) -> Vec<u64> {
        let _ = device;
        Vec::new()
    }

    /// Returns the space of all configurations that are worth measuring.
    fn space(&self, dtype: &str, device: &Device) -> Space;

    /// Returns the configuration that is used without tuning. It is always measured, and it is measured before all
    /// others.
    fn default_configuration(&self, dtype: &str, n: u64, device: &Device) -> Configuration;

    /// Returns the cost of a launch over `n` elements; the numbers saturate at 64 bits.
    fn work(&self, dtype: &str, n: u64) -> Work;

    /// Returns the kernel instance that a configuration launches. The winner is stored under the name of this instance.
    fn instance(&self, dtype: &str, configuration: &Configuration) -> Option<&'static KernelSpec>;

    /// Returns how many threads, or items of a loop, a configuration launches for `n` elements. Open launches for about
    /// as many threads use the winner. The default is one thread per element or, for mappings such as `Chunks<N>`, per
    /// `N` elements.
    fn threads(&self, dtype: &str, n: u64, configuration: &Configuration) -> u64 {
        n.div_ceil(self.instance(dtype, configuration).map_or(1, |spec| spec.items as u64))
    }

    /// Allocates and fills the buffers on the stream's device.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>>;
}

/// Probe of a device limit: a kernel that only moves data or only computes.
pub struct Probe {
    /// Name: `copy`, `read` or `fma`.
    pub name: &'static str,
    /// Work of one launch.
    pub work: Work,
    /// Launch configuration.
    pub configuration: Configuration,
    /// Case with the probe's buffers.
    pub case: Box<dyn Case>,
}

/// Benchmarks of a program.
pub struct Suite {
    /// Benchmarks in the order in which they are listed. Their names must be distinct.
    pub benchmarks: Vec<Box<dyn Benchmark>>,
    /// Benchmarks that disabled Cargo features exclude: for each feature, the prefix of their names and the feature's
    /// name.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// Function that creates the probes with which results are compared.
    pub probes: fn(&Stream) -> Result<Vec<Probe>>,
}

impl Suite {
    /// Checks that the names of all benchmarks are distinct.
    ///
    /// # Errors
    /// Returns [`Error::SameName`], which contains the duplicate name.
    pub fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        match self.benchmarks.iter().find(|benchmark| !names.insert(benchmark.name())) {
            Some(second) => Err(Error::SameName { name: second.name().to_owned() }),
            None => Ok(()),
        }
    }

    /// Finds a benchmark by name. A leading `reduce_` may be omitted.
    ///
    /// # Errors
    /// Returns [`Error::LeftOut`], which names the feature that provides the benchmark. Returns
    /// [`Error::UnknownKernel`], which suggests similar names, or lists all names if no name is similar. Also returns
    /// the same errors as [`Self::check`].
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

/// Returns the benchmark's own name for the element type that `text` specifies.
///
/// # Errors
/// Returns [`Error::UnknownDtype`], which lists the supported types.
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

/// Suggests those names in `known` that are similar to `name`.
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
