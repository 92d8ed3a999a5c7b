//! Data movement: copy, fill and cast.

use gpu_spec::param::{Slice, SliceMut, Value};
use gpu_std::scalar::{Element, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSliceMut, Result, Stream};

use super::launch::{Operation, same_length};

/// Copies `out[i] = x[i]` bit by bit, for any type, including structs.
///
/// This is the copy kernel that `bench` and `tune` measure. Programs should use [`Stream::copy`] instead, which needs
/// no kernel and can also copy between devices, or [`Stream::copy_rows`] for rows.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4])?;
/// let mut out = DeviceBuffer::zeros(&stream, 4)?;
/// ops::copy(&stream, x.slice(1..3), out.slice_mut(2..))?;
/// assert_eq!(out.to_host()?, [0, 0, 2, 3]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn copy<'s, 'd, T: DeviceCopy>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'s, T>>,
    out: impl Into<DeviceSliceMut<'d, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("copy", ("x", x.len()), ("the output", out.len()))?;
    // The kernel copies 8-byte integers, or integers of the largest size that divides both the size and the alignment
    // of `T`.
    match size_of::<T>() | align_of::<T>() {
        _ if size_of::<T>() == 0 => Ok(()),
        bits if bits % 8 == 0 => copy_as::<u64>(stream, x.cast()?, out.cast()?),
        bits if bits % 4 == 0 => copy_as::<u32>(stream, x.cast()?, out.cast()?),
        bits if bits % 2 == 0 => copy_as::<u16>(stream, x.cast()?, out.cast()?),
        _ => copy_as::<u8>(stream, x.cast()?, out.cast()?),
    }
}

fn copy_as<T: Scalar>(stream: &Stream, x: DeviceSlice<'_, T>, out: DeviceSliceMut<'_, T>) -> Result<()> {
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let operation = Operation::new::<T>(stream, "copy", out.len(), &arrays);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { operation.launch::<(Slice<T>, SliceMut<T>), _>((x, out)) }
}

/// `out[i] = value`.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let mut buffer = DeviceBuffer::<f64>::uninit(&stream, 3)?;
/// ops::fill(&stream, 2.5, &mut buffer)?;
/// assert_eq!(buffer.to_host()?, [2.5, 2.5, 2.5]);
///
/// let mut flags = DeviceBuffer::<Checked<bool>>::uninit(&stream, 2)?;
/// ops::fill(&stream, true.into(), &mut flags)?;
/// assert_eq!(flags.to_host()?[1].get(), Some(true));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn fill<'d, T: Element>(stream: &Stream, value: T, out: impl Into<DeviceSliceMut<'d, T>>) -> Result<()> {
    let _site = site();
    let out = out.into().cast::<T::Scalar>()?;
    let array = out.as_device_ptr();
    let operation = Operation::new::<T::Scalar>(stream, "fill", out.len(), &[array]);
    // SAFETY: these arguments match the parameters of the kernel, which takes the unsigned integer of the type's size.
    unsafe { operation.launch::<(Value<T::Scalar>, SliceMut<T::Scalar>), _>((value.to_scalar(), out)) }
}

/// `out[i] = x[i] as U`, with the conversion rules of Rust:
///
/// | from | to | result |
/// | --- | --- | --- |
/// | float, integer | float | nearest value, ties to even; infinity if out of range |
/// | float | integer | truncated; saturated if out of range; 0 for NaN |
/// | integer | integer | truncated to the lowest bits, or sign-extended or zero-extended to a wider type |
/// | `Checked<bool>` | number | 0 or 1; bytes that are not a valid `bool` are converted as `u8` |
/// | number | `Checked<bool>` | `x != 0`, which is true for NaN and false for -0.0 |
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.9f32, -1.9, f32::NAN, 1e20])?;
/// let mut out = DeviceBuffer::<i32>::uninit(&stream, 4)?;
/// ops::cast(&stream, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [1, -1, 0, i32::MAX]);
///
/// let mut flags = DeviceBuffer::<Checked<bool>>::uninit(&stream, 4)?;
/// ops::cast(&stream, &out, &mut flags)?;
/// assert_eq!(flags.to_host()?[..], *Checked::from_slice(&[true, true, false, true]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn cast<'s, 'd, T: Element, U: Element>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'s, T>>,
    out: impl Into<DeviceSliceMut<'d, U>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into().cast::<T::Scalar>()?, out.into().cast::<U::Scalar>()?);
    same_length("cast", ("x", x.len()), ("the output", out.len()))?;
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let operation = match U::IS_BOOL {
        true => Operation::new::<T::Scalar>(stream, "cast_to_bool", out.len(), &arrays),
        false => {
            let is_float = 0.5_f64.cast::<T::Scalar>() != T::Scalar::ZERO;
            let is_signed = 0.5_f64.cast::<U::Scalar>() == U::Scalar::ZERO
                && (-1.0_f64).cast::<U::Scalar>() < U::Scalar::ZERO;
            let kernel = if is_float && is_signed { "cast_to_signed" } else { "cast" };
            Operation::between::<T::Scalar, U::Scalar>(stream, kernel, out.len(), &arrays)
        }
    };
    // SAFETY: these arguments match the parameters of all three kernels, up to the signedness of integers; a
    // `Checked<bool>` has the bytes of a `u8`.
    unsafe { operation.launch::<(Slice<T::Scalar>, SliceMut<U::Scalar>), _>((x, out)) }
}
