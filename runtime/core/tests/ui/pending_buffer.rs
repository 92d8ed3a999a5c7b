//! Host memory that was moved into a copy is seen again only when the copy gives it back.
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let device = Device::emulated(0)?;
    let stream = device.default_stream();
    let mut source = PinnedBuffer::from_slice(&device, &[1u32, 2])?;
    let mut target = DeviceBuffer::uninit(&stream, 2)?;
    let pending = stream.copy_from_host(source, &mut target)?;
    source[0] = 3;
    pending.wait()?;
    Ok(())
}
