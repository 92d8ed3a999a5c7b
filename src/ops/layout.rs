//! Data movement by rows: transposes, concatenation and splitting. Elements of any type, including structs, are moved
//! bit by bit.

use std::ops::Range;

use gpu_kernels::move_rows::Rows;
use gpu_kernels::transpose::{self, Matrices, STEP, STRIP_THREADS, side, strip, threads};
use gpu_spec::param::{Optional, Pointer, PointerMut, Slice, Value};
use gpu_std::scalar::Scalar;
use gpu_std::{Instance, KernelType};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Launch, Result, Stream,
};

use super::launch::Operation;
use crate::IMAGE;
use crate::op_error::OpError;

/// Creates the error for mismatched shapes.
pub(super) fn misfit<T>(operation: &'static str, problem: String) -> Result<T> {
    Err(OpError::Shape { operation, problem }.into())
}

/// Expands to `$body` with `$unit` set to the largest integer type whose size divides both the size and the alignment
/// of `$t`.
macro_rules! with_unit {
    ($t:ty, $unit:ident => $body:expr) => {
        match size_of::<$t>() | align_of::<$t>() {
            bits if bits % 8 == 0 => {
                type $unit = u64;
                $body
            }
            bits if bits % 4 == 0 => {
                type $unit = u32;
                $body
            }
            bits if bits % 2 == 0 => {
                type $unit = u16;
                $body
            }
            _ => {
                type $unit = u8;
                $body
            }
        }
    };
}
pub(super) use with_unit;

/// Moves rows of units, in order or selected by indices.
///
/// # Safety
/// Both pointers must be valid for the rows that `rows` describes. If the indices select the row to write, no index may
/// occur twice.
pub(super) unsafe fn launch_rows<U: Scalar, I: Scalar>(
    stream: &Stream,
    rows: Rows,
    indices: Option<DeviceSlice<'_, I>>,
    x: DeviceSlice<'_, U>,
    out: DeviceSliceMut<'_, U>,
) -> Result<()> {
    let n = rows.count as usize * rows.width as usize;
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let operation = Operation::by_indices::<U, I>(stream, "move_rows", n, &arrays);
    // SAFETY: these arguments match the parameters of the kernel, and this function's conditions imply the kernel's
    // conditions. A buffer that is read and a buffer that is written do not overlap.
    unsafe {
        operation.launch::<(Value<Rows>, Optional<Slice<I>>, Pointer<U>, PointerMut<U>), _>((
            rows, indices, x, out,
        ))
    }
}

/// Copies rows between two views of the same shape, whose row strides may differ.
fn copy_rows<T: DeviceCopy>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let (rows, columns) = (x.rows(), x.columns());
    if x.is_empty() || size_of::<T>() == 0 {
        return Ok(());
    }
    let pitches = [x.row_stride(), out.row_stride()];
    let (x, out) = (x.elements(), out.into_elements());
    if pitches == [columns; 2] {
        return super::copy(stream, x, out);
    }
    with_unit!(T, U => {
        let units = size_of::<T>() / size_of::<U>();
        let of = |elements: usize| (elements * units) as u64;
        let rows = Rows {
            count: rows as u64,
            width: of(columns),
            limit: 0,
            pitches: pitches.map(of),
            scatters: 0,
        };
        // SAFETY: both views contain these rows, and there are no indices.
        unsafe { launch_rows::<U, u32>(stream, rows, None, x.cast()?, out.cast()?) }
    })
}

/// `out[[column, row]] = x[[row, column]]`.
///
/// # Errors
/// Returns [`OpError::Shape`] if the shape of `out` is not the transpose of the shape of `x`, or if the element size
/// is not 1, 2, 4, 8 or 16 bytes. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let mut turned = DeviceBuffer::uninit(&stream, 6)?;
/// ops::transpose(&stream, x.as_2d(2, 3)?, turned.as_2d_mut(3, 2)?)?;
/// assert_eq!(turned.to_host()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn transpose<T: DeviceCopy>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let shape = [1, x.rows(), x.columns()];
    let pitches = [[x.row_stride(), 0], [out.row_stride(), 0]];
    let turned = [1, out.columns(), out.rows()];
    turn("transpose", stream, (shape, turned, pitches), x.elements(), out.into_elements())
}

/// Like [`transpose()`], but for each plane: `out[[plane, column, row]] = x[[plane, row, column]]`.
///
/// # Errors
/// Returns the same errors as [`transpose()`], and [`OpError::Shape`] if the number of planes differs.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// // Two planes of two rows.
/// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6, 7, 8])?;
/// let mut turned = DeviceBuffer::uninit(&stream, 8)?;
/// ops::transpose_batched(&stream, x.as_3d(2, 2, 2)?, turned.as_3d_mut(2, 2, 2)?)?;
/// assert_eq!(turned.to_host()?, [1, 3, 2, 4, 5, 7, 6, 8]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn transpose_batched<T: DeviceCopy>(
    stream: &Stream,
    x: DeviceSlice3<'_, T>,
    out: DeviceSliceMut3<'_, T>,
) -> Result<()> {
    let _site = site();
    let shape = [x.planes(), x.rows(), x.columns()];
    let turned = [out.planes(), out.columns(), out.rows()];
    let pitches = [[x.row_stride(), x.plane_stride()], [out.row_stride(), out.plane_stride()]];
    turn("transpose_batched", stream, (shape, turned, pitches), x.elements(), out.into_elements())
}

