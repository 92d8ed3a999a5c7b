//! Copies between one buffer and several, on any devices of one driver: [`broadcast`], [`scatter`], [`gather`], and
//! [`broadcast_coalesced`] for many small buffers.
//!
//! Guarantees: the host waits for nothing. Arguments are checked, and the memory of all results but those of
//! [`broadcast_coalesced`] is there, before the first copy is enqueued. Each copy runs on the home stream of its target,
//! which is the stream that was given for it, after all earlier work on its source: results can be used, and sources
//! be written or dropped, at once. The same device may be among the targets any number of times, also that of the
//! source; each result has memory of its own.
//!
//! | of `torch.cuda.comm` | here |
//! | --- | --- |
//! | `broadcast` | [`broadcast`]; into existing buffers, `target.copy_from(&source)` for each |
//! | `broadcast_coalesced` | [`broadcast_coalesced`], of one element type |
//! | `scatter` | [`scatter`] |
//! | `gather` | [`gather`]; into an existing buffer, `target.slice_mut(start..end).copy_from(&source)` for each |
//! | `reduce_add` | `ops::reduce_add` of the crate `warpsmith`, which has the kernels |
//!
//! A source on the host is copied to one of the devices first. How a copy gets from device to device is that of
//! [`Stream::copy`]: over their link, or through page-locked memory where they do not reach each other.

use std::ops::Range;
use std::sync::Arc;

pub use super::coalesced::{COALESCE_BYTES, Coalesced, broadcast_coalesced};
use crate::device::Device;
use crate::device::observe::site;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice};
use crate::stream::Stream;

/// Copies a buffer to the devices of several streams: the results are in the streams' order, and made on them.
///
/// ```
/// use warpsmith_runtime::driver::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::broadcast;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let weights = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0, 3.0])?;
/// let copies = broadcast(&weights, &streams)?;
/// assert!(copies[1].device() == &devices[1]);
/// assert_eq!(copies[1].to_host()?, [1.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::EmptyList`] without streams; [`Error::NoPeerAccess`] for devices of two drivers; [`Error::OutOfMemory`] of
/// any of the devices; as [`Stream::copy`].
#[track_caller]
pub fn broadcast<'s, T: DeviceCopy>(
    source: impl Into<DeviceSlice<'s, T>>,
    streams: &[Stream],
) -> Result<Vec<DeviceBuffer<T>>> {
    let _site = site();
    let source = source.into();
    check_targets("broadcast", &[source], streams)?;
    copies(streams, &vec![source; streams.len()])
}

/// Divides a buffer among the devices of several streams: chunks that follow each other, in the streams' order.
///
/// With `chunk_lens` the chunks have these numbers of elements. Without, each has the source's length divided by
/// the number of streams, rounded up, as with `torch.chunk`; the last ones are shorter or empty when the length is not
/// divisible. Unlike there, there is a chunk for every stream.
///
/// ```
/// use warpsmith_runtime::driver::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{gather, scatter};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let batch = DeviceBuffer::from_host(&streams[0], &[1u32, 2, 3, 4, 5])?;
/// let chunks = scatter(&batch, &streams, None)?;
/// assert_eq!(chunks[0].to_host()?, [1, 2, 3]);
/// assert_eq!(chunks[1].to_host()?, [4, 5]);
/// // Work on each device, then:
/// assert_eq!(gather(&chunks, &streams[0])?.to_host()?, [1, 2, 3, 4, 5]);
///
/// let uneven = scatter(&batch, &streams, Some(&[1, 4]))?;
/// assert_eq!(uneven[1].to_host()?, [2, 3, 4, 5]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::BadChunks`] unless there is a length for every stream and they add up to the source's; as [`broadcast`].
#[track_caller]
pub fn scatter<'s, T: DeviceCopy>(
    source: impl Into<DeviceSlice<'s, T>>,
    streams: &[Stream],
    chunk_lens: Option<&[usize]>,
) -> Result<Vec<DeviceBuffer<T>>> {
    let _site = site();
    let source = source.into();
    check_targets("scatter", &[source], streams)?;
    let chunks: Vec<_> = match chunk_lens {
        Some(lens) => {
            let total = lens.iter().try_fold(0usize, |total, len| total.checked_add(*len));
            if lens.len() != streams.len() || total != Some(source.len()) {
                let (chunks, streams, len) = (lens.len(), streams.len(), source.len());
                let total = total.unwrap_or(usize::MAX);
                return Err(Error::BadChunks { chunks, total, streams, len });
            }
            ranges(lens.iter().copied()).map(|range| source.slice(range)).collect()
        }
        None => {
            let len = source.len().div_ceil(streams.len());
            let starts = (0..streams.len()).map(|index| index.saturating_mul(len).min(source.len()));
            starts.map(|start| source.slice(start..start.saturating_add(len).min(source.len()))).collect()
        }
    };
    copies(streams, &chunks)
}

