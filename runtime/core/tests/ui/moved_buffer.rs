//! A buffer that was dropped or moved is gone.
#[path = "../../../tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::*;

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<Iota>()?;
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 10)?;
    std::thread::spawn(move || drop(out));
    kernel.launch(&stream, Launch::auto(10), (&mut out,))
}
