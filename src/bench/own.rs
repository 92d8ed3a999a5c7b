//! [`map`] and [`reduce`] return benchmarks of user-defined `#[elementwise]` functions and `#[reduction]` operators.

use std::sync::Arc;

use gpu_spec::{KernelSpec, ParamKind};
use gpu_std::elementwise::Elementwise;
use gpu_std::family::Variant;
use gpu_std::reduction::{Reduce, Reduction};
use gpu_std::scalar::Scalar;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::{Values, generate, poison};
use warpsmith_tuner::error::Result;
use warpsmith_tuner::space::{Space, instance};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Tolerance;

use super::operations::{config, configuration};
use crate::ops::{self, Config, Instances, with_config};

/// Launches a kernel. The arguments are the stream, input arrays and output.
type Launch<I, O> = Box<
    dyn Fn(&Stream, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> warpsmith_runtime::Result<()> + Send + Sync,
>;

/// Check of the output.
enum Check<I> {
    Each(fn([f64; 3]) -> f64),
    Whole(fn(&[I]) -> f64),
}

/// A benchmark of a user-defined function or operator.
struct Own<I: Scalar, O: Scalar> {
    image: &'static GpuImage,
    variants: &'static [Variant],
    is_reduction: bool,
    inputs: u64,
    check: Check<I>,
    launch: Arc<Launch<I, O>>,
}

/// Returns the benchmark of a function over arrays of `I`. `launch` must call [`ops::map`] for the function.
/// `reference` computes an element of the result in f64 from the elements of the first three arrays. The configurations
/// combine the instances that the kernel crate declares with suitable block and grid sizes. After tuning, [`ops::map`]
/// uses the configuration that [`tune`](crate::bench) found.
///
/// ```
/// use warpsmith::bench::{self, benchmark::{Benchmark, Setup}};
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::{ops, prelude::*};
///
/// #[elementwise(scalars(limit))]
/// pub fn scaled_relu(limit: f32, x: f32, y: f32) -> f32 { x.max(limit) * y }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// // As an argument of `bench_main!`:
/// let benchmark = bench::map::<scaled_relu, f32, f32>(&KERNELS, 2, |[x, y, _]| x.max(0.0) * y, |stream, x, out| {
///     ops::map::<scaled_relu>(stream, &KERNELS, (0.0, &x[0], &x[1], out))
/// });
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// # let mut case = benchmark.prepare(&Setup { stream: &stream, dtype: "f32", n: 1000, copies: 1, seed: 1 })?;
/// # case.select(&benchmark.default_configuration("f32", 1000, stream.device()))?;
/// # assert!(case.check()?.correct());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map<F: Elementwise, I: Scalar, O: Scalar>(
    image: &'static GpuImage,
    inputs: usize,
    reference: fn([f64; 3]) -> f64,
    launch: impl Fn(&Stream, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> warpsmith_runtime::Result<()>
    + Send
    + Sync
    + 'static,
) -> impl Benchmark {
    Own {
        image,
        variants: F::VARIANTS,
        is_reduction: false,
        inputs: inputs as u64,
        check: Check::Each(reference),
        launch: Arc::new(Box::new(launch)),
    }
}

/// Like [`map`], but returns the benchmark of an operator. `reference` computes the result in f64.
///
/// ```
/// use warpsmith::bench::{self, benchmark::{Benchmark, Setup}};
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::prelude::*;
///
/// #[reduction(identity = f32::NEG_INFINITY)]
/// pub fn largest(a: f32, b: f32) -> f32 { a.max(b) }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let benchmark = bench::reduce::<largest, f32, f32>(&KERNELS, |data| {
///     data.iter().copied().fold(f32::NEG_INFINITY, f32::max).into()
/// });
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// # let mut case = benchmark.prepare(&Setup { stream: &stream, dtype: "f32", n: 1000, copies: 1, seed: 1 })?;
/// # case.select(&benchmark.default_configuration("f32", 1000, stream.device()))?;
/// # assert!(case.check()?.correct());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reduce<R, I: Scalar, O: Scalar>(image: &'static GpuImage, reference: fn(&[I]) -> f64) -> impl Benchmark
where
    R: Reduce<Operator: Reduction<Item = I, Output = O>>,
{
    Own::<I, O> {
        image,
        variants: R::VARIANTS,
        is_reduction: true,
        inputs: 1,
        check: Check::Whole(reference),
        launch: Arc::new(Box::new(move |stream, x, out| ops::reduce_into::<R>(stream, image, &x[0], out))),
    }
}

impl<I: Scalar, O: Scalar> Own<I, O> {
    fn specs(&self) -> Vec<&'static KernelSpec> {
        self.variants.iter().map(|variant| (variant.spec)()).collect()
    }

    /// Returns the bytes read and the bytes written per element, each summed over all arrays.
    fn bytes(&self) -> [u64; 2] {
        let params = self.specs().first().map_or(&[][..], |spec| spec.params);
        let of = |kind: ParamKind| {
            params.iter().filter(move |param| param.kind == kind).map(|param| param.size as u64)
        };
        let written: u64 = of(ParamKind::SliceMut).sum();
        [self.inputs * size_of::<I>() as u64, written]
    }
}

