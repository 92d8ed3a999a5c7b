//! Launches through NVIDIA's device runtime, in the form that CUDA 12 gave it.

use core::ffi::c_void;

use gpu_spec::Kernel;

use super::{Arguments, Dim, LaunchError, Parameters, When};

unsafe extern "C" {
    /// Memory for the parameters of a launch, aligned to 64 bytes; null when it cannot be launched.
    fn __cudaCDP2GetParameterBufferV2(
        kernel: *const c_void,
        grid: Dim,
        block: Dim,
        shared_bytes: u32,
    ) -> *mut c_void;
    /// Launches what the parameters are for.
    fn __cudaCDP2LaunchDeviceV2(parameters: *mut c_void, stream: usize) -> u32;
    /// The thread's last error, which becomes none.
    fn __cudaCDP2GetLastError() -> u32;
}

/// The stream of a grid whose work starts when the grid and all that it launched is done.
const TAIL_LAUNCH: usize = 3;
/// The stream of a grid whose work starts at any time.
const FIRE_AND_FORGET: usize = 4;

/// `cudaErrorUnknown`, for a failure without a reason.
const UNKNOWN: LaunchError = LaunchError::numbered(999);

/// # Safety
///
/// As [`super::launch`]; the arguments take at most [`super::MAX_PARAMETER_BYTES`].
#[inline(always)]
pub unsafe fn enqueue<K: Kernel, A: Arguments<K::Params>>(
    grid: Dim,
    block: Dim,
    shared_bytes: u32,
    arguments: A,
    when: When,
) -> Result<(), LaunchError> {
    // SAFETY: the code is that of a kernel in this module.
    let buffer = unsafe { __cudaCDP2GetParameterBufferV2(K::code(), grid, block, shared_bytes) };
    if buffer.is_null() {
        // SAFETY: may be called at any time.
        let code = unsafe { __cudaCDP2GetLastError() };
        return Err(LaunchError::from_code(code).unwrap_or(UNKNOWN));
    }
    // SAFETY: the buffer has room for the kernel's parameters, which the arguments are, and the runtime lays them
    // out in the same way: each at the next multiple of its alignment.
    arguments.add_all(&mut unsafe { Parameters::new(buffer.cast()) });
    let stream = match when {
        When::Now => FIRE_AND_FORGET,
        When::Tail => TAIL_LAUNCH,
    };
    // SAFETY: the buffer is from the runtime and filled; the rest is the caller's promise.
    match LaunchError::from_code(unsafe { __cudaCDP2LaunchDeviceV2(buffer, stream) }) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}
