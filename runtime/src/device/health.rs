//! Whether a device still works, and which kernels ran when it stopped.
//!
//! The first fault is kept and every later call reports it. The last [`RECENT`] launches are remembered until
//! their stream is known to be done, so that a fault or a timeout can name the kernels it can have been.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpu_spec::KernelSpec;

use super::DeviceId;
use super::fork::Origin;
use crate::driver::{Fault, FaultKind, LaunchConfig};
use crate::error::{Error, Result};

/// How many launches are remembered.
const RECENT: usize = 32;

/// A launch that may still be running.
#[derive(Debug, Clone, Copy)]
struct Recent {
    stream: u64,
    kernel: &'static KernelSpec,
    config: LaunchConfig,
}

/// The state of one context.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The process that opened the device.
    pub(super) origin: Origin,
    fault: OnceLock<Arc<Error>>,
    /// The first error of a drop, which had nobody to report to.
    dropped: Mutex<Option<Error>>,
    recent: Mutex<VecDeque<Recent>>,
}

impl Health {
    fn recent(&self) -> MutexGuard<'_, VecDeque<Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the device is lost, or was opened before the process was forked.
    #[inline]
    pub(crate) fn check(&self, device: DeviceId) -> Result<()> {
        self.origin.check()?;
        match self.fault.get() {
            None => Ok(()),
            Some(cause) => Err(Error::DeviceLost { device, cause: Arc::clone(cause) }),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Marks the device lost. Returns what the caller is to report: the fault, or that it was lost before.
    pub(crate) fn lose(&self, device: DeviceId, driver_error: Error, fault: Option<Fault>) -> Error {
        let mut first = false;
        let cause = self.fault.get_or_init(|| {
            first = true;
            Arc::new(self.describe(device, driver_error, fault))
        });
        if first { Error::clone(cause) } else { Error::DeviceLost { device, cause: Arc::clone(cause) } }
    }

    fn describe(&self, device: DeviceId, driver_error: Error, fault: Option<Fault>) -> Error {
        let Some(fault) = fault else {
            let kernel = self.symbols(|_| true);
            return Error::KernelFault { device, message: driver_error.to_string(), kernel, location: None };
        };
        let Fault { kind, message, location, kernel, block, thread } = fault;
        let kernel = match kernel {
            Some(kernel) => vec![kernel],
            None => self.symbols(|recent| holds(recent.config, block, thread)),
        };
        match kind {
            FaultKind::Panic => Error::KernelPanic { device, message, kernel, location, block, thread },
            FaultKind::Deadlock => Error::Deadlock { device, message, kernel, location },
            FaultKind::Other => Error::KernelFault { device, message, kernel, location },
        }
    }

    /// Remembers a launch.
    pub(crate) fn launched(&self, stream: u64, kernel: &'static KernelSpec, config: LaunchConfig) {
        let mut recent = self.recent();
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(Recent { stream, kernel, config });
    }

    /// Forgets the launches of a stream that was seen to be done.
    pub(crate) fn finished(&self, stream: u64) {
        self.recent().retain(|recent| recent.stream != stream);
    }

    /// Forgets every launch.
    pub(crate) fn all_finished(&self) {
        self.recent().clear();
    }

    /// The remembered kernels of a stream, oldest first.
    pub(crate) fn kernels_of(&self, stream: u64) -> Vec<String> {
        self.symbols(|recent| recent.stream == stream)
    }

    fn symbols(&self, mut which: impl FnMut(&Recent) -> bool) -> Vec<String> {
        let mut symbols = Vec::<String>::new();
        for recent in self.recent().iter().filter(|recent| which(recent)) {
            if !symbols.iter().any(|symbol| symbol == recent.kernel.symbol) {
                symbols.push(recent.kernel.symbol.to_owned());
            }
        }
        symbols
    }

    /// Keeps the first error that a drop could not report.
    pub(crate) fn record_drop(&self, result: Result<()>) {
        if let Err(error) = result {
            self.dropped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    pub(crate) fn take_drop_error(&self) -> Option<Error> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether a launch has such a block and thread.
fn holds(config: LaunchConfig, block: Option<[u32; 3]>, thread: Option<[u32; 3]>) -> bool {
    let within = |index: Option<[u32; 3]>, extent: [u32; 3]| {
        index.is_none_or(|index| index.iter().zip(extent).all(|(index, extent)| *index < extent))
    };
    within(block, config.grid) && within(thread, config.block)
}
