//! [`Plan`]: what a transform of one shape needs, made once.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Call;
use super::host::HostPlan;
use super::shape::Key;
use super::vendor::{self, Functions, Handle};
use crate::pressure::with_memory;
use warpsmith_core::device::Device;
use warpsmith_core::driver::{DevicePtr, StreamHandle};
use warpsmith_core::error::Result;
use warpsmith_core::seam::{WeakDevice, drop_elsewhere, in_host_function};

pub(super) enum Plan {
    Gpu(GpuPlan),
    Host(HostPlan),
}

impl Plan {
    pub fn new(device: &Device, operation: &'static str, key: Key) -> Result<Self> {
        if device.is_emulated() {
            return Ok(Self::Host(HostPlan::new(key)));
        }
        Ok(Self::Gpu(GpuPlan::new(device, operation, key)?))
    }

    /// What the caller provides for each execution, in bytes.
    pub fn work_bytes(&self) -> usize {
        match self {
            Self::Gpu(plan) => plan.work_bytes,
            Self::Host(_) => 0,
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("work_bytes", &self.work_bytes()).finish()
    }
}

/// A plan of cuFFT without a work area of its own.
pub(super) struct GpuPlan {
    functions: &'static Functions,
    handle: Handle,
    key: Key,
    work_bytes: usize,
    /// The stream that it is set to. Held while it is set up and executed, which is for one thread at a time.
    stream: Mutex<Option<StreamHandle>>,
    /// Plans lie in their device, so that they do not keep it.
    device: WeakDevice,
}

impl GpuPlan {
    fn new(device: &Device, operation: &'static str, key: Key) -> Result<Self> {
        let functions = Functions::get(operation)?;
        let make = || {
            device.with_context(|| {
                let handle = functions.create()?;
                let mut plan = Self {
                    functions,
                    handle,
                    key,
                    work_bytes: 0,
                    stream: Mutex::default(),
                    device: device.downgrade(),
                };
                plan.work_bytes = functions.make(operation, handle, &key)?;
                Ok(plan)
            })
        };
        with_memory(device, make)
    }

    /// Enqueues a transform on a stream of the plan's device, whose context is current.
    ///
    /// # Safety
    /// Input and output have the elements of the plan's key, and `area` [`Plan::work_bytes`]; all are ordered.
    pub unsafe fn execute(
        &self,
        call: Call,
        stream: StreamHandle,
        area: DevicePtr,
        input: DevicePtr,
        output: DevicePtr,
    ) -> Result<()> {
        let mut set = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if *set != Some(stream) {
            *set = None;
            self.functions.set_stream(self.handle, stream)?;
            *set = Some(stream);
        }
        let context = || self.key.describe();
        // SAFETY: passed on from the caller; nobody else uses the plan meanwhile.
        unsafe { self.functions.execute(call, self.handle, area, input, output) }
            .map_err(|error| vendor::with_context(error, context))
    }
}

impl Drop for GpuPlan {
    fn drop(&mut self) {
        // Without one, the device is closing, and has made its context current.
        let Some(device) = self.device.upgrade() else {
            return self.functions.destroy(self.handle);
        };
        if device.is_forked() {
            return;
        }
        if in_host_function() {
            let Self { functions, handle, key, work_bytes, .. } = *self;
            let (stream, weak) = (Mutex::default(), device.downgrade());
            let moved = Self { functions, handle, key, work_bytes, stream, device: weak };
            // The plan goes first.
            return drop_elsewhere(Box::new((moved, device)));
        }
        if let Ok(_calls) = device.bind() {
            self.functions.destroy(self.handle);
        }
    }
}

/// A plan that a graph uses, and its device.
pub(super) struct Kept {
    /// Dropped first.
    _plan: Arc<Plan>,
    _device: Device,
}

impl Kept {
    pub fn new(plan: Arc<Plan>, device: &Device) -> Self {
        Self { _plan: plan, _device: device.clone() }
    }
}
