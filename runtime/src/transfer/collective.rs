//! Copies between one buffer and several, on any devices of one driver: [`broadcast`], [`scatter`], [`gather`], and
//! [`broadcast_coalesced`] for many small buffers.
//!
//! Only [`gather_to_host`] blocks. Arguments are validated, and results allocated, before the first copy is enqueued.
//! Each copy runs on its target's stream, after all earlier work on its source, so results can be used, and sources
//! written or dropped, immediately. A device may occur several times among the targets and may also contain the source;
//! each result has separate memory.
//!
//! | `torch.cuda.comm` | this module | into existing memory |
//! | --- | --- | --- |
//! | `broadcast` | [`broadcast`] | [`broadcast_into`] |
//! | `broadcast_coalesced` | [`broadcast_coalesced`] | |
//! | `scatter` | [`scatter`], [`scatter_columns`] | [`scatter_into`] |
//! | `gather` | [`gather`], [`gather_columns`], [`gather_to_host`] | [`gather_into`] |
//! | `reduce_add`, `reduce_add_coalesced` | `ops::reduce_add`, `ops::reduce_add_coalesced` in the crate `warpsmith` | |
//!
//! [`scatter_columns`] can divide a tensor along any dimension `d`. View the tensor as a matrix: its number of rows is
//! the product of the sizes before `d`, and its number of columns the product of the other sizes. A chunk of size `n`
//! along `d` has `n` times the product of the sizes after `d` columns. Along the first dimension, [`scatter`] suffices.
//!
//! A source in host memory must first be copied to a device. Copies between devices use the same path as
//! [`Stream::copy`]: peer access or, without it, page-locked host memory.

use std::ops::Range;
use std::sync::Arc;

pub use super::coalesced::{COALESCE_BYTES, Coalesced, broadcast_coalesced, combine_coalesced};
pub use super::columns::{gather_columns, scatter_columns};
use crate::device::Device;
use crate::device::observe::site;
use crate::error::{Error, Result};
use crate::memory::slice::check_lengths;
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// Copies a buffer to the devices of several streams. The results are allocated on the streams and returned in their
/// order.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::broadcast;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let weights = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0, 3.0])?;
/// let copies = broadcast(&weights, &streams)?;
/// assert!(copies[1].device() == &devices[1]);
/// assert_eq!(copies[1].to_host()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::EmptyList`] if `streams` is empty, [`Error::NoPeerAccess`] if the devices belong to two drivers,
/// [`Error::OutOfMemory`] if any of the devices is out of memory, or the same errors as [`Stream::copy`].
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

/// Copies a buffer into other buffers of the same length, on any devices of the same driver. Each copy runs after all
/// earlier work on both buffers.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::broadcast_into;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let weights = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0])?;
/// let mut here = DeviceBuffer::uninit(&streams[0], 2)?;
/// let mut there = DeviceBuffer::zeros(&streams[1], 3)?;
/// broadcast_into(&weights, [here.as_mut_slice(), there.slice_mut(1..)])?;
/// assert_eq!(here.to_host()?, [1.0, 2.0]);
/// assert_eq!(there.to_host()?, [0.0, 1.0, 2.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::EmptyList`] if `targets` is empty, [`Error::LengthMismatch`], [`Error::NoPeerAccess`] if the
/// devices belong to two drivers, or the same errors as [`Stream::copy`].
#[track_caller]
pub fn broadcast_into<'s, 't, T: DeviceCopy>(
    source: impl Into<DeviceSlice<'s, T>>,
    targets: impl IntoIterator<Item = DeviceSliceMut<'t, T>>,
) -> Result<()> {
    let _site = site();
    let (source, targets) = (source.into(), targets.into_iter().collect::<Vec<_>>());
    check_list("broadcast_into", "targets", targets.is_empty())?;
    for target in &targets {
        check_drivers(source.device(), target.device())?;
        check_lengths("broadcast_into", target.len(), source.len())?;
    }
    targets.into_iter().try_for_each(|target| target.stream().copy(source, target))
}

