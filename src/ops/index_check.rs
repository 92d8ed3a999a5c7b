//! Checks of indices in device memory before an operation uses them.

use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, Result, Stream};

use super::indices::Index;
use crate::op_error::OpError;

/// Reads one element of an array from the device.
pub(super) fn read<T: DeviceCopy>(array: DeviceSlice<'_, T>, place: u64) -> Result<T> {
    Ok(array.slice(place as usize..=place as usize).to_host()?[0])
}

/// Returns an error if an index is not below `bound`, or if `is_unique` is true and an index occurs twice. The function
/// waits for the stream.
pub(super) fn check_indices<I: Index>(
    stream: &Stream,
    operation: &'static str,
    (name, indices): (&'static str, DeviceSlice<'_, I>),
    bound: usize,
    is_unique: bool,
) -> Result<()> {
    if indices.is_empty() {
        return Ok(());
    }
    let mut seen = is_unique.then(|| DeviceBuffer::zeros(stream, bound.div_ceil(32))).transpose()?;
    let mut found = DeviceBuffer::from_host(stream, &[u64::MAX; 2])?;
    I::check(stream, bound as u64, indices, seen.as_mut(), &mut found)?;
    let found = found.to_host()?;
    if found[0] != u64::MAX {
        let (position, index) = (found[0], read(indices, found[0])?.into());
        return Err(OpError::Index { operation, name, position, index, bound: bound as u64 }.into());
    }
    if found[1] != u64::MAX {
        return Err(OpError::DuplicateIndex { index: found[1] }.into());
    }
    Ok(())
}
