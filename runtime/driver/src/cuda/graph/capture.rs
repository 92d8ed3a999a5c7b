//! Stream capture. Every function in this module requires a current context.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use sys::CUstreamCaptureMode as Mode;
use sys::CUstreamCaptureStatus as Status;

use super::super::call::{Feature, check, error, find_symbol};
use super::super::host_functions;
use crate::error::{DriverError, Result, capture_advice, code};
use crate::{CaptureMode, CaptureStatus, GraphFunction, GraphHandle, NodeHandle};

pub(in super::super) fn begin(stream: sys::CUstream, mode: CaptureMode) -> Result<()> {
    let mode = match mode {
        CaptureMode::Global => Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
    };
    // SAFETY: the stream is alive, by the trait's contract.
    unsafe { check("cuStreamBeginCapture", sys::cuStreamBeginCapture_v2(stream, mode)) }
}

/// Ends the capture that was started on a stream. The capture ends even after an error, unless the call is made on the
/// wrong thread.
pub(in super::super) fn end(stream: sys::CUstream) -> Result<GraphHandle> {
    match try_end(stream) {
        Ok(graph) => graph.ok_or_else(invalidated),
        Err(error) if error.code() == Some(code::STREAM_CAPTURE_WRONG_THREAD) => Err(error),
        Err(error) => {
            // The capture may have ended already. If it is only invalidated, it must still be ended.
            if !matches!(status(stream), Ok(CaptureStatus::None))
                && let Ok(Some(graph)) = try_end(stream)
            {
                // SAFETY: the graph was just created and is not used anywhere else.
                unsafe { sys::cuGraphDestroy(graph.0 as sys::CUgraph) };
            }
            Err(error)
        }
    }
}

fn try_end(stream: sys::CUstream) -> Result<Option<GraphHandle>> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, by the trait's contract; the pointer is to a local variable.
    unsafe { check("cuStreamEndCapture", sys::cuStreamEndCapture(stream, &mut graph)) }?;
    Ok((!graph.is_null()).then_some(GraphHandle(graph as u64)))
}

/// Returns the error for a capture that ended successfully but without a graph.
fn invalidated() -> DriverError {
    let (code, name) = (code::STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    let text = format!("the driver returned no graph; {}", capture_advice(code).unwrap_or_default());
    error("cuStreamEndCapture", code, name, text)
}

type CaptureInfo = unsafe extern "C" fn(
    sys::CUstream,
    *mut Status,
    *mut sys::cuuint64_t,
    *mut sys::CUgraph,
    *mut *const sys::CUgraphNode,
    *mut usize,
) -> sys::CUresult;

/// Returns the capture query of drivers before CUDA 12.3, which the bindings lack.
fn older_info() -> Result<CaptureInfo> {
    const SYMBOL: &str = "cuStreamGetCaptureInfo_v2";
    static FUNCTION: OnceLock<Option<CaptureInfo>> = OnceLock::new();
    // SAFETY: the library's function with this name has this signature.
    let found = FUNCTION.get_or_init(|| unsafe { find_symbol(SYMBOL) });
    found.ok_or(DriverError::LacksFunction { symbol: SYMBOL })
}

pub(in super::super) fn status(stream: sys::CUstream) -> Result<CaptureStatus> {
    info(stream).map(|info| status_of(info.status, info.id))
}

/// Returns the nodes on which the next work of a stream depends; empty if the stream is not being captured.
pub(super) fn tips(stream: sys::CUstream) -> Result<Vec<NodeHandle>> {
    let info = info(stream)?;
    if !matches!(status_of(info.status, info.id), CaptureStatus::Active(_)) || info.tips.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the driver's array contains this number of nodes and is valid until the next call on the stream. By the
    // trait's contract, no other thread makes such a call until then.
    let tips = unsafe { std::slice::from_raw_parts(info.tips, info.count) };
    Ok(tips.iter().map(|node| NodeHandle(*node as u64)).collect())
}

/// Capture information of a stream, as the driver reports it.
struct Info {
    /// Status, stored as a plain number because newer drivers may return values that the bindings do not define.
    status: u32,
    id: sys::cuuint64_t,
    /// Array owned by the driver; null if the stream is not capturing.
    tips: *const sys::CUgraphNode,
    count: usize,
}

fn info(stream: sys::CUstream) -> Result<Info> {
    use std::ptr::{null, null_mut};

    let status = Status::CU_STREAM_CAPTURE_STATUS_NONE as u32;
    let mut info = Info { status, id: 0, tips: null(), count: 0 };
    let mut edges: *const sys::CUgraphEdgeData = null();
    let Info { status, id, tips, count } = &mut info;
    let place = std::ptr::from_mut(status).cast::<Status>();
    // SAFETY: the stream is alive, by the trait's contract. The pointers are to local variables, or null for
    // information that is not requested; the status is a 32-bit number. Without a pointer for edge data, the query
    // would fail for edges that have such data.
    let result = unsafe {
        if Feature::GraphEdgeData.is_there() {
            sys::cuStreamGetCaptureInfo_v3(stream, place, id, null_mut(), tips, &mut edges, count)
        } else {
            older_info()?(stream, place, id, null_mut(), tips, count)
        }
    };
    check("cuStreamGetCaptureInfo", result)?;
    Ok(info)
}

fn status_of(status: u32, id: u64) -> CaptureStatus {
    const NONE: u32 = Status::CU_STREAM_CAPTURE_STATUS_NONE as u32;
    const ACTIVE: u32 = Status::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32;
    match status {
        NONE => CaptureStatus::None,
        ACTIVE => CaptureStatus::Active(id),
        _ => CaptureStatus::Invalidated,
    }
}

/// Adds a host function call to the capture of a stream.
///
/// # Safety
/// The function must be kept alive until no executable instantiated from the graph, or from a copy of it, can run.
pub(in super::super) unsafe fn host_function(
    stream: sys::CUstream,
    function: &Arc<GraphFunction>,
) -> Result<()> {
    const CALL: &str = "cuLaunchHostFunc";
    if status(stream)? == CaptureStatus::None {
        let text = "the stream is not being captured; start the capture first";
        return Err(error(CALL, code::ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", text.to_owned()));
    }
    let host = host_functions::of_graph(function);
    // SAFETY: the stream is alive, by the trait's contract; the caller keeps the function alive.
    unsafe { check(CALL, sys::cuLaunchHostFunc(stream, host.fn_, host.userData)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_statuses_are_invalidated_captures() {
        assert_eq!(status_of(0, 7), CaptureStatus::None);
        assert_eq!(status_of(1, 7), CaptureStatus::Active(7));
        assert_eq!(status_of(2, 7), CaptureStatus::Invalidated);
        assert_eq!(status_of(9, 7), CaptureStatus::Invalidated);
    }

    #[test]
    fn a_capture_without_a_graph_says_what_to_do() {
        let text = invalidated().to_string();
        assert!(text.contains("cuStreamEndCapture") && text.contains("capture again"), "{text}");
    }
}
