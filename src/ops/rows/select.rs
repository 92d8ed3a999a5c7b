//! Top-k selection per row, and sampling from logits.

use gpu_kernels::select::{BLOCK, MAX_K, MAX_VOCABULARY};
use gpu_spec::param::{PointerMut, Slice, Slice2, SliceMut2, Value};
use gpu_std::scalar::{Float, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice2, DeviceSliceMut, DeviceSliceMut2, Result, Stream};

use super::launch::{RowKernel, Shape, check_len, same_sides, shape_error};
use super::reduce::argmax_rows;
use crate::ops::bit_layout::BitLayout;
use crate::random::{Generator, Numbers, with_base};

/// Writes the k largest elements of each row of `x` to `values` in descending order and writes their columns to
/// `indices`. k is the number of columns of `values`. Equal elements are ordered by column. NaN counts as greater than
/// every number, and -0 equals +0.
///
/// k must be from 1 to 1024. One block per row runs a radix select. It reads the row three times for 16-bit elements,
/// five times for 32-bit elements and nine times for 64-bit elements, mostly from the cache. If elements tie with the
/// k-th one, up to four more reads are needed.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if k is 0, above 1024 or above the number of columns of `x`, or if
/// the outputs differ from each other in shape, or from `x` in the number of rows. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.5f32, 3.0, -1.0, 2.0])?;
/// let (mut values, mut indices) = (DeviceBuffer::uninit(&stream, 2)?, DeviceBuffer::uninit(&stream, 2)?);
/// ops::top_k(&stream, x.as_2d(1, 4)?, values.as_2d_mut(1, 2)?, indices.as_2d_mut(1, 2)?)?;
/// assert_eq!(values.to_host()?, [3.0, 2.0]);
/// assert_eq!(indices.to_host()?, [1, 3]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn top_k<T: Number>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    values: DeviceSliceMut2<'_, T>,
    indices: DeviceSliceMut2<'_, u64>,
) -> Result<()> {
    let _site = site();
    let k = values.columns();
    same_sides("top_k", ("values", (values.rows(), k)), ("indices", (indices.rows(), indices.columns())))?;
    if values.rows() != x.rows() {
        let problem = format!("x has {} rows, but values has {}", x.rows(), values.rows());
        return Err(shape_error("top_k", problem));
    }
    if k == 0 || k > MAX_K.min(x.columns()) {
        let problem = format!(
            "values has {k} columns, but must have 1 to {MAX_K}, and at most the {} columns of x",
            x.columns()
        );
        return Err(shape_error("top_k", problem));
    }
    if x.is_empty() {
        return Ok(());
    }
    let layout = BitLayout::of::<T>();
    macro_rules! by_size {
        ($u:ty) => {{
            let x = x.elements().cast::<$u>()?.as_2d_strided(x.rows(), x.columns(), x.row_stride())?;
            let (rows, columns, row_stride) = (values.rows(), values.columns(), values.row_stride());
            let mut values = values.into_elements().cast::<$u>()?;
            top_k_of::<$u>(stream, layout, x, values.as_2d_strided_mut(rows, columns, row_stride)?, indices)
        }};
    }
    match size_of::<T>() {
        2 => by_size!(u16),
        4 => by_size!(u32),
        _ => by_size!(u64),
    }
}

/// Like [`top_k()`], but operates on the bit patterns of the elements.
fn top_k_of<T: Scalar>(
    stream: &Stream,
    layout: BitLayout,
    x: DeviceSlice2<'_, T>,
    values: DeviceSliceMut2<'_, T>,
    indices: DeviceSliceMut2<'_, u64>,
) -> Result<()> {
    type Params<T> = (Value<T>, Value<T>, Value<T>, Value<T>, Slice2<T>, SliceMut2<T>, SliceMut2<u64>);
    let BitLayout { negative, always, magnitude, most, .. } = layout;
    let [negative, always, magnitude, most] = [negative, always, magnitude, most].map(T::from_u64);
    let kernel = RowKernel::new(stream, "top_k", T::NAME, 0)?;
    let shape = Shape::of_blocks(BLOCK, 1, x.rows());
    let arguments = (negative, always, magnitude, most, x, values, indices);
    // SAFETY: these arguments match the kernel's parameters; sizes and shape meet its conditions.
    unsafe { kernel.launch::<Params<T>, _>(&shape, arguments) }
}

