//! [`Call`]: the stream and the allocator of one call; and [`Frame`], which is made from a call's arguments.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;

use pyo3::{Py, PyAny};
use warpsmith_interop::dlpack::{DLDataType, DLDevice, Element, Imported, Tensor as Untyped};
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::error::{Error, Result};
use crate::exchange::{Allocate, Table};
use crate::operator::Returned;
use crate::tensor::{Held, Origin, Tensor, TensorMut};
use crate::{torch, tvm};

/// One call of an operator: its device, its stream, and the allocator of its results.
pub struct Call {
    stream: Stream,
    device: DLDevice,
    allocator: Allocator,
}

/// The allocator of results: that of the first tensor's framework.
pub(crate) enum Allocator {
    /// PyTorch's, in a call of an operator.
    Torch,
    /// That of TVM FFI's caller.
    Tvm(Allocate),
    /// That of a type with DLPack's exchange table.
    Exchange(&'static Table),
    /// The runtime's; the result becomes an array of this array-API namespace, or stays a DLPack object.
    Own(Option<Py<PyAny>>),
}

impl Call {
    /// The stream to launch on. Its device is that of the tensors.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The device of the tensors: the emulated device for CPU tensors.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Allocates a contiguous tensor, whose elements are not initialized: write them all.
    ///
    /// # Errors
    /// [`Error::Torch`], [`Error::Python`] or [`Error::Runtime`] if the framework cannot allocate it.
    pub fn empty<T: Element>(&self, shape: &[usize]) -> Result<TensorMut> {
        self.allocate(T::DATA_TYPE, shape)
    }

    /// As [`Self::empty`], with the type and the shape of another tensor.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn empty_like(&self, tensor: &Untyped) -> Result<TensorMut> {
        self.allocate(tensor.data_type(), tensor.shape())
    }

    fn allocate(&self, data_type: DLDataType, shape: &[usize]) -> Result<TensorMut> {
        match &self.allocator {
            Allocator::Torch => {
                let (tensor, handle) = torch::empty(&self.stream, self.device, data_type, shape)?;
                Ok(TensorMut { tensor: Held::new(tensor), origin: Origin::Torch(handle) })
            }
            Allocator::Tvm(function) => {
                let (imported, handle) = tvm::empty(*function, self.device, data_type, shape)?;
                let tensor = Held::new(imported.into_tensor(&self.stream)?);
                Ok(TensorMut { tensor, origin: Origin::Tvm(handle) })
            }
            Allocator::Exchange(table) => {
                let (imported, object) = table.allocate(self.device, data_type, shape)?;
                let tensor = imported.into_tensor(&self.stream)?;
                Ok(TensorMut { tensor: Held::new(tensor), origin: Origin::Python(object) })
            }
            Allocator::Own(_) => {
                let too_large = || Error::value(format!("a tensor of shape {shape:?} is too large"));
                let elements = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
                let bytes = elements.and_then(|elements| elements.checked_mul(data_type.bits as usize / 8));
                let bytes = bytes.ok_or_else(too_large)?;
                let buffer = DeviceBuffer::<u8>::uninit(&self.stream, bytes)?;
                let tensor = Untyped::from_buffer(buffer, data_type, shape)?;
                Ok(TensorMut { tensor: Held::new(tensor), origin: Origin::Own })
            }
        }
    }

    /// The array-API namespace of results in the runtime's own memory.
    pub(crate) fn namespace(&self) -> Option<&Py<PyAny>> {
        match &self.allocator {
            Allocator::Own(namespace) => namespace.as_ref(),
            _ => None,
        }
    }

    /// Runs the operator's function. With CPU tensors, which their framework reads at once, it waits for the work.
    ///
    /// It waits attached to the interpreter: a thread that attaches again while the interpreter ends would not return.
    pub(crate) fn run<R: Returned>(&self, function: impl FnOnce() -> Result<R>) -> Result<Vec<TensorMut>> {
        if !self.device().is_emulated() {
            return function().map(R::into_tensors);
        }
        Held::keep_during(|| {
            let returned = function().map(R::into_tensors);
            // Work of a function that fails later uses the tensors too.
            let waited = self.stream.synchronize();
            let tensors = returned?;
            waited?;
            Ok(tensors)
        })
    }
}

/// The arguments of a call so far.
pub(crate) struct Frame {
    names: &'static [&'static str],
    next: usize,
    call: Option<Call>,
    used: Vec<Used>,
}

