//! Scratch memory of a capture, which the graph owns.

use super::private_memory::PrivateMemory;
use super::{Capturing, State};
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::memory::allocator;
use crate::stream::Stream;

/// Per-stream scratch memory used during capture, keyed by purpose: see [`Stream::with_scratch`].
#[derive(Debug)]
pub(super) struct CapturedScratch {
    pub stream: u64,
    pub purpose: &'static str,
    pub bytes: usize,
    pub ptr: DevicePtr,
    /// True if nothing has used it yet.
    pub new: bool,
}

impl Capturing {
    /// Returns the graph's own scratch memory for a stream and purpose: its address, and whether it is new to this
    /// capture.
    pub fn scratch(&self, stream: &Stream, purpose: &'static str, bytes: usize) -> Result<(DevicePtr, bool)> {
        let find = |state: &State| -> Option<(DevicePtr, bool)> {
            let same =
                |scratch: &&CapturedScratch| scratch.stream == stream.id() && scratch.purpose == purpose;
            state
                .scratch
                .iter()
                .filter(same)
                .find(|scratch| scratch.bytes >= bytes)
                .map(|scratch| (scratch.ptr, scratch.new))
        };
        if let Some(found) = find(&self.lock()) {
            return Ok(found);
        }
        // Outside the lock: an allocation may call the user's callbacks. It goes to the capture's pool.
        let allocation = allocator::allocate(stream, bytes)?;
        let ptr = allocation.ptr();
        let mut state = self.lock();
        let memory = PrivateMemory::new(stream.clone(), allocation);
        state.memory.push(memory);
        if let Some(found) = find(&state) {
            // Another thread was faster.
            return Ok(found);
        }
        state.scratch.retain(|scratch| !(scratch.stream == stream.id() && scratch.purpose == purpose));
        state.scratch.push(CapturedScratch { stream: stream.id(), purpose, bytes, ptr, new: true });
        Ok((ptr, true))
    }

    /// Marks scratch memory as being in the state that the next user expects.
    pub fn settle_scratch(&self, ptr: DevicePtr) {
        self.lock()
            .scratch
            .iter_mut()
            .filter(|scratch| scratch.ptr == ptr)
            .for_each(|scratch| scratch.new = false);
    }

    /// Marks scratch memory as not being in the state that the next user expects.
    pub fn invalidate_scratch(&self, ptr: DevicePtr) {
        self.lock().scratch.retain(|scratch| scratch.ptr != ptr);
    }
}
