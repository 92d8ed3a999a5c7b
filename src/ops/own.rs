//! Launches user-defined `#[elementwise]` functions and `#[reduction]` operators. If no configuration has been tuned
//! for the launch, the default configuration applies.

use gpu_spec::{KernelSpec, ParamKind};
use gpu_std::elementwise::Elementwise;
use gpu_std::reduction::{Reduce, Reduction};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::launch::arguments::with_ptx_params;
use warpsmith_runtime::{
    Arguments, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, GpuImage, Result, Stream,
};

use super::launch::{Operation, same_length};
use super::reduce::{element, value};

/// Computes `out[i] = f(x[i], y[i], …)` with the [`#[elementwise]`](macro@gpu_std::elementwise) function `F`, whose
/// kernel is in `image`. The arguments correspond to the function's parameters: a buffer or slice for each array and a
/// value for each scalar. The output follows the inputs, unless the function updates its last array.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) if an array and the output have different
/// lengths. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::{ops, prelude::*};
///
/// // In a kernel crate:
/// #[elementwise]
/// pub fn scaled_relu(x: f32, y: f32) -> f32 { x.max(0.0) * y }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[-1.0f32, 2.0, 3.0])?;
/// let y = DeviceBuffer::from_host(&stream, &[10.0f32, 10.0, 0.5])?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// ops::map::<scaled_relu>(&stream, &KERNELS, (&x, &y, &mut out))?;
/// assert_eq!(out.to_host()?, [0.0, 20.0, 1.5]);
///
/// let error = ops::map::<scaled_relu>(&stream, &KERNELS, (&x, y.slice(1..), &mut out)).unwrap_err();
/// assert!(error.to_string().contains("scaled_relu: y has 2 elements, but out has 3"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn map<F: Elementwise>(
    stream: &Stream,
    image: &'static GpuImage,
    arguments: impl Arguments<F::Params>,
) -> Result<()> {
    let _site = site();
    let Some(first) = F::VARIANTS.first() else { return Ok(()) };
    let spec = (first.spec)();
    let arrays = Arrays::of::<F::Params, _>(spec, &arguments);
    let Some((out, of)) = arrays.0.split_last() else { return Ok(()) };
    for array in of {
        same_length(spec.name, (array.name, array.len), (out.name, out.len))?;
    }
    let element_bytes = arrays.0.iter().map(|array| array.element_bytes).max().unwrap_or(1);
    let addresses: Vec<DevicePtr> = arrays.0.iter().map(|array| array.address).collect();
    let variants = (F::VARIANTS, false);
    let operation = Operation::of_family(stream, image, variants, element_bytes, out.len, &addresses);
    // SAFETY: by the contract of `Elementwise`, these arguments match the parameters of the kernel, and the kernel is
    // safe.
    unsafe { operation.launch::<F::Params, _>(arguments) }
}

/// The slices among a launch's arguments.
struct Arrays(Vec<Array>);

struct Array {
    name: &'static str,
    element_bytes: usize,
    address: DevicePtr,
    len: usize,
}

impl Arrays {
    /// Collects the slices from the arguments of a kernel that takes only values and slices.
    fn of<P, A: Arguments<P>>(spec: &KernelSpec, arguments: &A) -> Self {
        with_ptx_params::<P, A, _>(arguments, |machine| {
            let mut slots = machine.iter();
            let mut arrays = Vec::new();
            for param in spec.params {
                let (Some(first), false) = (slots.next(), param.kind == ParamKind::Value) else { continue };
                let Some(second) = slots.next() else { continue };
                // SAFETY: the kernel parameters of a slice are a pointer and a length of 8 bytes each.
                let [address, len] =
                    [*first, *second].map(|slot| unsafe { slot.cast::<u64>().read_unaligned() });
                let array = Array {
                    name: param.name,
                    element_bytes: param.size,
                    address: DevicePtr(address),
                    len: len as usize,
                };
                arrays.push(array);
            }
            Self(arrays)
        })
    }
}

/// Element type of an operator's input. `Output` is the operator's result type.
type Item<R> = <<R as Reduce>::Operator as Reduction>::Item;
type Output<R> = <<R as Reduce>::Operator as Reduction>::Output;

/// Reduces `x` with the [`#[reduction]`](macro@gpu_std::reduction) operator `R`, whose kernel is in `image`. Waits for
/// the result. For zero elements, the result is computed from the operator's identity.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::{ops, prelude::*};
///
/// // In a kernel crate:
/// #[reduction(identity = 0.0, fold = |largest, x: f32| larger_of(largest, x.abs()))]
/// pub fn larger_of(a: f32, b: f32) -> f32 { a.max(b) }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, -7.0, 3.0])?;
/// assert_eq!(ops::reduce::<larger_of>(&stream, &KERNELS, &x)?, 7.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn reduce<'x, R: Reduce>(
    stream: &Stream,
    image: &'static GpuImage,
    x: impl Into<DeviceSlice<'x, Item<R>>>,
) -> Result<Output<R>>
where
    Item<R>: DeviceCopy,
    Output<R>: DeviceCopy,
{
    let _site = site();
    let x = x.into();
    let operation = operation::<R>(stream, image, &x);
    // SAFETY: by the contract of `Reduce`, the kernel is a reduction of these types.
    unsafe { value(stream, &operation, x, value_bytes::<R>(), of_nothing::<R>()) }
}

/// Like [`reduce()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) unless `out` has one element. Also returns the
/// [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::ops;
/// use warpsmith::prelude::*;
///
/// // In a kernel crate:
/// #[reduction(identity = 1)]
/// pub fn product(a: u64, b: u64) -> u64 { a * b % 1_000_003 }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[2u64, 3, 500_000])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::reduce_into::<product>(&stream, &KERNELS, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [3_000_000 % 1_000_003]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn reduce_into<'x, 'o, R: Reduce>(
    stream: &Stream,
    image: &'static GpuImage,
    x: impl Into<DeviceSlice<'x, Item<R>>>,
    out: impl Into<DeviceSliceMut<'o, Output<R>>>,
) -> Result<()>
where
    Item<R>: DeviceCopy,
    Output<R>: DeviceCopy,
{
    let _site = site();
    let (x, out) = (x.into(), out.into());
    let name = R::VARIANTS.first().map_or("reduce", |variant| (variant.spec)().name);
    same_length(name, ("the output", out.len()), ("a single value", 1))?;
    let operation = operation::<R>(stream, image, &x);
    // SAFETY: by the contract of `Reduce`, the kernel is a reduction of these types; `out` has one element.
    unsafe { element(stream, &operation, x, value_bytes::<R>(), out, of_nothing::<R>()) }
}

fn operation<'a, R: Reduce>(
    stream: &'a Stream,
    image: &'static GpuImage,
    x: &DeviceSlice<'_, Item<R>>,
) -> Operation<'a>
where
    Item<R>: DeviceCopy,
{
    let element_bytes = size_of::<Item<R>>();
    let variants = (R::VARIANTS, true);
    Operation::of_family(stream, image, variants, element_bytes, x.len(), &[x.as_device_ptr()])
}

/// Returns the size of the operator's accumulator in bytes.
const fn value_bytes<R: Reduce>() -> usize {
    size_of::<<R::Operator as Reduction>::Partial>()
}

/// Returns the result for zero elements.
fn of_nothing<R: Reduce>() -> Output<R> {
    R::Operator::finish(R::Operator::identity())
}
