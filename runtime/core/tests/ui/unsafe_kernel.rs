//! An unsafe kernel has no safe launch.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<CopyRaw>()?;
    let from = DeviceBuffer::from_host(&stream, &[1u32])?;
    let mut to = DeviceBuffer::from_host(&stream, &[1u32])?;
    kernel.launch(&stream, Launch::auto(1), (&from, &mut to, 1u64))
}
