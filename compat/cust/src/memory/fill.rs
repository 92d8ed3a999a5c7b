//! Fills device memory with 16-bit and 32-bit values. The first chunk is copied from the host, and the filled range is
//! then doubled repeatedly on the device.

use std::sync::Arc;

use super::copy::Transfer;
use crate::context;
use crate::error::CudaResult;
use crate::stream::{Stream, wait_for_blocking};

/// Maximum size, in bytes, of the chunk copied from the host.
const FIRST: usize = 64 << 10;

/// Fills `bytes` bytes at `to` with repetitions of `pattern`, ordered after earlier work in blocking streams.
///
/// # Safety
///
/// The memory must have `bytes` bytes, a multiple of the size of the pattern. Nothing else may access the memory during
/// the call.
pub(super) unsafe fn fill(to: u64, bytes: usize, pattern: &[u8]) -> CudaResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let device = context::current()?;
    wait_for_blocking(&device)?;
    let stream = device.default_stream();
    let first = first(bytes, pattern);
    // SAFETY: the caller guarantees the requirements, and `first` stays valid until the wait has ended.
    unsafe { enqueue(to, bytes, &first, &stream)? };
    Ok(stream.synchronize()?)
}

/// Enqueues [`fill`].
///
/// # Safety
///
/// The safety contract of [`fill`] must be upheld until the stream has completed the work.
pub(super) unsafe fn fill_async(to: u64, bytes: usize, pattern: &[u8], stream: &Stream) -> CudaResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (first, stream) = (Arc::new(first(bytes, pattern)), stream.runtime());
    // SAFETY: the caller guarantees the requirements. `first` stays valid until the stream has reached the host
    // function or, if enqueuing it fails, until the wait has ended.
    let enqueued = unsafe { enqueue(to, bytes, &first, stream) };
    let kept = Arc::clone(&first);
    if let Err(error) = stream.host_function(move || drop(kept)) {
        let _ = stream.synchronize();
        return Err(error.into());
    }
    enqueued
}

fn first(bytes: usize, pattern: &[u8]) -> Vec<u8> {
    pattern.iter().copied().cycle().take(bytes.min(FIRST)).collect()
}

/// # Safety
///
/// The caller must uphold the safety contract of [`fill_async`], and `first` must stay valid until the stream has
/// completed the work.
unsafe fn enqueue(to: u64, bytes: usize, first: &[u8], stream: &warpsmith_runtime::Stream) -> CudaResult<()> {
    let (device, handle) = (stream.device(), stream.handle());
    let upload = Transfer::ToDevice { from: first.as_ptr().cast(), to };
    // SAFETY: the caller guarantees the requirements; each copy reads only elements that earlier copies have written.
    unsafe {
        upload.enqueue_on(device, handle, first.len())?;
        let mut done = first.len();
        while done < bytes {
            let more = done.min(bytes - done);
            Transfer::OnDevice { from: to, to: to + done as u64 }.enqueue_on(device, handle, more)?;
            done += more;
        }
    }
    Ok(())
}
