//! Scratch memory, which a stream keeps between calls, per purpose.

use std::cell::RefCell;
use std::sync::PoisonError;

use super::allocator::{self, CachingAllocator, Scratch, StreamMemory};
use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::Error;
use crate::stream::{Stream, StreamCore};

/// Frees the memory of a stream that is being dropped, and releases its arenas to other streams.
pub(crate) fn stream_ended(device: &Device, core: &StreamCore) {
    if let Some(StreamMemory { arena, scratch }) = core.memory() {
        for Scratch { memory, .. } in
            std::mem::take(&mut *scratch.lock().unwrap_or_else(PoisonError::into_inner))
        {
            // SAFETY: the stream is being dropped, so no more work is enqueued with its scratch memory.
            let freed = unsafe { allocator::free_at_end(device, arena, memory, core.handle()) };
            device.0.health.record_drop(freed);
        }
    }
    device.part::<CachingAllocator>().retire(device, core.id(), core.handle());
}

thread_local! {
    /// IDs of the streams whose scratch memory this thread is using in [`Stream::with_scratch`], innermost call last.
    static WORKING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Marks a stream's scratch memory as used by this thread until dropped.
struct Working;

impl Working {
    fn begin(stream: &Stream) -> Self {
        WORKING.with_borrow_mut(|working| working.push(stream.id()));
        Self
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.with_borrow_mut(Vec::pop);
    }
}

impl Stream {
    /// Calls `work` with a workspace of at least `bytes` bytes, which the stream keeps for `purpose` between calls.
    /// `work` also receives a flag: if true, the memory is new and uninitialized; if false, it contains the data that
    /// earlier work on the stream wrote. During the call, only `work` may use the memory.
    ///
    /// The memory is replaced when a call requests more or after `work` has failed, and is freed with the stream.
    ///
    /// ```
    /// use warpsmith_runtime::extension::Access;
    /// use warpsmith_runtime::{Device, Error};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let mut is_new = Vec::new();
    /// for bytes in [100, 100, 200] {
    ///     // SAFETY: no work uses the workspace.
    ///     unsafe {
    ///         stream.with_scratch("my library", bytes, |workspace, new| {
    ///             assert_eq!(workspace.0 % 512, 0);
    ///             is_new.push(new);
    ///             Ok::<(), Error>(())
    ///         })?;
    ///     }
    /// }
    /// assert_eq!(is_new, [true, false, true]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::ScratchInUse`] if called within `work` for the same stream, the errors of
    /// [`Memory::allocate_raw`](crate::memory::Memory::allocate_raw), or the error that `work` returns.
    ///
    /// # Safety
    /// `work` may use the memory only in work enqueued on this stream, and must not let the address escape.
    #[track_caller]
    pub unsafe fn with_scratch<R, E: From<Error>>(
        &self,
        purpose: &'static str,
        bytes: usize,
        work: impl FnOnce(DevicePtr, bool) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.device().check_process()?;
        if WORKING.with_borrow(|working| working.contains(&self.id())) {
            return Err(Error::ScratchInUse(purpose).into());
        }
        let work = |ptr, new| {
            let _working = Working::begin(self);
            work(ptr, new)
        };
        let captures = self.capture_count();
        if let Some(capturing) = self.capturing() {
            // The lock is released first, because an allocation may call user callbacks.
            capturing.scratch(self, purpose, bytes)?;
            let guard = self.captures().exclusive.lock().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have used the memory in the meantime.
            let (ptr, new) = capturing.scratch(self, purpose, bytes)?;
            let done = work(ptr, new);
            match done.is_ok() {
                true => capturing.settle_scratch(ptr),
                false => capturing.invalidate_scratch(ptr),
            }
            drop(guard);
            return done;
        }
        let kept = allocator::memory_of(self)?;
        let lock = || kept.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |scratch: &[Scratch]| scratch.iter().position(|scratch| scratch.purpose == purpose);
        let mut scratch = lock();
        let large_enough = |scratch: &[Scratch]| find(scratch).filter(|index| scratch[*index].bytes >= bytes);
        let mut surplus = None;
        if large_enough(&scratch).is_none() {
            // The lock is released first, because an allocation may call user callbacks.
            drop(scratch);
            let memory = allocator::allocate_default(self, bytes)?;
            scratch = lock();
            surplus = match (large_enough(&scratch), find(&scratch)) {
                // Another thread has stored its memory first.
                (Some(_), _) => Some(memory),
                (None, Some(index)) => Some(std::mem::replace(&mut scratch[index].memory, memory)),
                (None, None) => {
                    scratch.push(Scratch { purpose, bytes: 0, memory });
                    None
                }
            };
        }
        if let Some(surplus) = surplus {
            // SAFETY: the memory was allocated on this stream, was used on no other stream, and is not stored. The work
            // that uses it has already been enqueued.
            let freed = unsafe { allocator::free(self, surplus, &[]) };
            self.device().0.health.record_drop(freed);
        }
        let Some(index) = find(&scratch) else { return work(DevicePtr::NULL, true) };
        // Until `work` has succeeded, the memory lacks the data that the next call expects.
        let known = std::mem::replace(&mut scratch[index].bytes, 0);
        let done = work(scratch[index].memory.ptr(), known < bytes);
        if done.is_ok() {
            scratch[index].bytes = known.max(bytes);
        }
        if self.capture_count() != captures {
            // The work may have become part of a graph that does not track the memory.
            self.invalidate_captures();
        }
        done
    }
}
