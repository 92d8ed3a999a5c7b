//! A shared borrow cannot be written.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<Iota>()?;
    let out = DeviceBuffer::from_host(&stream, &[1u32])?;
    kernel.launch(&stream, Launch::auto(1), (&out,))
}
