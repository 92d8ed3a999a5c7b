//! Work that uses memory on a driver that runs nothing. Addresses have no memory, launches read and write nothing, and
//! streams are blocked until the host waits for them. The race check tracks the order of work.

use std::ffi::c_void;
use std::sync::Arc;

use gpu_spec::{KernelSpec, ParamKind, ParamSpec};
use warpsmith_runtime::driver::{DevicePtr, LaunchConfig, ModuleHandle};
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule};
use warpsmith_runtime::{Result, Stream};

const fn bytes(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, type_name: "u8", size: 1, align: 1, signature: 0 }
}

static USE: KernelSpec = KernelSpec::new(
    "test-kernels",
    "0.0.0",
    "use",
    &[bytes("read", ParamKind::Slice), bytes("written", ParamKind::SliceMut)],
    nothing,
);

unsafe fn nothing(_: *const *const c_void) {}

/// Returns a driver of one device with `capacity` bytes.
pub fn driver(capacity: u64) -> Arc<EmulatedDriver> {
    let builder = EmulatedDriver::builder().memory(capacity).unbacked().idle();
    builder.stepped(Schedule::Oldest).check_races().build()
}

/// Enqueues work that writes memory.
pub fn write(stream: &Stream, ptr: DevicePtr, bytes: u64) {
    launch(stream, (DevicePtr::NULL, 0), (ptr, bytes));
}

/// Enqueues work that reads memory of `home`, after the work enqueued there.
pub fn read(stream: &Stream, home: &Stream, ptr: DevicePtr, bytes: u64) -> Result<()> {
    stream.wait_stream(home)?;
    launch(stream, (ptr, bytes), (DevicePtr::NULL, 0));
    Ok(())
}

/// Enqueues work that accesses no memory.
pub fn busy(stream: &Stream) {
    launch(stream, (DevicePtr::NULL, 0), (DevicePtr::NULL, 0));
}

fn launch(stream: &Stream, read: (DevicePtr, u64), written: (DevicePtr, u64)) {
    let args: [*const c_void; 4] = [
        (&raw const read.0.0).cast(),
        (&raw const read.1).cast(),
        (&raw const written.0.0).cast(),
        (&raw const written.1).cast(),
    ];
    let config = LaunchConfig::new([1; 3], [1; 3], 0);
    // SAFETY: the arguments match the kernel, and the driver does not run it.
    unsafe {
        let (driver, context) = stream.device().driver();
        let function = driver.module_function(context, ModuleHandle(0), &USE).unwrap();
        driver.launch(context, function, &config, &args, stream.handle()).unwrap();
    }
}
