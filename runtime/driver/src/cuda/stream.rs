//! What a stream is: its priority, its identity. A context is current in every function here.

use cudarc::driver::sys;

use super::call::{Feature, check, error};
use crate::Context;
use crate::error::{Result, code};

/// The priorities that streams can have: least and most urgent.
pub(super) fn priorities() -> Result<(i32, i32)> {
    let (mut least, mut most) = (0, 0);
    // SAFETY: the pointers are to local variables.
    let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut most) };
    check("cuCtxGetStreamPriorityRange", result)?;
    Ok((least, most))
}

/// The priority of a stream, which is alive.
pub(super) fn priority(stream: sys::CUstream) -> Result<i32> {
    let mut priority = 0;
    // SAFETY: the stream is alive, by the trait's contract; the pointer is to a local variable.
    unsafe { check("cuStreamGetPriority", sys::cuStreamGetPriority(stream, &mut priority)) }?;
    Ok(priority)
}

/// A number that no other stream ever has, where the driver has such; else the handle's value.
pub(super) fn unique_id(context: Context, stream: sys::CUstream) -> Result<u64> {
    if let Some(of) = context_of(stream)?
        && of != context.0 as sys::CUcontext
    {
        let text = "the stream is of another device or another context";
        return Err(error(
            "cuStreamGetCtx",
            code::INVALID_HANDLE,
            "CUDA_ERROR_INVALID_HANDLE",
            text.to_owned(),
        ));
    }
    if !Feature::StreamIds.is_there() {
        return Ok(stream as u64);
    }
    let mut id = 0;
    // SAFETY: the stream is alive, by the trait's contract; the pointer is to a local variable.
    unsafe { check("cuStreamGetId", sys::cuStreamGetId(stream, &mut id)) }?;
    Ok(id)
}

/// The context of a stream, where the driver tells. For a stream of a part of a device that is the primary context.
fn context_of(stream: sys::CUstream) -> Result<Option<sys::CUcontext>> {
    let (mut context, mut part) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the stream is alive, by the trait's contract; the pointers are to local variables.
    let result = unsafe {
        if Feature::StreamParts.is_there() {
            sys::cuStreamGetCtx_v2(stream, &mut context, &mut part)
        } else if Feature::StreamContexts.is_there() {
            sys::cuStreamGetCtx(stream, &mut context)
        } else {
            return Ok(None);
        }
    };
    check("cuStreamGetCtx", result).map(|()| Some(context))
}
