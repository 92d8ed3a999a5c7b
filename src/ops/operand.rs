//! [`Operand`]: an input of an elementwise operation, which may be broadcast.

use gpu_kernels::operand::Form;
use gpu_std::scalar::Element;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Result};

use super::launch::same_length;
use crate::op_error::OpError;

/// An input of an elementwise operation: an array of the output's length, or a broadcast scalar, [`row()`] or
/// [`column()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// // Two rows of three.
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let bias = DeviceBuffer::from_host(&stream, &[10.0f32, 20.0, 30.0])?;
/// let scale = DeviceBuffer::from_host(&stream, &[1.0f32, -1.0])?;
/// let (mut sum, mut product) = (DeviceBuffer::uninit(&stream, 6)?, DeviceBuffer::uninit(&stream, 6)?);
/// ops::add(&stream, &x, ops::row(&bias), &mut sum)?;
/// assert_eq!(sum.to_host()?, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
/// ops::mul(&stream, &x, ops::column(&scale), &mut product)?;
/// assert_eq!(product.to_host()?, [1.0, 2.0, 3.0, -4.0, -5.0, -6.0]);
/// ops::sub(&stream, 1.0, &x, &mut sum)?;
/// assert_eq!(sum.to_host()?, [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a, T: DeviceCopy>(Source<'a, T>);

#[derive(Debug, Clone, Copy)]
enum Source<'a, T: DeviceCopy> {
    Each(DeviceSlice<'a, T>),
    Scalar(T),
    Row(DeviceSlice<'a, T>),
    Column(DeviceSlice<'a, T>),
}

/// Broadcasts one row to all rows of the output. The output must have as many columns as the row has elements.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1i32, 2, 3, 4])?;
/// let bias = DeviceBuffer::from_host(&stream, &[10i32, 20])?;
/// let mut out = DeviceBuffer::uninit(&stream, 4)?;
/// ops::add(&stream, &x, ops::row(&bias), &mut out)?;
/// assert_eq!(out.to_host()?, [11, 22, 13, 24]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn row<'a, T: DeviceCopy>(elements: impl Into<DeviceSlice<'a, T>>) -> Operand<'a, T> {
    Operand(Source::Row(elements.into()))
}

/// Broadcasts one column to all columns of the output. The output must have as many rows as the column has elements.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1i32, 2, 3, 4])?;
/// let scale = DeviceBuffer::from_host(&stream, &[10i32, -1])?;
/// let mut out = DeviceBuffer::uninit(&stream, 4)?;
/// ops::mul(&stream, &x, ops::column(&scale), &mut out)?;
/// assert_eq!(out.to_host()?, [10, 20, -3, -4]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn column<'a, T: DeviceCopy>(elements: impl Into<DeviceSlice<'a, T>>) -> Operand<'a, T> {
    Operand(Source::Column(elements.into()))
}

impl<T: DeviceCopy> From<T> for Operand<'_, T> {
    fn from(value: T) -> Self {
        Self(Source::Scalar(value))
    }
}

macro_rules! from_arrays {
    ($($array:ty),*) => { $(
        impl<'a, T: DeviceCopy> From<$array> for Operand<'a, T> {
            fn from(array: $array) -> Self {
                Self(Source::Each(array.into()))
            }
        }
    )* };
}
from_arrays!(DeviceSlice<'a, T>, &'a DeviceBuffer<T>, &'a DeviceSliceMut<'_, T>, &DeviceSlice<'a, T>);

/// The kernel arguments for an operand.
pub(super) struct Arguments<'a, S: DeviceCopy> {
    pub form: Form,
    pub value: S,
    pub array: Option<DeviceSlice<'a, S>>,
}

impl<S: DeviceCopy> Arguments<'_, S> {
    /// Returns the address of the array. For a scalar, returns an address that is aligned to any size.
    pub fn address(&self) -> DevicePtr {
        self.array.as_ref().map_or(DevicePtr::NULL, DeviceSlice::as_device_ptr)
    }
}

impl<'a, T: DeviceCopy> Operand<'a, T> {
    /// Returns the array if it has the shape of the output.
    pub(super) fn each(&self) -> Option<DeviceSlice<'a, T>> {
        match self.0 {
            Source::Each(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the value if the operand is a scalar.
    pub(super) fn scalar(&self) -> Option<T> {
        match self.0 {
            Source::Scalar(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the row width of an output of `len` elements, or `None` if the operand does not determine this width.
    ///
    /// # Errors
    /// Returns an error if the length does not match.
    pub(super) fn width(
        &self,
        operation: &'static str,
        name: &'static str,
        len: usize,
    ) -> Result<Option<usize>> {
        let (what, count) = match self.0 {
            Source::Each(array) => {
                return same_length(operation, (name, array.len()), ("the output", len)).map(|()| None);
            }
            Source::Scalar(_) => return Ok(None),
            Source::Row(array) => ("row", array.len()),
            Source::Column(array) => ("column", array.len()),
        };
        if len == 0 {
            return Ok(None);
        }
        if count == 0 || !len.is_multiple_of(count) {
            let problem = format!(
                "{name} is a {what} of {count} elements, but the output's {len} elements are not a multiple; pass an \
                 output of whole rows"
            );
            return Err(OpError::Shape { operation, problem }.into());
        }
        Ok(Some(if what == "row" { count } else { len / count }))
    }

    /// Returns the kernel arguments, converted to elements with the same bytes.
    pub(super) fn arguments<S: DeviceCopy>(
        &self,
        bits: impl Fn(T) -> S,
        none: S,
    ) -> Result<Arguments<'a, S>> {
        let (form, array) = match self.0 {
            Source::Scalar(value) => {
                return Ok(Arguments { form: Form::SCALAR, value: bits(value), array: None });
            }
            Source::Each(array) => (Form::EACH, array),
            Source::Row(array) => (Form::ROW, array),
            Source::Column(array) => (Form::COLUMN, array),
        };
        Ok(Arguments { form, value: none, array: Some(array.cast()?) })
    }
}

/// Returns the row width on which all operands agree, or 1 if no operand determines it.
///
/// # Errors
/// Returns an error if a length does not match or the widths differ.
pub(super) fn common_width(
    operation: &'static str,
    widths: impl IntoIterator<Item = Result<Option<usize>>>,
) -> Result<usize> {
    let mut common = None;
    for width in widths {
        let Some(width) = width? else { continue };
        if let Some(other) = common.replace(width)
            && other != width
        {
            let problem = format!(
                "one input requires rows of {other} elements, but another requires rows of {width}; pass inputs of \
                 equal shape"
            );
            return Err(OpError::Shape { operation, problem }.into());
        }
    }
    Ok(common.unwrap_or(1))
}

/// Returns the unsigned integer that has the same bytes as a number.
pub(super) fn bits<T: Element, S: bytemuck::Pod>(value: T) -> S {
    let number = value.to_scalar();
    bytemuck::pod_read_unaligned(bytemuck::bytes_of(&number))
}
