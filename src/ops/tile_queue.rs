//! Scratch memory for kernels whose blocks take tiles in order ([`gpu_std::look_back`]), with one workspace per stream
//! and size.
//!
//! A workspace is initialized to zero, and every launch leaves it in the state that the next launch requires. When the
//! epochs wrap, the kernel clears the whole workspace, so the kernel must receive all of it. Workspace sizes are
//! therefore powers of two, and each size has separate memory.

use warpsmith_runtime::{DevicePtr, Error, Result, Stream};

use crate::op_error::OpError;

/// Purpose keys of the scratch buffers of 2¹⁶, 2¹⁷, … bytes.
const PURPOSES: [&str; 25] = [
    "tiles 2^16",
    "tiles 2^17",
    "tiles 2^18",
    "tiles 2^19",
    "tiles 2^20",
    "tiles 2^21",
    "tiles 2^22",
    "tiles 2^23",
    "tiles 2^24",
    "tiles 2^25",
    "tiles 2^26",
    "tiles 2^27",
    "tiles 2^28",
    "tiles 2^29",
    "tiles 2^30",
    "tiles 2^31",
    "tiles 2^32",
    "tiles 2^33",
    "tiles 2^34",
    "tiles 2^35",
    "tiles 2^36",
    "tiles 2^37",
    "tiles 2^38",
    "tiles 2^39",
    "tiles 2^40",
];

/// Runs `work` with the address and size of a stream workspace of at least `words` 64-bit words. Meanwhile, no other
/// thread can enqueue work that uses the workspace.
///
/// # Safety
/// `work` must use the workspace only in work on this stream, and only in kernels that use it as a
/// [`TileQueue`](gpu_std::look_back::TileQueue).
pub(super) unsafe fn with<R>(
    stream: &Stream,
    operation: &'static str,
    words: usize,
    work: impl FnOnce(DevicePtr, usize) -> Result<R>,
) -> Result<R> {
    let class = words.saturating_mul(8).max(1 << 16).checked_next_power_of_two();
    let class = class.map_or(usize::MAX, |bytes| bytes.trailing_zeros() as usize - 16);
    let Some(purpose) = PURPOSES.get(class) else {
        let problem = format!("the workspace of {words} words exceeds the maximum; pass fewer elements");
        return Err(Error::from(OpError::Unsupported { operation, problem }));
    };
    let bytes = 1 << (16 + class);
    // SAFETY: the setup work runs on this stream; the caller guarantees the rest.
    unsafe {
        stream.with_scratch(purpose, bytes, |memory, new| {
            if new {
                let (driver, context) = stream.device().driver();
                driver.memset(context, memory, 0, bytes, stream.handle())?;
            }
            work(memory, bytes / 8)
        })
    }
}
