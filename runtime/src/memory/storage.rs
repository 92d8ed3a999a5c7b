//! [`Storage`]: a buffer's untyped memory, and work enqueued on ranges of it, synchronized with earlier uses.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::allocator::{self, Allocation};
use super::capturing;
use super::graph_resource::GraphResource;
use super::owners::{self, Owner};
use super::usage::{Access, Usage, Waits};
use crate::device::Device;
use crate::device::health::Quiet;
use crate::device::observe::AwaitedBuffer;
use crate::driver::{Context, DevicePtr, Driver, host_function};
use crate::error::{Error, GraphError, Result};
use crate::stream::Stream;
use crate::stream::clock::Timeline;

/// Device memory that is reused only after its uses have finished.
#[derive(Debug)]
pub(crate) struct Storage {
    allocation: Allocation,
    bytes: usize,
    /// The owner that frees foreign memory.
    owner: Option<Owner>,
    /// The home stream, for the buffer's own copies and other work without an explicit stream.
    stream: Stream,
    /// Uses recorded before [`Self::tracked`] was created.
    usage: Usage,
    /// The state shared with graphs that use the buffer.
    tracked: OnceLock<Arc<GraphResource>>,
}

impl Storage {
    /// Allocates uninitialized memory for `elements` elements of `element_bytes` bytes each.
    #[inline]
    #[track_caller]
    pub(super) fn allocate(stream: &Stream, elements: usize, element_bytes: usize) -> Result<Self> {
        let bytes = elements.checked_mul(element_bytes).filter(|bytes| *bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else { return Err(Error::TooManyElements { elements, element_bytes }) };
        let allocation = allocator::allocate(stream, bytes)?;
        let usage = Usage::new(stream);
        let storage =
            Self { allocation, bytes, owner: None, stream: stream.clone(), usage, tracked: OnceLock::new() };
        if let Some(pool) = storage.allocation.pool() {
            // The memory belongs to a capture, so earlier work of the graph may use the same block in every launch.
            capturing::note_allocated(stream, pool, || storage.track(Access::Write))?;
        } else {
            stream.check_not_captured_elsewhere("allocating a buffer")?;
        }
        Ok(storage)
    }

    /// Wraps `bytes` bytes of foreign memory. The owner is dropped when all uses have finished. `usage` contains uses
    /// that may still be running.
    pub(super) fn foreign(stream: &Stream, ptr: DevicePtr, bytes: usize, usage: Usage, owner: Owner) -> Self {
        let (allocation, tracked) = (Allocation::foreign(ptr), OnceLock::new());
        Self { allocation, bytes, owner: Some(owner), stream: stream.clone(), usage, tracked }
    }

    /// Takes the owner out of this value, which then no longer frees the foreign memory.
    pub(super) fn take_owner(&mut self) -> Option<Owner> {
        self.owner.take()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the state that is shared with graphs, if a graph uses the buffer.
    pub(super) fn tracked(&self) -> Option<&Arc<GraphResource>> {
        self.tracked.get()
    }

    /// Returns the streams whose work on this memory is not known to have finished.
    pub(super) fn unfinished(&self) -> Vec<Stream> {
        let mut users = self.usage.unfinished(&self.stream);
        if let Some(tracked) = self.tracked.get() {
            let known = tracked.usage().unfinished(&self.stream);
            users.extend(known.into_iter().filter(|user| !users.contains(user)).collect::<Vec<_>>());
        }
        users
    }

    pub(crate) fn ptr(&self) -> DevicePtr {
        self.allocation.ptr()
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Records that work on `stream` uses this memory. The caller must synchronize that work by other means.
    pub(super) fn record_stream(&self, stream: &Stream) {
        let usage = self.tracked.get().map_or(&self.usage, |tracked| tracked.usage());
        usage.add(&self.stream, stream, self.bytes);
    }

    /// Returns the state that is shared with graphs, creating it if necessary. The caller captures work with this
    /// access and must borrow the buffer accordingly.
    pub(crate) fn track(&self, access: Access) -> &Arc<GraphResource> {
        let tracked = self.tracked.get_or_init(|| {
            let usage = Usage::unused();
            usage.absorb(&self.usage);
            GraphResource::new(&self.stream, self.bytes, self.allocation.pool(), usage)
        });
        if access == Access::Write {
            // The buffer is borrowed exclusively here, so no other thread is recording uses in the buffer itself.
            tracked.usage().absorb(&self.usage);
        }
        tracked
    }

    /// Returns a stream of the memory's device that has waited for all work of `user`; `None` if the host had to wait
    /// instead.
    fn own_user(&self, user: Stream) -> Option<Stream> {
        if user.device().ptr_eq(self.device()) {
            return Some(user);
        }
        let behind = Stream::from_pool(self.device()).and_then(|own| own.wait_stream(&user).map(|()| own));
        if behind.is_err() {
            user.wait_idle();
        }
        behind.ok()
    }

    /// Records an error that occurred in a drop, except for the fault of a lost device, which every call reports.
    #[cold]
    fn report(&self, error: Error) {
        if !self.device().is_lost() {
            self.device().0.health.record_drop(Err(error));
        }
    }
}

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let is_plain = self.owner.is_none() && self.tracked.get().is_none() && self.usage.is_at_home();
        if !is_plain || self.device().is_forked() || host_function::is_running() {
            return self.release();
        }
        let allocation = std::mem::replace(&mut self.allocation, Allocation::EMPTY);
        // SAFETY: this value owns the memory and is being dropped. The memory was allocated on this stream, and all
        // uses are on this stream.
        if let Err(error) = unsafe { allocator::free(&self.stream, allocation, &[]) } {
            self.report(error);
        }
    }
}

impl Storage {
    /// Frees the memory after all of its uses, on any stream. Called only on drop.
    #[cold]
    #[inline(never)]
    fn release(&mut self) {
        if self.device().is_forked() {
            // In a forked child, the memory does not exist.
            return std::mem::forget(self.owner.take());
        }
        let allocation = std::mem::replace(&mut self.allocation, Allocation::EMPTY);
        if host_function::is_running() {
            let usage = std::mem::replace(&mut self.usage, Usage::unused());
            let (tracked, owner) = (std::mem::take(&mut self.tracked), self.owner.take());
            let moved =
                Self { allocation, bytes: self.bytes, owner, stream: self.stream.clone(), usage, tracked };
            return host_function::drop_elsewhere(Box::new(moved));
        }
        if let Some(owner) = self.owner.take() {
            if let Some(tracked) = self.tracked.get() {
                tracked.mark_dropped();
            }
            return owners::release_at(&self.stream, owner, self.unfinished());
        }
        let mut users = self.usage.users(&self.stream, Timeline::Running);
        if let Some(tracked) = self.tracked.get() {
            let mut known = tracked.mark_dropped();
            if let Some(capturing) = self.stream.capturing() {
                // Later work of the capture may reuse the block, so captured uses count too.
                known.extend(capturing.users(tracked));
            }
            users.extend(known.into_iter().filter(|user| !users.contains(user)).collect::<Vec<_>>());
        }
        if users.iter().any(|user| !user.device().ptr_eq(self.device())) {
            users = users.into_iter().filter_map(|user| self.own_user(user)).collect();
        }
        // SAFETY: this value owns the memory, which it allocated on this stream, and is being dropped. Every use was
        // recorded, so each use is on the home stream or one of `users`, or is ordered before later work on one of
        // them.
        let freed = unsafe { allocator::free(&self.stream, allocation, &users) };
        if let Err(error) = freed {
            self.report(error);
        }
    }
}

/// A declared read or write of a buffer range by enqueued work, created by
/// [`DeviceSlice::used`](crate::DeviceSlice::used).
///
/// See the [example](crate::extension#example).
#[derive(Debug, Clone)]
pub struct BufferUse<'a> {
    pub(crate) storage: &'a Storage,
    /// The range of the buffer, in bytes.
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
    /// True if the work must wait for earlier uses; false if the caller synchronizes it.
    pub(crate) ordered: bool,
}

