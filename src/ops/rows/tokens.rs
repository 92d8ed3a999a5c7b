//! Language-model operations other than GEMM and norms: rotary position embedding and SwiGLU.

use gpu_spec::param::{Optional, Slice, Slice2, SliceMut2, Value};
use gpu_std::scalar::Float;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceProperties, DevicePtr, DeviceSlice, DeviceSlice2, DeviceSliceMut2, Result, Stream,
};

use super::launch::{RowKernel, Shape, VECTOR, address, check_len, same_sides, shape_error};
use crate::ops::index_check::check_indices;
use crate::ops::indices::Index;

/// Number of vectors that a thread moves at once.
const ITEMS: usize = 4;

/// Returns the launch shape for rows that are read once, and the number of blocks per row.
fn shape_of(units: usize, height: usize, device: &DeviceProperties) -> (Shape, u32) {
    let group_size = units.div_ceil(ITEMS).next_power_of_two().min(256);
    if group_size <= 32 {
        return (Shape::of_lanes(group_size, 256, 1, height), 1);
    }
    let resident = device.multiprocessors as usize
        * (device.max_threads_per_multiprocessor as usize / group_size).max(1);
    let parts = resident.div_ceil(height.max(1)).min(units / (group_size * ITEMS)).max(1);
    (Shape::of_blocks(group_size as u32, 1, height.saturating_mul(parts)), parts as u32)
}

/// Returns whether each row of a view has the same alignment relative to vectors as the same row of the other views,
/// for views at these addresses and with these pitches (in bytes).
fn have_vectors(views: &[(DevicePtr, usize)]) -> bool {
    let mut places = views.iter().map(|&(start, pitch)| (address(start) % VECTOR, pitch % VECTOR));
    let Some(first) = places.next() else { return false };
    places.all(|place| place == first)
}

/// Returns the number of accesses for `width` elements, either as vectors or as single elements.
fn units<T>(width: usize, has_vectors: bool) -> usize {
    if has_vectors { width.div_ceil(VECTOR / size_of::<T>()) } else { width }
}

/// SwiGLU: `out` = gate / (1 + exp(-gate)) · up, which is SiLU(gate) · up. For `f16` and `bf16`, the result is computed
/// in `f32` and rounded once. `gate` and `up` can be column ranges of one buffer.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if the shapes of the views differ. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.0f32, 2.0, 30.0, 0.5])?;
/// let x = x.as_2d(2, 2)?;
/// let mut out = DeviceBuffer::uninit(&stream, 2)?;
/// ops::swiglu(&stream, x.part(.., ..1), x.part(.., 1..), out.as_2d_mut(2, 1)?)?;
/// assert_eq!(out.to_host()?, [0.0, 15.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn swiglu<T: Float>(
    stream: &Stream,
    gate: DeviceSlice2<'_, T>,
    up: DeviceSlice2<'_, T>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let sides = (gate.rows(), gate.columns());
    same_sides("swiglu", ("gate", sides), ("up", (up.rows(), up.columns())))?;
    same_sides("swiglu", ("gate", sides), ("out", (out.rows(), out.columns())))?;
    if gate.is_empty() {
        return Ok(());
    }
    let size = size_of::<T>();
    let views = [
        (gate.as_device_ptr(), gate.row_stride() * size),
        (up.as_device_ptr(), up.row_stride() * size),
        (out.as_device_ptr(), out.row_stride() * size),
    ];
    let has_vectors = have_vectors(&views);
    let properties = stream.device().properties();
    let (shape, parts) = shape_of(units::<T>(gate.columns(), has_vectors), gate.rows(), properties);
    let kernel = RowKernel::new(stream, "swiglu", T::NAME, 0)?;
    let arguments = (gate, up, out, shape.group_size, parts, u32::from(has_vectors));
    // SAFETY: these arguments match the kernel's parameters; sizes, shape and alignment meet its conditions.
    unsafe {
        kernel.launch::<(Slice2<T>, Slice2<T>, SliceMut2<T>, Value<u32>, Value<u32>, Value<u32>), _>(
            &shape, arguments,
        )
    }
}

