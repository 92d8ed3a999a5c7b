//! [`scatter_columns`] and [`gather_columns`]: distribute a matrix's columns to several devices and collect them.

use super::collective::{check_drivers, check_list, chunks, ranges};
use crate::device::observe::site;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice2};
use crate::stream::Stream;

/// Divides the columns of a matrix among the devices of several streams. Each result is a contiguous matrix of all rows
/// of its columns.
///
/// `chunk_lens` contains the number of columns per chunk. If it is `None`, the columns are divided as
/// [`scatter`](super::collective::scatter) divides elements. For tensors with more dimensions, see the [module's
/// documentation](super::collective). Columns for another device are first packed on the source's device.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::transfer::collective::{gather_columns, scatter_columns};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let devices = [Device::with_driver(driver.clone(), 0)?, Device::with_driver(driver, 1)?];
/// let streams = devices.each_ref().map(Device::default_stream);
/// // A 2 x 3 matrix.
/// let matrix = DeviceBuffer::from_host(&streams[0], &[1u32, 2, 3, 4, 5, 6])?;
/// let parts = scatter_columns(matrix.as_2d(2, 3)?, &streams, Some(&[1, 2]))?;
/// assert_eq!(parts[0].to_host()?, [1, 4]);
/// assert_eq!(parts[1].to_host()?, [2, 3, 5, 6]);
///
/// let whole = gather_columns([parts[0].as_2d(2, 1)?, parts[1].as_2d(2, 2)?], &streams[1])?;
/// assert_eq!(whole.to_host()?, [1, 2, 3, 4, 5, 6]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::EmptyList`] if `streams` is empty, [`Error::BadChunks`] unless there is one length per stream and
/// the lengths add up to the number of columns, or [`Error::NoPeerAccess`] if the devices belong to two drivers.
/// Returns [`Error::OutOfMemory`] if any of the devices is out of memory, and the same errors as [`Stream::copy`].
#[track_caller]
pub fn scatter_columns<T: DeviceCopy>(
    source: DeviceSlice2<'_, T>,
    streams: &[Stream],
    chunk_lens: Option<&[usize]>,
) -> Result<Vec<DeviceBuffer<T>>> {
    let _site = site();
    check_list("scatter_columns", "streams", streams.is_empty())?;
    streams.iter().try_for_each(|stream| check_drivers(source.device(), stream.device()))?;
    let rows = source.rows();
    let mut results = Vec::with_capacity(streams.len());
    let chunks: Vec<_> = chunks(chunk_lens, streams.len(), source.columns())?.collect();
    for (stream, chunk) in streams.iter().zip(&chunks) {
        // The product cannot overflow, because it is at most the number of elements in the source.
        results.push(DeviceBuffer::uninit(stream, rows * chunk.len())?);
    }
    for ((result, stream), chunk) in results.iter_mut().zip(streams).zip(chunks) {
        if rows == 0 || chunk.is_empty() {
            continue;
        }
        let columns = source.part(.., chunk.clone());
        if result.device() == source.device() {
            stream.copy_rows(columns, result.as_2d_mut(rows, chunk.len())?)?;
        } else {
            stream.copy(&packed(columns)?, result)?;
        }
    }
    Ok(results)
}

/// Returns a contiguous copy of the rows on the same device.
fn packed<T: DeviceCopy>(rows: DeviceSlice2<'_, T>) -> Result<DeviceBuffer<T>> {
    let stream = rows.elements().stream();
    let mut packed = DeviceBuffer::uninit(stream, rows.rows() * rows.columns())?;
    stream.copy_rows(rows, packed.as_2d_mut(rows.rows(), rows.columns())?)?;
    Ok(packed)
}

/// Concatenates the columns of matrices on any devices into one buffer on the stream's device. All matrices must have
/// the same number of rows.
///
/// A matrix on another device is first packed on that device, unless it is contiguous, and then copied to the stream's
/// device. See [`scatter_columns`] for an example.
///
/// # Errors
/// Returns [`Error::EmptyList`] if `sources` is empty, [`Error::ShapeMismatch`] if the matrices differ in their number
/// of rows, or [`Error::NoPeerAccess`] if the devices belong to two drivers. Returns [`Error::TooManyElements`],
/// [`Error::BadExtents`] if there are more than 2^31 - 1 columns, [`Error::OutOfMemory`], or the same errors as
/// [`Stream::copy`].
#[track_caller]
pub fn gather_columns<'s, T: DeviceCopy>(
    sources: impl IntoIterator<Item = DeviceSlice2<'s, T>>,
    stream: &Stream,
) -> Result<DeviceBuffer<T>> {
    let _site = site();
    let sources: Vec<DeviceSlice2<'s, T>> = sources.into_iter().collect();
    check_list("gather_columns", "sources", sources.is_empty())?;
    let (rows, first_len) = sources.first().map_or((0, 0), |first| (first.rows(), first.columns()));
    for source in &sources {
        check_drivers(source.device(), stream.device())?;
        if source.rows() != rows {
            let (left, right) = ((rows, first_len), (source.rows(), source.columns()));
            return Err(Error::ShapeMismatch { operation: "gather_columns", left, right });
        }
    }
    let columns = sources.iter().try_fold(0usize, |sum, source| sum.checked_add(source.columns()));
    let elements = columns.and_then(|columns| columns.checked_mul(rows));
    let (Some(columns), Some(elements)) = (columns, elements) else {
        return Err(Error::TooManyElements { elements: usize::MAX, element_bytes: size_of::<T>() });
    };
    let mut result = DeviceBuffer::uninit(stream, elements)?;
    if elements == 0 {
        return Ok(result);
    }
    for (source, place) in sources.iter().zip(ranges(sources.iter().map(DeviceSlice2::columns))) {
        if place.is_empty() {
            continue;
        }
        let here;
        let columns_here = if source.device() == stream.device() {
            *source
        } else {
            here = match source.elements().len() == rows * source.columns() {
                true => source.elements().clone_on(stream)?,
                false => packed(*source)?.clone_on(stream)?,
            };
            here.as_2d(rows, source.columns())?
        };
        stream.copy_rows(columns_here, result.as_2d_mut(rows, columns)?.into_part(.., place))?;
    }
    Ok(result)
}
