//! [`broadcast_coalesced`] copies many small buffers to several devices in few copies. [`combine_coalesced`] runs other
//! operations on many small buffers.

use std::ops::Range;
use std::sync::Arc;

use super::collective::{check_targets, copies, pack};
use crate::device::observe::site;
use crate::error::{Error, Result};
use crate::memory::slice::check_lengths;
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice};
use crate::stream::Stream;

/// Recommended `buffer_bytes` for [`broadcast_coalesced`]: 10 MiB, as in PyTorch.
pub const COALESCE_BYTES: usize = 10 << 20;

/// Alignment of every slice in bytes, the same as for buffers.
const ALIGNMENT: usize = 256;

type Places = Vec<Range<usize>>;

/// Result of [`broadcast_coalesced`] or [`combine_coalesced`] on one device: many small buffers, stored as slices of a
/// few large ones.
///
/// See the example of [`broadcast_coalesced`].
#[derive(Debug)]
pub struct Coalesced<T: DeviceCopy> {
    buffers: Vec<DeviceBuffer<T>>,
    /// Ranges of the slices in each buffer.
    places: Arc<[Places]>,
}

impl<T: DeviceCopy> Coalesced<T> {
    /// Returns one slice per source buffer, in order. Each slice is 256-byte aligned.
    pub fn slices(&self) -> Vec<DeviceSlice<'_, T>> {
        let pairs = self.buffers.iter().zip(&*self.places);
        pairs.flat_map(|(buffer, places)| places.iter().map(|place| buffer.slice(place.clone()))).collect()
    }
}

/// Like [`broadcast`](super::collective::broadcast), but for many buffers. The results are in the order of the streams.
///
/// Consecutive buffers are packed into groups of up to `buffer_bytes` ([`COALESCE_BYTES`] is a good choice), on the
/// home stream of each group's first buffer. Each group is sent to each device with one copy. A buffer larger than
/// `buffer_bytes` is sent without packing. Copying `n` small buffers in one group to `m` devices therefore takes
/// `n + m` copies, of which `m` are between devices, instead of `n * m`.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{COALESCE_BYTES, broadcast_coalesced};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let weights = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0, 3.0])?;
/// let bias = DeviceBuffer::from_host(&streams[0], &[4.0f32])?;
/// let copies = broadcast_coalesced([&weights, &bias], &streams, COALESCE_BYTES)?;
/// let [weights, bias] = copies[1].slices()[..] else { unreachable!("one for each source") };
/// assert_eq!(weights.to_host()?, [1.0, 2.0, 3.0]);
/// assert_eq!(bias.to_host()?, [4.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// To pack buffers of several element types together, pass them as bytes (`x.as_slice().cast::<u8>()?`) and convert the
/// results back with `slice.cast()?`.
///
/// # Errors
/// Returns the same errors as [`broadcast`](super::collective::broadcast).
#[track_caller]
pub fn broadcast_coalesced<'s, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
    streams: &[Stream],
    buffer_bytes: usize,
) -> Result<Vec<Coalesced<T>>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    check_targets("broadcast_coalesced", &sources, streams)?;
    let lens: Vec<_> = sources.iter().map(DeviceSlice::len).collect();
    let places: Arc<[Places]> = groups::<T>(&lens, buffer_bytes).into();
    let mut results: Vec<_> =
        streams.iter().map(|_| Coalesced { buffers: Vec::new(), places: Arc::clone(&places) }).collect();
    let mut rest = &sources[..];
    for places in &*places {
        let (group, after) = rest.split_at(places.len());
        rest = after;
        let packed;
        let source = match group {
            [] => continue,
            [single] => *single,
            [first, ..] => {
                packed = pack(first.stream(), group, places)?;
                packed.as_slice()
            }
        };
        for (result, buffer) in results.iter_mut().zip(copies(streams, &vec![source; streams.len()])?) {
            result.buffers.push(buffer);
        }
    }
    Ok(results)
}

