//! Operations on the buffers of several devices.

use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Error, Stream};

use super::elementwise::add;
use super::launch::same_length;
use super::number::Number;
use warpsmith_runtime::Result;

/// `out[i] = x[i] + y[i] + …` of buffers on any devices of one driver, in a new buffer made on the stream.
///
/// The sources are added one after the other in their order, so the result is the same every time; each addition
/// rounds to the type, and integers wrap. One that is on another device is copied to the stream's first. Besides the
/// result this takes memory for two more buffers of its length until it is done. Copies of buffers from one device to
/// several, and back without adding, are in [`transfer::collective`](crate::transfer::collective).
///
/// # Errors
/// [`EmptyList`](warpsmith_runtime::Error::EmptyList) without sources;
/// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch);
/// [`NoPeerAccess`](warpsmith_runtime::Error::NoPeerAccess) for devices of two drivers; whatever the runtime reports.
///
/// ```
/// # use warpsmith::{ops, prelude::*, driver::emulated::EmulatedDriver};
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
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    let [first, others @ ..] = &sources[..] else {
        return Err(Error::EmptyList { operation: "reduce_add", list: "sources" });
    };
    for other in others {
        same_length("reduce_add", ("the first source", first.len()), ("another source", other.len()))?;
    }
    let mut sum = DeviceBuffer::uninit(stream, first.len())?;
    sum.copy_from(first)?;
    if others.is_empty() {
        return Ok(sum);
    }
    let mut next = DeviceBuffer::uninit(stream, first.len())?;
    for other in others {
        if other.device() == stream.device() {
            add(stream, &sum, other, &mut next)?;
        } else {
            let mut here = DeviceBuffer::uninit(stream, other.len())?;
            here.copy_from(other)?;
            add(stream, &sum, &here, &mut next)?;
        }
        std::mem::swap(&mut sum, &mut next);
    }
    Ok(sum)
}
