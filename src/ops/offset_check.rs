//! Checks of segment offsets in device memory before an operation uses them.

use gpu_kernels::index_check::first_bad_offset;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Launch, Result, Stream};

use super::index_check::read;
use crate::IMAGE;
use crate::op_error::OpError;

/// Returns an error if an offset exceeds the next offset or `len`. The function waits for the stream.
pub(super) fn check_offsets(
    stream: &Stream,
    operation: &'static str,
    offsets: DeviceSlice<'_, u64>,
    len: usize,
) -> Result<()> {
    let kernel = stream.device().load(&IMAGE)?.kernel::<first_bad_offset>()?;
    let mut found = DeviceBuffer::from_host(stream, &[u64::MAX])?;
    let launch = Launch::for_bandwidth(offsets.len(), size_of::<u64>() as u32);
    kernel.launch(stream, launch, (offsets, len as u64, &mut found))?;
    let position = found.to_host()?[0];
    if position == u64::MAX {
        return Ok(());
    }
    let (offset, next) = (read(offsets, position)?, position + 1);
    let next = if next < offsets.len() as u64 { read(offsets, next)? } else { u64::MAX };
    Err(OpError::Offset { operation, position, offset, most: next.min(len as u64) }.into())
}
