//! Streams and events.

use cudarc::driver::sys;

use super::call::{self, Feature, RelaxedCapture, check, error};
use super::context::bind;
use super::{CudaDriver, host_functions, stream_of};
use crate::error::{Result, code};
use crate::{Context, EventHandle, HostFunction, IPC_EVENT_BYTES, StreamDriver, StreamHandle};

fn event_of(event: EventHandle) -> sys::CUevent {
    event.0 as sys::CUevent
}

/// Returns true for success, false for "not ready".
fn ready(call: &'static str, result: sys::CUresult) -> Result<bool> {
    match result {
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => check(call, result).map(|()| true),
    }
}

/// Returns the context of a stream, if the driver reports it. For a stream of a green context, returns the primary
/// context.
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

// SAFETY: CUDA's driver upholds this contract; each method forwards its arguments to the driver and returns its result.
unsafe impl StreamDriver for CudaDriver {
    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)> {
        bind(context)?;
        let (mut least, mut most) = (0, 0);
        // SAFETY: the pointers are to local variables.
        let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut most) };
        check("cuCtxGetStreamPriorityRange", result)?;
        Ok((least, most))
    }

    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is to a local variable.
        unsafe {
            check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, priority))
        }?;
        Ok(StreamHandle(stream as u64))
    }

    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64> {
        bind(context)?;
        let stream = stream_of(stream);
        if let Some(of) = context_of(stream)?
            && of != context.0 as sys::CUcontext
        {
            let text = "the stream belongs to another device or context";
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

    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32> {
        bind(context)?;
        let mut priority = 0;
        // SAFETY: the stream is alive, by the trait's contract; the pointer is to a local variable.
        unsafe { check("cuStreamGetPriority", sys::cuStreamGetPriority(stream_of(stream), &mut priority)) }?;
        Ok(priority)
    }

    unsafe fn stream_destroy(&self, context: Context, stream: StreamHandle) {
        if bind(context).is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: guaranteed by the caller. An error cannot be reported here.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream_of(stream)) };
        }
    }

    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { ready("cuStreamQuery", sys::cuStreamQuery(stream_of(stream))) }
    }

    fn stream_synchronize(&self, context: Context, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { check("cuStreamSynchronize", sys::cuStreamSynchronize(stream_of(stream))) }
    }

    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { check("cuStreamWaitEvent", sys::cuStreamWaitEvent(stream_of(stream), event_of(event), 0)) }
    }

    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()> {
        bind(context)?;
        host_functions::enqueue(context, stream_of(stream), function)
    }

    fn event_create(&self, context: Context, timing: bool) -> Result<EventHandle> {
        bind(context)?;
        let flags = if timing { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuEventCreate", sys::cuEventCreate(&mut event, flags)) }?;
        Ok(EventHandle(event as u64))
    }

    unsafe fn event_destroy(&self, context: Context, event: EventHandle) {
        // SAFETY: guaranteed by the caller. An error cannot be reported here.
        let _ = unsafe { bind(context).map(|()| sys::cuEventDestroy_v2(event_of(event))) };
    }

    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { check("cuEventRecord", sys::cuEventRecord(event_of(event), stream_of(stream))) }
    }

    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { ready("cuEventQuery", sys::cuEventQuery(event_of(event))) }
    }

    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { check("cuEventSynchronize", sys::cuEventSynchronize(event_of(event))) }
    }

    fn event_create_shared(&self, context: Context) -> Result<EventHandle> {
        bind(context)?;
        Feature::SharedEvents.need("cuIpcGetEventHandle")?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32
            | sys::CUevent_flags::CU_EVENT_INTERPROCESS as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuEventCreate", sys::cuEventCreate(&mut event, flags)) }?;
        Ok(EventHandle(event as u64))
    }

    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; IPC_EVENT_BYTES]> {
        bind(context)?;
        let mut handle = sys::CUipcEventHandle { reserved: [0; IPC_EVENT_BYTES] };
        // SAFETY: the event is alive, by the trait's contract; the pointer is to a local variable.
        unsafe { check("cuIpcGetEventHandle", sys::cuIpcGetEventHandle(&mut handle, event_of(event))) }?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn event_import(&self, context: Context, event: &[u8; IPC_EVENT_BYTES]) -> Result<EventHandle> {
        bind(context)?;
        Feature::SharedEvents.need("cuIpcOpenEventHandle")?;
        let handle = sys::CUipcEventHandle { reserved: event.map(|byte| byte as std::ffi::c_char) };
        let mut opened = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable; the driver rejects an unknown handle.
        unsafe { check("cuIpcOpenEventHandle", sys::cuIpcOpenEventHandle(&mut opened, handle)) }?;
        Ok(EventHandle(opened as u64))
    }

    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64> {
        bind(context)?;
        call::elapsed_us(event_of(start), event_of(end))
    }
}
