//! Reductions along rows, columns and segments.

use gpu_kernels::axis_reduce::{COUNTERS, MAX_BLOCK, SLOTS, workspace_bytes};
use gpu_spec::param::{Optional, Pointer, PointerMut, Slice, Slice2, Value};
use gpu_std::scalar::{Element, Float, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceCopy, DeviceProperties, DevicePtr, DeviceSlice, DeviceSlice2, DeviceSliceMut, Result, Stream,
};

use super::launch::{RowKernel, Shape, VECTOR, check_len, has_instance, has_whole_vectors, shape_error};
use crate::op_error::OpError;
use crate::ops::data::fill;
use crate::ops::example::{buffer, example, holds};
use crate::ops::offset_check::check_offsets;

/// Number of vectors that a thread loads at once in column reductions.
const ITEMS: usize = 4;
/// Maximum number of vectors per lane and row in a launch with one warp per row, if the rows fill the device.
const OF_LANE: usize = 128;

/// Runs `work` with the stream's workspace for this number of partial results, or with a null pointer if the number is
/// 0.
///
/// # Safety
/// `work` must enqueue only kernels of `axis_reduce`, and only on this stream.
pub(super) unsafe fn with_workspace(
    stream: &Stream,
    partials: usize,
    work: impl FnOnce(DevicePtr) -> Result<()>,
) -> Result<()> {
    if partials == 0 {
        return work(DevicePtr::NULL);
    }
    let bytes = workspace_bytes(partials.next_power_of_two());
    // SAFETY: the setup work runs on this stream; the caller guarantees the rest.
    unsafe {
        stream.with_scratch("axis_reduce", bytes, |memory, new| {
            if new {
                let (driver, context) = stream.device().driver();
                driver.memset(context, memory, 0, bytes, stream.handle())?;
            }
            work(memory)
        })
    }
}

/// Returns the number of blocks in one wave, for blocks of `block` threads.
pub(super) fn resident(device: &DeviceProperties, block: u32) -> usize {
    device.multiprocessors as usize * (device.max_threads_per_multiprocessor / block).max(1) as usize
}

/// Returns the launch shape of row reductions and the number of blocks per row.
fn rows_shape<T: DeviceCopy>(x: &DeviceSlice2<'_, T>, device: &DeviceProperties) -> (Shape, usize) {
    let (width, height) = (x.columns(), x.rows());
    let vectors = width.div_ceil((VECTOR / size_of::<T>()).max(1));
    // For short rows, a group of lanes loads several whole rows at the same time, in vectors or as single elements.
    let units = if has_whole_vectors(x) { vectors } else { width };
    if units <= 32 * SLOTS {
        let lanes = units.next_power_of_two().min(32);
        let rows = SLOTS / units.div_ceil(lanes).next_power_of_two();
        let shape = Shape::of_lanes(lanes, MAX_BLOCK, rows, height);
        // Each block processes several rounds of rows, to amortize the instructions that each thread executes before
        // its first load.
        let grid = shape.grid.min(4 * resident(device, MAX_BLOCK) as u32);
        return (Shape { grid, ..shape }, 1);
    }
    // Rows of medium length are reduced by one warp each, which needs no block-wide barrier.
    if vectors <= 32 * OF_LANE && height >= resident(device, 32) {
        return (Shape::of_lanes(32, MAX_BLOCK, 1, height), 1);
    }
    let block = (vectors / SLOTS).next_power_of_two().clamp(64, MAX_BLOCK as usize) as u32;
    let of_block = block as usize * SLOTS;
    let parts = resident(device, block).div_ceil(height.max(1)).min(vectors / of_block).max(1);
    let parts = if height > COUNTERS { 1 } else { parts };
    (Shape::of_blocks(block, 1, height.saturating_mul(parts)), parts)
}