/// Pairing of a head's elements in [`rotary()`].
///
/// See the example of [`rotary()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryPairs {
    /// Pairs element i of the first half of a head with element i of the second half, as in GPT-NeoX and Llama.
    Halves,
    /// Pairs elements 2i and 2i + 1 of a head, as in GPT-J.
    Interleaved,
}

/// Rotary position embedding, which rotates each pair (a, b) of a head's elements to (a cos - b sin, a sin + b cos).
///
/// A row of `x` contains a token's heads, which are stored consecutively. Row p of `cos` and `sin` applies to position
/// p. The tables have one column per pair, so a head is twice as wide. For `f16` and `bf16`, the tables are `f32`, and
/// results are computed in `f32` and rounded once. Row i of `x` has position `positions[i]`, or position i if
/// `positions` is `None`. If positions are passed, the operation waits for the stream because it checks them.
///
/// # Errors
/// Returns [`OpError::Index`](crate::OpError::Index) if the tables contain no row for a position. Returns
/// [`OpError::Shape`](crate::OpError::Shape) if the shapes of the views differ, if the head width does not divide the
/// number of columns of `x`, or if there is not one position per row. In these cases, nothing is written. Also returns
/// the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
/// // Position 0 rotates by 0 degrees, position 1 by 90 degrees.
/// let (cos, sin) =
///     (DeviceBuffer::from_host(&stream, &[1.0f32, 0.0])?, DeviceBuffer::from_host(&stream, &[0.0f32, 1.0])?);
/// let mut out = DeviceBuffer::uninit(&stream, 4)?;
/// let tables = (cos.as_2d(2, 1)?, sin.as_2d(2, 1)?);
/// let none = None::<DeviceSlice<u32>>;
/// ops::rotary(&stream, x.as_2d(2, 2)?, none, tables, ops::RotaryPairs::Halves, out.as_2d_mut(2, 2)?)?;
/// assert_eq!(out.to_host()?, [1.0, 2.0, -4.0, 3.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn rotary<T: Float, I: Index>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    positions: Option<DeviceSlice<'_, I>>,
    (cos, sin): (DeviceSlice2<'_, T::SumAccumulator>, DeviceSlice2<'_, T::SumAccumulator>),
    pairs: RotaryPairs,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let sides = (x.rows(), x.columns());
    same_sides("rotary", ("x", sides), ("out", (out.rows(), out.columns())))?;
    same_sides("rotary", ("cos", (cos.rows(), cos.columns())), ("sin", (sin.rows(), sin.columns())))?;
    if x.is_empty() {
        return Ok(());
    }
    if cos.columns() == 0 || !x.columns().is_multiple_of(2 * cos.columns()) {
        let problem = format!(
            "x has rows of {} elements, but the row length must be a multiple of {}, twice the columns of cos",
            x.columns(),
            2 * cos.columns()
        );
        return Err(shape_error("rotary", problem));
    }
    match positions {
        Some(positions) => {
            check_len("rotary", ("positions", positions.len()), (x.rows(), "one per row of x"))?;
            check_indices(stream, "rotary", ("positions", positions), cos.rows(), false)?;
        }
        None if x.rows() > cos.rows() => {
            let problem = format!("x has {} rows, but cos has only {} positions", x.rows(), cos.rows());
            return Err(shape_error("rotary", problem));
        }
        None => {}
    }
    let properties = stream.device().properties();
    let (shape, parts) = shape_of(x.columns() / 2, x.rows(), properties);
    // The kernel is compiled for unsigned indices of both sizes.
    let index = if size_of::<I>() == 4 { "u32" } else { "u64" };
    let kernel = RowKernel::new(stream, "rotary", &format!("{},{index}", T::NAME), 0)?;
    let is_interleaved = u32::from(pairs == RotaryPairs::Interleaved);
    let arguments = (x, positions, cos, sin, out, is_interleaved, shape.group_size, parts);
    // SAFETY: these arguments match the kernel's parameters, with indices of the same size, because the sum type of a
    // float is its accumulator; sizes and shape meet its conditions.
    unsafe {
        kernel.launch::<(
            Slice2<T>,
            Optional<Slice<I>>,
            Slice2<T::SumAccumulator>,
            Slice2<T::SumAccumulator>,
            SliceMut2<T>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
        ), _>(&shape, arguments)
    }
}
