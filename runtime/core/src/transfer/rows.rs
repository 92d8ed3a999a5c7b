//! Copies of rows that lie apart, as those of a part of a matrix do: [`DeviceRows`], [`DeviceRowsMut`], [`PinnedRows`].
//!
//! Elements between the rows are neither read nor written.
#![expect(clippy::result_large_err, reason = "the error returns the memory, whatever its size")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::host::{DeviceSide, Direction};
use super::pending::{CopyFailed, HostSide, Pending};
use crate::device::Device;
use crate::device::observe::{CopyDirection, site};
use crate::driver::{Place, RowsCopy};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::storage::{self, Kind};
use crate::memory::usage::Access;
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer, PinnedRange};
use crate::stream::Stream;

const OPERATION: &str = "copying rows between buffers";

/// How rows lie in memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    rows: usize,
    row_len: usize,
    stride: usize,
}

impl Shape {
    /// All rows that start within `len` elements.
    fn new(row_len: usize, stride: usize, len: usize) -> Result<Self> {
        let bad = |reason| Err(Error::BadRows { row_len, stride, len, reason });
        if stride == 0 {
            return bad("a stride of 0 puts all rows in one place; take at least 1");
        }
        if stride < row_len {
            return bad("the rows overlap; take a stride of at least a row");
        }
        let rows = len.div_ceil(stride);
        // At least one element is left in the last row's stride, so this does not go below zero.
        if rows > 0 && len - (rows - 1) * stride < row_len {
            return bad("the last row ends beyond the memory; slice off what belongs to no row");
        }
        Ok(Self { rows, row_len, stride })
    }

    /// Elements from the first of the first row to the last of the last.
    fn span(self) -> usize {
        if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + self.row_len }
    }

    fn check(self, operation: &'static str, source: Shape) -> Result<()> {
        let (left, right) = ((self.rows, self.row_len), (source.rows, source.row_len));
        if left == right { Ok(()) } else { Err(Error::ShapeMismatch { operation, left, right }) }
    }
}

macro_rules! shape_of {
    ($name:ident $(<$life:lifetime>)?) => {
        impl<T: DeviceCopy> $name<$($life,)? T> {
            /// The number of rows.
            pub fn rows(&self) -> usize {
                self.shape.rows
            }

            /// Elements of a row.
            pub fn row_len(&self) -> usize {
                self.shape.row_len
            }

            /// Elements from the start of one row to the next.
            pub fn stride(&self) -> usize {
                self.shape.stride
            }
        }

        impl<T: DeviceCopy> fmt::Debug for $name<$($life,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Shape { rows, row_len, stride } = self.shape;
                let name = stringify!($name);
                write!(f, "{name}({rows} rows of {row_len}, one every {stride}, in {:?})", self.memory)
            }
        }
    };
}

/// Rows of a [`DeviceBuffer`](crate::DeviceBuffer), to read.
#[derive(Clone, Copy)]
pub struct DeviceRows<'a, T: DeviceCopy> {
    /// From the first row to the last.
    memory: DeviceSlice<'a, T>,
    shape: Shape,
}

/// Rows of a [`DeviceBuffer`](crate::DeviceBuffer), to write.
pub struct DeviceRowsMut<'a, T: DeviceCopy> {
    /// From the first row to the last.
    memory: DeviceSliceMut<'a, T>,
    shape: Shape,
}

/// Rows of page-locked memory. They own the buffer, and are a slice of all its elements (of a [`PinnedRange`], those of
/// the range) to the program, those between the rows among them.
pub struct PinnedRows<T: DeviceCopy> {
    memory: PinnedRange<T>,
    shape: Shape,
}

