//! [`broadcast_coalesced`]: many small buffers to several devices in few copies.

use std::ops::Range;
use std::sync::Arc;

use super::collective::{check_targets, copies, pack};
use crate::device::observe::site;
use crate::error::Result;
use crate::memory::usage::Access;
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// A good size in bytes for the buffers of [`broadcast_coalesced`]: 10 MiB, PyTorch's.
pub const COALESCE_BYTES: usize = 10 << 20;

/// The alignment of every slice in bytes, that of buffers.
const ALIGNMENT: usize = 256;

/// Where slices lie in a buffer, in their order.
type Places = Vec<Range<usize>>;

/// Copies on one device of the buffers given to [`broadcast_coalesced`]: slices of fewer, larger buffers.
#[derive(Debug)]
pub struct Coalesced<T: DeviceCopy> {
    buffers: Vec<DeviceBuffer<T>>,
    /// For each buffer.
    places: Arc<[Places]>,
}

impl<T: DeviceCopy> Coalesced<T> {
    /// The copies, in the sources' order. Each begins at a multiple of 256 bytes.
    pub fn slices(&self) -> Vec<DeviceSlice<'_, T>> {
        let pairs = self.buffers.iter().zip(&*self.places);
        pairs.flat_map(|(buffer, places)| places.iter().map(|place| buffer.slice(place.clone()))).collect()
    }

    /// The copies, in the sources' order, each to be written apart from the others.
    pub fn slices_mut(&mut self) -> Vec<DeviceSliceMut<'_, T>> {
        let mut slices = Vec::with_capacity(self.places.iter().map(Vec::len).sum());
        for (buffer, places) in self.buffers.iter_mut().zip(&*self.places) {
            let (mut rest, mut start) = (buffer.as_mut_slice(), 0);
            for place in places {
                let (slice, after) = rest.into_slice(place.start - start..).split_at_mut(place.len());
                slices.push(slice);
                (rest, start) = (after, place.end);
            }
        }
        slices
    }
}

/// Copies many buffers to the devices of several streams, as [`broadcast`](super::collective::broadcast) does one. The
/// results are in the streams' order.
///
/// Buffers that follow each other are put together, on the home stream of the first of them, into a buffer of up to
/// `buffer_bytes` ([`COALESCE_BYTES`] is a good choice), which goes to each device in one copy. A larger one goes by
/// itself, without the copy that puts it together. So `n` small buffers go to `m` devices in `n + m` copies, of which
/// `m` are between devices, instead of `n * m`.
///
/// ```
/// use warpsmith_runtime::driver::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{COALESCE_BYTES, broadcast_coalesced};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// let weights = DeviceBuffer::from_host(&streams[0], &[1.0f32, 2.0, 3.0])?;
/// let bias = DeviceBuffer::from_host(&streams[0], &[4.0f32])?;
/// let copies = broadcast_coalesced([&weights, &bias], &streams, COALESCE_BYTES)?;
/// let [weights, bias] = copies[1].slices()[..] else { unreachable!("one for each source") };
/// assert_eq!(weights.to_host()?, [1.0, 2.0, 3.0]);
/// assert_eq!(bias.to_host()?, [4.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`broadcast`](super::collective::broadcast).
#[track_caller]
pub fn broadcast_coalesced<'s, T: DeviceCopy, S: Into<DeviceSlice<'s, T>>>(
    sources: impl IntoIterator<Item = S>,
    streams: &[Stream],
    buffer_bytes: usize,
) -> Result<Vec<Coalesced<T>>> {
    let _site = site();
    let sources: Vec<DeviceSlice<'s, T>> = sources.into_iter().map(Into::into).collect();
    check_targets("broadcast_coalesced", &sources, streams)?;
    let places: Arc<[Places]> = groups(&sources, buffer_bytes).into();
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
                packed = pack(first.used(Access::Read).storage.stream(), group, places)?;
                packed.as_slice()
            }
        };
        for (result, buffer) in results.iter_mut().zip(copies(streams, &vec![source; streams.len()])?) {
            result.buffers.push(buffer);
        }
    }
    Ok(results)
}

/// Which sources go together, and where.
fn groups<T: DeviceCopy>(sources: &[DeviceSlice<'_, T>], buffer_bytes: usize) -> Vec<Places> {
    // The least number of elements whose bytes are a multiple of the alignment.
    let step = ALIGNMENT >> size_of::<T>().trailing_zeros().min(ALIGNMENT.trailing_zeros());
    let mut groups = Vec::<Places>::new();
    for source in sources {
        let last = groups.last_mut().and_then(|group| {
            let start = group.last()?.end.checked_next_multiple_of(step)?;
            let end = start.checked_add(source.len())?;
            (end.saturating_mul(size_of::<T>()) <= buffer_bytes).then_some((group, start..end))
        });
        match last {
            Some((group, place)) => group.push(place),
            None => groups.push(std::iter::once(0..source.len()).collect()),
        }
    }
    groups
}