impl BufferUse<'_> {
    /// Returns the device that owns the memory.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// Returns the size of the range, in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Returns the same bytes with a different access.
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Returns true if all writes of the range are complete or, while `stream` is capturing, if the captured work does
    /// not write the range. Work that is enqueued next on `stream` may then read the range even before the preceding
    /// work has completed, as a dependent kernel does before it calls `grid::dependency_wait`.
    ///
    /// ```
    /// use warpsmith_runtime::extension::Access;
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let weights = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
    /// // The copy from the host has completed.
    /// assert!(weights.as_slice().used(Access::Read).is_settled(&stream));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn is_settled(&self, stream: &Stream) -> bool {
        let Storage { usage, stream: home, tracked, owner, .. } = self.storage;
        if !owner.as_ref().is_none_or(Owner::is_unconditional) {
            return false;
        }
        match (stream.capturing(), tracked.get()) {
            (Some(capturing), Some(tracked)) => !capturing.writes(tracked, &self.range),
            // The graph waits for all work that was enqueued before it is launched.
            (Some(_), None) => true,
            (None, tracked) => {
                let is_written = |usage: &Usage| usage.is_written(home, &self.range, Timeline::Running);
                !is_written(usage) && tracked.is_none_or(|tracked| !is_written(tracked.usage()))
            }
        }
    }

    /// Returns true if all earlier uses are on `stream`, so that no wait is needed, and no check is needed before
    /// enqueueing either.
    #[inline]
    fn is_ordered_on(&self, stream: &Stream) -> bool {
        let Storage { usage, stream: home, tracked, owner, .. } = self.storage;
        let is_free = owner.as_ref().is_none_or(Owner::is_unconditional);
        stream == home && usage.is_at_home() && tracked.get().is_none() && is_free
    }

    /// Returns an error if the memory must not be used now.
    fn check(&self) -> Result<()> {
        self.storage.owner.as_ref().map_or(Ok(()), Owner::check)
    }

    /// Adds to `waits` the uses for which work on `stream` must wait. The stream may belong to another device.
    fn needs(&self, stream: &Stream, waits: &mut Waits) {
        let Storage { usage, stream: home, tracked, .. } = self.storage;
        if !self.ordered || self.range.is_empty() {
            return;
        }
        waits.buffer = Some(AwaitedBuffer {
            address: self.storage.ptr().0,
            bytes: self.storage.bytes,
            write: self.access == Access::Write,
        });
        usage.begin(home, stream, &self.range, self.access, waits);
        if let Some(tracked) = tracked.get() {
            tracked.usage().begin(home, stream, &self.range, self.access, waits);
        }
        waits.buffer = None;
    }

    /// Returns an error if an access to this range outside of captures conflicts with captured work.
    fn check_captures(&self, call: &'static str) -> Result<()> {
        match self.storage.tracked.get() {
            Some(tracked) if self.ordered => tracked.check_captures(call, &self.range, self.access),
            _ => Ok(()),
        }
    }

    /// Records that work that uses this range was enqueued on `stream`.
    #[inline]
    fn end(&self, stream: &Stream) {
        let Storage { usage, stream: home, bytes, tracked, .. } = self.storage;
        if self.range.is_empty() {
            return;
        }
        let usage = tracked.get().map_or(usage, |tracked| tracked.usage());
        usage.end(home, stream, &self.range, *bytes, self.access, Timeline::Running);
    }

    /// Enqueues work on `stream` that uses this range, on behalf of the public method `call`.
    pub(crate) fn enqueue<E: Into<Error>>(
        &self,
        stream: &Stream,
        call: &'static str,
        work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
    ) -> Result<()> {
        enqueue([self].into_iter(), stream, Kind::Copy(call), work)
    }

    /// Calls `enqueue`, which enqueues work on the home stream for the public method `call`, and waits for the work.
    /// Even after an error, the work is no longer running when this method returns.
    pub(crate) fn run_with(&self, call: &'static str, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let stream = &self.storage.stream;
        stream.check_not_capturing(call, "copy before the capture begins or after it ends")?;
        let enqueued = enqueue();
        if let Err(Error::Graph(GraphError::NotCapturable { .. })) = enqueued {
            return enqueued;
        }
        let done = enqueued.and_then(|()| stream.synchronize());
        if done.is_err() {
            stream.wait_idle();
        }
        // The memory may have been revoked during the copy.
        done.and_then(|()| self.check())
    }
}

