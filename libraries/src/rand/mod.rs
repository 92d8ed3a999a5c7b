//! cuRAND's generators for log-normal and Poisson numbers and for Sobol sequences. The generators need a GPU.
//!
//! Guarantees:
//!
//! - A [`Generator`] returns the same numbers for the same kind, seed, offset and sequence of calls.
//! - A generator is used by one thread at a time, on any stream of its device. Its calls run in the order in which they
//!   were made, and each call continues the sequence of the previous one.
//! - Lengths and parameters are checked before anything is enqueued. Outputs can have any length and can be any part of
//!   a buffer. If cuRAND requires an even number of elements (for normal and log-normal numbers) or an aligned address,
//!   the numbers are generated in a temporary buffer from the caching allocator.
//! - **Calls cannot be captured in a graph**, because cuRAND stores a generator's position on the host. Each graph
//!   launch would therefore generate the same numbers. During a capture, the calls fail, but the capture continues.
//!
//! ```
//! use warpsmith_libraries::rand::{Generator, Pseudo};
//! use warpsmith_runtime::{Device, DeviceBuffer, Error};
//!
//! let device = Device::best()?;
//! let stream = device.default_stream();
//! let mut counts = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
//! match Generator::pseudo(&device, Pseudo::Philox, 42, 0) {
//!     Ok(mut generator) => generator.poisson(&stream, 4.5, &mut counts)?,
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), Error>(())
//! ```

mod vendor;

use std::fmt;

use self::vendor::{Distribution, RandomType, Raw};
pub use self::vendor::{Pseudo, Quasi, RandomFloat};
use super::pressure::with_memory;
use crate::Vendor;
use crate::error::{LibraryError, check_devices};
use crate::on_device::OnDevice;
use warpsmith_runtime::extension::{Access, site};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSliceMut, Result, Stream};

/// An address alignment in bytes that all cuRAND kernels accept.
const ALIGNMENT: u64 = 16;

/// A random number generator (see the [module's documentation](self)).
pub struct Generator {
    /// This field is declared before `order` so that it is dropped first.
    raw: OnDevice<Raw>,
    /// Number of dimensions of a quasi-random vector, or `None` for pseudo-random numbers.
    dimensions: Option<u32>,
    /// Buffer that every call records as written, so that calls on different streams run one after another.
    order: DeviceBuffer<u8>,
}

impl Generator {
    /// Creates a pseudo-random generator that starts `offset` numbers after the first number of `seed`.
    ///
    /// # Errors
    /// Returns [`LibraryError::NeedsGpu`] on the emulated device, [`LibraryError::Missing`], or [`LibraryError::Call`]
    /// with cuRAND's status.
    pub fn pseudo(device: &Device, kind: Pseudo, seed: u64, offset: u64) -> Result<Self> {
        Self::make(device, "rand::Generator::pseudo", None, |stream| Raw::pseudo(stream, kind, seed, offset))
    }

    /// Creates a generator for a Sobol sequence of vectors with `dimensions` dimensions. The generator starts at vector
    /// `offset`. The output is dimension-major: of `n` numbers, the first `n / dimensions` belong to the first
    /// dimension.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] unless there are 1 to 20000 dimensions. Also returns the same errors as
    /// [`Self::pseudo`].
    pub fn quasi(device: &Device, kind: Quasi, dimensions: u32, offset: u64) -> Result<Self> {
        let operation = "rand::Generator::quasi";
        if !(1..=20_000).contains(&dimensions) {
            let problem = format!("the number of dimensions is {dimensions}, but must be 1 to 20000");
            return Err(LibraryError::shape(operation, problem));
        }
        Self::make(device, operation, Some(dimensions), |stream| Raw::quasi(stream, kind, dimensions, offset))
    }

    fn make(
        device: &Device,
        operation: &'static str,
        dimensions: Option<u32>,
        raw: impl Fn(&Stream) -> Result<Raw>,
    ) -> Result<Self> {
        if device.is_emulated() {
            return Err(LibraryError::NeedsGpu { operation }.into());
        }
        Vendor::Curand.version()?;
        let stream = device.default_stream();
        let raw = OnDevice::new(device, with_memory(device, || device.with_context(|| raw(&stream)))?);
        // The buffer is created after work for the first numbers was enqueued on its stream, so that every use of the
        // buffer follows that work.
        let order = DeviceBuffer::uninit(&stream, 1)?;
        Ok(Self { raw, dimensions, order })
    }

    /// Returns the generator's device.
    pub fn device(&self) -> &Device {
        self.order.device()
    }

