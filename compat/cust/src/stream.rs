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
        /// Copies that wait ([`CopyDestination`](crate::memory::CopyDestination)) are ordered behind the stream's work.
        const DEFAULT = 0x00;
        /// They are not: wait for the stream before them.
        const NON_BLOCKING = 0x01;
    }
}

bitflags::bitflags! {
    /// Flags of [`Stream::wait_event`]. There are none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct StreamWaitEventFlags: u32 {
        /// No flags.
        const DEFAULT = 0x0;
    }
}

/// Streams without [`StreamFlags::NON_BLOCKING`].
static BLOCKING: Mutex<Vec<Weak<runtime::Stream>>> = Mutex::new(Vec::new());

/// Waits for the streams of a device that copies are ordered behind.
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

/// A queue of work, done in order.
#[derive(Debug, Clone)]
pub struct Stream {
    inner: Arc<runtime::Stream>,
    flags: StreamFlags,
}

impl Stream {
    /// A stream of the thread's device. A lower priority is more urgent; beyond the
    /// [range](crate::context::CurrentContext::get_stream_priority_range) it is the nearest in it.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context; whatever the driver reports.
    pub fn new(flags: StreamFlags, priority: Option<i32>) -> CudaResult<Stream> {
        let device = context::current()?;
        let inner = match priority {
            None | Some(0) => runtime::Stream::new(&device)?,
            Some(priority) => runtime::Stream::from_pool_with_priority(&device, priority)?,
        };
        Ok(Self::from_runtime_with_flags(inner, flags))
    }

    /// A stream of the runtime.
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

    /// The runtime's stream, for what this crate does not have.
    pub fn runtime(&self) -> &runtime::Stream {
        &self.inner
    }

    /// CUDA's handle, a `CUstream`, valid as long as the stream. On the emulated device a number without meaning.
    pub fn as_inner(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.inner.handle().0 as usize)
    }

    /// The flags it was made with.
    ///
    /// # Errors
    ///
    /// None.
    pub fn get_flags(&self) -> CudaResult<StreamFlags> {
        Ok(self.flags)
    }

    /// Its priority.
    ///
    /// # Errors
    ///
    /// None.
    pub fn get_priority(&self) -> CudaResult<i32> {
        Ok(self.inner.priority())
    }

    /// Calls a function of the host when the work enqueued before is done. It must not use the device.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub fn add_callback<T>(&self, callback: Box<T>) -> CudaResult<()>
    where
        T: FnOnce(CudaResult<()>) + Send + 'static,
    {
        Ok(self.inner.host_function(move || callback(Ok(())))?)
    }

    /// Waits until its work is done.
    ///
    /// # Errors
    ///
    /// A fault of that work: [`error::explanation`](crate::error::explanation) names the kernel and what it said.
    pub fn synchronize(&self) -> CudaResult<()> {
        Ok(self.inner.synchronize()?)
    }

    /// Makes later work of the stream wait for an event.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub fn wait_event(&self, event: Event, _: StreamWaitEventFlags) -> CudaResult<()> {
        event.make_wait(&self.inner)
    }

    /// What [`launch!`](crate::launch!) calls. Each argument is a pointer to its value, and the value's size.
    ///
    /// # Errors
    ///
    /// What is over the limits of device or kernel; an argument that is smaller than the kernel's parameter, where the driver
    /// says how large that is.
    ///
    /// # Safety
    ///
    /// The arguments are of the types of the kernel's parameters; memory that they point to stays until the kernel is done.
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
                            "argument {} of kernel `{kernel}` has {has} bytes, its parameter {needed}: pass a value of the \
                             parameter's type, and a slice as pointer and length (`usize`)",
                            index + 1
                        ),
                    ));
                }
            }
        }
        let config = LaunchConfig::new([grid.x, grid.y, grid.z], [block.x, block.y, block.z], shared_bytes);
        let pointers: Vec<*const c_void> = arguments.iter().map(|(pointer, _)| *pointer).collect();
        // SAFETY: the caller's promise.
        unsafe { function.runtime().launch_raw(&self.inner, config, &pointers)? };
        Ok(())
    }

    /// Drops the stream, after its work.
    ///
    /// # Errors
    ///
    /// A fault of that work, with the stream.
    pub fn drop(stream: Stream) -> DropResult<Stream> {
        match stream.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => Err((error, stream)),
        }
    }
}
