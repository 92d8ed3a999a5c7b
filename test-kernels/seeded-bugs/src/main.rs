//! Launches one kernel of the corpus on a device, for compute-sanitizer. A fault may end the context, so each kernel
//! has its own process.
//!
//! `seeded-bugs --list` prints one line per kernel. It has the name, the expected finding of `warpsmith check`, which
//! the tests of the corpus verify, and the compute-sanitizer tool that finds it; `-` means none. `seeded-bugs NAME
//! [DEVICE]` launches a kernel, on `cuda:0` by default. Exit code 0: it ran; 1: it failed; 2: usage error, or no such
//! device.

use std::ffi::c_void;
use std::process::ExitCode;

use seeded_bugs_gpu::case::{Case, Contents, Found, Tool};
use warpsmith_runtime::driver::LaunchConfig;
use warpsmith_runtime::{Device, DevicePtr, Error, GpuImage};

static IMAGE: GpuImage = warpsmith_runtime::include_image!("seeded_bugs_gpu");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, device) = match arguments[..] {
        ["--list"] => {
            seeded_bugs_gpu::cases().for_each(|case| println!("{}", line(case)));
            return ExitCode::SUCCESS;
        }
        [name] => (name, "cuda:0"),
        [name, device] => (name, device),
        _ => return wrong("usage: seeded-bugs --list | seeded-bugs NAME [DEVICE]"),
    };
    let Some(case) = seeded_bugs_gpu::cases().find(|case| case.name() == name) else {
        return wrong(&format!("no kernel `{name}`; `seeded-bugs --list` lists them"));
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

/// Launches the kernel with buffers that bypass the caching allocator, so that the driver knows their exact sizes.
fn launch(case: &Case, device: &Device) -> Result<(), Error> {
    let stream = device.default_stream();
    let function = device.load(&IMAGE)?.function((case.spec)())?;
    // SAFETY: all handles belong to this device, whose context the handle keeps.
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
            // SAFETY: allocated above; a kernel that still uses it has the bug under test.
            unsafe { driver.memory_free(context, pointer)? };
        }
    }
    let config = LaunchConfig {
        cluster: [case.shape.cluster, 1, 1],
        cooperative: (case.spec)().cooperative,
        ..LaunchConfig::new([case.shape.grid, 1, 1], [case.shape.block, 1, 1], case.shape.shared_bytes)
    };
    let pointers = buffers.iter().map(|pointer| std::ptr::from_ref(&pointer.0).cast());
    let lengths = case.shape.lengths.iter().map(|length| std::ptr::from_ref(length).cast());
    let args: Vec<*const c_void> = pointers.chain(lengths).collect();
    // SAFETY: the kernel takes one pointer per buffer, and the lengths. The GPU contains its invalid accesses, and this
    // process has it exclusively.
    unsafe { function.launch_raw(&stream, config, &args)? };
    stream.synchronize()
    // The process frees the buffers on exit: after a fault they could not be freed.
}
