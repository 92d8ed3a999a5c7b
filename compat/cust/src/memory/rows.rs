//! Pitched memory: allocation and 2-D copies.

use warpsmith_runtime::DevicePtr;
use warpsmith_runtime::driver::{Place, RowsCopy};

use super::malloc::size_of_values;
use super::{DevicePointer, cuda_malloc};
use crate::DeviceCopy;
use crate::context;
use crate::error::{CudaError, CudaResult, explained};
use crate::stream::wait_for_blocking;

/// Granularity of the pitch in bytes: the size of the widest access of a warp.
const PITCH: usize = 512;

/// Allocates uninitialized pitched device memory for `height` rows of `width` elements. Returns the address of the
/// memory and the pitch in bytes.
///
/// # Errors
///
/// Returns the same errors as [`cuda_malloc`].
///
/// # Safety
///
/// The memory must be freed with [`cuda_free`](super::cuda_free) and must be written before it is read.
pub unsafe fn cuda_malloc_pitched<T: DeviceCopy>(
    width: usize,
    height: usize,
) -> CudaResult<(DevicePointer<T>, usize)> {
    let row = size_of_values::<T>(width)?;
    let pitch = row.next_multiple_of(PITCH);
    let bytes = pitch.saturating_mul(height);
    // SAFETY: guaranteed by the caller.
    Ok((unsafe { cuda_malloc::<u8>(bytes)? }.cast(), pitch))
}

/// Copies `height` rows of `width` elements from the host. A pitch is the number of bytes from the start of one row to
/// the start of the next.
///
/// ```
/// # use cust::memory::*;
/// # fn main() -> Result<(), cust::error::CudaError> {
/// # let _context = cust::context::Context::from_runtime(&cust::runtime::Device::emulated(0)?);
/// let (from, mut to) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 4]);
/// // SAFETY: all memory contains two rows of two numbers.
/// unsafe {
///     let (rows, pitch) = cuda_malloc_pitched::<f32>(2, 2)?;
///     memcpy_2d_htod(rows, pitch, from.as_ptr(), 8, 2, 2)?;
///     memcpy_2d_dtoh(to.as_mut_ptr(), 8, rows, pitch, 2, 2)?;
///     cuda_free(rows)?;
/// }
/// assert_eq!(to, from);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns [`CudaError::InvalidValue`] if a pitch is less than the size of a row, or the same errors as
/// [`CopyDestination::copy_from`](super::CopyDestination).
///
/// # Safety
///
/// Both memory ranges must contain the rows. During the call, nothing else may access them, except for reads of the
/// source.
pub unsafe fn memcpy_2d_htod<T: DeviceCopy>(
    to: DevicePointer<T>,
    to_pitch: usize,
    from: *const T,
    from_pitch: usize,
    width: usize,
    height: usize,
) -> CudaResult<()> {
    let (dst, src) = (Place::Device(DevicePtr(to.as_raw())), Place::Host(from.cast_mut().cast()));
    let row_bytes = size_of_values::<T>(width)?;
    let copy = RowsCopy { dst, dst_pitch: to_pitch, src, src_pitch: from_pitch, row_bytes, rows: height };
    // SAFETY: guaranteed by the caller.
    unsafe { run(copy) }
}

/// Copies `height` rows of `width` elements to the host.
///
/// # Errors
///
/// Returns the same errors as [`memcpy_2d_htod`].
///
/// # Safety
///
/// The caller must uphold the safety contract of [`memcpy_2d_htod`].
pub unsafe fn memcpy_2d_dtoh<T: DeviceCopy>(
    to: *mut T,
    to_pitch: usize,
    from: DevicePointer<T>,
    from_pitch: usize,
    width: usize,
    height: usize,
) -> CudaResult<()> {
    let (dst, src) = (Place::Host(to.cast()), Place::Device(DevicePtr(from.as_raw())));
    let row_bytes = size_of_values::<T>(width)?;
    let copy = RowsCopy { dst, dst_pitch: to_pitch, src, src_pitch: from_pitch, row_bytes, rows: height };
    // SAFETY: guaranteed by the caller.
    unsafe { run(copy) }
}

/// Performs a copy, ordered after earlier work in blocking streams.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`memcpy_2d_htod`].
unsafe fn run(copy: RowsCopy) -> CudaResult<()> {
    let RowsCopy { dst_pitch, src_pitch, row_bytes, rows, .. } = copy;
    if row_bytes == 0 || rows == 0 {
        return Ok(());
    }
    if rows > 1 && dst_pitch.min(src_pitch) < row_bytes {
        let text = format!(
            "pitches of {src_pitch} and {dst_pitch} bytes are smaller than a row of {row_bytes} bytes"
        );
        return Err(explained(CudaError::InvalidValue, text));
    }
    let copy = RowsCopy { dst_pitch: dst_pitch.max(row_bytes), src_pitch: src_pitch.max(row_bytes), ..copy };
    let device = context::current()?;
    wait_for_blocking(&device)?;
    device.check()?;
    let stream = device.default_stream();
    // SAFETY: the context and the stream belong to a live device. The caller guarantees valid memory, and nothing
    // accesses it after the wait.
    unsafe {
        let (driver, context) = device.driver();
        driver.copy_rows(context, copy, stream.handle())?;
    }
    Ok(stream.synchronize()?)
}
