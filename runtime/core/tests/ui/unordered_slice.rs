//! Leaving the order of streams to the program takes `unsafe`.
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let device = Device::emulated(0)?;
    let buffer = DeviceBuffer::<u32>::zeros(&device.default_stream(), 10)?;
    let _ = buffer.as_slice().unordered();
    Ok(())
}
