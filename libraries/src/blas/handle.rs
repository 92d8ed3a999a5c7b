//! [`Handle`]: a cuBLAS handle that caches its settings. [`enqueue`]: the function that makes all cuBLAS calls.

use std::ffi::c_void;

use cudarc::{cublas, cublaslt};

use super::State;
use super::settings::{Math, workspaces};
use crate::element::DataType;
use crate::error::LibraryError;
use crate::handles::LibraryHandle;
use crate::vendor::Vendor;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::extension::BufferUse;
use warpsmith_runtime::{Result, Stream};

use cublas::sys::{self, cublasMath_t};

/// Key of a stream's cuBLAS workspace.
const WORKSPACE: &str = "cuBLAS";

#[derive(Debug)]
pub(crate) struct Handle {
    raw: sys::cublasHandle_t,
    /// Address and size of the workspace in bytes, or `None` while cuBLAS uses its own workspace.
    workspace: Option<(u64, usize)>,
    math: cublasMath_t,
}

// SAFETY: a cuBLAS handle may be used from any thread, by one thread at a time.
unsafe impl Send for Handle {}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded and the context is current; the pointer refers to a local variable.
        check("cublasCreate", unsafe { sys::cublasCreate_v2(&mut raw) })?;
        Ok(Self { raw, workspace: None, math: cublasMath_t::CUBLAS_DEFAULT_MATH })
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        // This call resets the workspace of the cuBLAS handle.
        self.workspace = None;
        // SAFETY: the handle is alive and nothing else uses it, and the stream is alive.
        check("cublasSetStream", unsafe { sys::cublasSetStream_v2(self.raw, stream.0 as *mut _) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nothing else owns the handle. The handle is dropped with the device, after the device's work has
        // completed.
        unsafe { sys::cublasDestroy_v2(self.raw) };
    }
}

impl Handle {
    pub fn raw(&self) -> sys::cublasHandle_t {
        self.raw
    }

    fn set_workspace(&mut self, ptr: u64, bytes: usize) -> Result<()> {
        if self.workspace != Some((ptr, bytes)) {
            // SAFETY: the handle is used only here, and the memory is the stream's scratch buffer for this key.
            let status = unsafe { sys::cublasSetWorkspace_v2(self.raw, ptr as *mut c_void, bytes) };
            check("cublasSetWorkspace", status)?;
            self.workspace = Some((ptr, bytes));
        }
        Ok(())
    }

    /// Sets the compute precision for products of this element type.
    pub fn set_math(&mut self, math: Math, elements: DataType) -> Result<()> {
        let may_reduce = match elements {
            DataType::F16 => math.allow_fp16_reduced_precision_reduction,
            DataType::Bf16 => math.allow_bf16_reduced_precision_reduction,
            _ => true,
        };
        let mode = match may_reduce {
            true => cublasMath_t::CUBLAS_DEFAULT_MATH,
            false => cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
        };
        if self.math != mode {
            // SAFETY: the handle is alive and nothing else uses it.
            check("cublasSetMathMode", unsafe { sys::cublasSetMathMode(self.raw, mode) })?;
            self.math = mode;
        }
        Ok(())
    }
}

/// A cuBLASLt handle, which is not bound to a stream.
#[derive(Debug)]
pub(crate) struct LtHandle(cublaslt::sys::cublasLtHandle_t);

// SAFETY: a cuBLASLt handle may be used from any thread.
unsafe impl Send for LtHandle {}

impl LibraryHandle for LtHandle {
    fn create() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded and the context is current; the pointer refers to a local variable.
        check_lt("cublasLtCreate", unsafe { cublaslt::sys::cublasLtCreate(&mut raw) })?;
        Ok(Self(raw))
    }

    fn set_stream(&mut self, _: StreamHandle) -> Result<()> {
        Ok(())
    }
}

impl Drop for LtHandle {
    fn drop(&mut self) {
        // SAFETY: nothing else owns the handle. The handle is dropped with the device, after the device's work has
        // completed.
        unsafe { cublaslt::sys::cublasLtDestroy(self.0) };
    }
}

impl LtHandle {
    pub fn raw(&self) -> cublaslt::sys::cublasLtHandle_t {
        self.0
    }
}

/// Enqueues a cuBLAS call that accesses `parts`. The call receives a handle for the stream. On the emulated device,
/// enqueues `host` instead.
pub(super) fn enqueue(
    stream: &Stream,
    operation: &'static str,
    parts: &[BufferUse<'_>],
    call: impl FnOnce(&mut Handle) -> Result<()>,
    host: impl Fn() + Send + Sync + 'static,
) -> Result<()> {
    if stream.device().is_emulated() {
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so
        // the work accesses only the operands.
        return unsafe { stream.enqueue_host_named(operation, parts, host) };
    }
    enqueue_gpu(stream, operation, parts, call)
}

/// Enqueues a cuBLAS call on a GPU, like [`enqueue`].
pub(super) fn enqueue_gpu(
    stream: &Stream,
    operation: &'static str,
    parts: &[BufferUse<'_>],
    call: impl FnOnce(&mut Handle) -> Result<()>,
) -> Result<()> {
    Vendor::Cublas.version()?;
    let device = stream.device();
    let bytes = workspaces(device).cublas;
    with_workspace(stream, bytes, |workspace| {
        let library = |_| {
            let mut handle = State::of(device).handles.acquire(stream)?;
            handle.set_workspace(workspace, bytes)?;
            call(&mut handle)
        };
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so
        // the work accesses only the operands.
        unsafe { stream.enqueue_named(operation, parts, library) }
    })
}

/// Enqueues a cuBLASLt call that accesses `parts` and a workspace. If the workspace size is 0, the function receives
/// the address 0.
pub(super) fn enqueue_lt(
    stream: &Stream,
    parts: &[BufferUse<'_>],
    bytes: usize,
    call: impl FnOnce(&LtHandle, u64, StreamHandle) -> Result<()>,
) -> Result<()> {
    with_workspace(stream, bytes, |workspace| {
        let library = |stream_handle| {
            let handle = State::of(stream.device()).lt_handles.acquire(stream)?;
            call(&handle, workspace, stream_handle)
        };
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so
        // the work accesses only the operands.
        unsafe { stream.enqueue_named("blas::matmul", parts, library) }
    })
}

/// Calls a function with the address of the stream's workspace, or with 0 if the workspace has 0 bytes.
fn with_workspace(stream: &Stream, bytes: usize, enqueue: impl FnOnce(u64) -> Result<()>) -> Result<()> {
    match bytes {
        0 => enqueue(0),
        // SAFETY: the work is enqueued only on this stream. If the workspace is replaced, every handle receives the new
        // address before its next call.
        bytes => unsafe { stream.with_scratch(WORKSPACE, bytes, |ptr, _| enqueue(ptr.0)) },
    }
}

/// Converts a cuBLAS status to a `Result`.
pub(crate) fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    check_with(call, status, String::new)
}

/// Converts a cuBLAS status to a `Result`, whose error includes a description of the request.
#[inline]
pub(super) fn check_with(
    call: &'static str,
    status: sys::cublasStatus_t,
    context: impl FnOnce() -> String,
) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(LibraryError::of_call("cuBLAS", call, status, context())),
    }
}

/// Converts a cuBLASLt status to a `Result`.
pub(super) fn check_lt(call: &'static str, status: cublaslt::sys::cublasStatus_t) -> Result<()> {
    match status {
        cublaslt::sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(LibraryError::of_call("cuBLASLt", call, status, "")),
    }
}
