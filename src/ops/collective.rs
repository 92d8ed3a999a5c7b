//! Reductions of buffers on several devices.

use gpu_std::scalar::Number;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::transfer::collective::{Coalesced, combine_coalesced};
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Error, Result, Stream};

use super::arithmetic::add;
use super::launch::same_length;

/// Computes `out[i] = x[i] + y[i] + …` for buffers on any devices of one driver. Returns the sum in a new buffer, which
/// is allocated on the stream.
///
/// The sources are added sequentially, in order, so the result is deterministic. Each addition is rounded to the type,
/// and integers wrap around on overflow. A source on another device is first copied to the stream's device. In addition
/// to the result, the operation uses two temporary buffers of the same length. To broadcast buffers from one device to
/// several, or to copy them back without adding them, use [`transfer::collective`](crate::transfer::collective).
///
/// # Errors
/// Returns [`EmptyList`](warpsmith_runtime::Error::EmptyList) if there are no sources,
/// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) if their lengths differ, and
/// [`NoPeerAccess`](warpsmith_runtime::Error::NoPeerAccess) if the devices belong to two drivers. Also returns the
/// [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*, emulated::EmulatedDriver};
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let x = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0])?;
/// let y = DeviceBuffer::from_host(&streams[1], &[10.0f32, 20.0])?;
/// let sum = ops::reduce_add(&streams[0], [&x, &y])?;
/// assert_eq!(sum.to_host()?, [11.0, 22.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn reduce_add<'s, T: Number, S: Into<DeviceSlice<'s, T>>>(
    stream: &Stream,
    sources: impl IntoIterator<Item = S>,
) -> Result<DeviceBuffer<T>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    let [first, others @ ..] = &sources[..] else {
        return Err(Error::EmptyList { operation: "reduce_add", list: "sources" });
    };
    for other in others {
        same_length("reduce_add", ("the first source", first.len()), ("another source", other.len()))?;
    }
    let mut sum = first.clone_on(stream)?;
    if others.is_empty() {
        return Ok(sum);
    }
    let mut next = DeviceBuffer::uninit(stream, first.len())?;
    for other in others {
        if other.device() == stream.device() {
            add(stream, &sum, other, &mut next)?;
        } else {
            add(stream, &sum, &other.clone_on(stream)?, &mut next)?;
        }
        std::mem::swap(&mut sum, &mut next);
    }
    Ok(sum)
}

/// Like [`reduce_add`], but for many buffers: for each position in the lists, computes the sum of all buffers at that
/// position on the stream's device.
///
/// `lists` contains one list per device. All lists must contain buffers of the same lengths in the same order. For
/// example, each list contains the gradients of one data-parallel model replica. Small buffers are coalesced into
/// buffers of up to `buffer_bytes` bytes before they are copied and added, which reduces the number of copies and
/// kernels. A good value is [`COALESCE_BYTES`](crate::transfer::collective::COALESCE_BYTES). The sums are bit-identical
/// to those of [`reduce_add`]. Call this function once per element type.
///
/// # Errors
/// Returns [`EmptyList`](warpsmith_runtime::Error::EmptyList) if there are no lists, and
/// [`LengthMismatch`](warpsmith_runtime::Error::LengthMismatch) if the lists differ in the number of buffers or in
/// their lengths. Returns [`DifferentDevices`](warpsmith_runtime::Error::DifferentDevices) if the buffers of one list
/// are on several devices. Also returns the same errors as [`reduce_add`].
///
/// ```
/// # use warpsmith::{ops, prelude::*, emulated::EmulatedDriver, transfer::collective::COALESCE_BYTES};
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let (mut weights, mut biases) = (Vec::new(), Vec::new());
/// for stream in &streams {
///     weights.push(DeviceBuffer::from_host(stream, &[1.0f32, 2.0, 3.0])?);
///     biases.push(DeviceBuffer::from_host(stream, &[4.0f32])?);
/// }
/// let gradients = weights.iter().zip(&biases).map(|(weights, biases)| [weights, biases]);
/// let sums = ops::reduce_add_coalesced(&streams[0], COALESCE_BYTES, gradients)?;
/// let [weights, biases] = sums.slices()[..] else { unreachable!("one for each buffer of a list") };
/// assert_eq!(weights.to_host()?, [2.0, 4.0, 6.0]);
/// assert_eq!(biases.to_host()?, [8.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn reduce_add_coalesced<'s, T: Number, S: Into<DeviceSlice<'s, T>>>(
    stream: &Stream,
    buffer_bytes: usize,
    lists: impl IntoIterator<Item = impl IntoIterator<Item = S>>,
) -> Result<Coalesced<T>> {
    let _site = site();
    let lists: Vec<Vec<_>> =
        lists.into_iter().map(|list| list.into_iter().map(Into::into).collect()).collect();
    combine_coalesced(&lists, buffer_bytes, |slices| reduce_add(stream, slices.iter().copied()))
}
