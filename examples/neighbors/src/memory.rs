//! Exchanges memory and streams between cudarc and Warpsmith, in both directions, through addresses, stream handles and
//! owners.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, DriverError};
use warpsmith::driver::StreamHandle;
use warpsmith::{Device, DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Error, Stream};

/// Adopts a cudarc stream. The result keeps the stream alive.
///
/// # Errors
/// Returns an error for the per-thread default stream, and for a stream that is not in the device's primary context.
pub fn adopt(theirs: &Arc<CudaStream>) -> Result<Stream, Error> {
    let context = theirs.context();
    if !context.is_primary() {
        let reason = "the stream is not in the device's primary context; use `CudaContext::new`";
        return Err(Error::extension(io::Error::other(reason)));
    }
    let device = Device::cuda(context.ordinal() as u32)?;
    // SAFETY: the stream belongs to the primary context, and the owner keeps it alive.
    unsafe { Stream::adopt(&device, StreamHandle(theirs.cu_stream() as u64), theirs.clone()) }
}

/// Converts memory of cudarc to a buffer on the same stream, without a copy. When the buffer is dropped, cudarc frees
/// the memory in stream order.
///
/// # Errors
/// Returns the same errors as [`adopt`].
pub fn into_buffer<T: DeviceCopy>(mut slice: CudaSlice<T>) -> Result<DeviceBuffer<T>, Error> {
    let (theirs, len) = (slice.stream().clone(), slice.len());
    let stream = adopt(&theirs)?;
    // The stream waits for work on other cudarc streams that use the memory.
    let (address, written) = slice.device_ptr_mut(&theirs);
    drop(written);
    // SAFETY: the owner frees the elements in stream order, and no other code uses them.
    unsafe { DeviceBuffer::from_raw_stream_ordered(&stream, DevicePtr(address), len, Owner(slice)) }
}

/// Memory of cudarc. The drop makes the context current, because cudarc frees the memory without doing so.
struct Owner<T>(CudaSlice<T>);

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        let context = self.0.context();
        context.record_err(context.bind_to_thread());
    }
}

/// Calls `work` with a cudarc view of a buffer. The caller keeps the buffer. The work on `theirs` is ordered with all
/// other work on the buffer.
///
/// # Errors
/// Returns the same errors as [`adopt`], or the error of `work`.
///
/// # Safety
/// `work` must enqueue work only on `theirs`, and must not wait.
pub unsafe fn with_view<T: DeviceCopy>(
    theirs: &Arc<CudaStream>,
    buffer: &mut DeviceBuffer<T>,
    work: impl FnOnce(CudaViewMut<'_, T>) -> Result<(), DriverError>,
) -> Result<(), Error> {
    let (stream, address, len) = (adopt(theirs)?, buffer.as_device_ptr().0, buffer.len());
    // SAFETY: the work uses the elements of `buffer` on the stream. The slice does not outlive the call, and `leak`
    // prevents cudarc from freeing its memory.
    unsafe {
        stream.enqueue(&[buffer.as_mut_slice().used()], |_| {
            let mut slice = ManuallyDrop::new(theirs.upgrade_device_ptr::<T>(address, len));
            let done = work(slice.as_view_mut());
            ManuallyDrop::into_inner(slice).leak();
            done.map_err(Error::extension)
        })
    }
}

/// Calls `work` with memory of cudarc as slices on `stream`, which need not be a cudarc stream. The work runs after
/// earlier work on `theirs` and before later work on `theirs`. `theirs` may be the per-thread default stream.
///
/// # Errors
/// Returns an error of `work` or of the driver.
pub fn with_slices<T: DeviceCopy, const N: usize>(
    stream: &Stream,
    theirs: &CudaStream,
    inputs: [CudaView<'_, T>; N],
    output: &mut CudaSlice<T>,
    work: impl FnOnce(&Stream, [DeviceSlice<'_, T>; N], DeviceSliceMut<'_, T>) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: `stream` outlives `ours`.
    let ours = unsafe { theirs.context().wrap_borrowed_stream(stream.handle().0 as _) };
    ours.join(theirs).map_err(Error::extension)?;
    let enqueue = || {
        let len = output.len();
        // Each guard orders later work on other cudarc streams after the work on `ours`.
        let (to, _written) = output.device_ptr_mut(&ours);
        let from = inputs.map(|view| (view.len(), view.view_ptr(&ours)));
        // SAFETY: cudarc keeps the elements alive. It uses or frees them only after the work on `stream`, because
        // `theirs` waits for this work below. The work does not write the inputs.
        let buffer = |address, len| unsafe {
            DeviceBuffer::<T>::from_raw_stream_ordered(stream, DevicePtr(address), len, ())
        };
        let mut to = buffer(to, len)?;
        let from = from.iter().map(|(len, (address, _))| buffer(*address, *len));
        let from = from.collect::<Result<Vec<_>, _>>()?;
        work(stream, std::array::from_fn(|at| from[at].as_slice()), to.as_mut_slice())
    };
    let done = enqueue();
    theirs.join(&ours).map_err(Error::extension).and(done)
}