/// Divides a buffer into consecutive chunks on the devices of several streams, in the order of the streams.
///
/// `chunk_lens` contains the number of elements per chunk. If it is `None`, the chunk length is the source's length
/// divided by the number of streams, rounded up, as in `torch.chunk`. If the length is not divisible, the last chunks
/// are shorter or empty; unlike `torch.chunk`, every stream receives a chunk.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{gather, scatter};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let batch = DeviceBuffer::from_host(&streams[0], &[1u32, 2, 3, 4, 5])?;
/// let chunks = scatter(&batch, &streams, None)?;
/// assert_eq!(chunks[0].to_host()?, [1, 2, 3]);
/// assert_eq!(chunks[1].to_host()?, [4, 5]);
/// // Enqueue work on each device, then gather the results.
/// assert_eq!(gather(&chunks, &streams[0])?.to_host()?, [1, 2, 3, 4, 5]);
///
/// let uneven = scatter(&batch, &streams, Some(&[1, 4]))?;
/// assert_eq!(uneven[1].to_host()?, [2, 3, 4, 5]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::BadChunks`] unless there is one length per stream and the lengths add up to the length of the
/// source, or the same errors as [`broadcast`].
#[track_caller]
pub fn scatter<'s, T: DeviceCopy>(
    source: impl Into<DeviceSlice<'s, T>>,
    streams: &[Stream],
    chunk_lens: Option<&[usize]>,
) -> Result<Vec<DeviceBuffer<T>>> {
    let _site = site();
    let source = source.into();
    check_targets("scatter", &[source], streams)?;
    let chunks: Vec<_> =
        chunks(chunk_lens, streams.len(), source.len())?.map(|chunk| source.slice(chunk)).collect();
    copies(streams, &chunks)
}

/// Divides a buffer among other buffers, on any devices of the same driver. The lengths of the targets must add up to
/// the length of the source.
///
/// # Errors
/// Returns [`Error::EmptyList`] if `targets` is empty, [`Error::BadChunks`] unless the lengths of the targets add up to
/// the length of the source, [`Error::NoPeerAccess`] if the devices belong to two drivers, or the same errors as
/// [`Stream::copy`].
#[track_caller]
pub fn scatter_into<'s, 't, T: DeviceCopy>(
    source: impl Into<DeviceSlice<'s, T>>,
    targets: impl IntoIterator<Item = DeviceSliceMut<'t, T>>,
) -> Result<()> {
    let _site = site();
    let (source, targets) = (source.into(), targets.into_iter().collect::<Vec<_>>());
    check_list("scatter_into", "targets", targets.is_empty())?;
    targets.iter().try_for_each(|target| check_drivers(source.device(), target.device()))?;
    let lens: Vec<_> = targets.iter().map(DeviceSliceMut::len).collect();
    let chunks = chunks(Some(&lens), lens.len(), source.len())?;
    let mut pairs = targets.into_iter().zip(chunks);
    pairs.try_for_each(|(target, chunk)| target.stream().copy(source.slice(chunk), target))
}

/// Concatenates buffers on any devices into one buffer on the stream's device.
///
/// `sources` contains buffers or slices, for example `&chunks` of a `Vec<DeviceBuffer<T>>`, or `[&x, &y]`. See
/// [`scatter`] for an example.
///
/// # Errors
/// Returns [`Error::EmptyList`] if `sources` is empty, [`Error::NoPeerAccess`] if the devices belong to two drivers,
/// [`Error::TooManyElements`], [`Error::OutOfMemory`], or the same errors as [`Stream::copy`].
#[track_caller]
pub fn gather<'s, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
    stream: &Stream,
) -> Result<DeviceBuffer<T>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    check_list("gather", "sources", sources.is_empty())?;
    sources.iter().try_for_each(|source| check_drivers(source.device(), stream.device()))?;
    total(&sources)?;
    pack(stream, &sources, &ranges(sources.iter().map(DeviceSlice::len)).collect::<Vec<_>>())
}

/// Concatenates buffers on any devices into an existing buffer. The lengths of the sources must add up to its length.
///
/// # Errors
/// Returns the same errors as [`gather`], or [`Error::LengthMismatch`].
#[track_caller]
pub fn gather_into<'s, 't, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
    target: impl Into<DeviceSliceMut<'t, T>>,
) -> Result<()> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    let mut target = target.into();
    check_list("gather_into", "sources", sources.is_empty())?;
    sources.iter().try_for_each(|source| check_drivers(source.device(), target.device()))?;
    check_lengths("gather_into", target.len(), total(&sources)?)?;
    let places = ranges(sources.iter().map(DeviceSlice::len));
    let (stream, mut pairs) = (target.stream(), sources.iter().zip(places));
    pairs.try_for_each(|(source, place)| stream.copy(source, target.slice_mut(place)))
}

