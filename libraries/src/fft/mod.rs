//! Fourier transforms in one to three dimensions: cuFFT on GPUs, `rustfft` on the emulated device.
//!
//! Guarantees:
//!
//! - Sizes, types and lengths are checked before anything is enqueued. Both sides are contiguous, a whole transform after
//!   the other, the last dimension fastest; a strided view is an error by its length.
//! - The input is not changed, but by [`inverse_real`], which takes it to be overwritten.
//! - Plans are kept for each device in a cache like PyTorch's ([`plan_cache`]). A call gives the same with and without it.
//! - cuFFT's work area is memory of the caching allocator, allocated for each call on its stream, so that calls on two
//!   streams never share it. Calls can be captured in graphs; the graph keeps the plan.
//! - [`Norm`] says which direction is divided by the number of elements, as `norm=` of `torch.fft` and `numpy.fft`; the
//!   default is that the inverse is. cuFFT does not divide: a direction that is divided goes over its result once more,
//!   with cuBLAS. [`Norm::None`] is cuFFT's own behaviour.
//!
//! | data | forward | inverse |
//! | --- | --- | --- |
//! | complex to complex | [`forward`], [`forward_in_place`] | [`inverse`], [`inverse_in_place`] |
//! | real to half of a spectrum and back | [`forward_real`] | [`inverse_real`] |
//!
//! Elements are `f32`, `f64` or `f16`. Half precision takes powers of two in each dimension, on GPUs from compute
//! capability 5.3, and overflows above 65504, which the sum of a transform reaches before it is divided.
//!
//! ```
//! use warpsmith_libraries::fft::{self, Complex, Shape};
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let stream = Device::emulated(0)?.default_stream();
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])?;
//! let mut spectrum = DeviceBuffer::<Complex<f32>>::uninit(&stream, 2 * 3)?;
//! let shape = Shape::from(4).batch(2);
//! fft::forward_real(&stream, shape, &x, &mut spectrum)?;
//! let found = spectrum.to_host()?;
//! assert!(found[..3].iter().all(|z| (z - 1.0).norm() < 1e-6));
//! assert!((found[3] - 4.0).norm() < 1e-6 && found[4].norm() < 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | `shape` | [`Shape`], [`Norm`] and the checks |
//! | `element` | [`Real`]: the types |
//! | `plan` | a plan of cuFFT, or of the host |
//! | `vendor` | cuFFT's functions |
//! | `host` | transforms on the emulated device |

mod element;
mod host;
mod plan;
mod shape;
mod vendor;

use std::sync::Arc;

pub use num_complex::Complex;

pub use self::element::Real;
use self::plan::Plan;
use self::shape::Key;
pub use self::shape::{Norm, Shape};
use crate::element::DataType;
use crate::error::{LibraryError, check_devices};
use crate::lru::{PlanCache, Plans};
use crate::scale;
use warpsmith_runtime::device::Device;
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::error::Result;
use warpsmith_runtime::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};
use warpsmith_runtime::seam::Access;
use warpsmith_runtime::seam::BufferUse;
use warpsmith_runtime::seam::site;
use warpsmith_runtime::stream::Stream;

/// A device's state for transforms.
#[derive(Debug)]
struct State(Plans<Key, Plan>);

impl State {
    fn of(device: &Device) -> &Self {
        device.extension(|| Self(Plans::new(4096)))
    }

    /// The plan for a key, found or made.
    fn plan(device: &Device, operation: &'static str, key: Key) -> Result<Arc<Plan>> {
        Self::of(device).0.get_or_make(&key, || Plan::new(device, operation, key))
    }
}

/// The plan cache of a device: `torch.backends.cuda.cufft_plan_cache[device]`.
pub fn plan_cache(device: &Device) -> PlanCache<'_> {
    PlanCache(&State::of(device).0)
}

/// Which way a transform goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// With `exp(-2πi jk/n)`.
    Forward,
    /// With `exp(+2πi jk/n)`.
    Inverse,
}

