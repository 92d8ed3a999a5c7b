//! [`Replay`]: memory from which the kernels of a graph read the start position of their random numbers. The position
//! differs between launches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_kernels::random::random_base;
use warpsmith_runtime::graph::CaptureId;
use warpsmith_runtime::{DeviceBuffer, Launch, Stream};

use super::generator::State;
use crate::IMAGE;

/// The state that a generator keeps for one capture. The callback that runs before each launch of the graph owns this
/// state.
pub(super) struct Replay {
    capture: CaptureId,
    /// Seed and offset of the current launch, in device memory.
    base: Mutex<DeviceBuffer<u64>>,
    /// Number of words by which each launch advances the offset. It changes only while the generator is locked.
    increment: AtomicU64,
}

impl Replay {
    pub fn new(stream: &Stream, capture: CaptureId) -> warpsmith_runtime::Result<Self> {
        // The buffer is not allocated from the graph's memory, because it is written outside the graph.
        let base = DeviceBuffer::uninit(&stream.device().default_stream(), 2)?;
        Ok(Self { capture, base: Mutex::new(base), increment: AtomicU64::new(0) })
    }

    pub fn is_of(&self, capture: &CaptureId) -> bool {
        self.capture == *capture
    }

    pub fn is_active(&self) -> bool {
        self.capture.is_active()
    }

    pub fn increment(&self) -> u64 {
        self.increment.load(Ordering::Relaxed)
    }

    pub fn set_increment(&self, increment: u64) {
        self.increment.store(increment, Ordering::Relaxed);
    }

    /// Returns the memory that the captured kernels read.
    pub fn base(&self) -> MutexGuard<'_, DeviceBuffer<u64>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the start position of the next launch on the stream and takes numbers for that launch.
    pub fn begin(&self, stream: &Stream, state: &mut State) -> warpsmith_runtime::Result<()> {
        let kernel = stream.device().load(&IMAGE)?.kernel::<random_base>()?;
        kernel.launch(stream, Launch::grid_block(1, 32), (state.seed, state.offset, &mut *self.base()))?;
        // The increment is a multiple of 4, and no program can reach the largest offset. At the largest offset, the
        // generator wraps to 0, as in PyTorch.
        state.offset = state.offset.wrapping_add(self.increment()) & (i64::MAX as u64 - 3);
        Ok(())
    }
}
