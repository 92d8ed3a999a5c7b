//! Fast Fourier transforms (FFT) in one to three dimensions. GPUs use cuFFT, and the emulated device uses `rustfft`.
//!
//! Guarantees:
//!
//! - Sizes, types and lengths are checked before anything is enqueued. Input and output must be contiguous: the
//!   transforms of a batch are adjacent, and the last dimension varies fastest. The length check rejects strided views.
//! - The input stays unchanged, except in [`inverse_real`], which overwrites it.
//! - As in PyTorch, plans are cached per device ([`plan_cache`]). A call returns the same result with and without the
//!   cache.
//! - Each call allocates cuFFT's work area from the caching allocator on its stream, so calls on two streams never
//!   share a work area. Calls can be captured in graphs. The graph keeps the plan alive.
//! - [`Norm`] selects the normalization, like `norm=` in `torch.fft` and `numpy.fft`. By default, the result of the
//!   inverse is divided by the number of elements. cuFFT is unnormalized, so a normalized direction takes one more pass
//!   over the result, which uses cuBLAS. [`Norm::None`] selects cuFFT's own behavior.
//!
//! | data | forward | inverse |
//! | --- | --- | --- |
//! | complex to complex | [`forward`], [`forward_in_place`] | [`inverse`], [`inverse_in_place`] |
//! | real to half spectrum, and back | [`forward_real`] | [`inverse_real`] |
//!
//! Elements can be `f32`, `f64` or `f16`. Half precision requires that all sizes be powers of two and, on GPUs, compute
//! capability 5.3 or later. In half precision, values above 65504 overflow, which can happen in the unnormalized result
//! before it is divided.
//!
//! ```
//! use warpsmith_libraries::fft::{self, Complex, Shape};
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! let stream = Device::emulated(0)?.default_stream();
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])?;
//! let mut spectrum = DeviceBuffer::<Complex<f32>>::uninit(&stream, 2 * 3)?;
//! let shape = Shape::from(4).batch(2);
//! fft::forward_real(&stream, shape, &x, &mut spectrum)?;
//! let found = spectrum.to_host()?;
//! assert!(found[..3].iter().all(|z| (z - 1.0).norm() < 1e-6));
//! assert!((found[3] - 4.0).norm() < 1e-6 && found[4].norm() < 1e-6);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `shape` | [`Shape`], [`Norm`] and the checks |
//! | `element` | [`FftScalar`]: the element types |
//! | `plan` | plans of cuFFT and of the host |
//! | `vendor` | cuFFT's functions |
//! | `host` | implementation for the emulated device |

mod element;
mod host;
mod plan;
mod shape;
mod vendor;

use std::sync::Arc;

pub use num_complex::Complex;

pub use self::element::FftScalar;
use self::plan::Plan;
use self::shape::Key;
pub use self::shape::{Norm, Shape};
use crate::element::DataType;
use crate::error::{LibraryError, check_devices};
use crate::lru::{PlanCache, Plans};
use crate::scale;
use warpsmith_runtime::extension::{Access, BufferUse, site};
use warpsmith_runtime::{
    Device, DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Result, Stream,
};

/// A device's FFT state.
#[derive(Debug)]
struct State(Plans<Key, Plan>);

impl State {
    fn of(device: &Device) -> &Self {
        device.extension(|| Self(Plans::new(4096)))
    }

    /// Returns the plan for a key from the cache, or creates the plan if it is missing.
    fn plan(device: &Device, operation: &'static str, key: Key) -> Result<Arc<Plan>> {
        Self::of(device).0.get_or_make(&key, || Plan::new(device, operation, key))
    }
}

/// Returns the plan cache of a device, like `torch.backends.cuda.cufft_plan_cache[device]`.
pub fn plan_cache(device: &Device) -> PlanCache<'_> {
    PlanCache(&State::of(device).0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Kernel `exp(-2πi jk/n)`.
    Forward,
    /// Kernel `exp(+2πi jk/n)`.
    Inverse,
}

/// The input and output types of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Complex to complex, in both directions.
    Complex,
    /// Real to half spectrum, by [`forward_real`].
    FromReal,
    /// Half spectrum to real, by [`inverse_real`].
    ToReal,
}

/// Returns an error if the GPU does not support the type.
fn check_precision(device: &Device, operation: &'static str, key: Key) -> Result<()> {
    let old = !device.is_emulated() && device.properties().capability < (5, 3);
    if key.precision != DataType::F16 || !old {
        return Ok(());
    }
    let needs = "a GPU of compute capability 5.3 or newer, or f32";
    Err(LibraryError::unsupported(operation, "half precision", needs))
}

