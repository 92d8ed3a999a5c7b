//! Two views of one range cannot both be written.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let mut buffer = DeviceBuffer::<u32>::zeros(&device.default_stream(), 10)?;
    let mut first = buffer.slice_mut(..6);
    let mut second = buffer.slice_mut(5..);
    first.copy_from_host(&[0; 6])?;
    second.copy_from_host(&[0; 5])
}
