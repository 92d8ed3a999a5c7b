//! cuRAND's generators: log-normal and Poisson numbers, and Sobol sequences. They need a GPU.
//!
//! Guarantees:
//!
//! - A [`Generator`] gives the same numbers for the same kind, seed, offset and sequence of calls.
//! - It is used by one thread at a time, on any streams of its device: its calls run in the order in which they were made,
//!   and each gives the numbers that come after those of the call before.
//! - Lengths and parameters are checked before anything is enqueued. Any length and any part of a buffer will do; where
//!   cuRAND wants an even number of elements (normal and log-normal ones), or another address, the numbers go through memory of the caching allocator.
//! - **Nothing of it can be captured in a graph**: cuRAND keeps a generator's position on the host, so that each launch
//!   would give the same numbers. The calls fail and the capture continues.
//!
//! ```
//! use warpsmith_libraries::rand::{Generator, Pseudo};
//! use warpsmith_runtime::{Device, DeviceBuffer, Error};
//!
//! # fn main() -> Result<(), Error> {
//! let device = Device::best()?;
//! let stream = device.default_stream();
//! let mut counts = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
//! match Generator::pseudo(&device, Pseudo::Philox, 42, 0) {
//!     Ok(mut generator) => generator.poisson(&stream, &mut counts, 4.5)?,
//!     Err(error) => println!("{error}"),
//! }
//! # Ok(())
//! # }
//! ```

mod vendor;

use std::fmt;

use self::vendor::{Distribution, Number, Raw};
pub use self::vendor::{Float, Pseudo, Quasi};
use super::pressure::with_memory;
use crate::Vendor;
use crate::error::{LibraryError, check_devices};
use crate::on_device::OnDevice;
use warpsmith_runtime::device::Device;
use warpsmith_runtime::error::Result;
use warpsmith_runtime::memory::{DeviceBuffer, DeviceSliceMut};
use warpsmith_runtime::seam::Access;
use warpsmith_runtime::seam::site;
use warpsmith_runtime::stream::Stream;

/// Addresses that every one of cuRAND's kernels takes are multiples of this.
const ALIGNMENT: u64 = 16;

/// A generator of numbers: see the [module's documentation](self).
pub struct Generator {
    /// Goes before what orders its work.
    raw: OnDevice<Raw>,
    /// The dimensions of a vector; `None` for pseudo-random numbers.
    dimensions: Option<u32>,
    /// Written by every call, so that they run one after the other on whatever streams.
    order: DeviceBuffer<u8>,
}

impl Generator {
    /// A generator of pseudo-random numbers that begins `offset` numbers after the first of `seed`.
    ///
    /// # Errors
    /// [`LibraryError::NeedsGpu`] on the emulated device, [`LibraryError::Missing`], [`LibraryError::Call`] with what cuRAND
    /// says.
    pub fn pseudo(device: &Device, kind: Pseudo, seed: u64, offset: u64) -> Result<Self> {
        Self::make(device, "rand::Generator::pseudo", None, |stream| Raw::pseudo(stream, kind, seed, offset))
    }

    /// A generator of a Sobol sequence with vectors of `dimensions`, from the vector `offset` on. The dimensions lie one
    /// after the other: of `n` numbers, the first `n / dimensions` are the first dimension's.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] unless there are 1 to 20000 dimensions; as [`Self::pseudo`].
    pub fn quasi(device: &Device, kind: Quasi, dimensions: u32, offset: u64) -> Result<Self> {
        let operation = "rand::Generator::quasi";
        if !(1..=20_000).contains(&dimensions) {
            let problem = format!("there are 1 to 20000 dimensions, not {dimensions}");
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
        // After the first numbers were enqueued on its stream, so that every use of it comes after them.
        let order = DeviceBuffer::uninit(&stream, 1)?;
        Ok(Self { raw, dimensions, order })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        self.order.device()
    }

    /// Enqueues uniform numbers above 0 and up to 1.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] when the length is no multiple of the dimensions, [`LibraryError::Call`] with what cuRAND
    /// says (a generator of 64-bit numbers gives no `f32`),
    /// [`GraphError::NotCapturable`](warpsmith_runtime::GraphError::NotCapturable),
    /// [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices).
    #[track_caller]
    pub fn uniform<'o, T: Float>(
        &mut self,
        stream: &Stream,
        output: impl Into<DeviceSliceMut<'o, T>>,
    ) -> Result<()> {
        let _site = site();
        self.fill(stream, "rand::Generator::uniform", output.into(), Distribution::Uniform)
    }