/// Puts buffers of any devices together into one on the stream's device, in their order.
///
/// `sources` are buffers or slices, for example `&chunks` of a `Vec<DeviceBuffer<T>>`, or `[&x, &y]`. All copies run on
/// the stream, one after the other. See [`scatter`] for an example.
///
/// # Errors
/// [`Error::EmptyList`] without sources; [`Error::NoPeerAccess`] for devices of two drivers; [`Error::TooManyElements`];
/// [`Error::OutOfMemory`]; as [`Stream::copy`].
#[track_caller]
pub fn gather<'s, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
    stream: &Stream,
) -> Result<DeviceBuffer<T>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    if sources.is_empty() {
        return Err(Error::EmptyList { operation: "gather", list: "sources" });
    }
    sources.iter().try_for_each(|source| check_drivers(source.device(), stream.device()))?;
    let total = sources.iter().try_fold(0usize, |total, source| total.checked_add(source.len()));
    if total.is_none() {
        return Err(Error::TooManyElements { elements: usize::MAX, element_bytes: size_of::<T>() });
    }
    pack(stream, &sources, &ranges(sources.iter().map(DeviceSlice::len)).collect::<Vec<_>>())
}

/// A buffer with these sources at their places, which are in order.
#[track_caller]
pub(super) fn pack<T: DeviceCopy>(
    stream: &Stream,
    sources: &[DeviceSlice<'_, T>],
    places: &[Range<usize>],
) -> Result<DeviceBuffer<T>> {
    let mut target = DeviceBuffer::uninit(stream, places.last().map_or(0, |last| last.end))?;
    for (source, place) in sources.iter().zip(places) {
        target.slice_mut(place.clone()).copy_from(source)?;
    }
    Ok(target)
}

/// Where pieces of these lengths lie that follow each other; the sum fits.
fn ranges(lens: impl Iterator<Item = usize>) -> impl Iterator<Item = Range<usize>> {
    lens.scan(0, |end, len| {
        let start = *end;
        *end += len;
        Some(start..*end)
    })
}

/// A copy of each source on the stream at its place.
#[track_caller]
pub(super) fn copies<T: DeviceCopy>(
    streams: &[Stream],
    sources: &[DeviceSlice<'_, T>],
) -> Result<Vec<DeviceBuffer<T>>> {
    let mut targets = Vec::with_capacity(streams.len());
    for (stream, source) in streams.iter().zip(sources) {
        targets.push(DeviceBuffer::uninit(stream, source.len())?);
    }
    for (target, source) in targets.iter_mut().zip(sources) {
        target.copy_from(source)?;
    }
    Ok(targets)
}

/// Fails unless there are streams, and their devices are behind the driver of the sources.
pub(super) fn check_targets<T: DeviceCopy>(
    operation: &'static str,
    sources: &[DeviceSlice<'_, T>],
    streams: &[Stream],
) -> Result<()> {
    if streams.is_empty() {
        return Err(Error::EmptyList { operation, list: "streams" });
    }
    let mut pairs = sources.iter().flat_map(|source| streams.iter().map(move |stream| (source, stream)));
    pairs.try_for_each(|(source, stream)| check_drivers(source.device(), stream.device()))
}

/// Fails unless both devices are behind one driver, as copies between them must be.
fn check_drivers(source: &Device, target: &Device) -> Result<()> {
    if Arc::ptr_eq(source.raw().0, target.raw().0) {
        return Ok(());
    }
    Err(Error::NoPeerAccess { device: source.id(), peer: target.id() })
}