/// Transposes a batch of `[count, rows, columns]` matrices, with separate row and matrix strides for source and
/// destination.
fn turn<T: DeviceCopy>(
    operation: &'static str,
    stream: &Stream,
    (shape, turned, pitches): ([usize; 3], [usize; 3], [[usize; 2]; 2]),
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    let [count, rows, columns] = shape;
    if shape != turned {
        let problem = format!(
            "the transpose of {count} x {rows} x {columns} elements is {count} x {columns} x {rows}, but the output \
             is {} x {} x {}",
            turned[0], turned[2], turned[1]
        );
        return misfit(operation, problem);
    }
    if shape.contains(&0) {
        return Ok(());
    }
    let [from_strides, to_strides] = pitches.map(|strides| strides.map(|stride| stride as u64));
    let shape = Matrices {
        count: count as u64,
        rows: rows as u64,
        columns: columns as u64,
        from: from_strides,
        to: to_strides,
    };
    match size_of::<T>() {
        1 => turn_as::<u8>(stream, shape, x.cast()?, out.cast()?),
        2 => turn_as::<u16>(stream, shape, x.cast()?, out.cast()?),
        4 => turn_as::<u32>(stream, shape, x.cast()?, out.cast()?),
        8 => turn_as::<u64>(stream, shape, x.cast()?, out.cast()?),
        16 => turn_as::<u128>(stream, shape, x.cast()?, out.cast()?),
        bytes => misfit(
            operation,
            format!(
                "elements of {bytes} bytes are not supported; transpose elements of 1, 2, 4, 8 or 16 bytes"
            ),
        ),
    }
}

fn turn_as<U: KernelType + DeviceCopy>(
    stream: &Stream,
    shape: Matrices,
    x: DeviceSlice<'_, U>,
    out: DeviceSliceMut<'_, U>,
) -> Result<()>
where
    transpose::transpose_tiles<U>: Instance,
    transpose::transpose_strips<U>: Instance,
{
    let module = stream.device().load(&IMAGE)?;
    let size = size_of::<U>();
    let properties = stream.device().properties();
    let launch = |blocks: u64, threads| {
        Launch::grid_block(blocks.min(u64::from(properties.max_grid[0])) as u32, threads)
    };
    let addresses = x.as_device_ptr().0 | out.as_device_ptr().0;
    let strides = shape.from.into_iter().chain(shape.to).fold(0, |all, stride| all | stride);
    let is_aligned = (addresses | (strides * size as u64)).is_multiple_of(16);
    if is_aligned && (shape.rows | shape.columns).is_multiple_of(side(size) as u64) {
        let tiles = shape.count * (shape.rows / side(size) as u64) * (shape.columns / side(size) as u64);
        let kernel = module.kernel::<transpose::transpose_tiles<U>>()?;
        // SAFETY: the views contain these elements, a view that is read does not overlap one that is written, the block
        // size is the kernel's, and the kernel's conditions were just checked.
        return unsafe { kernel.launch_unsafe(stream, launch(tiles, threads(size)), (shape, x, out)) };
    }
    let strips = shape.count.saturating_mul(shape.columns.div_ceil(u64::from(strip(size))));
    // A segment also loads up to one sector of the next segment's rows, so long segments load fewer rows twice. Short
    // segments give every SM enough blocks, and concurrent blocks then access adjacent memory.
    let steps = shape.rows.div_ceil(u64::from(STEP));
    let wanted = strips.saturating_mul(steps) / (u64::from(properties.multiprocessors) * 8);
    let segment = wanted.clamp(2, 8) as u32;
    let blocks = strips.saturating_mul(steps.div_ceil(u64::from(segment)));
    let kernel = module.kernel::<transpose::transpose_strips<U>>()?;
    // SAFETY: as above, and the segment has at least one step.
    unsafe { kernel.launch_unsafe(stream, launch(blocks, STRIP_THREADS), (shape, segment, x, out)) }
}

/// Returns the ranges of consecutive parts with these sizes and the sum of the sizes.
fn ranges(sizes: impl IntoIterator<Item = usize>) -> (Vec<Range<usize>>, usize) {
    let mut end = 0;
    let range = |size: usize| {
        let start = end;
        end += size;
        start..end
    };
    let ranges = sizes.into_iter().map(range).collect();
    (ranges, end)
}