/// Packs several lists of small buffers into groups and calls `combine` once per group, so an operation on many small
/// buffers runs on a few large ones. `combine` receives one slice per list, all with the same length and layout, and
/// must return a buffer of that length. `ops::reduce_add_coalesced` in the crate `warpsmith` is an example.
///
/// `lists` contains one list per device. Buffers at the same index must have the same length in all lists. Consecutive
/// buffers are packed into groups of up to `buffer_bytes`, on the home stream of each group's first buffer, with zeros
/// in the gaps. A buffer larger than `buffer_bytes` is passed to `combine` without packing.
///
/// # Errors
/// Returns [`Error::EmptyList`] if `lists` is empty, or [`Error::DifferentDevices`] if the buffers of one list are on
/// several devices. Returns [`Error::LengthMismatch`] if the lists differ in the number or lengths of their buffers, or
/// if `combine` returns a buffer of a different length. Returns the error that `combine` returns, and the same errors
/// as [`Stream::copy`].
#[track_caller]
pub fn combine_coalesced<T: DeviceCopy, E: From<Error>>(
    lists: &[Vec<DeviceSlice<'_, T>>],
    buffer_bytes: usize,
    mut combine: impl FnMut(&[DeviceSlice<'_, T>]) -> Result<DeviceBuffer<T>, E>,
) -> Result<Coalesced<T>, E> {
    const OPERATION: &str = "combine_coalesced";
    let _site = site();
    let [first, others @ ..] = lists else {
        return Err(Error::EmptyList { operation: OPERATION, list: "lists" }.into());
    };
    for other in others {
        check_lengths(OPERATION, other.len(), first.len())?;
        let mut pairs = other.iter().zip(first);
        pairs.try_for_each(|(other, first)| check_lengths(OPERATION, other.len(), first.len()))?;
    }
    for list in lists {
        let Some(first) = list.first() else { continue };
        let home = first.stream();
        list.iter().try_for_each(|slice| {
            home.check_device(slice.device(), || {
                (OPERATION.to_owned(), "a buffer of the same list".to_owned())
            })
        })?;
    }
    let lens: Vec<_> = first.iter().map(DeviceSlice::len).collect();
    let places: Arc<[Places]> = groups::<T>(&lens, buffer_bytes).into();
    let (mut buffers, mut start) = (Vec::with_capacity(places.len()), 0);
    for group in &*places {
        let sources = start..start + group.len();
        start = sources.end;
        let packed = match group.len() {
            1 => Vec::new(),
            _ => {
                let lists = lists.iter().map(|list| &list[sources.clone()]);
                lists.map(|list| pack_with_zeros(list, group)).collect::<Result<Vec<_>>>()?
            }
        };
        let slices: Vec<_> = match group.len() {
            1 => lists.iter().map(|list| list[sources.start]).collect(),
            _ => packed.iter().map(DeviceBuffer::as_slice).collect(),
        };
        let combined = combine(&slices)?;
        check_lengths("the result of `combine`", combined.len(), group.last().map_or(0, |last| last.end))?;
        buffers.push(combined);
    }
    Ok(Coalesced { buffers, places })
}

/// Like [`pack`], but uses the first source's home stream and zeros the gaps between sources.
fn pack_with_zeros<T: DeviceCopy>(
    sources: &[DeviceSlice<'_, T>],
    places: &[Range<usize>],
) -> Result<DeviceBuffer<T>> {
    let [first, ..] = sources else { unreachable!("groups have members") };
    let mut target = pack(first.stream(), sources, places)?;
    for pair in places.windows(2) {
        let gap = pair[0].end..pair[1].start;
        if !gap.is_empty() {
            first.stream().memset(target.slice_mut(gap), 0)?;
        }
    }
    Ok(target)
}

/// Divides sources of these lengths into groups, and returns the range of each source in its group's buffer.
fn groups<T>(lens: &[usize], buffer_bytes: usize) -> Vec<Places> {
    // The smallest number of elements whose size in bytes is a multiple of the alignment.
    let step = ALIGNMENT >> size_of::<T>().trailing_zeros().min(ALIGNMENT.trailing_zeros());
    let mut groups = Vec::<Places>::new();
    for &len in lens {
        let last = groups.last_mut().and_then(|group| {
            let start = group.last()?.end.checked_next_multiple_of(step)?;
            let end = start.checked_add(len)?;
            (end.saturating_mul(size_of::<T>()) <= buffer_bytes).then_some((group, start..end))
        });
        match last {
            Some((group, place)) => group.push(place),
            None => groups.push(std::iter::once(0..len).collect()),
        }
    }
    groups
}
