//! Scratch memory for reductions. Each stream has its own workspace, so two streams never share one.
//!
//! A workspace is initialized to zero, and every reduction leaves its header zero, so consecutive launches on one
//! stream need no memset. The stream keeps the workspace and replaces it with a larger one if a larger grid requires
//! it.

use gpu_std::reduction::{MAX_BYTES, workspace_bytes};
use warpsmith_runtime::{DeviceCopy, DevicePtr, Result, Stream};

/// Size, in bytes, of the area at the start of the memory for a value that is copied to the host.
const RESULT_BYTES: usize = MAX_BYTES;
/// Number of blocks for which the first allocation is large enough.
const MIN_BLOCKS: u32 = 1024;

#[derive(Debug, Clone, Copy)]
pub(super) struct Workspace {
    memory: DevicePtr,
}

/// Runs `work` with the stream's workspace, which is first allocated or enlarged for `blocks` blocks with one value of
/// `value_bytes` bytes each. Meanwhile, no other thread can enqueue work that uses the workspace.
///
/// # Safety
/// `work` must use the workspace only in work on this stream, for grids of up to `blocks` blocks, and its kernels must
/// leave the header zero.
pub(super) unsafe fn with<R>(
    stream: &Stream,
    blocks: u32,
    value_bytes: usize,
    work: impl FnOnce(&Workspace) -> Result<R>,
) -> Result<R> {
    // Sizes are powers of two, so that grids of growing size rarely need a new allocation.
    let blocks = blocks.max(MIN_BLOCKS).checked_next_power_of_two().unwrap_or(blocks);
    let bytes = RESULT_BYTES + workspace_bytes(value_bytes, blocks as usize);
    // SAFETY: the setup work runs on this stream; the caller guarantees the rest.
    unsafe {
        stream.with_scratch("reduce", bytes, |memory, new| {
            if new {
                let (driver, context) = stream.device().driver();
                driver.memset(context, memory, 0, bytes, stream.handle())?;
            }
            work(&Workspace { memory })
        })
    }
}

impl Workspace {
    /// Returns the address of the value that is copied to the host.
    pub fn result(&self) -> DevicePtr {
        self.memory
    }

    /// Returns the address of the partial results, which is the kernel's workspace.
    pub fn partials(&self) -> DevicePtr {
        self.memory.offset(RESULT_BYTES)
    }

    /// Waits for the stream and reads the result.
    pub fn read<T: DeviceCopy>(&self, stream: &Stream) -> Result<T> {
        const { assert!(size_of::<T>() <= RESULT_BYTES) };
        let mut value = T::zeroed();
        if stream.is_capturing() {
            return Err(warpsmith_runtime::Error::Graph(warpsmith_runtime::GraphError::NotCapturable {
                call: "an operation that returns its result to the host",
                instead: "use the variant that writes the result to a buffer, `…_into`",
            }));
        }
        // SAFETY: the driver calls receive only the stream's own handles and memory that the stream keeps alive.
        let (driver, context) = unsafe { stream.device().driver() };
        // SAFETY: the memory is valid. `value` stays valid until the stream has been synchronized. After that, the copy
        // is no longer running, regardless of its outcome.
        let copied = unsafe {
            let target = std::ptr::from_mut(&mut value).cast();
            driver.copy_to_host(context, target, self.memory, size_of::<T>(), stream.handle())
        };
        // The stream's error takes precedence because it explains the fault.
        stream.synchronize()?;
        copied?;
        Ok(value)
    }
}
