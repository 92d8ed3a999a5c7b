//! [`HostObserver`]: receives the operations of the runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::driver::activity::nanoseconds;
use warpsmith_runtime::extension::{Ended, Observed, Observer, Operation};

use crate::raw::{DriverIndex, Raw, Span, What};
use crate::recording::log::{Local, with_local};
use crate::recording::{Recording, address_of};

/// Receives runtime operations. See the [module documentation](self).
pub(crate) struct HostObserver(pub(crate) Arc<Recording>);

impl HostObserver {
    /// Returns the driver of an operation if the driver is being recorded.
    #[inline]
    fn driver(&self, local: &mut Local, observed: &Observed<'_>) -> Option<DriverIndex> {
        // SAFETY: only the address of the driver is used.
        let (driver, _) = unsafe { observed.device.driver() };
        let address = address_of(driver);
        local.driver(address, || self.0.driver_at(address))
    }

    /// Returns the ID of a stream in records.
    fn number(
        &self,
        local: &mut Local,
        driver: DriverIndex,
        observed: &Observed<'_>,
        handle: StreamHandle,
    ) -> u32 {
        local.stream(driver, handle.0, || {
            // SAFETY: the caller of the operation keeps the device and the stream alive.
            let (driver, context) = unsafe { observed.device.driver() };
            driver.activity_stream(context, handle).unwrap_or(handle.0 as u32)
        })
    }

    fn what(
        &self,
        local: &mut Local,
        driver: DriverIndex,
        observed: &Observed<'_>,
        ended: Ended,
    ) -> Option<What> {
        Some(match observed.operation {
            Operation::Launch { spec, source, bytes, .. } => {
                let address = std::ptr::from_ref(spec).addr();
                if local.known_kernel != address {
                    local.known_kernel = address;
                    self.0.add_kernel(spec);
                }
                What::Launch { spec, source, bytes }
            }
            Operation::GraphAdd { .. } => What::GraphAdd,
            Operation::GraphLaunch { exec, nodes, kernels } => {
                for (spec, _) in kernels {
                    self.0.add_kernel(spec);
                }
                let known = (nodes.id, self.0.forgotten.load(Ordering::Relaxed));
                if local.known_nodes != known && nodes.id != 0 {
                    local.known_nodes = known;
                    self.0.add_nodes(nodes);
                }
                What::GraphLaunch { exec: exec.0, has_kernels: !kernels.is_empty(), nodes: nodes.id }
            }
            Operation::CaptureBegin => What::CaptureBegin,
            Operation::CaptureEnd { graph, kernels } => {
                What::CaptureEnd { graph: graph.map_or(0, |graph| graph.0), kernels: kernels as u32 }
            }
            Operation::GraphInstantiate { exec, .. } => {
                What::Instantiate { exec: exec.map_or(0, |exec| exec.0) }
            }
            Operation::Copy { direction, bytes, .. } => What::Copy { direction, bytes: bytes as u64 },
            Operation::Memset { bytes, .. } => What::Memset { bytes: bytes as u64 },
            Operation::HostFunction => What::HostFunction,
            Operation::Extension { name } => What::Extension { name },
            Operation::EventRecord { .. } => What::EventRecord,
            Operation::EventWait { on, buffer, .. } => {
                What::EventWait { on: on.map(|on| self.number(local, driver, observed, on)), buffer }
            }
            Operation::Synchronize(awaited) => What::Synchronize(awaited),
            Operation::Allocate { memory, bytes, address, cached, reserved, .. } if ended.succeeded => {
                What::Allocate { memory, address, bytes: bytes as u64, cached, reserved }
            }
            Operation::Free { memory, bytes, address } => What::Free { memory, address, bytes: bytes as u64 },
            _ => return None,
        })
    }
}

impl Observer for HostObserver {
    fn begin(&self, observed: &Observed<'_>) {
        let recording = &*self.0;
        with_local(recording, |local| {
            if self.driver(local, observed).is_none() {
                return;
            }
            let at = if recording.is_simulated() { recording.now() } else { nanoseconds(observed.began) };
            local.begin(observed.id, at);
        });
    }

    fn end(&self, observed: &Observed<'_>, ended: Ended) {
        let recording = &*self.0;
        with_local(recording, |local| {
            let Some(driver) = self.driver(local, observed) else { return };
            let Some(start) = local.end(observed.id) else { return };
            let end = if recording.is_simulated() { recording.now() } else { nanoseconds(ended.at) };
            let what = self.what(local, driver, observed, ended);
            let Some(what) = what else { return local.ended_unrecorded() };
            let stream = observed.stream.map(|stream| self.number(local, driver, observed, stream.handle));
            let span = Span {
                id: observed.id,
                driver,
                device: observed.device.id().ordinal(),
                stream,
                start,
                end: end.max(start),
                site: observed.site,
                succeeded: ended.succeeded,
                is_capturing: observed.stream.is_some_and(|stream| stream.is_capturing),
                what,
            };
            local.push_ended(recording, Raw::Span(span));
        });
    }
}
