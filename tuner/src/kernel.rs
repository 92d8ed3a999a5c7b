//! [`ArrayKernel`]: describes a kernel over arrays as a benchmark, in a few lines.
//!
//! It supports kernels that read arrays of one type and write one array. For other kernels, implement [`Benchmark`]
//! with your own [`Case`].

use std::sync::Arc;

use gpu_spec::{Kernel, KernelSpec};
use gpu_std::scalar::Scalar;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, PreparedLaunch, Stream};

use crate::benchmark::{Benchmark, Setup, Work};
use crate::case::{Arrays, Case, Expected, LaunchResult, Parts};
use crate::data::{Values, generate, poison};
use crate::error::{Error, Result};
use crate::space::{Space, instance};
use crate::value::{Configuration, Value};
use crate::verify::Tolerance;

/// Function that launches a selected configuration. Its arguments are the stream, the input arrays and the output
/// array.
type Launcher<I, O> = Box<dyn Fn(&Stream, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> LaunchResult>;
/// Function that creates a launcher for a launch shape.
type Prepare<I, O> =
    Arc<dyn Fn(&Device, &'static GpuImage, Launch) -> LaunchResult<Launcher<I, O>> + Send + Sync>;
/// Function that returns the launch configuration for a number of elements.
type Shape = Arc<dyn Fn(&Configuration, usize) -> Result<Launch> + Send + Sync>;
/// Function that computes the whole output from the whole input.
type Reference<I> = Arc<dyn Fn(&[Vec<I>]) -> Vec<f64> + Send + Sync>;

/// Reference with which outputs are compared.
enum Check<I> {
    Each(fn([f64; 3]) -> f64),
    All(Reference<I>),
}

/// Kernel that reads arrays of `I` and writes an array of `O`.
///
/// By default, the kernel has one input array of spread values. The output has the same length as the input, and must
/// equal the reference within four roundings. The default for the bytes in the work is the total size of these arrays.
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::{Device, GpuImage, Stream};
/// use warpsmith_tuner::benchmark::{Benchmark, Setup};
/// use warpsmith_tuner::kernel::ArrayKernel;
///
/// /// `y[i] += a * x[i]`.
/// #[kernel]
/// pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
///     for i in thread::grid_stride(x.len()) {
///         if let Some(y) = y.get_mut(i) {
///             *y += a * x[i.get()];
///         }
///     }
/// }
///
/// // A program takes the image that its build.rs made: `warpsmith::include_image!("kernels")`.
/// static KERNELS: GpuImage =
///     GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "examples are not compiled for GPUs");
///
/// # fn main() -> Result<(), warpsmith_tuner::error::Error> {
/// let benchmark = ArrayKernel::new("saxpy", &KERNELS, |[x, y, _]| 2.0 * x + y)
///     .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
///     .updates()
///     .axis("block", [64, 128, 256]);
///
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let setup = Setup { stream: &stream, dtype: "f32", n: 1000, copies: 1, seed: 1 };
/// let mut case = benchmark.prepare(&setup)?;
/// case.select(&"block=128".parse()?)?;
/// assert!(case.check()?.correct());
/// # Ok(())
/// # }
/// ```
///
/// `examples/own-kernels/benches/tune.rs` in the repository is a complete program.
pub struct ArrayKernel<I: Scalar, O: Scalar> {
    name: &'static str,
    summary: &'static str,
    image: &'static GpuImage,
    instances: Vec<(&'static KernelSpec, Prepare<I, O>)>,
    shape: Option<Shape>,
    space: Space,
    default: Option<Configuration>,
    sizes: Vec<u64>,
    inputs: usize,
    values: Values,
    updates: bool,
    output_len: fn(usize) -> usize,
    check: Check<I>,
    tolerance: Tolerance,
    flops: fn(u64) -> u64,
}

impl<I: Scalar, O: Scalar> ArrayKernel<I, O> {
    /// Describes a kernel whose code is in `image`. `reference` computes each output element from the elements with the
    /// same index in the first three input arrays. If the kernel updates the output, the old contents of the output
    /// follow the inputs.
    pub fn new(name: &'static str, image: &'static GpuImage, reference: fn([f64; 3]) -> f64) -> Self {
        Self {
            name,
            summary: "",
            image,
            instances: Vec::new(),
            shape: None,
            space: Space::new(),
            default: None,
            sizes: Vec::new(),
            inputs: 1,
            values: Values::Spread,
            updates: false,
            output_len: |n| n,
            check: Check::Each(reference),
            tolerance: Tolerance { relative: 4.0, absolute: 4.0 },
            flops: |_| 0,
        }
    }

    /// Like [`Self::new`], but for a kernel whose output elements depend on input elements at other indices.
    /// `reference` computes the whole output from the whole input.
    pub fn with_reference(
        name: &'static str,
        image: &'static GpuImage,
        reference: impl Fn(&[Vec<I>]) -> Vec<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { check: Check::All(Arc::new(reference)), ..Self::new(name, image, |_| 0.0) }
    }

    /// Adds an instance of the kernel, with the function that launches it. A kernel with constants (such as `ITEMS`)
    /// requires one call for each combination that was compiled. The constants become axes of the space, with
    /// lower-case names, and block sizes are limited to the launch bounds.
    #[must_use]
    pub fn launch<K: Kernel + 'static>(
        mut self,
        launch: impl Fn(
            &PreparedLaunch<K>,
            &Stream,
            &[DeviceBuffer<I>],
            &mut DeviceBuffer<O>,
        ) -> warpsmith_runtime::Result<()>
        + Copy
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let prepare: Prepare<I, O> = Arc::new(move |device, image, shape| {
            let kernel = device.load(image)?.kernel::<K>()?;
            let prepared = kernel.prepare(shape)?;
            Ok(Box::new(move |stream, inputs, output| Ok(launch(&prepared, stream, inputs, output)?)))
        });
        self.instances.push((K::spec(), prepare));
        self
    }

    /// Sets the function that returns the launch configuration over `n` elements. The default is
    /// [`Configuration::launch`] with one thread per element or, if the kernel's mutable view has the mapping
    /// `Chunks<N>`, one thread per `N` output elements. This function is required for kernels that divide the work in
    /// another way, such as one warp per row, and for two- and three-dimensional kernels, whose block shapes (`16x16`)
    /// can then be an axis.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// # use warpsmith_runtime::{Device, GpuImage, Stream};
    /// # use warpsmith_tuner::benchmark::{Benchmark, Setup};
    /// # use warpsmith_tuner::kernel::ArrayKernel;
    /// # static KERNELS: GpuImage =
    /// #     GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "examples are not compiled for GPUs");
    ///
    /// /// Each element plus the one to its right.
    /// #[kernel]
    /// pub fn blur(image: Slice2<f32>, mut out: DisjointMut2<f32>) {
    ///     let cell = thread::unique_2d();
    ///     let [row, column] = cell.get();
    ///     if let (Some(out), Some(value)) = (out.get_mut(cell), image.get([row, column])) {
    ///         *out = value + image.get([row, column + 1]).unwrap_or(&0.0);
    ///     }
    /// }
    ///
    /// /// Elements of a row.
    /// const WIDTH: usize = 512;
    ///
    /// # fn main() -> Result<(), warpsmith_tuner::error::Error> {
    /// let reference = |arrays: &[Vec<f32>]| {
    ///     let rows = arrays[0].chunks(WIDTH);
    ///     let right = |row: &[f32], x: usize| row.get(x + 1).copied().map_or(0.0, f64::from);
    ///     rows.flat_map(|row| (0..WIDTH).map(|x| f64::from(row[x]) + right(row, x))).collect()
    /// };
    /// let benchmark = ArrayKernel::with_reference("blur", &KERNELS, reference)
    ///     .launch::<blur>(|kernel, stream, image, out| {
    ///         let height = out.len() / WIDTH;
    ///         kernel.launch(stream, (image[0].as_2d(height, WIDTH)?, out.as_2d_mut(height, WIDTH)?))
    ///     })
    ///     .shape(|configuration, n| configuration.cover((WIDTH, n / WIDTH)))
    ///     .axis("block", ["32x4", "32x8", "16x16", "64x4"])
    ///     .over_sizes([1 << 20, 1 << 24]);
    ///
    /// let stream = Stream::new(&Device::open("cpu")?)?;
    /// let setup = Setup { stream: &stream, dtype: "f32", n: 8 * WIDTH, copies: 1, seed: 1 };
    /// let mut case = benchmark.prepare(&setup)?;
    /// case.select(&"block=16x16".parse()?)?;
    /// assert!(case.check()?.correct());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shape(
        mut self,
        shape: impl Fn(&Configuration, usize) -> Result<Launch> + Send + Sync + 'static,
    ) -> Self {
        self.shape = Some(Arc::new(shape));
        self
    }

    /// Sets a summary of a few words.
    #[must_use]
    pub fn about(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Adds an axis to the space; see [`Space::axis`].
    #[must_use]
    pub fn axis(mut self, name: &str, values: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        self.space = self.space.axis(name, values);
        self
    }

    /// Excludes configurations from the space; see [`Space::restrict`].
    #[must_use]
    pub fn restrict(
        mut self,
        name: &str,
        rule: impl Fn(&Configuration) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.space = self.space.restrict(name, rule);
        self
    }

    /// Sets the configuration that is used without tuning; the default is the first one in the space.
    #[must_use]
    pub fn default_to(mut self, configuration: Configuration) -> Self {
        self.default = Some(configuration);
        self
    }

    /// Sets the sizes that are measured if the user specifies no sizes.
    #[must_use]
    pub fn over_sizes(mut self, sizes: impl IntoIterator<Item = u64>) -> Self {
        self.sizes = sizes.into_iter().collect();
        self
    }

    /// Sets the number of input arrays and the kind of their values.
    #[must_use]
    pub fn inputs(mut self, count: usize, values: Values) -> Self {
        (self.inputs, self.values) = (count, values);
        self
    }

    /// Sets the function that returns the output length for an input length; by default, both lengths are equal.
    #[must_use]
    pub fn output_len(mut self, len: fn(usize) -> usize) -> Self {
        self.output_len = len;
        self
    }

    /// Sets the allowed difference between the output and the reference.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the function that returns the number of floating-point operations for n elements, which is needed for the
    /// roofline of compute-bound kernels.
    #[must_use]
    pub fn flops(mut self, flops: fn(u64) -> u64) -> Self {
        self.flops = flops;
        self
    }

    fn specs(&self) -> Vec<&'static KernelSpec> {
        self.instances.iter().map(|(spec, _)| *spec).collect()
    }

    /// Returns the function that [`Self::shape`] set, or its default.
    fn shape_of(&self) -> Shape {
        let (specs, output_len) = (self.specs(), self.output_len);
        self.shape.clone().unwrap_or_else(|| {
            Arc::new(move |configuration, n| {
                configuration.launch(match instance(&specs, configuration).map_or(1, |spec| spec.items) {
                    1 => n,
                    items => output_len(n).div_ceil(items),
                })
            })
        })
    }

    fn output_bytes(&self, n: u64) -> u64 {
        let len = (self.output_len)(usize::try_from(n).unwrap_or(usize::MAX));
        (len as u64).saturating_mul(size_of::<O>() as u64)
    }
}

impl<T: Scalar> ArrayKernel<T, T> {
    /// Declares that the kernel updates the output array, so that the array counts as both read and written.
    #[must_use]
    pub fn updates(mut self) -> Self {
        self.updates = true;
        self
    }
}

impl<I: Scalar, O: Scalar> Benchmark for ArrayKernel<I, O> {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn image(&self) -> &'static GpuImage {
        self.image
    }

    fn dtypes(&self) -> Vec<&'static str> {
        let path = std::any::type_name::<I>();
        vec![path.rsplit("::").next().unwrap_or(path)]
    }

    fn sizes(&self, _: &Device) -> Vec<u64> {
        self.sizes.clone()
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        self.space.clone().instances(&self.specs())
    }

    fn default_configuration(&self, dtype: &str, _: u64, device: &Device) -> Configuration {
        let first = || self.space(dtype, device).configurations(self.name).ok()?.into_iter().next();
        self.default.clone().or_else(first).unwrap_or_default()
    }

    fn work(&self, _: &str, n: u64) -> Work {
        let read = n.saturating_mul(size_of::<I>() as u64).saturating_mul(self.inputs as u64);
        let output = self.output_bytes(n);
        let again = if self.updates { output } else { 0 };
        Work {
            bytes: read.saturating_add(output).saturating_add(again),
            flops: (self.flops)(n),
            footprint: read.saturating_add(output),
            spare: output,
        }
    }

    fn instance(&self, _: &str, configuration: &Configuration) -> Option<&'static KernelSpec> {
        instance(&self.specs(), configuration)
    }

    fn threads(&self, _: &str, n: u64, configuration: &Configuration) -> u64 {
        // The shape for this number of blocks does not tell the number of items over which the kernel loops.
        let configuration = match configuration.get("grid") {
            Some(_) => configuration.clone().with("grid", "auto"),
            None => configuration.clone(),
        };
        let launch = usize::try_from(n).ok().and_then(|n| self.shape_of()(&configuration, n).ok());
        let extent = launch.and_then(|launch| launch.extent());
        extent.map_or(n, |sides| sides.into_iter().fold(1, u64::saturating_mul))
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        let n = setup.n;
        let inputs: Vec<Vec<I>> = (0..self.inputs as u64)
            .map(|index| generate(self.values, setup.seed.wrapping_add(index), n))
            .collect();
        let len = (self.output_len)(n);
        let initial: Vec<O> = if self.updates {
            generate(self.values, setup.seed.wrapping_add(self.inputs as u64), len)
        } else {
            vec![poison::<O>(); len]
        };
        // Only a kernel whose input and output types are equal can update its output, so the byte cast is valid.
        let updated: Vec<Vec<I>> =
            if self.updates { vec![bytemuck::cast_slice(&initial).to_vec()] } else { Vec::new() };
        let expected = match &self.check {
            Check::Each(reference) => Expected::Each(*reference, updated),
            Check::All(reference) => {
                let mut arrays = inputs.clone();
                arrays.extend(updated);
                Expected::All(reference(&arrays))
            }
        };
        let (device, image, instances) = (setup.stream.device().clone(), self.image, self.instances.clone());
        let (name, shape) = (self.name, self.shape_of());
        let parts = Parts {
            inputs,
            initial,
            choose: Box::new(move |configuration| {
                let specs: Vec<_> = instances.iter().map(|(spec, _)| *spec).collect();
                let chosen = instance(&specs, configuration);
                let found = instances.iter().find(|(spec, _)| chosen.is_some_and(|c| std::ptr::eq(c, *spec)));
                let (_, prepare) = found.ok_or_else(|| Error::Axis {
                    axis: "configuration".to_owned(),
                    text: configuration.to_string(),
                    reason: format!("no instance of {name} has these constants"),
                })?;
                prepare(&device, image, shape(configuration, n)?)
            }),
            launch: Box::new(|stream, launcher: &Launcher<I, O>, inputs, output| {
                launcher(stream, inputs, output)
            }),
            expected,
            tolerance: self.tolerance,
        };
        Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
    }
}
