//! [`StreamDriver`]: the part of [`Driver`](crate::Driver) for streams, events and host functions.

use crate::error::{DriverError, Result, code};
use crate::{Context, EventHandle, HostFunction, HostWork, StreamHandle};

/// Size in bytes of an IPC event handle.
pub const IPC_EVENT_BYTES: usize = 64;

/// Methods of a [`Driver`](crate::Driver) for streams, events and host functions.
///
/// # Safety
/// Implementations must uphold the safety contract of [`Driver`](crate::Driver).
pub unsafe trait StreamDriver {
    /// Returns the range of stream priorities: (least urgent, most urgent). Lower numbers are more urgent.
    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)>;
    /// Creates a stream that does not synchronize with the legacy default stream. The priority is clamped to the
    /// device's range.
    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle>;
    /// Returns a stream ID that no other stream of the process ever has, even if its handle is reused; drivers before
    /// CUDA 12 return the handle itself, which a later stream may reuse. Returns `CUDA_ERROR_INVALID_HANDLE` for a
    /// stream of another context and, if the driver can detect it, for a destroyed stream.
    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64>;
    /// Returns the priority of the stream.
    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32>;
    /// Destroys a stream. Already enqueued work still runs.
    ///
    /// # Safety
    /// The handle must not be used again.
    unsafe fn stream_destroy(&self, context: Context, stream: StreamHandle);
    /// Returns true if all work enqueued so far has run.
    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool>;
    /// Waits until all work enqueued so far has run.
    fn stream_synchronize(&self, context: Context, stream: StreamHandle) -> Result<()>;
    /// Makes later work on `stream` wait for `event`.
    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Enqueues a host function call, on one of the driver's threads. Later work on the stream waits for the function
    /// to return.
    ///
    /// The function must not call the driver, nor own a value whose drop does so; such calls fail with
    /// `CUDA_ERROR_NOT_PERMITTED`. If the context becomes unusable first, the function is dropped without being called,
    /// at the latest when the context is last released. A panic in the function is caught and discarded.
    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()>;

    /// Enqueues host work on device memory. On a capturing stream, the work becomes part of the graph. Returns an error
    /// if the host cannot access the memory that the work uses. A panic in the work makes the context unusable.
    ///
    /// # Safety
    /// The work must use only the device memory that it declares, which must be valid until the work has run, in each
    /// launch.
    unsafe fn host_work(&self, _context: Context, _stream: StreamHandle, _work: HostWork) -> Result<()> {
        let (name, text) =
            ("CUDA_ERROR_NOT_SUPPORTED".to_owned(), "the host cannot reach device memory".to_owned());
        Err(DriverError::Call { call: "host_work", code: code::NOT_SUPPORTED, name, text })
    }

    /// Creates an event.
    fn event_create(&self, context: Context, timing: bool) -> Result<EventHandle>;
    /// Destroys an event.
    ///
    /// # Safety
    /// The handle must not be used again.
    unsafe fn event_destroy(&self, context: Context, event: EventHandle);
    /// Records the event after all work enqueued on `stream` so far.
    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Returns true if the work before the event's last recording has run, or if the event was never recorded.
    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool>;
    /// Waits until the work before the event's last recording has run.
    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()>;
    /// Creates an interprocess event, which other processes can record and wait for. It has no timing and must be
    /// recorded outside captures.
    fn event_create_shared(&self, context: Context) -> Result<EventHandle>;
    /// Exports an IPC handle of the event for another process. The event must come from [`Self::event_create_shared`].
    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; IPC_EVENT_BYTES]>;
    /// Imports an event that still exists in another process. The imported event is destroyed like any other. Returns
    /// an error if the driver detects an invalid handle.
    fn event_import(&self, context: Context, event: &[u8; IPC_EVENT_BYTES]) -> Result<EventHandle>;
    /// Returns the elapsed microseconds between two completed events with timing.
    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64>;
}
