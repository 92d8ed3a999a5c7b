//! [`Loaded`]: a module loaded at run time, unloaded once it is no longer used.

use std::fmt;

use crate::device::Device;
use crate::device::health::Quiet;
use crate::driver::{ModuleHandle, host_function};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::DeviceBuffer;
use crate::memory::storage::BufferUse;
use crate::memory::usage::Access;
use crate::stream::Stream;

/// A module loaded at run time, shared by its kernels' handles and by graphs that launch them. After the last of these
/// is dropped, the module is unloaded once all work that uses it has run. The field is `None` only in `drop`.
pub(crate) struct Loaded(Option<Parts>);

struct Parts {
    module: Unload,
    /// A buffer that tracks the work that uses the module. Every launch is recorded as a read of this buffer.
    uses: DeviceBuffer<u8>,
}

/// Unloads the module when it is dropped.
struct Unload {
    device: Device,
    module: ModuleHandle,
    /// Event recorded after all work that uses the module. Without an event, the module stays loaded until the device
    /// is closed.
    reached: Option<Event>,
}

impl Loaded {
    /// Loads a module on the device by calling `load`, and takes ownership of it.
    pub fn new(device: &Device, load: impl FnOnce() -> Result<ModuleHandle>) -> Result<Self> {
        let uses = DeviceBuffer::uninit(&quiet_stream(device)?, 1)?;
        let module = Unload { device: device.clone(), module: load()?, reached: None };
        Ok(Self(Some(Parts { module, uses })))
    }

    fn parts(&self) -> &Parts {
        let Some(parts) = &self.0 else { unreachable!("they are there until the drop") };
        parts
    }

    pub fn module(&self) -> ModuleHandle {
        self.parts().module.module
    }

    /// Returns the buffer use that a launch of one of the module's kernels must record.
    pub fn used(&self) -> BufferUse<'_> {
        self.parts().uses.as_slice().used(Access::Read)
    }
}

/// Returns a stream that is not capturing.
fn quiet_stream(device: &Device) -> Result<Stream> {
    let stream = Stream::from_pool(device)?;
    if stream.is_capturing() { Stream::new(device) } else { Ok(stream) }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let Some(parts) = self.0.take() else { return };
        if host_function::is_running() {
            return host_function::drop_elsewhere(Box::new(Self(Some(parts))));
        }
        let Parts { mut module, uses } = parts;
        let device = module.device.clone();
        if device.is_forked() || device.is_lost() {
            return;
        }
        let behind = quiet_stream(&device).and_then(|stream| {
            let after_all = uses.as_slice().used(Access::Write);
            after_all.enqueue(&stream, "unloading a module", |_, _| Ok::<_, Error>(()))?;
            module.reached = Some(stream.record_event()?);
            Ok(stream)
        });
        // If the host function cannot be enqueued, the module is dropped here, which waits for the kernels.
        let dropped = behind.and_then(|stream| stream.host_function(move || drop(module)));
        if !device.is_lost() {
            device.0.health.record_drop(dropped);
        }
    }
}

impl Drop for Unload {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let Some(reached) = self.reached.take() else { return };
        let Self { device, module, .. } = self;
        if device.is_forked() {
            return;
        }
        if host_function::is_running() {
            let (device, module) = (device.clone(), *module);
            return host_function::drop_elsewhere(Box::new(Self { device, module, reached: Some(reached) }));
        }
        // The modules of a lost device no longer exist.
        if reached.wait().is_ok() && !device.is_lost() {
            let (driver, context) = device.raw();
            // SAFETY: no handle to the module is left, and the event was recorded after all work that uses it.
            unsafe { driver.module_unload(context, *module) };
        }
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loaded({:#x})", self.module().0)
    }
}
