//! [`Call`], the stream and allocator of one call, and [`Frame`], which converts the arguments of the call.

use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pyo3::{Py, PyAny};
use warpsmith_interop::dlpack::{DLDataType, DLDevice, Element, Imported, Tensor as Untyped};
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::error::{Error, Result};
use crate::exchange::{Allocate, Table};
use crate::operator::Returned;
use crate::tensor::{Held, Origin, Tensor, TensorMut};
use crate::{torch, tvm};

/// Context of one operator call: the device, the stream, and the allocator for results.
pub struct Call {
    stream: Stream,
    device: DLDevice,
    allocator: Allocator,
    /// The framework's allocators use the current stream of this thread.
    thread: PhantomData<*const ()>,
}

/// Allocator for results. The framework of the first tensor argument determines it.
pub(crate) enum Allocator {
    /// PyTorch's allocator, for calls from PyTorch's dispatcher.
    Torch,
    /// The allocator that the caller of TVM FFI has set.
    Tvm(Allocate),
    /// The allocator in the DLPack C exchange API of the tensor's type.
    Exchange(&'static Table),
    /// The runtime's allocator. `from_dlpack` of this array API namespace converts the result; without a namespace, the
    /// result stays a DLPack object.
    Own(Option<Py<PyAny>>),
}

impl Call {
    /// Returns the stream on which to launch kernels. It belongs to the device of the tensors.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the device of the tensors, which is the emulated device for CPU tensors.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Allocates a contiguous tensor, like `torch.empty`. The elements are uninitialized, so the operator must write
    /// all of them.
    ///
    /// # Errors
    /// Returns [`Error::Torch`], [`Error::Tvm`], [`Error::Python`], [`Error::Value`] or [`Error::Runtime`] if the
    /// allocator fails.
    pub fn empty<T: Element>(&self, shape: &[usize]) -> Result<TensorMut> {
        self.allocate(T::DATA_TYPE, shape)
    }

    /// Allocates a contiguous tensor with the element type and shape of `tensor`, like `torch.empty_like`.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::empty`].
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

    /// Returns the array API namespace for results in the runtime's own memory.
    pub(crate) fn namespace(&self) -> Option<&Py<PyAny>> {
        match &self.allocator {
            Allocator::Own(namespace) => namespace.as_ref(),
            _ => None,
        }
    }

    /// Runs the operator's function. Waits for the work on CPU tensors, which their framework reads immediately, and on
    /// tensors of frameworks that do not order their later work after the call.
    ///
    /// The thread stays attached to the interpreter while it waits. A thread that detached could not attach again while
    /// the interpreter is being finalized.
    pub(crate) fn run<R: Returned>(&self, function: impl FnOnce() -> Result<R>) -> Result<Vec<TensorMut>> {
        let is_ordered = !self.device().is_emulated() && !matches!(self.allocator, Allocator::Own(_));
        if is_ordered {
            return function().map(R::into_tensors);
        }
        Held::keep_during(|| {
            let returned = catch_unwind(AssertUnwindSafe(function));
            // A function that fails may have launched work that uses the tensors, on any stream.
            let waited = match self.device().is_emulated() {
                true => self.device().synchronize(),
                false => Ok(()),
            };
            // Synchronizing the stream also records that its work has finished, so that tensors are released here.
            let waited = waited.and(self.stream.synchronize());
            let tensors = returned.unwrap_or_else(|panic| resume_unwind(panic)).map(R::into_tensors)?;
            waited?;
            Ok(tensors)
        })
    }
}

/// State of the conversion of a call's arguments.
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

    /// Advances to the next argument.
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Returns the name of the current argument.
    pub fn argument(&self) -> &'static str {
        self.names[self.next - 1]
    }

    /// Returns the stream for a tensor on `device`. The first tensor determines the stream and the allocator of the
    /// call: `current` returns the framework's current stream, or `None` for the device's default stream, and
    /// `allocator` returns the framework's allocator.
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
        let (stream_of_call, allocator) = (stream.clone(), allocator()?);
        self.call = Some(Call { stream: stream_of_call, device, allocator, thread: PhantomData });
        Ok(stream)
    }

    /// Records the memory of a tensor argument.
    ///
    /// # Errors
    /// Returns [`Error::Overlap`] if the memory overlaps another argument and one of the two is written.
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

    /// Returns the call after all arguments have been converted.
    pub fn call(&mut self) -> Result<Call> {
        self.call.take().ok_or(Error::NoDevice)
    }

    /// Converts an imported tensor to a read-only argument.
    pub fn read(&mut self, imported: Imported, stream: &Stream) -> Result<Tensor> {
        let tensor = imported.into_tensor(stream)?;
        self.used(&tensor, false)?;
        Ok(Tensor(Held::new(tensor)))
    }

    /// Converts an imported tensor to an argument that the operator writes.
    pub fn write(&mut self, imported: Imported, stream: &Stream) -> Result<TensorMut> {
        let tensor = imported.into_tensor(stream)?;
        self.used(&tensor, true)?;
        Ok(TensorMut { tensor: Held::new(tensor), origin: Origin::Argument })
    }
}

thread_local! {
    /// Adopted streams that this thread has used, with their device and handle.
    static STREAMS: RefCell<Vec<(i32, u64, Stream)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the stream of a CUDA device with this handle, or the device's default stream for `None`.
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
        // SAFETY: the framework keeps its current stream alive during the call, and buffers are used only during calls.
        // If a later stream has the same handle, work on it is ordered in the same way.
        let stream = unsafe { Stream::adopt_unchecked(&device, StreamHandle(handle)) }?;
        streams.push((ordinal, handle, stream.clone()));
        Ok(stream)
    })
}