/// Returns the launch shape of a column reduction and the number of blocks per column. If `in_vectors` is true, a lane
/// loads vectors, otherwise single elements.
pub(super) fn columns_shape<T: DeviceCopy>(
    x: &DeviceSlice2<'_, T>,
    in_vectors: bool,
    device: &DeviceProperties,
) -> (Shape, usize) {
    let (n, items) = if in_vectors { (VECTOR / size_of::<T>(), ITEMS) } else { (1, 16) };
    let lanes = x.columns().div_ceil(n).next_power_of_two().min(32);
    let tiles = x.columns().div_ceil(lanes * n);
    let rows = MAX_BLOCK as usize / lanes;
    let parts = (resident(device, MAX_BLOCK) / tiles).min(x.rows() / (rows * items)).max(1);
    let parts = if tiles > COUNTERS { 1 } else { parts };
    let shape =
        Shape { group_size: lanes as u32, ..Shape::of_blocks(MAX_BLOCK, 1, tiles.saturating_mul(parts)) };
    (shape, parts)
}

/// Axis of the results: one result per row, or one per column.
#[derive(Clone, Copy)]
enum Axis {
    Rows,
    Columns,
}

/// Launches the kernel of an operation on rows or columns. `of_nothing` is the result for zero elements, or `None` if
/// that result is undefined.
fn along<T: Number, O: Element>(
    stream: &Stream,
    operation: &'static str,
    axis: Axis,
    x: DeviceSlice2<'_, T>,
    out: DeviceSliceMut<'_, O>,
    of_nothing: Option<O>,
) -> Result<()> {
    let (results, elements, of) = match axis {
        Axis::Rows => (x.rows(), x.columns(), "one per row"),
        Axis::Columns => (x.columns(), x.rows(), "one per column"),
    };
    check_len(operation, ("out", out.len()), (results, of))?;
    if results == 0 {
        return Ok(());
    }
    if elements == 0 {
        return fill(stream, of_nothing.ok_or(OpError::Empty { operation })?, out);
    }
    let properties = stream.device().properties();
    match axis {
        Axis::Rows => {
            let (shape, parts) = rows_shape(&x, properties);
            let sides = [x.columns() as u64, x.rows() as u64, x.row_stride() as u64];
            rows(stream, operation, (x.elements(), sides, None), out, (shape, parts))
        }
        Axis::Columns => {
            let in_vectors = has_whole_vectors(&x) && has_instance(operation, T::NAME, VECTOR as u32);
            let (shape, parts) = columns_shape(&x, in_vectors, properties);
            let constant = if in_vectors { VECTOR as u32 } else { 1 };
            let kernel = RowKernel::new(stream, operation, T::NAME, constant)?;
            type Params<T, O> = (Slice2<T>, PointerMut<O>, PointerMut<u64>, Value<u32>, Value<u32>);
            // SAFETY: only kernels of `axis_reduce` use the workspace, on this stream. These arguments match the
            // kernel's parameters. The shape, the number of columns with partial results, and the workspace meet the
            // kernel's conditions, and `out` has one element per result.
            unsafe {
                with_workspace(stream, if parts > 1 { results * parts } else { 0 }, |workspace| {
                    let arguments = (x, out, workspace, shape.group_size, parts as u32);
                    kernel.launch::<Params<T, O>, _>(&shape, arguments)
                })
            }
        }
    }
}

/// Launches the kernel of an operation on rows or segments, given the elements, sizes and offsets.
pub(super) fn rows<T: Number, O: Element>(
    stream: &Stream,
    operation: &'static str,
    (x, sides, offsets): (DeviceSlice<'_, T>, [u64; 3], Option<DeviceSlice<'_, u64>>),
    out: DeviceSliceMut<'_, O>,
    (shape, parts): (Shape, usize),
) -> Result<()> {
    type Params<T, O> = (
        Pointer<T>,
        Value<[u64; 3]>,
        Optional<Slice<u64>>,
        PointerMut<O>,
        PointerMut<u64>,
        Value<u32>,
        Value<u32>,
    );
    let kernel = RowKernel::new(stream, operation, T::NAME, 0)?;
    let partials = if parts > 1 { out.len() * parts } else { 0 };
    // SAFETY: only kernels of `axis_reduce` use the workspace, on this stream. These arguments match the kernel's
    // parameters. The shape, the number of rows with partial results, and the workspace meet the kernel's conditions,
    // and `out` has one element per row.
    unsafe {
        with_workspace(stream, partials, |workspace| {
            let arguments = (x, sides, offsets, out, workspace, shape.group_size, parts as u32);
            kernel.launch::<Params<T, O>, _>(&shape, arguments)
        })
    }
}

