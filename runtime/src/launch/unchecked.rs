//! [`RawArguments`]: arguments of unchecked types, for kernels whose parameter types are unknown.

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;

use super::kernel::Function;
use super::resolve::Source;
use super::shape::Launch;
use crate::device::observe::site;
use crate::driver::DevicePtr;
use crate::error::{Error, LaunchError, Result};
use crate::memory::storage::BufferUse;
use crate::memory::usage::Access;
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// Arguments of a launch, in order, as a C compiler passes them: values, and pointers to the elements of buffers. Only
/// [`Function::max_argument_bytes`] limits their number.
///
/// ```
/// use warpsmith_runtime::launch::RawArguments;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let x = DeviceBuffer::from_host(&device.default_stream(), &[1.0f32, 2.0])?;
/// let mut y = DeviceBuffer::<f32>::zeros(&device.default_stream(), 2)?;
/// // extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y)
/// let args = RawArguments::new().value(2u32).value(0.5f32).read(x.as_slice()).write(y.as_mut_slice());
/// # drop(args);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Default)]
#[must_use = "arguments do nothing until a kernel is launched with them"]
pub struct RawArguments<'a> {
    /// The bytes of the values, including their padding, without gaps between values.
    values: Vec<MaybeUninit<u8>>,
    /// Offset and size of each value.
    places: Vec<(usize, usize)>,
    /// Total size of the values as aligned kernel parameters, in bytes.
    bytes: usize,
    uses: Vec<BufferUse<'a>>,
}

impl<'a> RawArguments<'a> {
    /// Creates an empty list of arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Passes the bytes of a value, such as a number or a struct that the kernel takes by value.
    pub fn value<T: DeviceCopy>(mut self, value: T) -> Self {
        let size = size_of::<T>();
        // SAFETY: the bytes belong to the value, which outlives the slice.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<MaybeUninit<u8>>(), size) };
        self.places.push((self.values.len(), size));
        self.values.extend_from_slice(bytes);
        self.bytes = self.bytes.next_multiple_of(align_of::<T>()) + size;
        self
    }

    /// Passes a pointer to the first element of a slice that the kernel reads.
    pub fn read<T: DeviceCopy>(mut self, slice: DeviceSlice<'a, T>) -> Self {
        self.uses.push(slice.used(Access::Read));
        self.pointer(slice.as_device_ptr())
    }

    /// Passes a pointer to the first element of a slice that the kernel reads and writes.
    pub fn write<T: DeviceCopy>(mut self, slice: DeviceSliceMut<'a, T>) -> Self {
        self.uses.push(slice.used());
        self.pointer(slice.as_device_ptr())
    }

    /// Passes a pointer to memory that the caller synchronizes and keeps alive by other means.
    pub fn pointer(self, pointer: DevicePtr) -> Self {
        self.value(pointer.0)
    }

    /// Declares a buffer that the kernel accesses although it is not an argument. It is tracked like an argument.
    pub fn used(mut self, used: BufferUse<'a>) -> Self {
        self.uses.push(used);
        self
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the size of the arguments as kernel parameters, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn check(&self, function: &Function) -> Result<()> {
        let (kernel, device) = (function.spec().symbol, function.device());
        for (index, used) in self.uses.iter().enumerate() {
            if !used.device().ptr_eq(device) {
                return Err(Error::DifferentDevices {
                    operation: format!("launching kernel `{kernel}`"),
                    what: format!("buffer {} of the arguments", index + 1),
                    found: used.device().id(),
                    expected: device.id(),
                    beside: "the stream",
                    remedy: "copy it there first",
                });
            }
        }
        let limit = function.max_argument_bytes();
        if self.bytes > limit {
            let (kernel, bytes) = (kernel.to_owned(), self.bytes);
            return Err(LaunchError::ArgumentBytes { kernel, bytes, limit }.into());
        }
        function.check_argument_count(self.places.len())?;
        let expected = function.params().into_iter().flatten();
        for (index, (&expected, &(_, got))) in expected.zip(&self.places).enumerate() {
            if expected != got {
                let (kernel, argument) = (kernel.to_owned(), index + 1);
                return Err(LaunchError::ArgumentSize { kernel, argument, expected, got }.into());
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RawArguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawArguments({} in {} bytes, {} buffers)", self.len(), self.bytes, self.uses.len())
    }
}

impl Function {
    /// Returns the maximum size of a launch's arguments in bytes. It is 32 764 on the emulated device and, with a
    /// driver for CUDA 12.1 or later, on GPUs of compute capability 7.0 or later. It is 4096 on other GPUs.
    pub fn max_argument_bytes(&self) -> usize {
        let properties = self.device().properties();
        let mut version = properties.driver_version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let cuda = (version.next().unwrap_or(0), version.next().unwrap_or(0));
        let is_large = self.device().is_emulated() || (properties.capability >= (7, 0) && cuda >= (12, 1));
        if is_large { 32_764 } else { 4096 }
    }

    /// Enqueues a launch without checking the argument types. The number and sizes of the arguments are checked if the
    /// driver reports the kernel's parameters (CUDA 12.4 or later). Values are copied before the call returns. Buffers
    /// among the arguments are kept alive until the kernel has finished, and the launch is synchronized with all other
    /// uses of them.
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns an error if the launch exceeds a limit of the device or the kernel; [`LaunchError::ArgumentCount`],
    /// [`LaunchError::ArgumentSize`] or [`LaunchError::ArgumentBytes`]; [`Error::DifferentDevices`]; or the fault of
    /// earlier work.
    ///
    /// # Safety
    /// The arguments must have the types of the kernel's parameters, in order. The kernel must access only the buffers
    /// among them, each as it was passed, and memory that the caller synchronizes and keeps alive by other means. If
    /// the kernel writes any of the buffers, no two of them may overlap. The kernel must not have undefined behavior
    /// with these arguments and this configuration.
    #[track_caller]
    pub unsafe fn launch_unchecked(
        &self,
        stream: &Stream,
        launch: Launch,
        args: &RawArguments<'_>,
    ) -> Result<()> {
        let _site = site();
        self.check_stream(stream)?;
        args.check(self)?;
        let Some(config) = self.configure(launch)? else { return Ok(()) };
        self.allow(&config)?;
        let base = args.values.as_ptr();
        // SAFETY: every value starts within the allocation, or at its end.
        let pointer = |&(start, _): &(usize, usize)| unsafe { base.add(start) }.cast::<c_void>();
        let pointers: Vec<*const c_void> = args.places.iter().map(pointer).collect();
        let code = self.code_use(stream);
        // SAFETY: the configuration was checked and allowed. If the driver reports the parameters, each has a value of
        // the right size; the rest is guaranteed by the caller. The uses keep the memory allocated and synchronize its
        // use.
        unsafe { self.enqueue(stream, (&config, Source::Given), &pointers, args.uses.iter().chain(&code)) }
    }
}
