//! One buffer is not read and written in one launch.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<Axpy>()?;
    let mut y = DeviceBuffer::from_host(&stream, &[1.0f32])?;
    kernel.launch(&stream, Launch::auto(1), (2.0f32, &y, &mut y))
}
