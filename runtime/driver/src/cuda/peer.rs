//! Peer access between devices, and peer copies, which work with or without it.

use cudarc::driver::sys;

use super::call::{self, Feature, RelaxedCapture, check};
use crate::error::Result;
use crate::{Context, DevicePtr};

/// Returns true if device `ordinal` can access the memory of device `peer`. The call requires no context.
pub(super) fn can_access(ordinal: u32, peer: u32) -> Result<bool> {
    if !Feature::Peers.is_there() {
        return Ok(false);
    }
    let (device, peer) = (call::device(ordinal)?, call::device(peer)?);
    let mut can = 0;
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuDeviceCanAccessPeer", sys::cuDeviceCanAccessPeer(&mut can, device, peer)) }?;
    Ok(can != 0)
}

/// Grants the current context access to the memory of another context, which must be retained.
pub(super) fn enable(peer: Context) -> Result<()> {
    Feature::Peers.need("cuCtxEnablePeerAccess")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: both contexts are retained, by the trait's contract.
    match unsafe { sys::cuCtxEnablePeerAccess(peer.0 as sys::CUcontext, 0) } {
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        result => check("cuCtxEnablePeerAccess", result),
    }
}

/// Enqueues a copy between two contexts, or within one context. Accepts any kind of memory, including mapped memory.
///
/// # Safety
/// Both contexts must be retained. Both ranges must be valid for `bytes` bytes until the copy has run and must not
/// overlap.
pub(super) unsafe fn copy(
    dst: (Context, DevicePtr),
    src: (Context, DevicePtr),
    bytes: usize,
    stream: sys::CUstream,
) -> Result<()> {
    let (to, from) = (dst.1.0, src.1.0);
    if dst.0 == src.0 {
        // SAFETY: guaranteed by the caller.
        return unsafe { check("cuMemcpyDtoDAsync", sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream)) };
    }
    Feature::Peers.need("cuMemcpyPeerAsync")?;
    let (to_context, from_context) = (dst.0.0 as sys::CUcontext, src.0.0 as sys::CUcontext);
    // SAFETY: guaranteed by the caller.
    let result = unsafe { sys::cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream) };
    check("cuMemcpyPeerAsync", result)
}
