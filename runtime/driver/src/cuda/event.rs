//! Making events. A context is current.

use cudarc::driver::sys;

use super::call::check;
use crate::error::Result;

/// Creates an event.
pub(super) fn create(timing: bool) -> Result<sys::CUevent> {
    let flags = if timing { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
    let mut event = std::ptr::null_mut();
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuEventCreate", sys::cuEventCreate(&mut event, flags)) }?;
    Ok(event)
}
