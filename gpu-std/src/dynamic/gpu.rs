//! Launches through NVIDIA's device runtime, using the CUDA 12 interface (CDP2).

use core::ffi::c_void;

use gpu_spec::Kernel;

use super::{Arguments, Dim, LaunchError, Parameters, When};

unsafe extern "C" {
    /// Allocates memory for the parameters of a launch, aligned to 64 bytes. Returns null if the kernel cannot be
    /// launched.
    fn __cudaCDP2GetParameterBufferV2(
        kernel: *const c_void,
        grid: Dim,
        block: Dim,
        shared_bytes: u32,
    ) -> *mut c_void;
    /// Launches the kernel for which the parameters were allocated.
    fn __cudaCDP2LaunchDeviceV2(parameters: *mut c_void, stream: usize) -> u32;
    /// Returns and clears the thread's last error.
    fn __cudaCDP2GetLastError() -> u32;
}

/// The grid's tail-launch stream. Its work starts after the grid and all of its children have finished.
const TAIL_LAUNCH: usize = 3;
/// The grid's fire-and-forget stream. Its work can start at any time.
const FIRE_AND_FORGET: usize = 4;

/// `cudaErrorUnknown`, for a failure without an error code.
const UNKNOWN: LaunchError = LaunchError::numbered(999);

/// # Safety
///
/// The caller must uphold the safety contract of [`super::launch`], and the arguments must take at most
/// [`super::MAX_PARAMETER_BYTES`].
#[inline(always)]
pub unsafe fn enqueue<K: Kernel, A: Arguments<K::Params>>(
    grid: Dim,
    block: Dim,
    shared_bytes: u32,
    arguments: A,
    when: When,
) -> Result<(), LaunchError> {
    // SAFETY: the code belongs to a kernel of this module.
    let buffer = unsafe { __cudaCDP2GetParameterBufferV2(K::code(), grid, block, shared_bytes) };
    if buffer.is_null() {
        // SAFETY: this function may be called at any time.
        let code = unsafe { __cudaCDP2GetLastError() };
        return Err(LaunchError::from_code(code).unwrap_or(UNKNOWN));
    }
    // SAFETY: the buffer has space for the kernel's parameters. The arguments are laid out as the runtime expects: each
    // at the next multiple of its alignment.
    arguments.add_all(&mut unsafe { Parameters::new(buffer.cast()) });
    let stream = match when {
        When::Now => FIRE_AND_FORGET,
        When::Tail => TAIL_LAUNCH,
    };
    // SAFETY: the runtime allocated the buffer, which now contains all parameters; the rest is guaranteed by the
    // caller.
    match LaunchError::from_code(unsafe { __cudaCDP2LaunchDeviceV2(buffer, stream) }) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}