/// Sampling parameters of [`sample()`].
///
/// ```
/// use warpsmith::ops::Sampling;
///
/// let sampling = Sampling { temperature: 0.8, top_p: Some(0.95), ..Sampling::default() };
/// assert_eq!(sampling.top_k, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits. 0 selects the first of the largest logits.
    pub temperature: f32,
    /// If set to k, keeps the k largest logits and all logits that tie with the k-th.
    pub top_k: Option<u32>,
    /// Keeps the most probable of the remaining logits until their probabilities add up to this value, plus all logits
    /// that tie with the last of them.
    pub top_p: Option<f64>,
}

/// The default is a temperature of 1, without limits on the logits.
impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None }
    }
}

/// Samples one index for each row of logits, with the probabilities that the row's softmax defines. `out` must have one
/// element per row.
///
/// Probabilities are computed in `f32` and rounded to integer multiples of 2⁻⁴⁰ of the row's largest probability.
/// Integer sums are deterministic, so the same generator, logits and options give the same indices on every device. Row
/// r uses subsequence r at the generator's offset, which the operation advances by 4. If a row contains NaN or +∞, or
/// no logit above -∞, its result is `u64::MAX`. With a temperature of 0, the operation uses no random numbers, and
/// returns the same index as [`argmax_rows()`].
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) in the following cases: `out` does not have one element per row,
/// rows have zero or more than 2²² logits, the temperature is negative or not finite, `top_k` is 0, or `top_p` is
/// outside (0, 1]. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*, random::Generator};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// generator.manual_seed(7)?;
/// let logits = DeviceBuffer::from_host(&stream, &[0.0f32, 20.0, 0.0, 1.0, 1.1, 1.2])?;
/// let mut tokens = DeviceBuffer::uninit(&stream, 2)?;
/// let sampling = ops::Sampling { top_k: Some(2), ..Default::default() };
/// ops::sample(&stream, &generator, sampling, logits.as_2d(2, 3)?, &mut tokens)?;
/// let tokens = tokens.to_host()?;
/// assert!(tokens[0] == 1 && [1, 2].contains(&tokens[1]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn sample<'o, T: Float>(
    stream: &Stream,
    generator: &Generator,
    sampling: Sampling,
    logits: DeviceSlice2<'_, T>,
    out: impl Into<DeviceSliceMut<'o, u64>>,
) -> Result<()> {
    let _site = site();
    let (out, Sampling { temperature, top_k, top_p }) = (out.into(), sampling);
    check_len("sample", ("out", out.len()), (logits.rows(), "one per row"))?;
    let problem = if !temperature.is_finite()
        || temperature < 0.0
        || (temperature > 0.0 && temperature.recip().is_infinite())
    {
        format!("temperature is {temperature}, but must be 0 or a positive number with a finite inverse")
    } else if top_k == Some(0) {
        "top_k is 0, but must be at least 1".to_owned()
    } else if top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) {
        format!("top_p is {}, but must be above 0 and at most 1", top_p.unwrap_or_default())
    } else if logits.rows() > 0 && (logits.columns() == 0 || logits.columns() > MAX_VOCABULARY) {
        format!("each row has {} logits, but must have 1 to {MAX_VOCABULARY}", logits.columns())
    } else {
        String::new()
    };
    if !problem.is_empty() {
        return Err(shape_error("sample", problem));
    }
    if logits.is_empty() {
        return Ok(());
    }
    if temperature == 0.0 {
        return argmax_rows(stream, logits, out);
    }
    let kernel = RowKernel::new(stream, "sample", T::NAME, 0)?;
    let shape = Shape::of_blocks(BLOCK, 1, logits.rows());
    generator.with_numbers(
        stream,
        "sample",
        |_| 4,
        |numbers| {
            let Numbers { seed, offset, .. } = *numbers;
            with_base(numbers, stream, |base| {
                let (k, p) = (top_k.unwrap_or(0), top_p.unwrap_or(1.0));
                let arguments = (seed, offset, base, logits, temperature.recip(), k, p, out);
                // SAFETY: these arguments match the kernel's parameters; sizes and shape meet its conditions.
                unsafe {
                    kernel.launch::<(
                        Value<u64>,
                        Value<u64>,
                        Slice<u64>,
                        Slice2<T>,
                        Value<f32>,
                        Value<u32>,
                        Value<f64>,
                        PointerMut<u64>,
                    ), _>(&shape, arguments)
                }
            })
        },
    )
}
