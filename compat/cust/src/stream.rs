//! [`Stream`]: a queue of work.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError, Weak};

use warpsmith_runtime as runtime;
use warpsmith_runtime::LaunchConfig;

use crate::context;
use crate::error::{CudaError, CudaResult, DropResult, explained};
use crate::event::Event;
use crate::function::{BlockSize, Function, GridSize};

bitflags::bitflags! {
    /// Flags of a stream.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct StreamFlags: u32 {
        /// Synchronous copies ([`CopyDestination`](crate::memory::CopyDestination)) are ordered after the work in the
        /// stream.
        const DEFAULT = 0x00;
        /// Synchronous copies are not ordered after the work in the stream, so wait for the stream before such a copy.
        const NON_BLOCKING = 0x01;
    }
}

bitflags::bitflags! {
    /// Flags of [`Stream::wait_event`]; none are defined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct StreamWaitEventFlags: u32 {
        /// No flags.
        const DEFAULT = 0x0;
    }
}

/// Streams without [`StreamFlags::NON_BLOCKING`].
static BLOCKING: Mutex<Vec<Weak<runtime::Stream>>> = Mutex::new(Vec::new());

/// Waits for all streams that were created without [`StreamFlags::NON_BLOCKING`] on a device.
pub(crate) fn wait_for_blocking(device: &runtime::Device) -> CudaResult<()> {
    let streams: Vec<Arc<runtime::Stream>> = {
        let mut known = BLOCKING.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|stream| stream.strong_count() > 0);
        known.iter().filter_map(Weak::upgrade).collect()
    };
    for stream in streams.iter().filter(|stream| stream.device().id() == device.id()) {
        stream.synchronize()?;
    }
    Ok(())
}

/// Queue of work, executed in order.
#[derive(Debug, Clone)]
pub struct Stream {
    inner: Arc<runtime::Stream>,
    flags: StreamFlags,
}

impl Stream {
    /// Creates a stream on the current device of the thread. Smaller priority numbers are more urgent. A priority
    /// outside the [range](crate::context::CurrentContext::get_stream_priority_range) is clamped.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidContext`] if there is no current context, or a driver error.
    pub fn new(flags: StreamFlags, priority: Option<i32>) -> CudaResult<Stream> {
        let device = context::current()?;
        let inner = match priority {
            None | Some(0) => runtime::Stream::new(&device)?,
            Some(priority) => runtime::Stream::from_pool_with_priority(&device, priority)?,
        };
        Ok(Self::from_runtime_with_flags(inner, flags))
    }

    /// Wraps a stream of the runtime.
    pub fn from_runtime(stream: runtime::Stream) -> Stream {
        Self::from_runtime_with_flags(stream, StreamFlags::NON_BLOCKING)
    }

    fn from_runtime_with_flags(stream: runtime::Stream, flags: StreamFlags) -> Stream {
        let inner = Arc::new(stream);
        if !flags.contains(StreamFlags::NON_BLOCKING) {
            BLOCKING.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&inner));
        }
        Stream { inner, flags }
    }

    /// Returns the corresponding stream of the runtime, for functions that this crate does not provide.
    pub fn runtime(&self) -> &runtime::Stream {
        &self.inner
    }

    /// Returns the CUDA handle (a `CUstream`), which is valid as long as the stream exists. On the emulated device,
    /// this is a meaningless number.
    pub fn as_inner(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.inner.handle().0 as usize)
    }

    /// Returns the flags with which the stream was created.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn get_flags(&self) -> CudaResult<StreamFlags> {
        Ok(self.flags)
    }

    /// Returns the priority of the stream.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn get_priority(&self) -> CudaResult<i32> {
        Ok(self.inner.priority())
    }

    /// Calls a host function when the work already enqueued in the stream is complete. The function must not use the
    /// device.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn add_callback<T>(&self, callback: Box<T>) -> CudaResult<()>
    where
        T: FnOnce(CudaResult<()>) + Send + 'static,
    {
        Ok(self.inner.host_function(move || callback(Ok(())))?)
    }

    /// Waits until all work in the stream is complete.
    ///
    /// # Errors
    /// Returns a fault in that work. [`error::explanation`](crate::error::explanation) returns the name of the kernel
    /// and its message.
    pub fn synchronize(&self) -> CudaResult<()> {
        Ok(self.inner.synchronize()?)
    }

    /// Makes later work in the stream wait for an event.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn wait_event(&self, event: Event, _: StreamWaitEventFlags) -> CudaResult<()> {
        event.make_wait(&self.inner)
    }

    /// Implements [`launch!`](crate::launch!). Each argument is a pointer to a value, together with the size of the
    /// value.
    ///
    /// # Errors
    /// Returns an error if a value exceeds a limit of the device or of the kernel, or if an argument is smaller than
    /// the kernel parameter. Argument sizes are checked only if the driver reports the sizes of the parameters.
    ///
    /// # Safety
    /// The arguments must have the types of the kernel parameters. Memory to which they point must stay valid until the
    /// kernel is complete.
    #[doc(hidden)]
    pub unsafe fn launch<G: Into<GridSize>, B: Into<BlockSize>>(
        &self,
        function: &Function<'_>,
        grid: G,
        block: B,
        shared_bytes: u32,
        arguments: &[(*const c_void, usize)],
    ) -> CudaResult<()> {
        let (grid, block) = (grid.into(), block.into());
        if let Some(sizes) = function.runtime().params() {
            for (index, (&needed, &(_, has))) in sizes.iter().zip(arguments).enumerate() {
                if has < needed {
                    let kernel = function.runtime().spec().symbol;
                    return Err(explained(
                        CudaError::InvalidValue,
                        format!(
                            "argument {} of kernel `{kernel}` has {has} bytes, but its parameter has {needed}: pass a \
                             value of the parameter's type, and a slice as pointer and length (`usize`)",
                            index + 1
                        ),
                    ));
                }
            }
        }
        let config = LaunchConfig::new([grid.x, grid.y, grid.z], [block.x, block.y, block.z], shared_bytes);
        let pointers: Vec<*const c_void> = arguments.iter().map(|(pointer, _)| *pointer).collect();
        // SAFETY: guaranteed by the caller.
        unsafe { function.runtime().launch_raw(&self.inner, config, &pointers)? };
        Ok(())
    }

    /// Drops the stream after its work.
    ///
    /// # Errors
    /// Returns a fault in this work, together with the stream.
    pub fn drop(stream: Stream) -> DropResult<Stream> {
        match stream.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => Err((error, stream)),
        }
    }
}
