//! Operators that call the operations in `warpsmith::ops` with the tensors of a call.

use warpsmith::ops::{self, Attention, Epilogue, Heads, HeadsMut, Matrix, MatrixMut, Number, Operand, Order};
use warpsmith::{DeviceBuffer, DeviceCopy, DeviceSlice2, DeviceSliceMut, DeviceSliceMut2, Stream, bf16, f16};
use warpsmith_python::dlpack::Element;
use warpsmith_python::{Call, Error, Result, Tensor, TensorMut, dispatch};

macro_rules! unary {
    ($($types:tt: $($name:ident)*;)*) => { $($(
        pub fn $name(call: &Call, x: Tensor) -> Result<TensorMut> {
            let mut out = call.empty_like(&x)?;
            dispatch!(x.data_type(), T in $types => {
                ops::$name::<T>(call.stream(), x.as_slice::<T>()?, out.as_mut_slice::<T>()?)
            })?;
            Ok(out)
        }
    )*)* };
}
unary! {
    [f32, f64, f16, bf16, i8, i16, i32, i64]: abs neg;
    [f32, f64, f16, bf16]: sqrt rsqrt exp log sin cos tanh sigmoid relu gelu gelu_tanh silu;
}

macro_rules! binary {
    ($($types:tt: $($name:ident)*;)*) => { $($(
        pub fn $name(call: &Call, x: Tensor, y: Tensor) -> Result<TensorMut> {
            let is_row = is_row(&x, &y)?;
            let mut out = call.empty_like(&x)?;
            dispatch!(x.data_type(), T in $types => {
                let elements = y.as_slice::<T>()?;
                let y: Operand<'_, T> = if is_row { ops::row(elements) } else { elements.into() };
                ops::$name::<T>(call.stream(), x.as_slice::<T>()?, y, out.as_mut_slice::<T>()?)
            })?;
            Ok(out)
        }
    )*)* };
}
binary! {
    [f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64]: add sub mul minimum maximum;
    [f32, f64, f16, bf16]: div pow;
}

/// Returns true if `y` is a row that is broadcast over the rows of `x`, and false if both have the same shape.
///
/// # Errors
/// Returns [`Error::Value`] for other shapes.
fn is_row(x: &Tensor, y: &Tensor) -> Result<bool> {
    match y.shape() {
        shape if shape == x.shape() => Ok(false),
        [columns] if x.shape().last() == Some(columns) => Ok(true),
        shape => {
            let text =
                "`y` must have the shape of `x`, or be one-dimensional and as long as the last dimension";
            Err(Error::value(format!("`x` and `y` have the shapes {:?} and {shape:?}; {text}", x.shape())))
        }
    }
}

/// Returns the number of rows and columns of a tensor, where each row spans the last dimension.
fn sides(x: &[usize]) -> Result<(usize, usize)> {
    let (columns, rows) = x
        .split_last()
        .ok_or_else(|| Error::value("`x` is zero-dimensional; pass a tensor with at least one dimension"))?;
    Ok((rows.iter().product(), *columns))
}

fn rows<T: Element>(x: &Tensor) -> Result<DeviceSlice2<'_, T>> {
    let (rows, columns) = sides(x.shape())?;
    // The rows of a matrix may be strided.
    Ok(if x.shape().len() == 2 { x.as_2d()? } else { x.as_slice()?.as_2d(rows, columns)? })
}

fn rows_mut<T: Element>(x: &mut TensorMut) -> Result<DeviceSliceMut2<'_, T>> {
    let (rows, columns) = sides(x.shape())?;
    Ok(x.as_mut_slice()?.into_2d(rows, columns)?)
}

/// Returns the rows to reduce and the shape of the result. Each row spans the last dimension; without `dim`, all
/// elements form one row.
fn reduced<T: Element>(x: &Tensor, dim: Option<i64>) -> Result<(DeviceSlice2<'_, T>, &[usize])> {
    let rank = x.shape().len();
    match dim {
        None => Ok((x.as_slice()?.as_2d(1, x.elements())?, &[])),
        Some(dim) if rank > 0 && (dim == -1 || dim == rank as i64 - 1) => {
            Ok((rows(x)?, &x.shape()[..rank - 1]))
        }
        Some(dim) => {
            let text = "pass -1 for the last dimension or None for all elements";
            Err(Error::value(format!(
                "`dim` is {dim}, but only the last of {rank} dimensions can be reduced; {text}"
            )))
        }
    }
}

