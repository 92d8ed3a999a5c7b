//! Buffers that CUPTI fills with records.
//!
//! CUPTI requests empty buffers on the program's threads and returns full ones on any thread. CUPTI does not pass a
//! user pointer to its callbacks, so the buffers are stored in one static ([`HUB`]). The callbacks acquire only its
//! lock, and no other function is called while it is held. When the memory for records is exhausted, requests fail and
//! are counted; CUPTI counts the records that it drops.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUcontext;

use crate::activity::{ActivityError, ActivityResult};

/// Buffer size in bytes (about 20 000 records), if the memory suffices for several such buffers.
const BYTES: usize = 4 << 20;
/// Minimum buffer size in bytes. The minimum amount of memory for records is [`BUFFERS`] buffers of this size.
const MIN_BYTES: usize = 16 << 10;
/// Minimum number of buffers; a small amount of memory is divided into this many.
const BUFFERS: usize = 4;
/// Alignment of buffers; CUPTI requires 8.
const ALIGNMENT: usize = 4096;
/// Number of buffers allocated in advance, so that the first requests cause no page faults on the program's threads.
const READY: usize = 2;

#[derive(Debug)]
pub(super) struct Buffer {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Allocates zeroed memory; `None` if the process is out of memory.
    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(Self::layout(bytes)?) };
        NonNull::new(memory).map(|memory| Self { memory, bytes })
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, ALIGNMENT).ok().filter(|layout| layout.size() > 0)
    }

    fn address(&self) -> usize {
        self.memory.addr().get()
    }

    fn clear(&mut self) {
        // SAFETY: the buffer owns this many bytes.
        unsafe { self.memory.as_ptr().write_bytes(0, self.bytes) };
    }

    fn into_raw(self) -> (*mut u8, usize) {
        let raw = (self.memory.as_ptr(), self.bytes);
        std::mem::forget(self);
        raw
    }

    /// # Safety
    /// Both arguments must come from one call of [`Self::into_raw`] and be used only once.
    unsafe fn from_raw(memory: *mut u8, bytes: usize) -> Option<Self> {
        NonNull::new(memory).map(|memory| Self { memory, bytes })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.bytes) {
            // SAFETY: the memory was allocated with this layout.
            unsafe { dealloc(self.memory.as_ptr(), layout) };
        }
    }
}

/// A buffer with records.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: Buffer,
    /// Number of bytes in the buffer that contain records.
    valid: usize,
}

impl Filled {
    /// Returns the address of the buffer, for CUPTI's record iteration.
    pub(super) fn address(&mut self) -> *mut u8 {
        self.buffer.memory.as_ptr()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer owns the memory, which was zeroed before CUPTI wrote to it; `valid` is within the buffer.
        unsafe { std::slice::from_raw_parts(self.buffer.memory.as_ptr(), self.valid) }
    }

    #[cfg(test)]
    pub(super) fn of(records: &[u8]) -> Self {
        let buffer = Buffer::new(records.len().max(1)).unwrap();
        // SAFETY: the buffer has this many bytes and does not overlap the records.
        unsafe { buffer.memory.as_ptr().copy_from_nonoverlapping(records.as_ptr(), records.len()) };
        Self { buffer, valid: records.len() }
    }
}

#[derive(Debug)]
struct State {
    /// Buffer size of this recording, in bytes; 0 while no recording is active.
    bytes: usize,
    /// Maximum number of buffers of this recording.
    most: usize,
    /// Number of existing buffers of this recording: free, lent, full or being read.
    made: usize,
    free: Vec<Buffer>,
    full: VecDeque<Filled>,
    /// Addresses of the buffers lent to CUPTI.
    lent: Vec<usize>,
    is_reading: bool,
    /// Number of buffers that CUPTI has returned since the start.
    returned: u64,
    refused: u64,
}

/// Record buffers of the process.
pub(super) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