impl<I: Scalar, O: Scalar> Benchmark for Own<I, O> {
    fn name(&self) -> &str {
        self.specs().first().map_or("", |spec| spec.name)
    }

    fn image(&self) -> &'static GpuImage {
        self.image
    }

    fn dtypes(&self) -> Vec<&'static str> {
        vec![I::NAME]
    }

    fn space(&self, _: &str, device: &Device) -> Space {
        let (blocks, grids) = match device.is_emulated() {
            true => (&[64, 256][..], &["auto"][..]),
            false => (&[64, 128, 256, 512][..], &["auto", "waves:1", "waves:2", "waves:4", "waves:8"][..]),
        };
        let space = Space::new().axis("block", blocks.iter().copied()).axis("grid", grids.iter().copied());
        space.instances(&self.specs())
    }

    fn default_configuration(&self, _: &str, n: u64, device: &Device) -> Configuration {
        let (variants, is_reduction) = (self.variants, self.is_reduction);
        let element_bytes = size_of::<I>().max(if is_reduction { 0 } else { size_of::<O>() });
        let instances = Instances::Family { variants, is_reduction };
        configuration(&ops::default_of(instances, element_bytes, n as usize, device))
    }

    fn work(&self, _: &str, n: u64) -> Work {
        let [read, written] = self.bytes();
        let bytes = n.saturating_mul(read + written);
        Work { bytes, flops: 0, footprint: bytes, spare: n.saturating_mul(written) }
    }

    fn instance(&self, _: &str, configuration: &Configuration) -> Option<&'static KernelSpec> {
        instance(&self.specs(), configuration)
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        let input = |i: u64| generate(Values::Spread, setup.seed.wrapping_add(i), setup.n);
        let inputs: Vec<Vec<I>> = (0..self.inputs).map(input).collect();
        let (expected, len) = match self.check {
            Check::Each(reference) => (Expected::Each(reference, Vec::new()), setup.n),
            Check::Whole(reference) => (Expected::One(reference(&inputs[0])), 1),
        };
        let launch = Arc::clone(&self.launch);
        let parts = Parts {
            inputs,
            initial: vec![poison::<O>(); len],
            choose: Box::new(config),
            launch: Box::new(
                move |stream: &Stream,
                      config: &Config,
                      inputs: &[DeviceBuffer<I>],
                      output: &mut DeviceBuffer<O>| {
                    Ok(with_config(*config, || launch(stream, inputs, output))?)
                },
            ),
            expected,
            tolerance: Tolerance { relative: 4.0, absolute: 4.0 },
        };
        Ok(Box::new(Arrays::new(setup.stream, setup.copies, parts)?))
    }
}
