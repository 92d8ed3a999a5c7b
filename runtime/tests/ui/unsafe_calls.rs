//! Calls that can cause a data race are `unsafe`.
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let device = Device::emulated(0)?;
    let buffer = DeviceBuffer::<u32>::zeros(&device.default_stream(), 10)?;
    // The program must order the streams itself.
    let _ = buffer.as_slice().assume_ordered();
    // The driver omits a wait.
    EmulatedDriver::builder().build().skip_wait(0);
    Ok(())
}
