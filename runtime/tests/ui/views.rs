//! Two-dimensional views are borrowed like slices, and have separate argument types.
use gpu_spec::param::{AtomicSlice2, Shared, Slice2, SliceMut2};
use warpsmith_runtime::launch::Arguments;
use warpsmith_runtime::*;

fn takes<A: Arguments<(Slice2<f32>, SliceMut2<f32>)>>(_: A) {}

/// One buffer cannot be both read and written in one launch.
fn shared_and_mutable(y: &mut DeviceBuffer<f32>) -> Result<()> {
    takes((y.as_2d(3, 2)?, y.as_2d_mut(3, 2)?));
    Ok(())
}

/// Two views of one buffer cannot both be written.
fn two_mutable_views(y: &mut DeviceBuffer<f32>) -> Result<()> {
    let first = y.as_2d_mut(3, 2)?;
    let second = y.as_2d_mut(2, 3)?;
    drop((first, second));
    Ok(())
}

/// A view cannot outlive its buffer.
fn view_outlives_buffer(stream: &Stream) -> Result<()> {
    let view = DeviceBuffer::<f32>::zeros(stream, 6)?.as_2d(3, 2)?;
    drop(view);
    Ok(())
}

/// A slice has no rows, and a read-only view is not a writable view.
fn other_arguments(x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    takes((x, y.as_2d_mut(3, 2)?));
    takes((x.as_2d(3, 2)?, x.as_2d(3, 2)?));
    takes((x.as_3d(1, 3, 2)?, y.as_2d_mut(3, 2)?));
    Ok(())
}

fn takes_atomics<A: Arguments<(AtomicSlice2<u32>,)>>(_: A) {}

/// A view of atomics is borrowed mutably because all threads change them.
fn atomics_to_read(x: &DeviceBuffer<u32>) -> Result<()> {
    takes_atomics((x.as_2d(3, 2)?,));
    Ok(())
}

fn takes_length<A: Arguments<(Shared<f32>,)>>(_: A) {}

/// The length of a shared array has a separate type and cannot be omitted.
fn lengths() {
    takes_length((256usize,));
    takes_length(());
}

fn main() {}
