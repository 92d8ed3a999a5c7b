//! The type system checks the arguments of a launch, and which calls are unsafe.
#[path = "../common/mod.rs"]
mod common;

use common::*;
use warpsmith_runtime::driver::GraphDriver;
use warpsmith_runtime::*;

/// Only unsafe code can implement a driver, because the runtime trusts its results.
#[derive(Debug)]
struct Own;

impl GraphDriver for Own {}

fn main() -> Result<()> {
    let (_, device) = device();
    let stream = device.default_stream();
    let (axpy, iota) = (module(&device).kernel::<Axpy>()?, module(&device).kernel::<Iota>()?);
    let wide = DeviceBuffer::from_host(&stream, &[1.0f64])?;
    let numbers = DeviceBuffer::from_host(&stream, &[1u32])?;
    let mut y = DeviceBuffer::from_host(&stream, &[1.0f32])?;
    // Every parameter requires an argument of its type, and a shared borrow cannot be written.
    axpy.launch(&stream, Launch::auto(1), (2.0f32, &mut y))?;
    axpy.launch(&stream, Launch::auto(1), (2.0f32, &wide, &mut y))?;
    iota.launch(&stream, Launch::auto(1), (&numbers,))?;
    // An unsafe kernel cannot be launched safely.
    let copy = module(&device).kernel::<CopyRaw>()?;
    let mut to = DeviceBuffer::from_host(&stream, &[1u32])?;
    copy.launch(&stream, Launch::auto(1), (&numbers, &mut to, 1u64))?;
    // Host references cannot be stored in device memory.
    let _ = size_of::<DeviceBuffer<&'static str>>();
    Ok(())
}