macro_rules! sums {
    ($($types:tt: $($name:ident as $rows:ident)*;)*) => { $($(
        pub fn $name(call: &Call, x: Tensor, dim: Option<i64>) -> Result<TensorMut> {
            dispatch!(x.data_type(), T in $types => {
                let (x, shape) = reduced::<T>(&x, dim)?;
                rounded::<T>(call, shape, |out| ops::$rows(call.stream(), x, out))
            })
        }
    )*)* };
}
sums! {
    [f32, f64, f16, bf16, i32, u32, i64, u64]: sum as sum_rows prod as prod_rows;
    [f32, f64, f16, bf16]: mean as mean_rows;
}

/// Runs a reduction whose results have the accumulator type, and rounds the results to the type of a sum.
fn rounded<T: Number<Sum: Element, SumAccumulator: Element>>(
    call: &Call,
    shape: &[usize],
    reduce: impl FnOnce(DeviceSliceMut<'_, T::SumAccumulator>) -> warpsmith::Result<()>,
) -> Result<TensorMut> {
    let mut out = call.empty::<T::Sum>(shape)?;
    if T::Sum::DATA_TYPE == T::SumAccumulator::DATA_TYPE {
        reduce(out.as_mut_slice()?)?;
    } else {
        let mut sums = DeviceBuffer::uninit(call.stream(), out.elements())?;
        reduce(sums.as_mut_slice())?;
        ops::cast(call.stream(), &sums, out.as_mut_slice::<T::Sum>()?)?;
    }
    Ok(out)
}

macro_rules! extremes {
    ($($name:ident as $rows:ident, $index:ident as $index_rows:ident;)*) => { $(
        pub fn $name(call: &Call, x: Tensor, dim: Option<i64>) -> Result<TensorMut> {
            dispatch!(x.data_type(), T in [f32, f64, f16, bf16, i32, u32, i64, u64] => {
                let (x, shape) = reduced::<T>(&x, dim)?;
                let mut out = call.empty::<T>(shape)?;
                ops::$rows(call.stream(), x, out.as_mut_slice::<T>()?).map(|()| out)
            })
        }

        pub fn $index(call: &Call, x: Tensor, dim: Option<i64>) -> Result<TensorMut> {
            dispatch!(x.data_type(), T in [f32, f64, f16, bf16, i32, u32, i64, u64] => {
                let (x, shape) = reduced::<T>(&x, dim)?;
                let mut out = call.empty::<i64>(shape)?;
                ops::$index_rows(call.stream(), x, out.as_mut_slice::<i64>()?.cast::<u64>()?).map(|()| out)
            })
        }
    )* };
}
extremes! {
    min as min_rows, argmin as argmin_rows;
    max as max_rows, argmax as argmax_rows;
}

macro_rules! softmax {
    ($($name:ident)*) => { $(
        pub fn $name(call: &Call, x: Tensor) -> Result<TensorMut> {
            let mut out = call.empty_like(&x)?;
            dispatch!(x.data_type(), T in [f32, f64, f16, bf16] => {
                ops::$name::<T>(call.stream(), rows(&x)?, rows_mut(&mut out)?)
            })?;
            Ok(out)
        }
    )* };
}
softmax!(softmax log_softmax);

pub fn layer_norm(
    call: &Call,
    x: Tensor,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    epsilon: f64,
) -> Result<TensorMut> {
    let mut out = call.empty_like(&x)?;
    dispatch!(x.data_type(), T in [f32, f64, f16, bf16] => {
        let [weight, bias] = [&weight, &bias].map(|tensor| tensor.as_ref().map(|tensor| tensor.as_slice()).transpose());
        ops::layer_norm::<T>(call.stream(), rows(&x)?, weight?, bias?, epsilon, rows_mut(&mut out)?)
    })?;
    Ok(out)
}

pub fn rms_norm(call: &Call, x: Tensor, weight: Option<Tensor>, epsilon: f64) -> Result<TensorMut> {
    let mut out = call.empty_like(&x)?;
    dispatch!(x.data_type(), T in [f32, f64, f16, bf16] => {
        let weight = weight.as_ref().map(|weight| weight.as_slice()).transpose()?;
        ops::rms_norm::<T>(call.stream(), rows(&x)?, weight, epsilon, rows_mut(&mut out)?)
    })?;
    Ok(out)
}

fn one_dimension(x: &Tensor, otherwise: &str) -> Result<()> {
    match x.shape() {
        [_] => Ok(()),
        shape => Err(Error::value(format!(
            "`x` must be one-dimensional, but has the shape {shape:?}; {otherwise}"
        ))),
    }
}

pub fn cumsum(call: &Call, x: Tensor) -> Result<TensorMut> {
    one_dimension(&x, "pass one row per call")?;
    let mut out = call.empty_like(&x)?;
    dispatch!(x.data_type(), T in [f32, f64, f16, bf16, i32, u32, i64, u64] => {
        ops::inclusive_sum::<T>(call.stream(), x.as_slice::<T>()?, out.as_mut_slice::<T>()?)
    })?;
    Ok(out)
}

fn order(descending: bool) -> Order {
    if descending { Order::Descending } else { Order::Ascending }
}

pub fn sort(call: &Call, x: Tensor, descending: bool) -> Result<TensorMut> {
    let (stream, order) = (call.stream(), order(descending));
    let (rows, columns) = sides(x.shape())?;
    let mut out = call.empty_like(&x)?;
    dispatch!(x.data_type(), T in [f32, f64, i32, u32, i64, u64] => {
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        if rows == 1 {
            return Ok(ops::sort(stream, order, x, out)?);
        }
        let offsets: Vec<u64> = (0..=rows).map(|row| (row * columns) as u64).collect();
        ops::sort_segments(stream, order, x, &DeviceBuffer::from_host(stream, &offsets)?, out)
    })?;
    Ok(out)
}

pub fn argsort(call: &Call, x: Tensor, descending: bool) -> Result<TensorMut> {
    one_dimension(&x, "pass one row per call")?;
    let (stream, len) = (call.stream(), x.elements());
    let mut out = call.empty::<i64>(x.shape())?;
    let (mut ones, mut indices) = (DeviceBuffer::uninit(stream, len)?, DeviceBuffer::uninit(stream, len)?);
    ops::fill(stream, 1i64, &mut ones)?;
    ops::exclusive_sum(stream, &ones, 0, &mut indices)?;
    dispatch!(x.data_type(), T in [f32, f64, i32, u32, i64, u64] => {
        let mut sorted = DeviceBuffer::<T>::uninit(stream, len)?;
        let out = out.as_mut_slice::<i64>()?;
        ops::sort_pairs(stream, order(descending), x.as_slice::<T>()?, &indices, &mut sorted, out)
    })?;
    Ok(out)
}

pub fn top_k(call: &Call, x: Tensor, k: i64) -> Result<(TensorMut, TensorMut)> {
    let (_, columns) = sides(x.shape())?;
    let Some(k) = usize::try_from(k).ok().filter(|k| (1..=columns.min(1024)).contains(k)) else {
        return Err(Error::value(format!(
            "`k` is {k}; pass a number from 1 to {columns}, the length of the last dimension, and at most 1024"
        )));
    };
    let mut shape = x.shape().to_vec();
    shape.splice(shape.len() - 1.., [k]);
    dispatch!(x.data_type(), T in [f32, f64, f16, bf16, i32, u32, i64, u64] => {
        let (mut values, mut indices) = (call.empty::<T>(&shape)?, call.empty::<i64>(&shape)?);
        let places = indices.as_mut_slice::<i64>()?.cast::<u64>()?.into_2d(values.elements() / k, k)?;
        ops::top_k::<T>(call.stream(), rows(&x)?, rows_mut(&mut values)?, places).map(|()| (values, indices))
    })
}

/// Returns the tensor with its last two dimensions in memory order, and true if this swapped the dimensions.
fn stored(x: Tensor, name: &str) -> Result<(Tensor, bool)> {
    let rank = x.shape().len();
    if !(2..=3).contains(&rank) {
        let text = format!("`{name}` has {rank} dimensions; pass a matrix or a batch of matrices");
        return Err(Error::value(text));
    }
    let is_transposed = x.strides()[rank - 1] > 1 && x.strides()[rank - 2] == 1;
    Ok((if is_transposed { x.swapped(rank - 1, rank - 2) } else { x }, is_transposed))
}

fn matrix<T: Element>((x, is_transposed): &(Tensor, bool)) -> Result<Matrix<'_, T>> {
    let matrix: Matrix<'_, T> = if x.shape().len() == 3 { x.as_3d()?.into() } else { x.as_2d()?.into() };
    Ok(if *is_transposed { matrix.transposed() } else { matrix })
}

