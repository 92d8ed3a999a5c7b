//! A buffer of f64 is no slice of f32.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<Axpy>()?;
    let x = DeviceBuffer::from_host(&stream, &[1.0f64])?;
    let mut y = DeviceBuffer::from_host(&stream, &[1.0f32])?;
    kernel.launch(&stream, Launch::auto(1), (2.0f32, &x, &mut y))
}