shape_of!(DeviceRows<'_>);
shape_of!(DeviceRowsMut<'_>);
shape_of!(PinnedRows);

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// Rows of `row_len` elements, one every `stride` elements from the first: all that start within the slice. A part
    /// of a matrix begins with its first element: `matrix.slice(first..).rows(columns, stride)`.
    ///
    /// # Errors
    /// [`Error::BadRows`] for a stride of 0 or less than a row, or a last row that is not whole.
    pub fn rows(&self, row_len: usize, stride: usize) -> Result<DeviceRows<'a, T>> {
        let shape = Shape::new(row_len, stride, self.len())?;
        Ok(DeviceRows { memory: self.slice(..shape.span()), shape })
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// Rows to write: see [`DeviceSlice::rows`].
    ///
    /// # Errors
    /// As [`DeviceSlice::rows`].
    pub fn rows_mut(self, row_len: usize, stride: usize) -> Result<DeviceRowsMut<'a, T>> {
        let shape = Shape::new(row_len, stride, self.len())?;
        Ok(DeviceRowsMut { memory: self.into_slice(..shape.span()), shape })
    }
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    /// Rows of the buffer: see [`DeviceSlice::rows`]. [`PinnedRows::into_buffer`] returns the buffer.
    ///
    /// # Errors
    /// As [`DeviceSlice::rows`], with the buffer.
    pub fn into_rows(
        self,
        row_len: usize,
        stride: usize,
    ) -> std::result::Result<PinnedRows<T>, CopyFailed<Self>> {
        self.into_range(..)
            .into_rows(row_len, stride)
            .map_err(|CopyFailed { error, memory }| CopyFailed { error, memory: memory.into_buffer() })
    }
}

impl<T: DeviceCopy> PinnedRange<T> {
    /// Rows of the range: see [`DeviceSlice::rows`]. [`PinnedRows::into_buffer`] returns the buffer.
    ///
    /// # Errors
    /// As [`DeviceSlice::rows`], with the range.
    pub fn into_rows(
        self,
        row_len: usize,
        stride: usize,
    ) -> std::result::Result<PinnedRows<T>, CopyFailed<Self>> {
        match Shape::new(row_len, stride, self.len()) {
            Ok(shape) => Ok(PinnedRows { memory: self, shape }),
            Err(error) => Err(CopyFailed { error, memory: self }),
        }
    }
}

impl<T: DeviceCopy> PinnedRows<T> {
    /// The whole buffer.
    pub fn into_buffer(self) -> PinnedBuffer<T> {
        self.memory.into_buffer()
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

impl<'a, T: DeviceCopy> DeviceRows<'a, T> {
    /// The device that has the memory.
    pub fn device(&self) -> &'a Device {
        self.memory.device()
    }

    /// The memory from the first row to the last.
    pub fn memory(&self) -> DeviceSlice<'a, T> {
        self.memory
    }

    fn place(&self) -> (Place, usize) {
        (Place::Device(self.memory.as_device_ptr()), self.shape.stride.saturating_mul(size_of::<T>()))
    }
}

impl<'a, T: DeviceCopy> DeviceRowsMut<'a, T> {
    /// The device that has the memory.
    pub fn device(&self) -> &'a Device {
        self.memory.device()
    }

    /// The same rows, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> DeviceRowsMut<'_, T> {
        DeviceRowsMut { memory: self.memory.reborrow(), shape: self.shape }
    }

    /// The memory from the first row to the last.
    pub fn memory_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.memory.reborrow()
    }

    fn place(&self) -> (Place, usize) {
        (Place::Device(self.memory.as_device_ptr()), self.shape.stride.saturating_mul(size_of::<T>()))
    }
}

impl<T: DeviceCopy> PinnedRows<T> {
    fn place(&self) -> (Place, usize) {
        (Place::Host(self.memory.address().cast()), self.shape.stride.saturating_mul(size_of::<T>()))
    }
}

/// A copy of rows of this shape; `None` when there is nothing to copy.
fn rows_copy<T>(shape: Shape, dst: (Place, usize), src: (Place, usize)) -> Option<RowsCopy> {
    let (row_bytes, rows) = (shape.row_len * size_of::<T>(), shape.rows);
    (row_bytes > 0 && rows > 0).then_some(RowsCopy {
        dst: dst.0,
        dst_pitch: dst.1,
        src: src.0,
        src_pitch: src.1,
        row_bytes,
        rows,
    })
}