/// From what to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Complex numbers to complex numbers, in both directions.
    Complex,
    /// Real numbers to half of their spectrum: [`forward_real`].
    FromReal,
    /// Half of a spectrum to real numbers: [`inverse_real`].
    ToReal,
}

/// Whether a GPU knows the type.
fn check_precision(device: &Device, operation: &'static str, key: Key) -> Result<()> {
    let old = !device.is_emulated() && device.properties().capability < (5, 3);
    if key.precision != DataType::F16 || !old {
        return Ok(());
    }
    let needs = "a GPU of compute capability 5.3 or newer, or f32";
    Err(LibraryError::unsupported(operation, "half precision", needs))
}

/// Enqueues the forward transform of complex numbers, after all earlier work on both sides.
///
/// # Errors
/// [`LibraryError::Shape`] when a size is 0 or a length is not that of the shape,
/// [`LibraryError::Unsupported`] for a size or a GPU that half precision does not work
/// with, [`LibraryError::Missing`],
/// [`LibraryError::Call`] with what cuFFT says,
/// [`Error::OutOfMemory`](warpsmith_runtime::Error::OutOfMemory) for the work area,
/// [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices).
#[track_caller]
pub fn forward<'i, 'o, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, Complex<T>>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::forward", kind: Kind::Complex, direction: Direction::Forward };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the inverse transform of complex numbers, after all earlier work on both sides.
///
/// # Errors
/// As [`forward`].
#[track_caller]
pub fn inverse<'i, 'o, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, Complex<T>>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::inverse", kind: Kind::Complex, direction: Direction::Inverse };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the forward transform of complex numbers in their place.
///
/// # Errors
/// As [`forward`].
#[track_caller]
pub fn forward_in_place<'d, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    data: impl Into<DeviceSliceMut<'d, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call =
        Call { operation: "fft::forward_in_place", kind: Kind::Complex, direction: Direction::Forward };
    call.in_place(stream, shape.into(), data.into())
}

/// Enqueues the inverse transform of complex numbers in their place.
///
/// # Errors
/// As [`forward`].
#[track_caller]
pub fn inverse_in_place<'d, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    data: impl Into<DeviceSliceMut<'d, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call =
        Call { operation: "fft::inverse_in_place", kind: Kind::Complex, direction: Direction::Inverse };
    call.in_place(stream, shape.into(), data.into())
}

/// Enqueues the forward transform of real numbers. The output has the first half of the last dimension, `n / 2 + 1`
/// complex numbers where the input has `n` real ones; the other half is its conjugate mirrored.
///
/// The input begins at an even element of its buffer, as cuFFT wants it.
///
/// # Errors
/// As [`forward`].
#[track_caller]
pub fn forward_real<'i, 'o, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, T>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::forward_real", kind: Kind::FromReal, direction: Direction::Forward };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the inverse transform of half of a spectrum, as [`forward_real`] gives it, to real numbers. The shape is that
/// of the real numbers. Elements of the spectrum that must be real are assumed to be.
///
/// **The spectrum is overwritten**: cuFFT uses it for what it has computed in between, and so it has any content
/// afterwards. Transform a copy to keep it.
///
/// The output begins at an even element of its buffer, as cuFFT wants it.
///
/// # Errors
/// As [`forward`].
#[track_caller]
pub fn inverse_real<'i, 'o, T: Real>(
    stream: &Stream,
    shape: impl Into<Shape>,
    spectrum: impl Into<DeviceSliceMut<'i, Complex<T>>>,
    output: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::inverse_real", kind: Kind::ToReal, direction: Direction::Inverse };
    let (shape, spectrum, output) = (shape.into(), spectrum.into(), output.into());
    let used = [(spectrum.device(), "the spectrum"), (output.device(), "the output")];
    check_devices(stream, call.operation, used)?;
    let Some(key) = shape.check::<T>(call, spectrum.len(), output.len())? else { return Ok(()) };
    shape::check_alignment::<T>(call, output.as_device_ptr())?;
    let ends = [spectrum.as_device_ptr(), output.as_device_ptr()];
    call.enqueue::<T>(stream, shape, key, &[spectrum.used(), output.used()], ends, output.len())
}