/// The kind of work, with the name of the call that enqueues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel launch, which is enqueued entirely or not at all. If enqueueing other work fails, part of it may have
    /// been enqueued.
    Launch,
    Copy(&'static str),
    /// A copy that cannot be captured, because it uses streams of another device, or host memory that is released once
    /// it has run.
    HostCopy(&'static str),
}

impl Kind {
    fn call(self) -> &'static str {
        match self {
            Kind::Launch => "TypedKernel::launch",
            Kind::Copy(call) | Kind::HostCopy(call) => call,
        }
    }
}

/// Enqueues work that uses these ranges on `stream`, which may belong to another device. The work waits for all
/// conflicting earlier uses and is recorded as a use. On a capturing stream, it becomes part of the graph.
#[inline(always)]
pub(crate) fn enqueue<'p, 'a: 'p, E: Into<Error>>(
    parts: impl Iterator<Item = &'p BufferUse<'a>> + Clone,
    stream: &Stream,
    kind: Kind,
    work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
) -> Result<()> {
    // A launch that fails records nothing, and the call below performs the same check.
    if kind != Kind::Launch {
        stream.device().check_process()?;
    }
    let captures = stream.capture_count();
    if captures % 2 == 1 {
        parts.clone().try_for_each(BufferUse::check)?;
        return capturing::enqueue(stream, parts, kind, work);
    }
    if !parts.clone().all(|part| part.is_ordered_on(stream)) {
        return enqueue_behind(parts, stream, captures, kind, work);
    }
    enqueue_ordered(parts, stream, captures, kind, work)
}

