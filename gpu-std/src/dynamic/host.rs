//! Launches on the emulated device.

use core::mem::MaybeUninit;

use crate::host::dynamic::{self, Refused};
use gpu_spec::Kernel;

use super::{Arguments, Dim, LaunchError, MAX_DEPTH, MAX_PARAMETER_BYTES, MAX_PENDING, Parameters, When};

/// Checks that the device library and the emulator agree on the limits.
const _: () = assert!(MAX_PENDING == dynamic::MAX_PENDING && MAX_DEPTH == dynamic::MAX_DEPTH);

/// Buffer for the parameters, aligned for any type.
#[repr(C, align(16))]
struct Buffer([MaybeUninit<u8>; MAX_PARAMETER_BYTES]);

/// # Safety
///
/// The caller must uphold the safety contract of [`super::launch`], and the arguments must take at most
/// [`MAX_PARAMETER_BYTES`].
pub unsafe fn enqueue<K: Kernel, A: Arguments<K::Params>>(
    grid: Dim,
    block: Dim,
    shared_bytes: u32,
    arguments: A,
    when: When,
) -> Result<(), LaunchError> {
    let mut buffer = Buffer([MaybeUninit::uninit(); MAX_PARAMETER_BYTES]);
    // SAFETY: the buffer is aligned to 16 bytes and has space for arguments of the maximum size.
    arguments.add_all(&mut unsafe { Parameters::new(buffer.0.as_mut_ptr().cast()) });
    let (grid, block) = ([grid.x, grid.y, grid.z], [block.x, block.y, block.z]);
    let tail = when == When::Tail;
    // SAFETY: the buffer contains the kernel's parameters in the layout that the emulator expects; the rest is
    // guaranteed by the caller.
    let result = unsafe { dynamic::launch(K::spec(), grid, block, shared_bytes, &buffer.0, tail) };
    result.map_err(|refused| match refused {
        Refused::TooManyPending => LaunchError::TOO_MANY_PENDING,
        Refused::TooDeep => LaunchError::TOO_DEEP,
        Refused::InvalidConfiguration => LaunchError::INVALID_CONFIGURATION,
    })
}