    /// Enqueues the generation of uniform numbers in `(0, 1]`.
    ///
    /// # Errors
    /// - [`LibraryError::Shape`] if the length is not a multiple of the number of dimensions.
    /// - [`LibraryError::Call`] with cuRAND's status. A generator of 64-bit numbers does not support `f32`.
    /// - [`GraphError::NotCapturable`](warpsmith_runtime::GraphError::NotCapturable) and
    ///   [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices).
    #[track_caller]
    pub fn uniform<'o, T: RandomFloat>(
        &mut self,
        stream: &Stream,
        output: impl Into<DeviceSliceMut<'o, T>>,
    ) -> Result<()> {
        let _site = site();
        self.fill(stream, "rand::Generator::uniform", output.into(), Distribution::Uniform)
    }

    /// Enqueues the generation of normal numbers with this mean and standard deviation.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] if a parameter is not finite or the deviation is negative. Also returns the
    /// same errors as [`Self::uniform`].
    #[track_caller]
    pub fn normal<'o, T: RandomFloat>(
        &mut self,
        stream: &Stream,
        mean: f64,
        deviation: f64,
        output: impl Into<DeviceSliceMut<'o, T>>,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::normal";
        check_normal::<T>(operation, mean, deviation)?;
        self.fill(stream, operation, output.into(), Distribution::Normal { mean, deviation })
    }

    /// Enqueues the generation of log-normal numbers, whose logarithms have this mean and standard deviation.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::normal`].
    #[track_caller]
    pub fn log_normal<'o, T: RandomFloat>(
        &mut self,
        stream: &Stream,
        mean: f64,
        deviation: f64,
        output: impl Into<DeviceSliceMut<'o, T>>,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::log_normal";
        check_normal::<T>(operation, mean, deviation)?;
        self.fill(stream, operation, output.into(), Distribution::LogNormal { mean, deviation })
    }

    /// Enqueues the generation of Poisson numbers with this mean.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] unless the mean is positive and finite. Also returns the same errors as
    /// [`Self::uniform`].
    #[track_caller]
    pub fn poisson<'o>(
        &mut self,
        stream: &Stream,
        mean: f64,
        output: impl Into<DeviceSliceMut<'o, u32>>,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::poisson";
        if !(mean > 0.0 && mean.is_finite()) {
            let problem = format!("the mean is {mean}, but must be positive and finite");
            return Err(LibraryError::shape(operation, problem));
        }
        self.fill(stream, operation, output.into(), Distribution::Poisson { mean })
    }

    /// Enqueues the generation of numbers, in a temporary buffer if cuRAND does not accept the output.
    #[track_caller]
    fn fill<T: RandomType>(
        &mut self,
        stream: &Stream,
        operation: &'static str,
        mut output: DeviceSliceMut<'_, T>,
        distribution: Distribution,
    ) -> Result<()> {
        check_devices(
            stream,
            operation,
            [(output.device(), "the output"), (self.device(), "the generator")],
        )?;
        stream.check_not_capturing(
            operation,
            "every graph launch would produce the same numbers; generate the numbers before the graph launch, into a \
             buffer that the graph reads",
        )?;
        let len = output.len();
        if let Some(dimensions) = self.dimensions
            && !len.is_multiple_of(dimensions as usize)
        {
            let problem = format!("{len} numbers are not a multiple of {dimensions} dimensions");
            return Err(LibraryError::shape(operation, problem));
        }
        if len == 0 {
            return Ok(());
        }
        // Normal pseudo-random numbers are generated in pairs. The last pair can contain one surplus number.
        let is_paired = matches!(distribution, Distribution::Normal { .. } | Distribution::LogNormal { .. });
        let whole = if is_paired && self.dimensions.is_none() { len.next_multiple_of(2) } else { len };
        if whole == len && output.as_device_ptr().0.is_multiple_of(ALIGNMENT) {
            return self.enqueue(stream, operation, &mut output, distribution);
        }
        let mut buffer = DeviceBuffer::uninit(stream, whole)?;
        self.enqueue(stream, operation, &mut buffer.as_mut_slice(), distribution)?;
        stream.copy(buffer.slice(..len), output)
    }

    fn enqueue<T: RandomType>(
        &mut self,
        stream: &Stream,
        operation: &'static str,
        output: &mut DeviceSliceMut<'_, T>,
        distribution: Distribution,
    ) -> Result<()> {
        let Self { raw, order, .. } = self;
        let parts = [output.used(), order.as_slice().used(Access::Write)];
        let (at, len) = (output.as_device_ptr(), output.len());
        // SAFETY: the parts are the output and the generator's order buffer, and the numbers are written to the output,
        // which is aligned.
        unsafe {
            stream.enqueue_named(operation, &parts, |handle| {
                raw.set_stream(handle)?;
                raw.generate::<T>(distribution, at, len)
            })
        }
    }
}

fn check_normal<T>(operation: &'static str, mean: f64, deviation: f64) -> Result<()> {
    // The parameters are checked in the type in which cuRAND computes.
    let is_finite =
        |value: f64| if size_of::<T>() == 4 { (value as f32).is_finite() } else { value.is_finite() };
    if is_finite(mean) && is_finite(deviation) && deviation >= 0.0 {
        return Ok(());
    }
    let problem = format!(
        "the mean is {mean} and the deviation is {deviation}; both must be finite in the element type, and the \
         deviation must not be negative"
    );
    Err(LibraryError::shape(operation, problem))
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.dimensions.is_some() { "quasi" } else { "pseudo" };
        write!(f, "Generator({kind} on {})", self.device().id())
    }
}
