//! [`SharedEvent`]: an event that several processes share.

use crate::device::Device;
use crate::device::health::Quiet;
use crate::device::observe::site;
use crate::driver::{EventHandle, IPC_EVENT_BYTES};
use crate::error::Result;
use crate::stream::Stream;

/// A CUDA IPC event: processes can record it and wait for it on the same GPU or on different ones. It records no
/// timestamp.
///
/// Use it to synchronize access to memory that processes share. The creating process must keep the event until the
/// other processes have opened it. Capturing streams cannot record it or wait for it.
///
/// ```
/// use warpsmith_runtime::event::SharedEvent;
/// use warpsmith_runtime::{Device, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// # if !cfg!(target_os = "linux") { return Ok(()) }
/// let event = SharedEvent::new(stream.device())?;
/// let handle = event.ipc_handle()?; // 64 bytes, to be sent to another process
/// event.record(&stream)?;
/// // In the other process:
/// let theirs = SharedEvent::from_ipc_handle(stream.device(), &handle)?;
/// theirs.wait_on(&stream)?;
/// theirs.synchronize()?;
/// assert!(theirs.query()?);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedEvent {
    device: Device,
    handle: EventHandle,
}

impl SharedEvent {
    /// Creates an event.
    ///
    /// # Errors
    /// Returns `CUDA_ERROR_NOT_SUPPORTED` if the device does not support IPC events, or any other [driver
    /// error](crate::Error::Driver).
    pub fn new(device: &Device) -> Result<Self> {
        let handle = device.call(|driver, context| driver.event_create_shared(context))?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Opens an event that another process has created and not yet dropped.
    ///
    /// # Errors
    /// Returns a [driver error](crate::Error::Driver), for example if the handle does not identify an event.
    pub fn from_ipc_handle(device: &Device, handle: &[u8; IPC_EVENT_BYTES]) -> Result<Self> {
        let handle = device.call(|driver, context| driver.event_import(context, handle))?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Returns the handle with which other processes of the same user on this host can open the event.
    ///
    /// # Errors
    /// Returns a [driver error](crate::Error::Driver), for example if another process created the event.
    pub fn ipc_handle(&self) -> Result<[u8; IPC_EVENT_BYTES]> {
        self.device.call(|driver, context| driver.event_export(context, self.handle))
    }

    /// Records the event after all work enqueued on a stream so far.
    ///
    /// # Errors
    /// Returns an error if the stream belongs to another device or is being captured, or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        self.check(stream, "recording an interprocess event")?;
        let handle = stream.handle();
        stream.call(|driver, context| driver.event_record(context, self.handle, handle))
    }

    /// Makes later work on a stream wait for the event's last recording, which any process may have made. An event that
    /// was never recorded does not delay the stream.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::record`].
    #[track_caller]
    pub fn wait_on(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        self.check(stream, "waiting for an interprocess event")?;
        let handle = stream.handle();
        stream.call(|driver, context| driver.stream_wait_event(context, handle, self.handle))
    }

    fn check(&self, stream: &Stream, what: &'static str) -> Result<()> {
        if !self.device.ptr_eq(stream.device()) {
            let (event, stream) = (self.device.id(), stream.device().id());
            return Err(crate::Error::EventOfOtherDevice { event, stream });
        }
        stream.check_not_capturing(what, "make the call before the capture starts or after it ends")
    }

    /// Returns true if the event's last recording has been reached, or if the event was never recorded.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or any [driver error](crate::Error::Driver).
    pub fn query(&self) -> Result<bool> {
        self.device.call(|driver, context| driver.event_query(context, self.handle))
    }

    /// Blocks the calling thread until the last recording is reached.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::query`].
    pub fn synchronize(&self) -> Result<()> {
        self.device.call(|driver, context| driver.event_synchronize(context, self.handle))
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let destroyed = self.device.call_lost(|driver, context| {
            // SAFETY: the handle is not used again, and enqueued waits refer to a recording, not to the handle.
            unsafe { driver.event_destroy(context, self.handle) };
            Ok::<_, crate::Error>(())
        });
        // In a forked process, there is nothing to destroy.
        drop(destroyed);
    }
}
