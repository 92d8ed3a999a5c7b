//! Copies of strided rows, such as a submatrix, between [`DeviceSlice2`] and [`DeviceSliceMut2`] and to host vectors.
//!
//! Elements between the rows are neither read nor written.

use gpu_spec::Extents2;

use crate::device::observe::{CopyDirection, site};
use crate::driver::{Place, RowsCopy};
use crate::error::{Error, Result};
use crate::memory::slice::host_vec;
use crate::memory::storage::{self, Kind};
use crate::memory::usage::Access;
use crate::memory::views::extents_2;
use crate::memory::{DeviceCopy, DeviceSlice2, DeviceSlice3, DeviceSliceMut2};
use crate::stream::Stream;

const OPERATION: &str = "copying rows between buffers";

/// Returns an error unless target and source have the same number of rows and columns.
fn check_shape(target: Extents2, source: Extents2) -> Result<()> {
    let of = |extents: Extents2| (extents.rows() as usize, extents.columns() as usize);
    let (left, right) = (of(target), of(source));
    if left == right { Ok(()) } else { Err(Error::ShapeMismatch { operation: OPERATION, left, right }) }
}

/// Returns the driver's description of a copy with these extents; `None` if there is nothing to copy.
fn rows_copy<T>((dst, to): (Place, Extents2), (src, from): (Place, Extents2)) -> Option<RowsCopy> {
    let pitch = |extents: Extents2| (extents.row_stride() as usize).saturating_mul(size_of::<T>());
    let (row_bytes, rows) = (to.columns() as usize * size_of::<T>(), to.rows() as usize);
    let (dst_pitch, src_pitch) = (pitch(to), pitch(from));
    (row_bytes > 0 && rows > 0).then_some(RowsCopy { dst, dst_pitch, src, src_pitch, row_bytes, rows })
}

impl<T: DeviceCopy> DeviceSlice2<'_, T> {
    /// Copies the elements to a new host vector, row by row and without the elements between the rows, after all
    /// earlier work on the buffer. Waits for the copy.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    #[track_caller]
    pub fn to_host(&self) -> Result<Vec<T>> {
        const CALL: &str = "DeviceSlice2::to_host";
        let _site = site();
        let (elements, len) = (self.elements(), self.rows() * self.columns());
        if elements.len() == len {
            return elements.to_host();
        }
        let mut host = host_vec::<T>(len)?;
        let source = (Place::Device(self.as_device_ptr()), *self.extents());
        let to = extents_2(self.rows(), self.columns(), self.columns(), len)?;
        if let Some(copy) = rows_copy::<T>((Place::Host(host.as_mut_ptr().cast()), to), source) {
            let (part, stream) = (elements.used(Access::Read), elements.stream());
            part.run_with(CALL, || {
                let kind = Kind::HostCopy(CALL);
                // SAFETY: the rows are within the view, whose use is recorded, and the vector has capacity for all of
                // them. `run_with` returns only when the copy is no longer running.
                storage::enqueue([&part].into_iter(), stream, kind, |driver, context| unsafe {
                    stream.observed_rows(copy, || driver.copy_rows(context, copy, stream.handle()))
                })
            })?;
        }
        // SAFETY: the copy has written all `len` elements, and every bit pattern is a valid `T`.
        unsafe { host.set_len(len) };
        Ok(host)
    }
}

impl<T: DeviceCopy> DeviceSlice3<'_, T> {
    /// Copies the elements to a new host vector, like [`DeviceSlice2::to_host`]. If the view has gaps, every plane is a
    /// separate copy.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    #[track_caller]
    pub fn to_host(&self) -> Result<Vec<T>> {
        let _site = site();
        let (elements, len) = (self.elements(), self.planes() * self.rows() * self.columns());
        if elements.len() == len {
            return elements.to_host();
        }
        let mut host = host_vec::<T>(len)?;
        for plane in 0..self.planes() {
            host.extend(self.plane(plane).to_host()?);
        }
        Ok(host)
    }
}

impl Stream {
    /// Enqueues a copy of rows within a device, after all earlier work on both buffers.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// // Columns 1 and 2 of a 2 x 4 matrix.
    /// let matrix = DeviceBuffer::from_host(&stream, &[0u8, 1, 2, 3, 4, 5, 6, 7])?;
    /// let mut part = DeviceBuffer::uninit(&stream, 4)?;
    /// stream.copy_rows(matrix.as_2d(2, 4)?.part(.., 1..3), part.as_2d_mut(2, 2)?)?;
    /// assert_eq!(part.to_host()?, [1, 2, 5, 6]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`], [`Error::DifferentDevices`] if the rows are not on the stream's device, or any
    /// [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn copy_rows<T: DeviceCopy>(
        &self,
        source: DeviceSlice2<'_, T>,
        target: DeviceSliceMut2<'_, T>,
    ) -> Result<()> {
        let _site = site();
        let (from, to) = (*source.extents(), *target.extents());
        check_shape(to, from)?;
        self.check_device(source.device(), || (OPERATION.to_owned(), "the source".to_owned()))?;
        self.check_device(target.device(), || (OPERATION.to_owned(), "the target".to_owned()))?;
        let places = (Place::Device(target.as_device_ptr()), Place::Device(source.as_device_ptr()));
        let Some(copy) = rows_copy::<T>((places.0, to), (places.1, from)) else { return Ok(()) };
        let (source, target) = (source.elements(), target.into_elements());
        let parts = [&source.used(Access::Read), &target.used()];
        // SAFETY: the rows are within both slices, and the rows of each side do not overlap. The source is shared and
        // the target exclusive, so the two sides do not overlap. Both buffers record the stream, so neither is freed
        // before the copy has run.
        storage::enqueue(parts.into_iter(), self, Kind::Copy("Stream::copy_rows"), |driver, context| unsafe {
            self.observed_rows(copy, || driver.copy_rows(context, copy, self.handle()))
        })
    }

    /// Like [`Self::observed`], but for a copy of rows.
    fn observed_rows<E>(&self, copy: RowsCopy, call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let direction = match (copy.src, copy.dst) {
            (Place::Host(_), _) => CopyDirection::HostToDevice,
            (_, Place::Host(_)) => CopyDirection::DeviceToHost,
            (Place::Device(_), Place::Device(_)) => CopyDirection::DeviceToDevice,
        };
        let address = |place| match place {
            Place::Host(host) => host.addr() as u64,
            Place::Device(ptr) => ptr.0,
        };
        self.observed_copy(direction, address(copy.src), address(copy.dst), copy.row_bytes * copy.rows, call)
    }
}