impl Stream {
    /// Enqueues a copy of rows within a device, after all earlier work on both buffers.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let stream = Device::emulated(0)?.default_stream();
    /// // Columns 1 and 2 of a matrix of 2 rows and 4 columns.
    /// let matrix = DeviceBuffer::from_host(&stream, &[0u8, 1, 2, 3, 4, 5, 6, 7])?;
    /// let mut part = DeviceBuffer::uninit(&stream, 4)?;
    /// stream.copy_rows(matrix.slice(1..).rows(2, 4)?, part.as_mut_slice().rows_mut(2, 2)?)?;
    /// assert_eq!(part.to_host()?, [1, 2, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::DifferentDevices`] for rows that are not on the stream's device; whatever the
    /// driver reports.
    #[track_caller]
    pub fn copy_rows<T: DeviceCopy>(
        &self,
        source: DeviceRows<'_, T>,
        target: DeviceRowsMut<'_, T>,
    ) -> Result<()> {
        let _site = site();
        target.shape.check(OPERATION, source.shape)?;
        self.check_device(source.device(), || (OPERATION.to_owned(), "the source".to_owned()))?;
        self.check_device(target.device(), || (OPERATION.to_owned(), "the target".to_owned()))?;
        let Some(copy) = rows_copy::<T>(target.shape, target.place(), source.place()) else { return Ok(()) };
        let parts = [&source.memory.used(Access::Read), &target.memory.used()];
        // SAFETY: the rows are within both slices and those of one side do not overlap; the source is shared and the
        // target exclusive, so the two do not overlap; both buffers note the stream, so neither is freed before the
        // copy has run.
        storage::enqueue(parts.into_iter(), self, Kind::Copy("Stream::copy_rows"), |driver, context| unsafe {
            self.observed_rows(copy, || driver.copy_rows(context, copy, self.handle()))
        })
    }

    /// Enqueues a copy of rows from page-locked memory, which is moved into the copy, to a device. The host waits for
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::copy_rows`], with the memory.
    #[track_caller]
    pub fn copy_rows_from_host<T: DeviceCopy>(
        &self,
        source: PinnedRows<T>,
        target: DeviceRowsMut<'_, T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let _site = site();
        let side = DeviceSide {
            direction: Direction::Up,
            device: target.device(),
            elements: target.memory.len(),
            part: target.memory.used(),
            address: target.memory.as_device_ptr(),
        };
        let shapes = (target.shape, source.shape);
        let copy = rows_copy::<T>(target.shape, target.place(), source.place());
        self.rows_between_host_and_device(&side, shapes, copy, source)
    }

    /// Enqueues a copy of rows from a device to page-locked memory, which is moved into the copy. The host waits for
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::copy_rows`], with the memory.
    #[track_caller]
    pub fn copy_rows_to_host<T: DeviceCopy>(
        &self,
        source: DeviceRows<'_, T>,
        target: PinnedRows<T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let _site = site();
        let side = DeviceSide {
            direction: Direction::Down,
            device: source.device(),
            elements: source.memory.len(),
            part: source.memory.used(Access::Read),
            address: source.memory.as_device_ptr(),
        };
        let shapes = (target.shape, source.shape);
        let copy = rows_copy::<T>(source.shape, target.place(), source.place());
        self.rows_between_host_and_device(&side, shapes, copy, target)
    }

    /// As [`Self::observed`], for a copy of rows.
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

    /// The shapes are those of the target and the source.
    fn rows_between_host_and_device<T: DeviceCopy>(
        &self,
        side: &DeviceSide<'_>,
        shapes: (Shape, Shape),
        copy: Option<RowsCopy>,
        memory: PinnedRows<T>,
    ) -> std::result::Result<Pending<PinnedRows<T>>, CopyFailed<PinnedRows<T>>> {
        let checked = shapes.0.check(side.direction.operation(), shapes.1);
        let checked = checked.and_then(|()| self.check_side(side)).and_then(|()| Event::new(self.device()));
        let event = match checked {
            Ok(event) => event,
            Err(error) => return Err(CopyFailed { error, memory }),
        };
        let enqueued = copy.map_or(Ok(()), |copy| {
            memory.memory.buffer().record_use(self)?;
            let kind = Kind::HostCopy(side.direction.call());
            // SAFETY: the rows are within both sides and those of one side do not overlap. The host's memory is moved
            // into the pending copy, and its block is kept for the stream also when that is dropped; the device's is
            // borrowed, exclusively where it is written, and noted.
            storage::enqueue([&side.part].into_iter(), self, kind, |driver, context| unsafe {
                self.observed_rows(copy, || driver.copy_rows(context, copy, self.handle()))
            })
        });
        Pending::settle(self, enqueued, event, HostSide::Own(memory))
    }
}
