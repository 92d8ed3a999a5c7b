//! Access of one device to another's memory.

use cudarc::driver::sys;

use super::call::{self, Feature, RelaxedCapture, check};
use crate::driver::Context;
use crate::error::Result;

/// Whether device `ordinal` can reach the memory of device `peer`. No context is needed.
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

/// Lets the current context reach the memory of another, which is retained.
pub(super) fn enable(peer: Context) -> Result<()> {
    Feature::Peers.need("cuCtxEnablePeerAccess")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: both contexts are retained, by the trait's contract.
    match unsafe { sys::cuCtxEnablePeerAccess(peer.0 as sys::CUcontext, 0) } {
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        result => check("cuCtxEnablePeerAccess", result),
    }
}
