//! [`Indices`], and the operations that take them: gather and scatter of elements and rows.

use std::fmt::Debug;

use gpu_kernels::index_check;
use gpu_kernels::move_rows::{self, Rows};
use gpu_std::Instance;
use gpu_std::scalar::Scalar;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSliceMut, DeviceSliceMut2, Launch, Result,
    Stream,
};

use super::index_check::check_indices;
use super::launch::same_length;
use super::layout::{launch_rows, misfit, with_unit};
use crate::IMAGE;

mod sealed {
    pub trait Sealed {}
}

/// An index type: `u32` or `i64`.
///
/// See the example of [`gather()`].
pub trait Index: move_rows::Index + Scalar + Into<i128> + sealed::Sealed {
    /// Enqueues the check.
    #[doc(hidden)]
    fn check(
        stream: &Stream,
        limit: u64,
        indices: DeviceSlice<'_, Self>,
        seen: Option<&mut DeviceBuffer<u32>>,
        found: &mut DeviceBuffer<u64>,
    ) -> Result<()>;
}

fn check<I: move_rows::Index + DeviceCopy>(
    stream: &Stream,
    limit: u64,
    indices: DeviceSlice<'_, I>,
    seen: Option<&mut DeviceBuffer<u32>>,
    found: &mut DeviceBuffer<u64>,
) -> Result<()>
where
    index_check::check_indices<I>: Instance,
{
    let kernel = stream.device().load(&IMAGE)?.kernel::<index_check::check_indices<I>>()?;
    kernel.launch(stream, Launch::auto(indices.len()), (limit, indices, seen, found))
}

macro_rules! index {
    ($($t:ty)*) => { $(
        impl sealed::Sealed for $t {}

        impl Index for $t {
            fn check(
                stream: &Stream,
                limit: u64,
                indices: DeviceSlice<'_, Self>,
                seen: Option<&mut DeviceBuffer<u32>>,
                found: &mut DeviceBuffer<u64>,
            ) -> Result<()> {
                check(stream, limit, indices, seen, found)
            }
        }
    )* };
}
index! { u32 i64 }

/// Indices in device memory.
///
/// [`new`](Self::new) and [`unique`](Self::unique) check the indices and wait for the result. Operations that take
/// `Indices` are therefore asynchronous and need no check. The indices cannot change while they are borrowed.
/// [`unchecked`](Self::unchecked) neither checks nor waits.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let table = DeviceBuffer::from_host(&stream, &[0.0f32, 0.1, 1.0, 1.1, 2.0, 2.1])?;
/// let chosen = DeviceBuffer::from_host(&stream, &[2u32, 0, 2])?;
/// let chosen = ops::Indices::new(&stream, &chosen, 3)?;
/// let mut rows = DeviceBuffer::uninit(&stream, 6)?;
/// ops::gather_rows(&stream, table.as_2d(3, 2)?, &chosen, rows.as_2d_mut(3, 2)?)?;
/// assert_eq!(rows.to_host()?, [2.0, 2.1, 0.0, 0.1, 2.0, 2.1]);
///
/// let wrong = DeviceBuffer::from_host(&stream, &[0i64, -1, 3])?;
/// let error = ops::Indices::new(&stream, &wrong, 3).unwrap_err();
/// assert!(error.to_string().starts_with("Indices: indices[1] is -1, but must be at least 0 and below 3"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Indices<'a, I: Index> {
    elements: DeviceSlice<'a, I>,
    limit: usize,
    is_unique: bool,
}

impl<'a, I: Index> Indices<'a, I> {
    /// Checks that all indices are at least 0 and below `limit`, as gather requires.
    ///
    /// # Errors
    /// Returns [`OpError::Index`](crate::OpError::Index), which names the first invalid index, and the [enqueue
    /// errors](crate::Error#enqueue-errors).
    #[track_caller]
    pub fn new(stream: &Stream, elements: impl Into<DeviceSlice<'a, I>>, limit: usize) -> Result<Self> {
        let _site = site();
        Self::checked(stream, elements.into(), limit, false)
    }

    /// Like [`new`](Self::new), but also checks that no index occurs twice, as scatter requires. The check uses one bit
    /// of temporary memory per index below `limit`.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new), and [`OpError::DuplicateIndex`](crate::OpError::DuplicateIndex),
    /// which names the smallest duplicate index.
    #[track_caller]
    pub fn unique(stream: &Stream, elements: impl Into<DeviceSlice<'a, I>>, limit: usize) -> Result<Self> {
        let _site = site();
        Self::checked(stream, elements.into(), limit, true)
    }