/// The process-wide [`Hub`], never destroyed, because CUPTI's threads may still use it while the process exits.
pub(super) static HUB: Hub = Hub {
    state: Mutex::new(State {
        bytes: 0,
        most: 0,
        made: 0,
        free: Vec::new(),
        full: VecDeque::new(),
        lent: Vec::new(),
        is_reading: false,
        returned: 0,
        refused: 0,
    }),
    changed: Condvar::new(),
};

/// Returns the buffer size in bytes and the number of buffers for an amount of memory.
///
/// # Errors
/// Returns [`ActivityError::TooLittleMemory`].
pub(super) fn shape(memory: usize) -> ActivityResult<(usize, usize)> {
    let minimum = BUFFERS * MIN_BYTES;
    if memory < minimum {
        return Err(ActivityError::TooLittleMemory { bytes: memory, minimum });
    }
    let bytes = (memory / BUFFERS).min(BYTES) / ALIGNMENT * ALIGNMENT;
    Ok((bytes, memory / bytes))
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts lending buffers.
    ///
    /// # Errors
    /// Returns [`ActivityError::TooLittleMemory`].
    pub(super) fn open(&self, memory: usize) -> ActivityResult<()> {
        let (bytes, most) = shape(memory)?;
        let mut ready: Vec<Buffer> = (0..READY).map_while(|_| Buffer::new(bytes)).collect();
        // Write to the buffers, because the system maps pages only on the first write.
        ready.iter_mut().for_each(Buffer::clear);
        let mut state = self.lock();
        let made = ready.len();
        *state = State {
            bytes,
            most,
            made,
            free: ready,
            full: VecDeque::new(),
            lent: Vec::new(),
            is_reading: false,
            returned: 0,
            refused: 0,
        };
        Ok(())
    }

    /// Stops lending buffers. The reader terminates once it has read the full buffers. Returns the number of failed
    /// requests.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.lock();
        state.bytes = 0;
        let free = std::mem::take(&mut state.free);
        let refused = state.refused;
        drop(state);
        self.changed.notify_all();
        drop(free);
        refused
    }

    /// Returns the next full buffer, waiting for one if necessary. Returns `None` once the recording has ended and all
    /// buffers have been taken. The caller must [recycle](Self::recycle) the buffer.
    pub(super) fn take(&self) -> Option<Filled> {
        let mut state = self.lock();
        loop {
            if let Some(filled) = state.full.pop_front() {
                state.is_reading = true;
                return Some(filled);
            }
            if state.bytes == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes a buffer available again after it has been read.
    pub(super) fn recycle(&self, filled: Filled) {
        let mut buffer = filled.buffer;
        buffer.clear();
        let mut state = self.lock();
        state.is_reading = false;
        let rest = state.keep(buffer);
        drop(state);
        self.changed.notify_all();
        drop(rest);
    }

    /// Waits until the returned buffers have been read and CUPTI either has no buffers left or has not returned one for
    /// the duration `quiet`.
    pub(super) fn wait_until_read(&self, quiet: Duration) {
        let mut state = self.lock();
        loop {
            while !state.full.is_empty() || state.is_reading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let (returned, until) = (state.returned, Instant::now() + quiet);
            while !state.lent.is_empty() && state.returned == returned {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.lent.is_empty() && state.full.is_empty() && !state.is_reading {
                return;
            }
        }
    }

    fn request(&self) -> Option<Buffer> {
        let mut state = self.lock();
        if state.bytes == 0 {
            return None;
        }
        let mut buffer = state.free.pop();
        if buffer.is_none() && state.made < state.most {
            buffer = Buffer::new(state.bytes);
            state.made += usize::from(buffer.is_some());
        }
        match &buffer {
            Some(buffer) => state.lent.push(buffer.address()),
            None => state.refused += 1,
        }
        buffer
    }

    fn complete(&self, buffer: Buffer, valid: usize) {
        let mut state = self.lock();
        let lent = state.lent.iter().position(|address| *address == buffer.address());
        let Some(lent) = lent else {
            // The buffer belongs to an earlier recording, whose sink no longer exists.
            drop(state);
            return drop(buffer);
        };
        state.lent.swap_remove(lent);
        state.returned += 1;
        let rest = if valid == 0 {
            state.keep(buffer)
        } else {
            let valid = valid.min(buffer.bytes);
            state.full.push_back(Filled { buffer, valid });
            None
        };
        drop(state);
        self.changed.notify_all();
        drop(rest);
    }
}

impl State {
    /// Keeps a buffer for the next request. Returns a buffer of another recording, which the caller must free without
    /// holding the lock.
    fn keep(&mut self, buffer: Buffer) -> Option<Buffer> {
        if buffer.bytes == self.bytes {
            self.free.push(buffer);
            return None;
        }
        self.made = self.made.saturating_sub(1);
        Some(buffer)
    }
}

/// CUPTI callback that requests an empty buffer.
pub(super) unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, max_records: *mut usize) {
    let lent = HUB.request().map_or((std::ptr::null_mut(), 0), Buffer::into_raw);
    // SAFETY: CUPTI passes pointers to its own variables. Zero means as many records as fit.
    unsafe {
        *buffer = lent.0;
        *bytes = lent.1;
        *max_records = 0;
    }
}

/// CUPTI callback that returns a buffer.
pub(super) unsafe extern "C" fn completed(
    _context: CUcontext,
    _stream: u32,
    buffer: *mut u8,
    bytes: usize,
    valid: usize,
) {
    // SAFETY: CUPTI returns each buffer once, with the size passed when it was lent.
    if let Some(buffer) = unsafe { Buffer::from_raw(buffer, bytes) } {
        HUB.complete(buffer, valid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    #[test]
    fn memory_is_divided_into_buffers() {
        assert_eq!(shape(256 << 20).unwrap(), (4 << 20, 64));
        assert_eq!(shape(64 << 10).unwrap(), (16 << 10, 4));
        assert_eq!(shape((1 << 20) + 5).unwrap(), (256 << 10, 4));
        assert_eq!(
            shape(1000).unwrap_err(),
            ActivityError::TooLittleMemory { bytes: 1000, minimum: 64 << 10 }
        );
    }

    #[test]
    fn requests_beyond_the_memory_are_refused_and_counted() {
        let _turn = fake::turn();
        HUB.open(64 << 10).unwrap();
        let lent: Vec<Buffer> = (0..4).map(|_| HUB.request().unwrap()).collect();
        assert!(HUB.request().is_none() && HUB.request().is_none());
        for buffer in lent {
            HUB.complete(buffer, 0);
        }
        assert!(
            HUB.request().is_some_and(|buffer| {
                HUB.complete(buffer, 0);
                true
            }),
            "an empty buffer is lent again"
        );
        assert_eq!(HUB.close(), 2);
        assert!(HUB.request().is_none(), "nothing is recorded");
    }

    #[test]
    fn buffers_are_zero_when_they_are_lent_again() {
        let _turn = fake::turn();
        HUB.open(64 << 10).unwrap();
        let buffer = HUB.request().unwrap();
        // SAFETY: the buffer has this many bytes.
        unsafe { buffer.memory.as_ptr().write_bytes(0xA5, buffer.bytes) };
        HUB.complete(buffer, 100);
        let filled = HUB.take().unwrap();
        assert_eq!(filled.bytes(), [0xA5; 100]);
        HUB.recycle(filled);
        for _ in 0..4 {
            let buffer = HUB.request().unwrap();
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.memory.as_ptr(), buffer.bytes) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            std::mem::forget(buffer);
        }
        HUB.close();
        assert!(HUB.take().is_none());
    }

    #[test]
    fn a_late_buffer_of_an_earlier_recording_is_freed() {
        let _turn = fake::turn();
        HUB.open(64 << 10).unwrap();
        let late = HUB.request().unwrap();
        HUB.close();
        HUB.open(64 << 10).unwrap();
        HUB.complete(late, 64);
        assert!(HUB.lock().full.is_empty() && HUB.lock().free.len() == READY);
        HUB.close();
        assert!(HUB.take().is_none());
    }
}