/// Concatenates buffers on any devices into host memory, after all earlier work on them. Blocks until the copies have
/// finished.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{gather_to_host, scatter};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let batch = DeviceBuffer::from_host(&streams[0], &[1u32, 2, 3])?;
/// assert_eq!(gather_to_host(&scatter(&batch, &streams, None)?)?, [1, 2, 3]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::EmptyList`] if `sources` is empty, [`Error::TooManyElements`], or the same errors as
/// [`DeviceSlice::to_host`].
#[track_caller]
pub fn gather_to_host<'s, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
) -> Result<Vec<T>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    check_list("gather_to_host", "sources", sources.is_empty())?;
    let elements = total(&sources)?;
    let mut all = Vec::new();
    if all.try_reserve_exact(elements).is_err() {
        return Err(Error::TooManyElements { elements, element_bytes: size_of::<T>() });
    }
    for source in &sources {
        all.append(&mut source.to_host()?);
    }
    Ok(all)
}

/// Returns the total number of elements.
fn total<T: DeviceCopy>(sources: &[DeviceSlice<'_, T>]) -> Result<usize> {
    let total = sources.iter().try_fold(0usize, |total, source| total.checked_add(source.len()));
    total.ok_or(Error::TooManyElements { elements: usize::MAX, element_bytes: size_of::<T>() })
}

/// Divides `len` elements into chunks for `count` streams. The chunks have the specified lengths or, by default, equal
/// lengths.
pub(super) fn chunks(
    lens: Option<&[usize]>,
    count: usize,
    len: usize,
) -> Result<impl Iterator<Item = Range<usize>>> {
    let equal = len.div_ceil(count);
    let lens = match lens {
        Some(lens) => {
            let total = lens.iter().try_fold(0usize, |total, len| total.checked_add(*len));
            if lens.len() != count || total != Some(len) {
                let total = total.unwrap_or(usize::MAX);
                return Err(Error::BadChunks { chunks: lens.len(), total, streams: count, len });
            }
            lens.to_vec()
        }
        None => (0..count).map(|index| len.saturating_sub(index.saturating_mul(equal)).min(equal)).collect(),
    };
    Ok(ranges(lens.into_iter()))
}

/// Returns a buffer that contains each source at its range; the ranges must be ascending.
#[track_caller]
pub(super) fn pack<T: DeviceCopy>(
    stream: &Stream,
    sources: &[DeviceSlice<'_, T>],
    places: &[Range<usize>],
) -> Result<DeviceBuffer<T>> {
    let mut target = DeviceBuffer::uninit(stream, places.last().map_or(0, |last| last.end))?;
    for (source, place) in sources.iter().zip(places) {
        stream.copy(source, target.slice_mut(place.clone()))?;
    }
    Ok(target)
}

/// Returns consecutive ranges of these lengths, whose sum must fit in a `usize`.
pub(super) fn ranges(lens: impl Iterator<Item = usize>) -> impl Iterator<Item = Range<usize>> {
    lens.scan(0, |end, len| {
        let start = *end;
        *end += len;
        Some(start..*end)
    })
}

/// Copies each source to a new buffer on the stream with the same index.
#[track_caller]
pub(super) fn copies<T: DeviceCopy>(
    streams: &[Stream],
    sources: &[DeviceSlice<'_, T>],
) -> Result<Vec<DeviceBuffer<T>>> {
    let mut targets = Vec::with_capacity(streams.len());
    for (stream, source) in streams.iter().zip(sources) {
        targets.push(DeviceBuffer::uninit(stream, source.len())?);
    }
    for ((target, stream), source) in targets.iter_mut().zip(streams).zip(sources) {
        stream.copy(source, target)?;
    }
    Ok(targets)
}

/// Returns an error if there are no streams, or if the sources belong to a different driver.
pub(super) fn check_targets<T: DeviceCopy>(
    operation: &'static str,
    sources: &[DeviceSlice<'_, T>],
    streams: &[Stream],
) -> Result<()> {
    check_list(operation, "streams", streams.is_empty())?;
    let mut pairs = sources.iter().flat_map(|source| streams.iter().map(move |stream| (source, stream)));
    pairs.try_for_each(|(source, stream)| check_drivers(source.device(), stream.device()))
}

/// Returns an error if the list is empty.
pub(super) fn check_list(operation: &'static str, list: &'static str, empty: bool) -> Result<()> {
    if empty { Err(Error::EmptyList { operation, list }) } else { Ok(()) }
}

/// Returns an error unless both devices belong to the same driver, as copies between them require.
pub(super) fn check_drivers(source: &Device, target: &Device) -> Result<()> {
    if Arc::ptr_eq(source.raw().0, target.raw().0) {
        return Ok(());
    }
    Err(Error::NoPeerAccess { device: source.id(), peer: target.id() })
}