/// Launches the kernel of an operation on segments.
fn of_segments<T: Number, O: Element>(
    stream: &Stream,
    (operation, kernel): (&'static str, &'static str),
    x: DeviceSlice<'_, T>,
    offsets: DeviceSlice<'_, u64>,
    out: DeviceSliceMut<'_, O>,
) -> Result<()> {
    let Some(segments) = offsets.len().checked_sub(1) else {
        return Err(shape_error(
            operation,
            "offsets is empty; pass the start of each segment and the end of the last segment".into(),
        ));
    };
    check_len(
        operation,
        ("out", out.len()),
        (
            segments,
            "one per segment, which is one less than the length of \
                                                         offsets",
        ),
    )?;
    if segments == 0 {
        return Ok(());
    }
    check_offsets(stream, operation, offsets, x.len())?;
    let vectors = (x.len() / segments).div_ceil((VECTOR / size_of::<T>()).max(1));
    let shape = match vectors {
        0..=128 => Shape::of_lanes(vectors.div_ceil(ITEMS).next_power_of_two(), MAX_BLOCK, 1, segments),
        _ => Shape::of_blocks(
            (vectors / ITEMS).next_power_of_two().clamp(64, MAX_BLOCK as usize) as u32,
            1,
            segments,
        ),
    };
    let sides = [x.len() as u64, segments as u64, 0];
    rows(stream, kernel, (x, sides, Some(offsets)), out, (shape, 1))
}

/// Doctest for a reduction of rows or columns.
macro_rules! rows_example {
    ($name:ident, $count:literal, $out:tt) => {
        example!(
            "// Two rows of three.",
            buffer!(x, [3.0f32, 1.0, 5.0, 2.0, 6.0, 4.0]),
            concat!("let mut out = DeviceBuffer::uninit(&stream, ", stringify!($count), ")?;"),
            concat!("ops::", stringify!($name), "(&stream, x.as_2d(2, 3)?, &mut out)?;"),
            holds!(out, $out),
        )
    };
}

/// Doctest for a reduction of segments.
macro_rules! segments_example {
    ($name:ident, $out:tt) => {
        example!(
            buffer!(x, [3.0f32, 1.0, 5.0, 2.0, 6.0, 4.0]),
            buffer!(offsets, [0u64, 2, 6]),
            "let mut out = DeviceBuffer::uninit(&stream, 2)?;",
            concat!("ops::", stringify!($name), "(&stream, &x, &offsets, &mut out)?;"),
            holds!(out, $out),
        )
    };
}

