//! Scratch memory used during a capture and owned by the graph.

use super::private_memory::PrivateMemory;
use super::{Capturing, State};
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::memory::allocator;
use crate::stream::Stream;

/// A stream's scratch memory for one purpose during a capture; see [`Stream::with_scratch`].
#[derive(Debug)]
pub(super) struct CapturedScratch {
    pub stream: u64,
    pub purpose: &'static str,
    pub bytes: usize,
    pub ptr: DevicePtr,
    /// True if the memory has not been used yet.
    pub new: bool,
}

impl Capturing {
    /// Returns the address of the graph's scratch memory for a stream and a purpose, and true if this capture has not
    /// used it yet.
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
        // The lock must not be held here, because an allocation may call user callbacks. The capture's pool serves the
        // request.
        let allocation = allocator::allocate(stream, bytes)?;
        let ptr = allocation.ptr();
        let mut state = self.lock();
        let memory = PrivateMemory::new(stream.clone(), allocation);
        state.memory.push(memory);
        if let Some(found) = find(&state) {
            // Another thread has already added this scratch memory.
            return Ok(found);
        }
        state.scratch.retain(|scratch| !(scratch.stream == stream.id() && scratch.purpose == purpose));
        state.scratch.push(CapturedScratch { stream: stream.id(), purpose, bytes, ptr, new: true });
        Ok((ptr, true))
    }

    /// Records that scratch memory is in the state that its next user expects.
    pub fn settle_scratch(&self, ptr: DevicePtr) {
        self.lock()
            .scratch
            .iter_mut()
            .filter(|scratch| scratch.ptr == ptr)
            .for_each(|scratch| scratch.new = false);
    }

    /// Records that scratch memory is not in the state that its next user expects.
    pub fn invalidate_scratch(&self, ptr: DevicePtr) {
        self.lock().scratch.retain(|scratch| scratch.ptr != ptr);
    }
}