/// Returns an error if the sizes of the parts do not add up to the size of the whole.
fn fits(
    operation: &'static str,
    (what, sum, whole): (&str, usize, usize),
    (across, of_parts, of_whole): (&str, impl IntoIterator<Item = usize>, usize),
) -> Result<()> {
    if sum != whole {
        return misfit(operation, format!("the parts have {sum} {what} in total, but the whole has {whole}"));
    }
    for (index, part) in of_parts.into_iter().enumerate() {
        if part != of_whole {
            return misfit(
                operation,
                format!("part {index} has {part} {across}, but the whole has {of_whole}"),
            );
        }
    }
    Ok(())
}

/// Defines concatenation and splitting along one dimension.
macro_rules! along {
    ($(#[$concat_example:meta])* $concat:ident, $(#[$split_example:meta])* $split:ident,
        $side:ident, $what:literal, $other:ident, $across:literal,
        |$range:ident| ($rows:expr, $columns:expr)) => {
        #[doc = concat!("Concatenates the ", $what, " of the views `parts` into `out`, in order.")]
        ///
        /// # Errors
        /// Returns [`OpError::Shape`] if the parts do not add up to the whole. Also returns the [enqueue
        /// errors](crate::Error#enqueue-errors).
        $(#[$concat_example])*
        #[track_caller]
        pub fn $concat<T: DeviceCopy>(
            stream: &Stream,
            parts: &[DeviceSlice2<'_, T>],
            mut out: DeviceSliceMut2<'_, T>,
        ) -> Result<()> {
            let _site = site();
            let (ranges, sum) = ranges(parts.iter().map(|part| part.$side()));
            let across = ($across, parts.iter().map(|part| part.$other()), out.$other());
            fits(stringify!($concat), ($what, sum, out.$side()), across)?;
            for (part, $range) in parts.iter().zip(ranges) {
                copy_rows(stream, *part, out.reborrow().into_part($rows, $columns))?;
            }
            Ok(())
        }

        #[doc = concat!(
            "Splits the ", $what, " of `x` among the views `parts`, in order. This is the inverse of [`",
            stringify!($concat), "()`]."
        )]
        ///
        /// # Errors
        /// Returns [`OpError::Shape`] if the parts do not add up to the whole. Also returns the [enqueue
        /// errors](crate::Error#enqueue-errors).
        $(#[$split_example])*
        #[track_caller]
        pub fn $split<T: DeviceCopy>(
            stream: &Stream,
            x: DeviceSlice2<'_, T>,
            parts: &mut [DeviceSliceMut2<'_, T>],
        ) -> Result<()> {
            let _site = site();
            let (ranges, sum) = ranges(parts.iter().map(|part| part.$side()));
            let across = ($across, parts.iter().map(|part| part.$other()), x.$other());
            fits(stringify!($split), ($what, sum, x.$side()), across)?;
            for (part, $range) in parts.iter_mut().zip(ranges) {
                copy_rows(stream, x.part($rows, $columns), part.reborrow())?;
            }
            Ok(())
        }
    };
}
along! {
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4])?;
    /// let y = DeviceBuffer::from_host(&stream, &[5u8, 6, 7, 8])?;
    /// let mut both = DeviceBuffer::uninit(&stream, 8)?;
    /// ops::concat_rows(&stream, &[x.as_2d(2, 2)?, y.as_2d(2, 2)?], both.as_2d_mut(4, 2)?)?;
    /// assert_eq!(both.to_host()?, [1, 2, 3, 4, 5, 6, 7, 8]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    concat_rows,
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?;
    /// let (mut first, mut rest) = (DeviceBuffer::uninit(&stream, 2)?, DeviceBuffer::uninit(&stream, 4)?);
    /// let mut parts = [first.as_2d_mut(1, 2)?, rest.as_2d_mut(2, 2)?];
    /// ops::split_rows(&stream, x.as_2d(3, 2)?, &mut parts)?;
    /// assert_eq!((first.to_host()?, rest.to_host()?), (vec![1, 2], vec![3, 4, 5, 6]));
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    split_rows,
    rows, "rows", columns, "elements in a row", |range| (range, ..)
}
along! {
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4])?;
    /// let y = DeviceBuffer::from_host(&stream, &[5u8, 6, 7, 8])?;
    /// let mut both = DeviceBuffer::uninit(&stream, 8)?;
    /// ops::concat_columns(&stream, &[x.as_2d(2, 2)?, y.as_2d(2, 2)?], both.as_2d_mut(2, 4)?)?;
    /// assert_eq!(both.to_host()?, [1, 2, 5, 6, 3, 4, 7, 8]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    concat_columns,
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?;
    /// let (mut first, mut rest) = (DeviceBuffer::uninit(&stream, 2)?, DeviceBuffer::uninit(&stream, 4)?);
    /// let mut parts = [first.as_2d_mut(2, 1)?, rest.as_2d_mut(2, 2)?];
    /// ops::split_columns(&stream, x.as_2d(2, 3)?, &mut parts)?;
    /// assert_eq!((first.to_host()?, rest.to_host()?), (vec![1, 4], vec![2, 3, 5, 6]));
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    split_columns,
    columns, "columns", rows, "rows", |range| (.., range)
}