/// Enqueues the forward complex transform after all earlier work on both buffers.
///
/// # Errors
/// - [`LibraryError::Shape`] if a size is 0 or a length does not match the shape.
/// - [`LibraryError::Unsupported`] if a size or the GPU does not support half precision.
/// - [`LibraryError::Missing`], and [`LibraryError::Call`] with cuFFT's status.
/// - [`Error::OutOfMemory`](warpsmith_runtime::Error::OutOfMemory) if the work area cannot be allocated.
/// - [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices).
#[track_caller]
pub fn forward<'i, 'o, T: FftScalar>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, Complex<T>>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::forward", kind: Kind::Complex, direction: Direction::Forward };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the inverse complex transform after all earlier work on both buffers.
///
/// # Errors
/// Returns the same errors as [`forward`].
#[track_caller]
pub fn inverse<'i, 'o, T: FftScalar>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, Complex<T>>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::inverse", kind: Kind::Complex, direction: Direction::Inverse };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the forward complex transform in place.
///
/// # Errors
/// Returns the same errors as [`forward`].
#[track_caller]
pub fn forward_in_place<'d, T: FftScalar>(
    stream: &Stream,
    shape: impl Into<Shape>,
    data: impl Into<DeviceSliceMut<'d, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call =
        Call { operation: "fft::forward_in_place", kind: Kind::Complex, direction: Direction::Forward };
    call.in_place(stream, shape.into(), data.into())
}

/// Enqueues the inverse complex transform in place.
///
/// # Errors
/// Returns the same errors as [`forward`].
#[track_caller]
pub fn inverse_in_place<'d, T: FftScalar>(
    stream: &Stream,
    shape: impl Into<Shape>,
    data: impl Into<DeviceSliceMut<'d, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call =
        Call { operation: "fft::inverse_in_place", kind: Kind::Complex, direction: Direction::Inverse };
    call.in_place(stream, shape.into(), data.into())
}

/// Enqueues the forward transform of real numbers (R2C). The output contains the half spectrum: for `n` real numbers,
/// the last dimension has `n / 2 + 1` complex numbers. Conjugate symmetry determines the other half.
///
/// The input must start at an even element of its buffer, as cuFFT requires.
///
/// # Errors
/// Returns the same errors as [`forward`].
#[track_caller]
pub fn forward_real<'i, 'o, T: FftScalar>(
    stream: &Stream,
    shape: impl Into<Shape>,
    input: impl Into<DeviceSlice<'i, T>>,
    output: impl Into<DeviceSliceMut<'o, Complex<T>>>,
) -> Result<()> {
    let _site = site();
    let call = Call { operation: "fft::forward_real", kind: Kind::FromReal, direction: Direction::Forward };
    call.apart(stream, shape.into(), input.into(), output.into())
}

/// Enqueues the inverse transform of a half spectrum, such as the output of [`forward_real`], to real numbers (C2R).
/// `shape` is the shape of the real output. Elements of the spectrum that must be real for a real output are assumed to
/// be real.
///
/// **The spectrum is overwritten**, because cuFFT uses it as scratch space. Its contents are unspecified afterwards. To
/// keep the spectrum, transform a copy.
///
/// The output must start at an even element of its buffer, as cuFFT requires.
///
/// # Errors
/// Returns the same errors as [`forward`].
#[track_caller]
pub fn inverse_real<'i, 'o, T: FftScalar>(
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

/// Describes one of this module's transform functions.
#[derive(Debug, Clone, Copy)]
struct Call {
    operation: &'static str,
    kind: Kind,
    direction: Direction,
}

impl Call {
    #[track_caller]
    fn apart<T: FftScalar, I: DeviceCopy>(
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
    fn in_place<T: FftScalar>(
        self,
        stream: &Stream,
        shape: Shape,
        data: DeviceSliceMut<'_, Complex<T>>,
    ) -> Result<()> {
        check_devices(stream, self.operation, [(data.device(), "the data")])?;
        let Some(key) = shape.check::<T>(self, data.len(), data.len())? else { return Ok(()) };
        self.enqueue::<T>(stream, shape, key, &[data.used()], [data.as_device_ptr(); 2], 2 * data.len())
    }

    /// Enqueues the call. Input and output must have the lengths of the key, and `parts` must cover them. `reals` is
    /// the number of real numbers in the output.
    #[track_caller]
    fn enqueue<T: FftScalar>(
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
            // The graph keeps both the plan, which is dropped first, and its device.
            stream.keep_in_capture(|| Arc::new((Arc::clone(&plan), device.clone())));
            let Plan::Gpu(gpu) = &*plan else {
                let plan = Arc::clone(&plan);
                let host = move || {
                    if let Plan::Host(plan) = &*plan {
                        // SAFETY: the parts have the key's lengths, their uses are ordered, and they are memory of the
                        // process.
                        unsafe { plan.run::<T>(direction, ends, factor) };
                    }
                };
                // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were
                // checked, so the work accesses only the operands.
                return unsafe { stream.enqueue_host_named(operation, &parts, host) };
            };
            // SAFETY: `parts` are the operands, and no written operand overlaps another one. Input and output have the
            // lengths of the key for which the plan was created, and the work area has the size that the plan requires.
            unsafe {
                stream.enqueue_named(operation, &parts, |handle| {
                    gpu.execute(direction, handle, area, ends)?;
                    factor.map_or(Ok(()), |factor| scale::enqueue::<T>(stream, ends[1], reals, factor))
                })
            }
        })
    }
}
