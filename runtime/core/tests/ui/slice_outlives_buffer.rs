//! A slice does not outlive its buffer.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let slice = {
        let buffer = DeviceBuffer::<u32>::zeros(&device.default_stream(), 10)?;
        buffer.slice(..5)
    };
    slice.to_host().map(drop)
}
