//! Views in two dimensions are borrowed as slices are, and have argument types of their own.
use gpu_spec::param::{Slice2, SliceMut2};
use warpsmith_runtime::launch::Arguments;
use warpsmith_runtime::*;

fn takes<A: Arguments<(Slice2<f32>, SliceMut2<f32>)>>(_: A) {}

/// One buffer is not read and written in one launch.
fn shared_and_mutable(y: &mut DeviceBuffer<f32>) -> Result<()> {
    takes((y.as_2d(2, 3)?, y.as_2d_mut(2, 3)?));
    Ok(())
}

/// Two views of one buffer cannot both be written.
fn two_mutable_views(y: &mut DeviceBuffer<f32>) -> Result<()> {
    let first = y.as_2d_mut(2, 3)?;
    let second = y.as_2d_mut(3, 2)?;
    drop((first, second));
    Ok(())
}

/// A view does not outlive its buffer.
fn view_outlives_buffer(stream: &Stream) -> Result<()> {
    let view = DeviceBuffer::<f32>::zeros(stream, 6)?.as_2d(2, 3)?;
    drop(view);
    Ok(())
}

/// A slice has no rows, and a view to read is not one to write.
fn other_arguments(x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    takes((x, y.as_2d_mut(2, 3)?));
    takes((x.as_2d(2, 3)?, x.as_2d(2, 3)?));
    takes((x.as_3d(2, 3, 1)?, y.as_2d_mut(2, 3)?));
    Ok(())
}

fn main() {}
