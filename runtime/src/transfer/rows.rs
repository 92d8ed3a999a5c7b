//! Copies of strided rows, such as a submatrix, from and to [`DeviceSlice2`], [`DeviceSliceMut2`] and [`PinnedRows`].
//!
//! Elements between the rows are neither read nor written.
#![expect(clippy::result_large_err, reason = "the error returns the memory, whatever its size")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use gpu_spec::Extents2;

use super::host::DeviceSide;
use super::pending::{CopyFailed, HostSide, Pending};
use crate::device::observe::{CopyDirection, site};
use crate::driver::{Place, RowsCopy};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::slice::host_vec;
use crate::memory::storage::{self, Kind};
use crate::memory::usage::Access;
use crate::memory::views::extents_2;
use crate::memory::{DeviceCopy, DeviceSlice2, DeviceSlice3, DeviceSliceMut2, PinnedBuffer, PinnedRange};
use crate::stream::Stream;

const OPERATION: &str = "copying rows between buffers";

/// Strided rows in page-locked memory. Owns the buffer and dereferences to a slice of all elements of the buffer (or
/// [`PinnedRange`]), including those between the rows.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// // Two rows of two numbers, each followed by a number that is not copied.
/// let source = PinnedBuffer::from_slice(stream.device(), &[1_u8, 2, 0, 3, 4, 0])?.into_rows(2, 2, 3)?;
/// let mut target = DeviceBuffer::<u8>::zeros(&stream, 4)?;
/// stream.copy_rows_from_host_async(source, target.as_2d_mut(2, 2)?)?.wait()?;
/// assert_eq!(target.to_host()?, [1, 2, 3, 4]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct PinnedRows<T: DeviceCopy> {
    memory: PinnedRange<T>,
    extents: Extents2,
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    /// Interprets the buffer as `rows` rows of `columns` elements, with a stride of `row_stride` elements. Elements
    /// between the rows and after the last row are not copied. [`PinnedRows::into_buffer`] returns the buffer.
    ///
    /// # Errors
    /// Returns [`Error::BadExtents`], together with the buffer, in the same cases as
    /// [`DeviceSlice::as_2d_strided`](crate::DeviceSlice::as_2d_strided).
    pub fn into_rows(
        self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> std::result::Result<PinnedRows<T>, CopyFailed<Self>> {
        self.into_range(..)
            .into_rows(rows, columns, row_stride)
            .map_err(|CopyFailed { error, memory }| CopyFailed { error, memory: memory.into_buffer() })
    }
}

impl<T: DeviceCopy> PinnedRange<T> {
    /// Interprets the range as rows, like [`PinnedBuffer::into_rows`].
    ///
    /// # Errors
    /// Returns the same errors as [`PinnedBuffer::into_rows`], together with the range.
    pub fn into_rows(
        self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> std::result::Result<PinnedRows<T>, CopyFailed<Self>> {
        match extents_2(rows, columns, row_stride, self.len()) {
            Ok(extents) => Ok(PinnedRows { memory: self, extents }),
            Err(error) => Err(CopyFailed { error, memory: self }),
        }
    }
}

impl<T: DeviceCopy> PinnedRows<T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.extents.rows() as usize
    }

    /// Returns the number of elements per row.
    pub fn columns(&self) -> usize {
        self.extents.columns() as usize
    }

    /// Returns the row stride, in elements.
    pub fn row_stride(&self) -> usize {
        self.extents.row_stride() as usize
    }

    /// Returns the entire buffer.
    pub fn into_buffer(self) -> PinnedBuffer<T> {
        self.memory.into_buffer()
    }

    fn place(&self) -> Place {
        Place::Host(self.memory.address().cast())
    }
}

impl<T: DeviceCopy> fmt::Debug for PinnedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns, row_stride) = (self.rows(), self.columns(), self.row_stride());
        write!(f, "PinnedRows({rows} rows of {columns}, one every {row_stride}, in {:?})", self.memory)
    }
}

impl<T: DeviceCopy> Deref for PinnedRows<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory
    }
}

impl<T: DeviceCopy> DerefMut for PinnedRows<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory
    }
}

/// Returns an error unless target and source have the same number of rows and columns.
fn check_shape(operation: &'static str, target: Extents2, source: Extents2) -> Result<()> {
    let of = |extents: Extents2| (extents.rows() as usize, extents.columns() as usize);
    let (left, right) = (of(target), of(source));
    if left == right { Ok(()) } else { Err(Error::ShapeMismatch { operation, left, right }) }
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
        check_shape(OPERATION, to, from)?;
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

    /// Enqueues a copy of rows from page-locked memory, which is moved into the copy, to a device. Does not block.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::copy_rows`], together with the memory.
    #[track_caller]
    pub fn copy_rows_from_host_async<T: DeviceCopy>(
        &self,
        source: PinnedRows<T>,
        target: DeviceSliceMut2<'_, T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let _site = site();
        let to = *target.extents();
        let target = target.into_elements();
        let side = DeviceSide::target("Stream::copy_rows_from_host_async", &target);
        let shapes = (to, source.extents);
        let copy = rows_copy::<T>((Place::Device(side.address), to), (source.place(), source.extents));
        self.rows_between_host_and_device(&side, shapes, copy, source)
    }

    /// Enqueues a copy of rows from a device to page-locked memory, which is moved into the copy. Does not block.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::copy_rows`], together with the memory.
    #[track_caller]
    pub fn copy_rows_to_host_async<T: DeviceCopy>(
        &self,
        source: DeviceSlice2<'_, T>,
        target: PinnedRows<T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let _site = site();
        let from = *source.extents();
        let source = source.elements();
        let side = DeviceSide::source("Stream::copy_rows_to_host_async", &source);
        let shapes = (target.extents, from);
        let copy = rows_copy::<T>((target.place(), target.extents), (Place::Device(side.address), from));
        self.rows_between_host_and_device(&side, shapes, copy, target)
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

    /// Enqueues a copy of rows between host and device. `shapes` are the extents of the target and the source.
    fn rows_between_host_and_device<T: DeviceCopy>(
        &self,
        side: &DeviceSide<'_>,
        shapes: (Extents2, Extents2),
        copy: Option<RowsCopy>,
        memory: PinnedRows<T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let checked = check_shape(side.operation(), shapes.0, shapes.1);
        let checked = checked.and_then(|()| self.check_side(side)).and_then(|()| Event::new(self.device()));
        let event = match checked {
            Ok(event) => event,
            Err(error) => return Err(CopyFailed { error, memory }),
        };
        let enqueued = copy.map_or(Ok(()), |copy| {
            memory.memory.buffer().record_use(self)?;
            let kind = Kind::HostCopy(side.call);
            // SAFETY: the rows are within both sides, and the rows of each side do not overlap. The host memory is
            // moved into the pending copy, and its block is kept for the stream even if that copy is dropped. The
            // device memory is borrowed (exclusively if it is written), and its use is recorded.
            storage::enqueue([&side.part].into_iter(), self, kind, |driver, context| unsafe {
                self.observed_rows(copy, || driver.copy_rows(context, copy, self.handle()))
            })
        });
        Pending::settle(self, enqueued, event, HostSide::Own(memory))
    }
}