/// Defines three variants of a reduction: by rows, by columns and by segments.
macro_rules! reductions {
    ($(
        $what:literal, $note:literal, $zero:literal, $empty:literal:
        $rows:ident, $columns:ident, $segments:ident: $bound:ident => $out:ty,
        $of_nothing:expr, $of_rows:tt, $of_columns:tt, $of_segments:tt;
    )*) => { $(
        #[doc = concat!("Sets `out[i]` to the ", $what, " of row i.", $zero, $note)]
        ///
        /// # Errors
        /// Returns [`OpError::Shape`] unless `out` has one element per row, and [`OpError::Empty`] if the rows are
        /// empty and the result would be undefined. Also returns the [enqueue errors](crate::Error#enqueue-errors).
        #[doc = rows_example!($rows, 2, $of_rows)]
        #[track_caller]
        pub fn $rows<'o, T: $bound>(
            stream: &Stream,
            x: DeviceSlice2<'_, T>,
            out: impl Into<DeviceSliceMut<'o, $out>>,
        ) -> Result<()> {
            let _site = site();
            along(stream, stringify!($rows), Axis::Rows, x, out.into(), $of_nothing)
        }

        #[doc = concat!("Sets `out[i]` to the ", $what, " of column i.", $zero, $note)]
        ///
        /// # Errors
        /// Returns [`OpError::Shape`] unless `out` has one element per column, and [`OpError::Empty`] if the columns
        /// are empty and the result would be undefined. Also returns the [enqueue errors](crate::Error#enqueue-errors).
        #[doc = rows_example!($columns, 3, $of_columns)]
        #[track_caller]
        pub fn $columns<'o, T: $bound>(
            stream: &Stream,
            x: DeviceSlice2<'_, T>,
            out: impl Into<DeviceSliceMut<'o, $out>>,
        ) -> Result<()> {
            let _site = site();
            along(stream, stringify!($columns), Axis::Columns, x, out.into(), $of_nothing)
        }

        #[doc = concat!(
            "Sets `out[i]` to the ", $what, " of segment i, from `offsets[i]` (inclusive) to `offsets[i + 1]` ",
            "(exclusive). For an empty segment, the result is ", $empty, ".", $note
        )]
        ///
        /// The operation waits for the stream because it checks the offsets. The size of the thread group that reduces
        /// a segment depends on the mean segment length, so one very long segment causes load imbalance.
        ///
        /// # Errors
        /// Returns [`OpError::Shape`] unless `out` has one element per segment. Returns [`OpError::Offset`], before
        /// anything is written, if offsets decrease or exceed the length of `x`. Also returns the [enqueue
        /// errors](crate::Error#enqueue-errors).
        #[doc = segments_example!($segments, $of_segments)]
        #[track_caller]
        pub fn $segments<'x, 's, 'o, T: $bound>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            offsets: impl Into<DeviceSlice<'s, u64>>,
            out: impl Into<DeviceSliceMut<'o, $out>>,
        ) -> Result<()> {
            let _site = site();
            of_segments(stream, (stringify!($segments), stringify!($rows)), x.into(), offsets.into(), out.into())
        }
    )* };
}

reductions! {
    "sum", "", " The sum of zero elements is 0.", "0":
        sum_rows, sum_columns, sum_segments: Number => T::SumAccumulator,
        Some(T::SumAccumulator::ZERO), [9.0, 12.0], [5.0, 7.0, 9.0], [4.0, 17.0];
    "mean", "", " The mean of zero elements is NaN.", "NaN":
        mean_rows, mean_columns, mean_segments: Float => T::SumAccumulator,
        Some(f64::NAN.cast()), [3.0, 4.0], [2.5, 3.5, 4.5], [2.0, 4.25];
    "product", "", " The product of zero elements is 1.", "1":
        prod_rows, prod_columns, prod_segments: Number => T::SumAccumulator,
        Some(T::SumAccumulator::ONE), [15.0, 48.0], [6.0, 6.0, 20.0], [3.0, 240.0];
    "minimum", " The result is NaN if any element is NaN.", "", "the type's largest value (+∞ for floats)":
        min_rows, min_columns, min_segments: Number => T, None,
        [1.0, 2.0], [2.0, 1.0, 4.0], [1.0, 2.0];
    "maximum", " The result is NaN if any element is NaN.", "", "the type's smallest value (-∞ for floats)":
        max_rows, max_columns, max_segments: Number => T, None,
        [5.0, 6.0], [3.0, 6.0, 5.0], [3.0, 6.0];
    "index of the first minimum", " If any element is NaN, the result is the index of the first NaN.", "", "`u64::MAX`":
        argmin_rows, argmin_columns, argmin_segments: Number => u64, None, [1, 0], [1, 0, 1], [1, 1];
    "index of the first maximum", " If any element is NaN, the result is the index of the first NaN.", "", "`u64::MAX`":
        argmax_rows, argmax_columns, argmax_segments: Number => u64, None, [2, 1], [0, 1, 0], [0, 2];
}
