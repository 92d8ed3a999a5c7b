//! cuFFT functions with descriptive errors. The bindings do not contain the functions of `cufftXt.h`, which support
//! half precision.

use std::ffi::{c_int, c_void};

use super::shape::Key;
use super::{Direction, Kind};
use crate::element::DataType;
use crate::error::LibraryError;
use crate::functions::functions;
use crate::vendor::Vendor;
use warpsmith_runtime::driver::{DevicePtr, StreamHandle};
use warpsmith_runtime::error::Result;

/// The handle of a plan.
pub(super) type Handle = c_int;

functions! {
    Vendor::Cufft, c_int, 14;
    cufftCreate(plan: *mut Handle);
    cufftDestroy(plan: Handle);
    cufftSetAutoAllocation(plan: Handle, auto_allocate: c_int);
    cufftSetStream(plan: Handle, stream: *mut c_void);
    cufftSetWorkArea(plan: Handle, work_area: *mut c_void);
    cufftXtMakePlanMany(plan: Handle, rank: c_int, n: *mut i64, inembed: *mut i64, istride: i64, idist: i64, input_type: u32, onembed: *mut i64, ostride: i64, odist: i64, output_type: u32, batch: i64, work_size: *mut usize, execution_type: u32);
    cufftXtExec(plan: Handle, input: *mut c_void, output: *mut c_void, direction: c_int);
}

/// Creates a handle for a plan. All functions of this module require that the library is loaded and a context is
/// current.
pub(super) fn create() -> Result<Handle> {
    let mut handle = 0;
    // SAFETY: the pointer refers to a local variable.
    check("cufftCreate", unsafe { cufftCreate(&mut handle) })?;
    Ok(handle)
}

/// Creates a plan without a work area and returns the required size of the work area in bytes.
pub(super) fn make(operation: &'static str, handle: Handle, key: &Key) -> Result<usize> {
    // SAFETY: the handle belongs to a plan.
    check("cufftSetAutoAllocation", unsafe { cufftSetAutoAllocation(handle, 0) })?;
    let mut sizes = [1i64; 3];
    let rank = key.sizes().len() as c_int;
    for (to, from) in sizes.iter_mut().zip(key.sizes()) {
        *to = i64::try_from(*from).unwrap_or(i64::MAX);
    }
    // These values come from CUDA's `library_types.h`.
    let (real, complex) = match key.precision {
        DataType::F64 => (1, 5),
        DataType::F16 => (2, 6),
        _ => (0, 4),
    };
    let (from, to) = match key.kind {
        Kind::Complex => (complex, complex),
        Kind::FromReal => (real, complex),
        Kind::ToReal => (complex, real),
    };
    let batch = i64::try_from(key.batch).unwrap_or(i64::MAX);
    let (sizes, none, mut bytes) = (sizes.as_mut_ptr(), std::ptr::null_mut(), 0);
    // SAFETY: `sizes` has `rank` elements, the data is contiguous because there are no embeddings, and the last pointer
    // refers to a local variable.
    let status = unsafe {
        cufftXtMakePlanMany(handle, rank, sizes, none, 1, 1, from, none, 1, 1, to, batch, &mut bytes, complex)
    };
    check_with("cufftXtMakePlanMany", status, || format!("{operation}, {}", key.describe()))?;
    Ok(bytes)
}

pub(super) fn set_stream(handle: Handle, stream: StreamHandle) -> Result<()> {
    // SAFETY: both handles are alive.
    check("cufftSetStream", unsafe { cufftSetStream(handle, stream.0 as *mut c_void) })
}

/// Enqueues a transform.
///
/// # Safety
/// The three ranges must match the plan, and nothing else may use the plan during the call.
pub(super) unsafe fn execute(
    key: &Key,
    direction: Direction,
    handle: Handle,
    area: DevicePtr,
    [input, output]: [DevicePtr; 2],
) -> Result<()> {
    let pointer = |ptr: DevicePtr| ptr.0 as *mut c_void;
    if area != DevicePtr::NULL {
        // SAFETY: guaranteed by the caller.
        check("cufftSetWorkArea", unsafe { cufftSetWorkArea(handle, pointer(area)) })?;
    }
    let direction = match direction {
        Direction::Forward => -1,
        Direction::Inverse => 1,
    };
    // SAFETY: guaranteed by the caller.
    let status = unsafe { cufftXtExec(handle, pointer(input), pointer(output), direction) };
    check_with("cufftXtExec", status, || key.describe())
}

/// Destroys a plan that is not in use.
pub(super) fn destroy(handle: Handle) {
    // SAFETY: the handle belongs to a plan that is being dropped.
    unsafe { cufftDestroy(handle) };
}

fn check(call: &'static str, status: c_int) -> Result<()> {
    check_with(call, status, String::new)
}

fn check_with(call: &'static str, status: c_int, context: impl FnOnce() -> String) -> Result<()> {
    const NAMES: [&str; 20] = [
        "INVALID_PLAN",
        "ALLOC_FAILED",
        "INVALID_TYPE",
        "INVALID_VALUE",
        "INTERNAL_ERROR",
        "EXEC_FAILED",
        "SETUP_FAILED",
        "INVALID_SIZE",
        "UNALIGNED_DATA",
        "INCOMPLETE_PARAMETER_LIST",
        "INVALID_DEVICE",
        "PARSE_ERROR",
        "NO_WORKSPACE",
        "NOT_IMPLEMENTED",
        "LICENSE_ERROR",
        "NOT_SUPPORTED",
        "MISSING_DEPENDENCY",
        "NVRTC_FAILURE",
        "NVJITLINK_FAILURE",
        "NVSHMEM_FAILURE",
    ];
    if status == 0 {
        return Ok(());
    }
    let name = usize::try_from(status - 1).ok().and_then(|at| NAMES.get(at));
    let status = name.map_or_else(|| format!("an unknown error, {status}"), |name| format!("CUFFT_{name}"));
    let context = Some(context()).filter(|context| !context.is_empty());
    Err(LibraryError::Call { library: "cuFFT", call, status, context }.into())
}