pub fn matmul(call: &Call, a: Tensor, b: Tensor) -> Result<TensorMut> {
    let (data_type, (a_shape, b_shape)) = (a.data_type(), (a.shape().to_vec(), b.shape().to_vec()));
    let (a, b) = (stored(a, "a")?, stored(b, "b")?);
    let batch = [&a_shape, &b_shape].into_iter().find(|shape| shape.len() == 3).map(|shape| shape[0]);
    let (rows, columns) = (a_shape[a_shape.len() - 2], b_shape[b_shape.len() - 1]);
    let shape: Vec<usize> = batch.into_iter().chain([rows, columns]).collect();
    dispatch!(data_type, T in [f32, f16, bf16] => {
        let mut out = call.empty::<T>(&shape)?;
        let mut elements = out.as_mut_slice::<T>()?;
        let c = elements.as_3d_mut(batch.unwrap_or(1), rows, columns)?;
        T::MATMUL(call.stream(), matrix(&a)?, matrix(&b)?, c.into()).map(|()| out)
    })
}

type Matmul<T> = fn(&Stream, Matrix<'_, T>, Matrix<'_, T>, MatrixMut<'_, T>) -> warpsmith::Result<()>;

/// Element type of the operands of [`matmul`].
trait Multiply: DeviceCopy {
    const MATMUL: Matmul<Self>;
}
impl Multiply for f32 {
    const MATMUL: Matmul<Self> = |stream, a, b, c| ops::matmul_f32(stream, &Epilogue::default(), a, b, c);
}
impl Multiply for f16 {
    const MATMUL: Matmul<Self> = |stream, a, b, c| ops::matmul(stream, a, b, c);
}
impl Multiply for bf16 {
    const MATMUL: Matmul<Self> = |stream, a, b, c| ops::matmul(stream, a, b, c);
}

/// Returns a tensor of shape `[batch, heads, tokens, dim]` with its dimensions in memory order, and true if the token
/// dimension precedes the head dimension in memory.
fn heads_first(x: Tensor, name: &str) -> Result<(Tensor, bool)> {
    let &[_, heads, tokens, _] = x.shape() else {
        let text = format!(
            "`{name}` has the shape {:?}; pass a tensor of shape [batch, heads, tokens, dim]",
            x.shape()
        );
        return Err(Error::value(text));
    };
    let by_token = heads > 1 && tokens > 1 && x.strides()[1] < x.strides()[2];
    Ok((if by_token { x.swapped(1, 2) } else { x }, by_token))
}

fn heads<T: Element>((x, by_token): &(Tensor, bool)) -> Result<Heads<'_, T>> {
    let shape = x.shape();
    let view = x.as_slice()?.as_3d(shape[0] * shape[1], shape[2], shape[3])?;
    Ok(if *by_token { Heads::by_token(view, shape[0]) } else { Heads::by_head(view, shape[0]) }?)
}

pub fn attention(
    call: &Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Option<f64>,
    is_causal: bool,
) -> Result<TensorMut> {
    let (data_type, shape) = (q.data_type(), q.shape().to_vec());
    let (q, k, v) = (heads_first(q, "q")?, heads_first(k, "k")?, heads_first(v, "v")?);
    let options = Attention { scale: scale.map(|scale| scale as f32), is_causal, ..Attention::default() };
    dispatch!(data_type, T in [f16, bf16] => {
        let mut out = call.empty::<T>(&shape)?;
        let mut elements = out.as_mut_slice::<T>()?;
        let view = elements.as_3d_mut(shape[0] * shape[1], shape[2], shape[3])?;
        let view = HeadsMut::by_head(view, shape[0])?;
        ops::attention::<T>(call.stream(), &options, heads(&q)?, heads(&k)?, heads(&v)?, view).map(|()| out)
    })
}