/// One of the functions above.
#[derive(Debug, Clone, Copy)]
struct Call {
    operation: &'static str,
    kind: Kind,
    direction: Direction,
}

impl Call {
    #[track_caller]
    fn apart<T: Real, I: DeviceCopy>(
        self,
        stream: &Stream,
        shape: Shape,
        input: DeviceSlice<'_, I>,
        output: DeviceSliceMut<'_, Complex<T>>,
    ) -> Result<()> {
        let used = [(input.device(), "the input"), (output.device(), "the output")];
        check_devices(stream, self.operation, used)?;
        let Some(key) = shape.check::<T>(self, input.len(), output.len())? else { return Ok(()) };
        if self.kind == Kind::FromReal {
            shape::check_alignment::<T>(self, input.as_device_ptr())?;
        }
        let ends = [input.as_device_ptr(), output.as_device_ptr()];
        let parts = [input.used(Access::Read), output.used()];
        self.enqueue::<T>(stream, shape, key, &parts, ends, 2 * output.len())
    }

    #[track_caller]
    fn in_place<T: Real>(
        self,
        stream: &Stream,
        shape: Shape,
        data: DeviceSliceMut<'_, Complex<T>>,
    ) -> Result<()> {
        check_devices(stream, self.operation, [(data.device(), "the data")])?;
        let Some(key) = shape.check::<T>(self, data.len(), data.len())? else { return Ok(()) };
        self.enqueue::<T>(stream, shape, key, &[data.used()], [data.as_device_ptr(); 2], 2 * data.len())
    }

    /// The lengths of input and output are those of the key, `parts` are of them; the output has this number of real
    /// numbers.
    #[track_caller]
    fn enqueue<T: Real>(
        self,
        stream: &Stream,
        shape: Shape,
        key: Key,
        parts: &[BufferUse<'_>],
        ends: [DevicePtr; 2],
        reals: usize,
    ) -> Result<()> {
        let Self { operation, direction, .. } = self;
        let device = stream.device();
        check_precision(device, operation, key)?;
        let factor = shape.factor(direction);
        if factor.is_some() {
            scale::check_library(device)?;
        }
        let plan = State::plan(device, operation, key)?;
        let area = match plan.work_bytes() {
            0 => None,
            bytes => Some(DeviceBuffer::<u8>::uninit(stream, bytes)?),
        };
        let area_part = area.as_ref().map(|area| area.as_slice().used(Access::Write));
        let parts: Vec<BufferUse<'_>> = parts.iter().cloned().chain(area_part).collect();
        let area = area.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::as_device_ptr);
        stream.with_stable_capture_state(|| {
            // A graph keeps the plan, which goes first, and its device.
            stream.keep_in_capture(|| Arc::new((Arc::clone(&plan), device.clone())));
            let Plan::Gpu(gpu) = &*plan else {
                let plan = Arc::clone(&plan);
                let host = move || {
                    if let Plan::Host(plan) = &*plan {
                        // SAFETY: the parts have the lengths of the key, are ordered, and are memory of the process.
                        unsafe { plan.run::<T>(direction, ends, factor) };
                    }
                };
                // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work
                // stays inside them, by their shapes.
                return unsafe { stream.enqueue_host_named(operation, &parts, host) };
            };
            // SAFETY: the parts are the operands', which were checked not to overlap where one is written. They have the
            // lengths of the key, from which the plan was made; the work area has the size that the plan requires.
            unsafe {
                stream.enqueue_named(operation, &parts, |handle| {
                    gpu.execute(direction, handle, area, ends)?;
                    factor.map_or(Ok(()), |factor| scale::enqueue::<T>(stream, ends[1], reals, factor))
                })
            }
        })
    }
}