/// Implements [`enqueue`] for ranges whose earlier uses may require waits. The buffers' [`GraphResource`]s are locked
/// until the work is enqueued, once each and in the global lock order.
#[inline(never)]
fn enqueue_behind<'p, 'a: 'p, E: Into<Error>>(
    parts: impl Iterator<Item = &'p BufferUse<'a>> + Clone,
    stream: &Stream,
    captures: u64,
    kind: Kind,
    work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
) -> Result<()> {
    stream.device().check_process()?;
    parts.clone().try_for_each(BufferUse::check)?;
    let mut tracked: Vec<&'p Arc<GraphResource>> =
        parts.clone().filter_map(|part| part.storage.tracked.get()).collect();
    tracked.sort_unstable_by_key(|tracked| Arc::as_ptr(tracked));
    tracked.dedup_by_key(|tracked| Arc::as_ptr(tracked));
    let guards: Vec<_> = tracked.into_iter().map(|tracked| tracked.lock()).collect();
    parts.clone().try_for_each(|part| part.check_captures(kind.call()))?;
    let mut waits = Waits::new(Timeline::Running);
    parts.clone().for_each(|part| part.needs(stream, &mut waits));
    waits.enqueue(stream)?;
    let called = enqueue_ordered(parts, stream, captures, kind, work);
    drop(guards);
    called
}

/// Enqueues work that needs no further waits, and records its uses of the ranges. `captures` is the stream's capture
/// count at the start of the call.
#[inline(always)]
fn enqueue_ordered<'p, 'a: 'p, E: Into<Error>>(
    parts: impl Iterator<Item = &'p BufferUse<'a>>,
    stream: &Stream,
    captures: u64,
    kind: Kind,
    work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
) -> Result<()> {
    let called = stream.call(work);
    if called.is_ok() || kind != Kind::Launch {
        for part in parts {
            part.end(stream);
        }
    }
    if stream.capture_count() != captures {
        stream.invalidate_captures();
    }
    called
}
