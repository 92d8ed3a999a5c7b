//! Launches one kernel of the corpus on a device, for compute-sanitizer: a fault may end the context, so each has a process.
//!
//! `planted --list` prints a line for each kernel: its name, what `warpsmith check` finds in it, which the tests of the
//! corpus verify, and the tool of compute-sanitizer that finds it, each `-` for nothing. `planted NAME [DEVICE]` launches it, on
//! `cuda:0` by default. Exit code 0: it ran; 1: it failed; 2: wrong use, or no such device.

use std::ffi::c_void;
use std::process::ExitCode;

use planted_gpu::case::{Case, Contents, Found, Tool};
use warpsmith_runtime::driver::LaunchConfig;
use warpsmith_runtime::{Device, DevicePtr, Error, GpuImage};

static IMAGE: GpuImage = warpsmith_runtime::include_image!("planted_gpu");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, device) = match arguments[..] {
        ["--list"] => {
            planted_gpu::cases().for_each(|case| println!("{}", line(case)));
            return ExitCode::SUCCESS;
        }
        [name] => (name, "cuda:0"),
        [name, device] => (name, device),
        _ => return wrong("usage: planted --list | planted NAME [DEVICE]"),
    };
    let Some(case) = planted_gpu::cases().find(|case| case.name() == name) else {
        return wrong(&format!("no kernel `{name}`; `planted --list` lists them"));
    };
    let device = match Device::open(device) {
        Ok(device) => device,
        Err(error) => return wrong(&error.to_string()),
    };
    match launch(case, &device) {
        Ok(()) => {
            println!("{name} ran on {}", device.name());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wrong(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(2)
}

fn line(case: &Case) -> String {
    let found = match case.found {
        Found::Nothing => "-",
        Found::Access(kind) => kind.name(),
        Found::Collective(_) => "collective",
    };
    format!("{} {found} {}", case.name(), case.tool.map_or("-", Tool::name))
}

/// Launches the kernel with buffers whose sizes the driver knows exactly: no allocator stands between.
fn launch(case: &Case, device: &Device) -> Result<(), Error> {
    let stream = device.default_stream();
    let function = device.load(&IMAGE)?.function((case.spec)())?;
    // SAFETY: all handles are of this device, whose context the handle keeps.
    let (driver, context) = unsafe { device.driver() };
    let mut buffers: Vec<DevicePtr> = Vec::new();
    for buffer in case.shape.buffers {
        let pointer = driver.memory_allocate(context, buffer.bytes)?;
        if buffer.contents == Contents::Zeros {
            // SAFETY: the memory was just allocated with this size.
            unsafe { driver.memset(context, pointer, 0, buffer.bytes, stream.handle())? };
        }
        buffers.push(pointer);
    }
    stream.synchronize()?;
    for (&pointer, buffer) in buffers.iter().zip(case.shape.buffers) {
        if buffer.contents == Contents::Freed {
            // SAFETY: allocated above; that the kernel uses it is its fault.
            unsafe { driver.memory_free(context, pointer)? };
        }
    }
    let config = LaunchConfig {
        cluster: [case.shape.cluster, 1, 1],
        cooperative: (case.spec)().cooperative,
        ..LaunchConfig::new([case.shape.grid, 1, 1], [case.shape.block, 1, 1], case.shape.shared_bytes)
    };
    let args: Vec<*const c_void> =
        buffers.iter().map(|pointer| std::ptr::from_ref(&pointer.0).cast()).collect();
    // SAFETY: the kernel takes a pointer for each buffer. What it does wrong with them is contained by the GPU, which
    // this process has for itself alone.
    unsafe { function.launch_raw(&stream, config, &args)? };
    stream.synchronize()
    // The buffers go with the process: after a fault they could not be freed.
}
