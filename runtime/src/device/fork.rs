//! Behavior of devices after `fork`: the child cannot use devices that were opened before the fork.
//!
//! CUDA does not work in a process that was forked after CUDA was initialized, and `fork` does not copy the threads of
//! an emulated device. Therefore, in the child, every call on a device opened before the fork fails with
//! [`Error::Forked`], as does opening any device of that kind. No call waits for threads that do not exist. Dropping a
//! value in the child neither calls a driver nor takes a lock. If the parent had not yet opened a device of a kind (for
//! CUDA: nor listed devices), the child opens devices of that kind as usual. Starting another program
//! (`std::process::Command`) is not affected.
//!
//! Opening the first device registers a handler that the system calls in each forked child and that counts forks. Each
//! device stores the count at which it was opened, and each call on the device compares the two.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::{Device, DeviceId, flags, observe};
use crate::driver::{host_function, process};
use crate::error::{Error, Result};

/// Bit set of device kinds that this process uses.
static USED: AtomicU8 = AtomicU8::new(0);
/// Bit set of device kinds that are unusable because a parent process used them before the fork.
static BARRED: AtomicU8 = AtomicU8::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// The process in which an object was created.
#[derive(Debug)]
pub(crate) struct Origin(u32);

impl Default for Origin {
    fn default() -> Self {
        Self(flags::forks())
    }
}

impl Origin {
    /// Returns an error in a forked child of the origin process, or in an observer's callback.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if flags::are_only_forks(self.0) { Ok(()) } else { self.check_reported() }
    }

    /// Slow path of [`Self::check`], taken if there is an observer or a capture, or the process was forked.
    #[cold]
    fn check_reported(&self) -> Result<()> {
        if self.is_elsewhere() {
            Err(Error::Forked)
        } else if observe::is_calling() {
            Err(Error::InObserver)
        } else {
            Ok(())
        }
    }

    /// Returns true if this process was forked from the origin process, directly or indirectly.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        // The count changes only while the process has a single thread, so every thread reads the same value.
        self.0 != flags::forks()
    }
}

fn bit(kind: DeviceId) -> u8 {
    if kind.is_emulated() { 1 } else { 2 }
}

/// Returns an error if a parent process used devices of this kind before the fork.
pub(crate) fn check(kind: DeviceId) -> Result<()> {
    if BARRED.load(Ordering::Relaxed) & bit(kind) != 0 { Err(Error::Forked) } else { Ok(()) }
}

/// Marks devices of this kind as used. Must be called before the first driver call.
///
/// Returns the same errors as [`check`].
pub(crate) fn begin_use(kind: DeviceId) -> Result<()> {
    check(kind)?;
    if !REGISTERED.load(Ordering::Acquire) {
        // Two threads may both reach this line, but registering twice is harmless. A lock could be held by another
        // thread during a fork, so that the child could never acquire it.
        REGISTERED.store(register(), Ordering::Release);
    }
    USED.fetch_or(bit(kind), Ordering::Relaxed);
    Ok(())
}

/// Undoes [`begin_use`] after the driver failed to initialize. No device of this kind is in use yet.
pub(super) fn end_use(kind: DeviceId) {
    USED.fetch_and(!bit(kind), Ordering::Relaxed);
}

/// Counts the fork. The system calls this function in the single-threaded child, so it must be async-signal-safe.
extern "C" fn in_the_copy() {
    flags::count_fork();
    BARRED.fetch_or(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Registers the handler; returns true on success. After a failure, the next call that opens a device retries.
fn register() -> bool {
    // SAFETY: the handler only accesses atomics, so it is async-signal-safe.
    unsafe { process::after_fork(in_the_copy) }
}

impl Device {
    /// Returns true if the device was opened before this process was forked and is therefore unusable.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.0.health.origin.is_elsewhere()
    }

    /// Returns an error if the process was forked since the device was opened.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        self.0.health.origin.check()
    }
}

impl Drop for Device {
    #[inline]
    fn drop(&mut self) {
        if self.is_forked() {
            // Leaks one handle, so that the device is never closed in this process. Closing would wait for threads that
            // do not exist and call an unusable driver.
            std::mem::forget(self.0.clone());
        } else if host_function::is_running() {
            // This may be the last handle, and a host function must not close a device.
            host_function::drop_elsewhere(Box::new(self.0.clone()));
        }
    }
}
