//! The reserve: a segment that is locked on first use, from which blocks are cut in whole pages, front to back.
//!
//! A block that was cut from the segment remains a block. When it is free, it waits in the cache like others, but it
//! does not return to the driver. The segment itself is freed with the device.

use std::sync::{Mutex, PoisonError};

use super::cache::Block;
use super::classes;
use crate::error::Result;

#[derive(Debug, Default)]
struct State {
    segment: Option<Block>,
    /// Bytes that were cut off so far.
    used: usize,
}

/// Reserve of one device.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    state: Mutex<State>,
}

impl Reserve {
    /// Cuts off a block of at least `size` bytes, if enough bytes are left. `make` allocates the segment of `bytes`
    /// bytes if it does not exist yet.
    pub(super) fn take(
        &self,
        size: usize,
        bytes: usize,
        make: impl FnOnce() -> Result<Block>,
    ) -> Result<Option<Block>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let size = classes::round_to_pages(size);
        if state.segment.is_none() && size <= bytes {
            state.segment = Some(make()?);
        }
        let used = state.used;
        let Some(segment) = state.segment.as_ref().filter(|segment| size <= segment.bytes - used) else {
            return Ok(None);
        };
        // SAFETY: the `size` bytes after `used` lie within the segment, which is one allocation.
        let ptr = unsafe { segment.ptr.add(used) };
        state.used += size;
        Ok(Some(Block { ptr, bytes: size, asked: size, reserve: true }))
    }

    /// Removes the segment, none of whose blocks may still be in use.
    pub(super) fn take_segment(&self) -> Option<Block> {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        state.segment
    }
}
