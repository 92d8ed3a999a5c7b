//! Buffers are borrowed like slices.
#[path = "../common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

/// One buffer cannot be both read and written in one launch.
fn shared_and_mutable(device: &Device, stream: &Stream) -> Result<()> {
    let mut y = DeviceBuffer::from_host(stream, &[1.0f32])?;
    module(device).kernel::<Axpy>()?.launch(stream, Launch::auto(1), (2.0f32, &y, &mut y))
}

/// Two views of one range cannot both be written.
fn two_mutable_views(stream: &Stream) -> Result<()> {
    let mut buffer = DeviceBuffer::<u32>::zeros(stream, 10)?;
    let mut first = buffer.slice_mut(..6);
    let mut second = buffer.slice_mut(5..);
    first.copy_from_host(&[0; 6])?;
    second.copy_from_host(&[0; 5])
}

/// A slice cannot outlive its buffer.
fn slice_outlives_buffer(stream: &Stream) -> Result<()> {
    let slice = {
        let buffer = DeviceBuffer::<u32>::zeros(stream, 10)?;
        buffer.slice(..5)
    };
    slice.to_host().map(drop)
}

/// A buffer that was dropped or moved can no longer be used.
fn moved_buffer(device: &Device, stream: &Stream) -> Result<()> {
    let mut out = DeviceBuffer::<u32>::zeros(stream, 10)?;
    std::thread::spawn(move || drop(out));
    module(device).kernel::<Iota>()?.launch(stream, Launch::auto(10), (&mut out,))
}

/// Host memory that was moved into a copy is inaccessible until the copy returns it.
fn pending_memory(device: &Device, stream: &Stream) -> Result<()> {
    let mut source = PinnedBuffer::from_slice(device, &[1u32, 2])?;
    let mut target = DeviceBuffer::uninit(stream, 2)?;
    let pending = stream.copy_from_host_async(source, &mut target)?;
    source[0] = 3;
    pending.wait()?;
    Ok(())
}

fn main() {}
