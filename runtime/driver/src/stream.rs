//! [`StreamDriver`]: the part of [`Driver`](crate::Driver) about streams, events, and functions that streams call on the host.

use crate::error::{DriverError, Result, code};
use crate::{Context, EventHandle, HostFunction, HostWork, StreamHandle};

/// Bytes of what names an event to another process.
pub const IPC_EVENT_BYTES: usize = 64;

/// The calls of a [`Driver`](crate::Driver) about streams, events, and functions that streams call on the host.
///
/// # Safety
/// As for [`Driver`](crate::Driver).
pub unsafe trait StreamDriver {
    /// The priorities that streams can have: (least urgent, most urgent). Lower numbers are more urgent.
    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)>;
    /// Creates a stream that does not order itself with the legacy default stream. A priority beyond the range
    /// counts as its end.
    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle>;
    /// A number that no other stream of the process ever has, also when its handle is used again. Fails with
    /// `CUDA_ERROR_INVALID_HANDLE` for a stream of another context and, where the driver can detect it, for one that
    /// was destroyed. A driver older than CUDA 12 gives the handle's value, which a later stream may have again.
    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64>;
    /// The priority that the stream has: the one it was created with, or the end of the range that was nearer.
    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32>;
    /// Destroys a stream; work already enqueued still runs.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn stream_destroy(&self, context: Context, stream: StreamHandle);
    /// Whether everything enqueued so far has run.
    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool>;
    /// Waits until it has.
    fn stream_synchronize(&self, context: Context, stream: StreamHandle) -> Result<()>;
    /// Makes later work on `stream` wait for `event`.
    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Enqueues a call of a function on a thread of the driver's own; later work of the stream waits for it.
    ///
    /// It must not call the driver, nor own what does so when it is dropped: calls from inside it fail with
    /// `CUDA_ERROR_NOT_PERMITTED`. When the context stops first, it is dropped without a call, at the latest with
    /// the last release of the context. A panic in it is caught and forgotten.
    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()>;

    /// Enqueues work of the host on device memory. On a stream that is being captured it becomes part of the graph.
    /// Fails where the host cannot reach what the work names. A panic in it stops the context.
    ///
    /// # Safety
    /// The work uses no device memory but what it names, which is valid until the work has run, at each launch.
    unsafe fn host_work(&self, _context: Context, _stream: StreamHandle, _work: HostWork) -> Result<()> {
        let (name, text) =
            ("CUDA_ERROR_NOT_SUPPORTED".to_owned(), "the host cannot reach device memory".to_owned());
        Err(DriverError::Call { call: "host_work", code: code::NOT_SUPPORTED, name, text })
    }

    /// Creates an event.
    fn event_create(&self, context: Context, timing: bool) -> Result<EventHandle>;
    /// Destroys it.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn event_destroy(&self, context: Context, event: EventHandle);
    /// Records it after everything enqueued on `stream` so far.
    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Whether the work before its last record has run; an event never recorded counts as complete.
    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool>;
    /// Waits until it has.
    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()>;
    /// Makes an event that other processes can wait for and record; it takes no times. It is recorded outside of captures.
    fn event_create_shared(&self, context: Context) -> Result<EventHandle>;
    /// What names it to another process. The event is of [`Self::event_create_shared`].
    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; IPC_EVENT_BYTES]>;
    /// The event of another process, which lives; it is destroyed as one of this process. Fails for what is none, where the
    /// driver finds out.
    fn event_import(&self, context: Context, event: &[u8; IPC_EVENT_BYTES]) -> Result<EventHandle>;
    /// Microseconds between two recorded, completed events with timing.
    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64>;
}
