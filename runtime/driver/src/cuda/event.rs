//! Making events, for this process and to be shared with others. A context is current in every function here.

use std::ffi::c_char;

use cudarc::driver::sys;
use sys::CUevent_flags as Flags;

use super::call::{Feature, check};
use crate::error::Result;

fn with_flags(flags: &[Flags]) -> Result<sys::CUevent> {
    let flags = flags.iter().fold(0, |all, flag| all | *flag as u32);
    let mut event = std::ptr::null_mut();
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuEventCreate", sys::cuEventCreate(&mut event, flags)) }?;
    Ok(event)
}

/// Creates an event.
pub(super) fn create(timing: bool) -> Result<sys::CUevent> {
    with_flags(if timing { &[] } else { &[Flags::CU_EVENT_DISABLE_TIMING] })
}

/// Creates an event that other processes can be given.
pub(super) fn create_shared() -> Result<sys::CUevent> {
    Feature::SharedEvents.need("cuIpcGetEventHandle")?;
    with_flags(&[Flags::CU_EVENT_DISABLE_TIMING, Flags::CU_EVENT_INTERPROCESS])
}

/// What another process needs to use an event, which is alive.
pub(super) fn export(event: sys::CUevent) -> Result<[u8; 64]> {
    Feature::SharedEvents.need("cuIpcGetEventHandle")?;
    let mut handle = sys::CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: the event is alive, by the trait's contract; the pointer is to a local variable.
    unsafe { check("cuIpcGetEventHandle", sys::cuIpcGetEventHandle(&mut handle, event)) }?;
    Ok(handle.reserved.map(|byte| byte as u8))
}

/// The event that another process exported.
pub(super) fn import(exported: [u8; 64]) -> Result<sys::CUevent> {
    Feature::SharedEvents.need("cuIpcOpenEventHandle")?;
    let handle = sys::CUipcEventHandle { reserved: exported.map(|byte| byte as c_char) };
    let mut event = std::ptr::null_mut();
    // SAFETY: the pointer is to a local variable; what no process exported is an error of the call.
    unsafe { check("cuIpcOpenEventHandle", sys::cuIpcOpenEventHandle(&mut event, handle)) }?;
    Ok(event)
}
