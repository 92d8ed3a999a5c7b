//! The reserve: a segment allocated on first use, from which blocks of whole pages are cut, front to back.
//!
//! Blocks are never merged back into the segment. When free, they are cached like other blocks, but never released to
//! the driver. The segment is freed when the device is closed.

use std::sync::{Mutex, PoisonError};

use super::cache::Block;
use super::classes;
use crate::error::Result;

#[derive(Debug, Default)]
struct State {
    segment: Option<Block>,
    /// Number of bytes cut from the segment so far.
    used: usize,
}

#[derive(Debug, Default)]
pub(super) struct Reserve {
    state: Mutex<State>,
}

impl Reserve {
    /// Cuts a block of at least `size` bytes from the segment, if enough bytes are left. If the segment does not exist
    /// yet, `make` allocates it with `bytes` bytes.
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

    /// Removes the segment. None of its blocks may still be in use.
    pub(super) fn take_segment(&self) -> Option<Block> {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        state.segment
    }
}