    /// Enqueues normal numbers with a mean and a standard deviation.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] for a parameter that is not finite or a negative deviation; as [`Self::uniform`].
    #[track_caller]
    pub fn normal<'o, T: Float>(
        &mut self,
        stream: &Stream,
        output: impl Into<DeviceSliceMut<'o, T>>,
        mean: f64,
        deviation: f64,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::normal";
        check_normal::<T>(operation, mean, deviation)?;
        self.fill(stream, operation, output.into(), Distribution::Normal { mean, deviation })
    }

    /// Enqueues numbers whose logarithms are normal with a mean and a standard deviation.
    ///
    /// # Errors
    /// As [`Self::normal`].
    #[track_caller]
    pub fn log_normal<'o, T: Float>(
        &mut self,
        stream: &Stream,
        output: impl Into<DeviceSliceMut<'o, T>>,
        mean: f64,
        deviation: f64,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::log_normal";
        check_normal::<T>(operation, mean, deviation)?;
        self.fill(stream, operation, output.into(), Distribution::LogNormal { mean, deviation })
    }

    /// Enqueues Poisson numbers with a mean.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] unless the mean is positive and finite; as [`Self::uniform`].
    #[track_caller]
    pub fn poisson<'o>(
        &mut self,
        stream: &Stream,
        output: impl Into<DeviceSliceMut<'o, u32>>,
        mean: f64,
    ) -> Result<()> {
        let _site = site();
        let operation = "rand::Generator::poisson";
        if !(mean > 0.0 && mean.is_finite()) {
            let problem = format!("the mean is {mean}; it is positive and finite");
            return Err(LibraryError::shape(operation, problem));
        }
        self.fill(stream, operation, output.into(), Distribution::Poisson { mean })
    }

    /// Enqueues the numbers, through memory of the caching allocator where cuRAND does not take the output.
    #[track_caller]
    fn fill<T: Number>(
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
            "each launch would give the same numbers; enqueue it before the graph, into a buffer that the graph reads",
        )?;
        let len = output.len();
        if let Some(dimensions) = self.dimensions
            && !len.is_multiple_of(dimensions as usize)
        {
            let problem = format!("{len} numbers are no multiple of {dimensions} dimensions");
            return Err(LibraryError::shape(operation, problem));
        }
        if len == 0 {
            return Ok(());
        }
        // Normal pseudo-random numbers are made in pairs. One of the last pair may be left over.
        let is_paired = matches!(distribution, Distribution::Normal { .. } | Distribution::LogNormal { .. });
        let whole = if is_paired && self.dimensions.is_none() { len.next_multiple_of(2) } else { len };
        if whole == len && output.as_device_ptr().0.is_multiple_of(ALIGNMENT) {
            return self.enqueue(stream, operation, &mut output, distribution);
        }
        let mut buffer = DeviceBuffer::uninit(stream, whole)?;
        self.enqueue(stream, operation, &mut buffer.as_mut_slice(), distribution)?;
        stream.copy(buffer.slice(..len), output)
    }

    fn enqueue<T: Number>(
        &mut self,
        stream: &Stream,
        operation: &'static str,
        output: &mut DeviceSliceMut<'_, T>,
        distribution: Distribution,
    ) -> Result<()> {
        let Self { raw, order, .. } = self;
        let parts = [output.used(), order.as_slice().used(Access::Write)];
        let (at, len) = (output.as_device_ptr(), output.len());
        // SAFETY: the parts are the output and the generator's order; the numbers go to the output, which is aligned.
        unsafe {
            stream.enqueue_named(operation, &parts, |handle| {
                raw.set_stream(handle)?;
                raw.generate::<T>(distribution, at, len)
            })
        }
    }
}

fn check_normal<T>(operation: &'static str, mean: f64, deviation: f64) -> Result<()> {
    // In the type that they are computed in.
    let is_finite =
        |value: f64| if size_of::<T>() == 4 { (value as f32).is_finite() } else { value.is_finite() };
    if is_finite(mean) && is_finite(deviation) && deviation >= 0.0 {
        return Ok(());
    }
    let problem = format!(
        "the mean is {mean} and the deviation {deviation}; both are finite in the type of the numbers, and the second is not \
         negative"
    );
    Err(LibraryError::shape(operation, problem))
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.dimensions.is_some() { "quasi" } else { "pseudo" };
        write!(f, "Generator({kind} on {})", self.device().id())
    }
}