    /// Takes indices for gather without a check and without waiting, so that a graph can capture the operation. Rows and
    /// elements whose index is not below `limit` are skipped: their outputs stay unchanged.
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[10.0f32, 11.0, 12.0])?;
    /// let chosen = DeviceBuffer::from_host(&stream, &[2u32, 3])?;
    /// let mut out = DeviceBuffer::zeros(&stream, 2)?;
    /// ops::gather(&stream, &x, &ops::Indices::unchecked(&chosen, x.len()), &mut out)?;
    /// assert_eq!(out.to_host()?, [12.0, 0.0]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    pub fn unchecked(elements: impl Into<DeviceSlice<'a, I>>, limit: usize) -> Self {
        Self { elements: elements.into(), limit, is_unique: false }
    }

    fn checked(stream: &Stream, elements: DeviceSlice<'a, I>, limit: usize, is_unique: bool) -> Result<Self> {
        check_indices(stream, "Indices", ("indices", elements), limit, is_unique)?;
        Ok(Self { elements, limit, is_unique })
    }

    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns true if there are no indices.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Returns the exclusive upper bound of the indices.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns an error if the number of available elements or rows is below the limit for which the indices were
    /// checked.
    fn chooses(&self, operation: &'static str, what: &str, available: usize) -> Result<()> {
        if self.limit <= available {
            return Ok(());
        }
        let problem = format!(
            "the indices were checked against the limit {}, but there are only {available} {what}; check them \
             against {available}",
            self.limit
        );
        misfit(operation, problem)
    }

    /// Returns an error unless the indices were checked to be unique.
    fn writes(&self, operation: &'static str) -> Result<()> {
        if self.is_unique {
            return Ok(());
        }
        misfit(operation, "the indices may contain duplicates; create them with `Indices::unique`".to_owned())
    }
}

/// Copies the rows that the indices select.
///
/// # Safety
/// Both slices must contain all selected rows, with `width` elements per row and these pitches. If the indices select
/// the rows to write, no index may occur twice.
unsafe fn by_indices<T: DeviceCopy, I: Index>(
    stream: &Stream,
    indices: &Indices<'_, I>,
    (width, pitches, scatters): (usize, [usize; 2], bool),
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    if indices.is_empty() || width * size_of::<T>() == 0 {
        return Ok(());
    }
    with_unit!(T, U => {
        let units = size_of::<T>() / size_of::<U>();
        let of = |elements: usize| (elements * units) as u64;
        let rows = Rows {
            count: indices.len() as u64,
            width: of(width),
            limit: indices.limit as u64,
            pitches: pitches.map(of),
            scatters: scatters.into(),
        };
        // SAFETY: guaranteed by the caller, in units of `T`.
        unsafe { launch_rows::<U, I>(stream, rows, Some(indices.elements), x.cast()?, out.cast()?) }
    })
}

/// `out[i] = x[indices[i]]`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) unless `out` has one element per index, and
/// [`OpError::Shape`](crate::OpError::Shape) if the indices were checked for a limit above the length of `x`. Also
/// returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[10.0f64, 11.0, 12.0])?;
/// let order = DeviceBuffer::from_host(&stream, &[2i64, 0, 1, 2])?;
/// let order = ops::Indices::new(&stream, &order, x.len())?;
/// let mut out = DeviceBuffer::uninit(&stream, 4)?;
/// ops::gather(&stream, &x, &order, &mut out)?;
/// assert_eq!(out.to_host()?, [12.0, 10.0, 11.0, 12.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn gather<'f, 't, T: DeviceCopy, I: Index>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'f, T>>,
    indices: &Indices<'_, I>,
    out: impl Into<DeviceSliceMut<'t, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("gather", ("indices", indices.len()), ("the output", out.len()))?;
    indices.chooses("gather", "elements", x.len())?;
    // SAFETY: an element is a row of width 1. The kernel skips indices above the limit, which is at most the number of
    // elements of `x`.
    unsafe { by_indices(stream, indices, (1, [1, 1], false), x, out) }
}