/// Memory of a tensor argument.
struct Used {
    argument: &'static str,
    bytes: Range<u64>,
    is_written: bool,
}

impl Frame {
    pub fn new(names: &'static [&'static str]) -> Self {
        Self { names, next: 0, call: None, used: Vec::new() }
    }

    /// Moves on to the next argument.
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Name of the current argument.
    pub fn argument(&self) -> &'static str {
        self.names[self.next - 1]
    }

    /// Returns the stream for a tensor on `device`. The first tensor determines it: `current` returns the framework's
    /// current stream, or `None` for the device's default stream, and `allocator` the framework's allocator.
    pub fn stream(
        &mut self,
        device: DLDevice,
        current: impl FnOnce() -> Result<Option<*mut c_void>>,
        allocator: impl FnOnce() -> Result<Allocator>,
    ) -> Result<Stream> {
        let argument = self.argument();
        let device = match device.device_type {
            DLDevice::CPU => DLDevice { device_type: DLDevice::CPU, device_id: 0 },
            DLDevice::CUDA => device,
            _ => return Err(Error::UnknownDevice { argument, found: device }),
        };
        if let Some(call) = &self.call {
            return match call.device == device {
                true => Ok(call.stream.clone()),
                false => Err(Error::Device { argument, found: device, expected: call.device }),
            };
        }
        let stream = match device.device_type {
            DLDevice::CPU => Device::emulated(0)?.default_stream(),
            _ => adopted(device.device_id, current()?)?,
        };
        self.call = Some(Call { stream: stream.clone(), device, allocator: allocator()? });
        Ok(stream)
    }

    /// Notes the memory of a tensor argument.
    ///
    /// # Errors
    /// [`Error::Overlap`].
    pub fn used(&mut self, tensor: &Untyped, is_written: bool) -> Result<()> {
        let (argument, bytes) = (self.argument(), tensor.byte_range());
        let overlaps = |other: &&Used| {
            (is_written || other.is_written) && bytes.start < other.bytes.end && other.bytes.start < bytes.end
        };
        if let Some(other) = self.used.iter().find(overlaps) {
            let (written, other) =
                if is_written { (argument, other.argument) } else { (other.argument, argument) };
            return Err(Error::Overlap { written, other });
        }
        self.used.push(Used { argument, bytes, is_written });
        Ok(())
    }

    /// Returns the call, once all arguments are known.
    pub fn call(&mut self) -> Result<Call> {
        self.call.take().ok_or(Error::NoDevice)
    }

    /// Converts an imported tensor to an argument for reading.
    pub fn read(&mut self, imported: Imported, stream: &Stream) -> Result<Tensor> {
        let tensor = imported.into_tensor(stream)?;
        self.used(&tensor, false)?;
        Ok(Tensor(Held::new(tensor)))
    }

    /// Converts an imported tensor to an argument for writing.
    pub fn write(&mut self, imported: Imported, stream: &Stream) -> Result<TensorMut> {
        let tensor = imported.into_tensor(stream)?;
        self.used(&tensor, true)?;
        Ok(TensorMut { tensor: Held::new(tensor), origin: Origin::Argument })
    }
}

thread_local! {
    /// Streams that this thread has used, by device and handle.
    static STREAMS: RefCell<Vec<(i32, u64, Stream)>> = const { RefCell::new(Vec::new()) };
}

/// Returns a CUDA device's stream by its handle; its default stream for `None`.
fn adopted(ordinal: i32, handle: Option<*mut c_void>) -> Result<Stream> {
    let Some(handle) = handle else { return Ok(Device::cuda(ordinal as u32)?.default_stream()) };
    // The driver's null handle is the legacy default stream, which also has the handle 1.
    let handle = (handle.addr() as u64).max(1);
    STREAMS.with_borrow_mut(|streams| {
        let is_known = |(device, of, _): &&(i32, u64, Stream)| (*device, *of) == (ordinal, handle);
        if let Some((.., stream)) = streams.iter().find(is_known) {
            return Ok(stream.clone());
        }
        let device = Device::cuda(ordinal as u32)?;
        // SAFETY: the framework keeps its current stream, and memory is used only in calls. A later stream with the same
        // handle is ordered like the earlier one.
        let stream = unsafe { Stream::adopt_unchecked(&device, StreamHandle(handle)) }?;
        streams.push((ordinal, handle, stream.clone()));
        Ok(stream)
    })
}
