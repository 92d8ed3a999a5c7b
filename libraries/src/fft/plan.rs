//! [`Plan`]: reusable state for transforms of one shape.

use std::sync::{Mutex, PoisonError};

use super::Direction;
use super::host::HostPlan;
use super::shape::Key;
use super::vendor;
use crate::Vendor;
use crate::on_device::OnDevice;
use crate::pressure::with_memory;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Device, DevicePtr, Result};

pub(crate) enum Plan {
    Gpu(OnDevice<GpuPlan>),
    Host(HostPlan),
}

impl Plan {
    pub(super) fn new(device: &Device, operation: &'static str, key: Key) -> Result<Self> {
        if device.is_emulated() {
            return Ok(Self::Host(HostPlan::new(key)));
        }
        Vendor::Cufft.version()?;
        let make = || device.with_context(|| GpuPlan::new(operation, key));
        Ok(Self::Gpu(OnDevice::new(device, with_memory(device, make)?)))
    }

    /// Returns the size in bytes of the work area that the caller must provide for each execution.
    pub(super) fn work_bytes(&self) -> usize {
        match self {
            Self::Gpu(plan) => plan.work_bytes,
            Self::Host(_) => 0,
        }
    }
}

/// A cuFFT plan without its own work area.
pub(crate) struct GpuPlan {
    handle: vendor::Handle,
    key: Key,
    work_bytes: usize,
    /// The stream to which the plan is set. Locked during setup and execution so that only one thread uses the plan at
    /// a time.
    stream: Mutex<Option<StreamHandle>>,
}

impl GpuPlan {
    fn new(operation: &'static str, key: Key) -> Result<Self> {
        let handle = vendor::create()?;
        let mut plan = Self { handle, key, work_bytes: 0, stream: Mutex::default() };
        plan.work_bytes = vendor::make(operation, handle, &key)?;
        Ok(plan)
    }

    /// Enqueues a transform from input to output on a stream of the plan's device, whose context must be current.
    ///
    /// # Safety
    /// Input and output must have the elements that the plan's key specifies, `area` must have [`Plan::work_bytes`]
    /// bytes, and the uses of all three must be ordered.
    pub(super) unsafe fn execute(
        &self,
        direction: Direction,
        stream: StreamHandle,
        area: DevicePtr,
        ends: [DevicePtr; 2],
    ) -> Result<()> {
        let mut set = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if *set != Some(stream) {
            *set = None;
            vendor::set_stream(self.handle, stream)?;
            *set = Some(stream);
        }
        // SAFETY: guaranteed by the caller; nothing else uses the plan in the meantime.
        unsafe { vendor::execute(&self.key, direction, self.handle, area, ends) }
    }
}

impl Drop for GpuPlan {
    fn drop(&mut self) {
        vendor::destroy(self.handle);
    }
}