/// `out[[i, column]] = x[[indices[i], column]]`. Gathers rows of a table, as in an embedding lookup.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if the widths differ, if `out` does not have one row per index, or
/// if the indices were checked for a limit above the number of rows. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let table = DeviceBuffer::from_host(&stream, &[0.0f32, 0.5, 1.0, 1.5, 2.0, 2.5])?;
/// let tokens = DeviceBuffer::from_host(&stream, &[2u32, 0])?;
/// let tokens = ops::Indices::new(&stream, &tokens, 3)?;
/// let mut embedded = DeviceBuffer::uninit(&stream, 4)?;
/// ops::gather_rows(&stream, table.as_2d(3, 2)?, &tokens, embedded.as_2d_mut(2, 2)?)?;
/// assert_eq!(embedded.to_host()?, [2.0, 2.5, 0.0, 0.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[doc(alias("embedding", "index_select", "take"))]
#[track_caller]
pub fn gather_rows<T: DeviceCopy, I: Index>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    indices: &Indices<'_, I>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let (width, pitches) = (x.columns(), [x.row_stride(), out.row_stride()]);
    same_width("gather_rows", width, out.columns())?;
    same_length("gather_rows", ("indices", indices.len()), ("the rows of the output", out.rows()))?;
    indices.chooses("gather_rows", "rows", x.rows())?;
    // SAFETY: all indices are below the number of rows to read.
    unsafe { by_indices(stream, indices, (width, pitches, false), x.elements(), out.into_elements()) }
}

/// `out[indices[i]] = x[i]`. The other elements of `out` stay unchanged. The indices must be unique (see
/// [`Indices::unique`]).
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) unless `x` has one element per index, and
/// [`OpError::Shape`](crate::OpError::Shape) if the indices were checked for a limit above the length of `out` or not
/// checked to be unique. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1u8, 2])?;
/// let indices = DeviceBuffer::from_host(&stream, &[3u32, 0])?;
/// let indices = ops::Indices::unique(&stream, &indices, 4)?;
/// let mut out = DeviceBuffer::from_host(&stream, &[9u8; 4])?;
/// ops::scatter(&stream, &x, &indices, &mut out)?;
/// assert_eq!(out.to_host()?, [2, 9, 9, 1]);
///
/// let twice = DeviceBuffer::from_host(&stream, &[3u32, 3])?;
/// let error = ops::Indices::unique(&stream, &twice, 4).unwrap_err();
/// assert!(error.to_string().starts_with("index 3 occurs more than once"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn scatter<'f, 't, T: DeviceCopy, I: Index>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'f, T>>,
    indices: &Indices<'_, I>,
    out: impl Into<DeviceSliceMut<'t, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("scatter", ("indices", indices.len()), ("the input", x.len()))?;
    indices.chooses("scatter", "elements", out.len())?;
    indices.writes("scatter")?;
    // SAFETY: an element is a row of width 1, and all indices are unique and below the number of elements of `out`.
    unsafe { by_indices(stream, indices, (1, [1, 1], true), x, out) }
}

/// `out[[indices[i], column]] = x[[i, column]]`. The other rows of `out` stay unchanged. The indices must be unique
/// (see [`Indices::unique`]).
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if the widths differ, if `x` does not have one row per index,
/// or if the indices were checked for a limit above the number of rows or not checked to be unique. Also returns the
/// [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let updates = DeviceBuffer::from_host(&stream, &[1.0f32, 1.5, 2.0, 2.5])?;
/// let rows = DeviceBuffer::from_host(&stream, &[2u32, 0])?;
/// let rows = ops::Indices::unique(&stream, &rows, 3)?;
/// let mut table = DeviceBuffer::zeros(&stream, 6)?;
/// ops::scatter_rows(&stream, updates.as_2d(2, 2)?, &rows, table.as_2d_mut(3, 2)?)?;
/// assert_eq!(table.to_host()?, [2.0, 2.5, 0.0, 0.0, 1.0, 1.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn scatter_rows<T: DeviceCopy, I: Index>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    indices: &Indices<'_, I>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let (width, pitches) = (x.columns(), [x.row_stride(), out.row_stride()]);
    same_width("scatter_rows", width, out.columns())?;
    same_length("scatter_rows", ("indices", indices.len()), ("the rows of the input", x.rows()))?;
    indices.chooses("scatter_rows", "rows", out.rows())?;
    indices.writes("scatter_rows")?;
    // SAFETY: all indices are unique and below the number of rows to write.
    unsafe { by_indices(stream, indices, (width, pitches, true), x.elements(), out.into_elements()) }
}

fn same_width(operation: &'static str, x: usize, out: usize) -> Result<()> {
    if x == out {
        return Ok(());
    }
    misfit(
        operation,
        format!(
            "the input has rows of {x} elements, but the output has rows of {out}; pass views of \
                               equal width"
        ),
    )
}
