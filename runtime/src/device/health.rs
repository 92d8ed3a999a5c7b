//! The state of a device (working or lost), and the kernels that may have been running when it stopped.
//!
//! The first fault is stored. The first failing call reports the fault itself; every later call reports that the device
//! is lost because of the fault. An error that cannot reach the caller, such as one in a drop, does not count as
//! reporting the fault ([`Quiet`]). Streams are distributed over ring buffers. Each ring stores its last [`KEPT`]
//! launches until their stream is known to be idle, so a fault or timeout report can name the suspected kernels and
//! their configuration.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpu_spec::KernelSpec;

use super::DeviceId;
use super::fork::Origin;
use super::stack::Stack;
use crate::driver::{Fault, FaultKind, LaunchConfig};
use crate::error::{Error, RecentLaunch, Result};

/// Number of launches that each ring stores.
const KEPT: usize = 16;
/// Maximum number of kernels stored per graph launch.
const GRAPH_KERNELS: usize = 8;
/// Number of rings. Several rings reduce contention between threads that use different streams.
const RINGS: usize = 8;

/// The last launches of the streams that share the ring. The ring is lock-free: simultaneous launches may overwrite
/// each other. A slot written by two threads at once, or read during a write, has a mismatched seal and counts as
/// empty.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring {
    /// Number of launches so far.
    count: AtomicU64,
    slots: [Slot; KEPT],
}

#[derive(Debug, Default)]
struct Slot {
    words: [AtomicU64; WORDS],
    /// The [`hash`] of the slot's words.
    seal: AtomicU64,
}

const WORDS: usize = 7;
/// Index of the word that stores the kernel's address and the flags below; 0 in an empty slot.
const KERNEL: usize = 0;
const STREAM: usize = 1;
const COOPERATIVE: usize = 1;
const DEPENDENT: usize = 2;

/// Returns the hash of a launch's words. Two launches collide with probability 2^-64.
#[inline]
fn hash(words: &[u64; WORDS]) -> u64 {
    words.iter().fold(0, |hash: u64, word| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[inline]
fn words(stream: u64, kernel: &'static KernelSpec, config: &LaunchConfig) -> [u64; WORDS] {
    const { assert!(align_of::<KernelSpec>() > COOPERATIVE | DEPENDENT) };
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let LaunchConfig { grid, block, shared_bytes, cluster, cooperative, dependent } = *config;
    let flags = (usize::from(cooperative) * COOPERATIVE) | (usize::from(dependent) * DEPENDENT);
    [
        (std::ptr::from_ref(kernel).expose_provenance() | flags) as u64,
        stream,
        pair(grid[0], grid[1]),
        pair(grid[2], block[0]),
        pair(block[1], block[2]),
        pair(shared_bytes, cluster[0]),
        pair(cluster[1], cluster[2]),
    ]
}

impl Ring {
    /// Stores a launch, overwriting the oldest one.
    #[inline]
    fn push(&self, words: [u64; WORDS]) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        let slot = &self.slots[count as usize % KEPT];
        for (slot, word) in slot.words.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        slot.seal.store(hash(&words), Ordering::Relaxed);
    }

    /// Removes the records of a stream's launches, or of all launches.
    fn forget(&self, stream: Option<u64>) {
        let is_meant =
            |slot: &&Slot| stream.is_none_or(|stream| slot.words[STREAM].load(Ordering::Relaxed) == stream);
        self.slots.iter().filter(is_meant).for_each(|slot| slot.words[KERNEL].store(0, Ordering::Relaxed));
    }

    /// Returns the remembered launches, oldest first.
    fn launches(&self) -> impl Iterator<Item = RecentLaunch> {
        let (newer, older) = self.slots.split_at(self.count.load(Ordering::Relaxed) as usize % KEPT);
        older.iter().chain(newer).filter_map(Slot::launch)
    }
}

impl Slot {
    /// Returns the launch in this slot; `None` if the slot is empty or its seal does not match.
    fn launch(&self) -> Option<RecentLaunch> {
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [kernel, stream, w0, w1, w2, w3, w4] = words;
        if kernel == 0 || self.seal.load(Ordering::Relaxed) != hash(&words) {
            return None;
        }
        let flags = kernel as usize & (COOPERATIVE | DEPENDENT);
        let kernel: *const KernelSpec = std::ptr::with_exposed_provenance(kernel as usize ^ flags);
        // SAFETY: `words` stored the address of a `&'static KernelSpec`, with flags in the low bits that are zero in an
        // aligned address.
        let kernel = unsafe { &*kernel };
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let config = LaunchConfig {
            grid: [low(w0), high(w0), low(w1)],
            block: [high(w1), low(w2), high(w2)],
            shared_bytes: low(w3),
            cluster: [high(w3), low(w4), high(w4)],
            cooperative: flags & COOPERATIVE != 0,
            dependent: flags & DEPENDENT != 0,
        };
        Some(RecentLaunch { kernel: kernel.symbol, config, stream })
    }
}

thread_local! {
    /// Number of live [`Quiet`] guards.
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// Marks the errors of this thread's calls as discarded while the guard exists. A discarded error does not count as
/// reporting a fault or findings, so a later call still reports them.
#[must_use]
pub(crate) struct Quiet(PhantomData<*const ()>);

impl Quiet {
    #[inline]
    pub fn begin() -> Self {
        QUIET.set(QUIET.get() + 1);
        Self(PhantomData)
    }

    #[inline]
    pub fn is_active() -> bool {
        QUIET.get() > 0
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        QUIET.set(QUIET.get() - 1);
    }
}

/// The state of one context.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The process that opened the device.
    pub(super) origin: Origin,
    fault: OnceLock<Arc<Error>>,
    /// True if a call has returned the fault.
    is_reported: AtomicBool,
    /// The first error that occurred in a drop. It is stored because a drop cannot return an error.
    dropped: Mutex<Option<Error>>,
    recent: [Ring; RINGS],
}

impl Health {
    #[inline]
    fn ring(&self, stream: u64) -> &Ring {
        &self.recent[stream as usize % RINGS]
    }

    /// Returns an error if the device is lost or was opened before the process was forked.
    #[inline]
    pub(crate) fn check(&self, device: DeviceId) -> Result<()> {
        self.origin.check()?;
        match self.fault.get() {
            None => Ok(()),
            Some(cause) => Err(self.report(device, cause)),
        }
    }

    /// Returns the fault on the first call, and the device-lost error on every later call.
    #[cold]
    fn report(&self, device: DeviceId, cause: &Arc<Error>) -> Error {
        if !Quiet::is_active() && !self.is_reported.swap(true, Ordering::AcqRel) {
            return Error::clone(cause);
        }
        Error::DeviceLost { device, cause: Arc::clone(cause) }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Marks the device lost. Returns the error that the caller must report: the fault itself, or a device-lost error
    /// with the fault as the cause. Only the first caller queries the driver, because the driver reports a fault only
    /// once; other callers wait for the fault's description.
    #[cold]
    pub(super) fn lose(
        &self,
        device: DeviceId,
        driver_error: Error,
        fault: impl FnOnce() -> Option<Fault>,
        stack: &Stack,
    ) -> Error {
        let mut first = false;
        let cause = self.fault.get_or_init(|| {
            first = true;
            Arc::new(self.describe(device, driver_error, fault(), stack))
        });
        if first {
            tracing::error!(%device, fault = %cause, "the device was lost: it must be opened again");
        }
        self.report(device, cause)
    }

    fn describe(&self, device: DeviceId, driver_error: Error, fault: Option<Fault>, stack: &Stack) -> Error {
        let Some(fault) = fault else {
            let launches = self.launches(|_| true);
            let kernel = symbols(&launches);
            let message = driver_error.to_string() + &stack.note(kernel.iter().map(String::as_str));
            return Error::KernelFault { device, message, kernel, launches: launches.into(), location: None };
        };
        let Fault { kind, message, location, kernel, block, thread } = fault;
        let named = |recent: &RecentLaunch| kernel.as_deref().is_none_or(|kernel| kernel == recent.kernel);
        let launches = self.launches(|recent| named(recent) && holds(recent.config, block, thread));
        let kernel = match kernel {
            Some(kernel) => vec![kernel],
            None => symbols(&launches),
        };
        let launches = launches.into();
        match kind {
            FaultKind::Panic => {
                Error::KernelPanic { device, message, kernel, launches, location, block, thread }
            }
            FaultKind::Deadlock => Error::Deadlock { device, message, kernel, launches, location },
            FaultKind::Other => Error::KernelFault { device, message, kernel, launches, location },
        }
    }

    #[inline]
    pub(crate) fn launched(&self, stream: u64, kernel: &'static KernelSpec, config: &LaunchConfig) {
        self.ring(stream).push(words(stream, kernel, config));
    }

    /// Remembers the kernels of a graph that was launched.
    pub(crate) fn graph_launched(&self, stream: u64, kernels: &[(&'static KernelSpec, LaunchConfig)]) {
        kernels.iter().take(GRAPH_KERNELS).for_each(|(kernel, config)| self.launched(stream, kernel, config));
    }

    /// Removes the records of the launches of a stream whose work is known to have finished.
    pub(crate) fn finished(&self, stream: u64) {
        self.ring(stream).forget(Some(stream));
    }

    pub(crate) fn all_finished(&self) {
        self.recent.iter().for_each(|ring| ring.forget(None));
    }

    /// Returns the symbols of the kernels remembered for a stream, oldest first.
    pub(crate) fn kernels_of(&self, stream: u64) -> Vec<String> {
        symbols(&self.launches(|recent| recent.stream == stream))
    }

    /// Returns the remembered launches that satisfy a predicate, oldest first within each stream, without duplicates.
    fn launches(&self, which: impl Fn(&RecentLaunch) -> bool) -> Vec<RecentLaunch> {
        let mut launches = Vec::new();
        for recent in self.recent.iter().flat_map(Ring::launches).filter(|recent| which(recent)) {
            if !launches.contains(&recent) {
                launches.push(recent);
            }
        }
        launches
    }

    /// Logs an error that occurred in a drop, and stores it if it is the first.
    pub(crate) fn record_drop(&self, result: Result<()>) {
        if let Err(error) = result {
            tracing::error!(%error, "a resource that was dropped could not be released");
            self.dropped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    pub(crate) fn take_drop_error(&self) -> Option<Error> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the kernel symbols of launches, without duplicates.
fn symbols(launches: &[RecentLaunch]) -> Vec<String> {
    let mut symbols = Vec::<String>::new();
    for recent in launches {
        if !symbols.iter().any(|symbol| symbol == recent.kernel) {
            symbols.push(recent.kernel.to_owned());
        }
    }
    symbols
}

/// Returns true if the block and thread indices are within the launch.
fn holds(config: LaunchConfig, block: Option<[u32; 3]>, thread: Option<[u32; 3]>) -> bool {
    let within = |index: Option<[u32; 3]>, extent: [u32; 3]| {
        index.is_none_or(|index| index.iter().zip(extent).all(|(index, extent)| *index < extent))
    };
    within(block, config.grid) && within(thread, config.block)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe fn nothing(_: *const *const std::ffi::c_void) {}

    static KERNEL: KernelSpec = KernelSpec::new("test", "0.0.0", "k", &[], nothing);

    fn config(n: u32) -> LaunchConfig {
        LaunchConfig {
            grid: [n, n + 1, n + 2],
            block: [n + 3, n + 4, n + 5],
            shared_bytes: n + 6,
            cluster: [n + 7, n + 8, n + 9],
            cooperative: n.is_multiple_of(2),
            dependent: n.is_multiple_of(3),
        }
    }

    #[test]
    fn the_last_launches_are_remembered_as_they_were() {
        let health = Health::default();
        for n in 0..100 {
            health.launched(7, &KERNEL, &config(n));
        }
        let launches = health.launches(|_| true);
        let expected: Vec<_> =
            (84..100).map(|n| RecentLaunch { kernel: "k", config: config(n), stream: 7 }).collect();
        assert_eq!(launches, expected);
    }

    #[test]
    fn a_stream_is_forgotten_alone() {
        let health = Health::default();
        // The first two streams share a ring.
        let streams = [1, 1 + RINGS as u64, 2];
        streams.iter().for_each(|&stream| health.launched(stream, &KERNEL, &config(1)));
        health.finished(1);
        let left: Vec<u64> = health.launches(|_| true).iter().map(|launch| launch.stream).collect();
        assert_eq!(left, streams[1..]);
        assert_eq!((health.kernels_of(1).len(), health.kernels_of(2)), (0, vec!["k".to_owned()]));
        health.all_finished();
        assert!(health.launches(|_| true).is_empty());
    }

    #[test]
    fn launches_of_many_threads_are_never_mixed() {
        let health = Health::default();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let health = &health;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        health.launched(thread * RINGS as u64, &KERNEL, &config(n));
                        if n % 1000 == 0 {
                            health.finished(thread * RINGS as u64);
                        }
                    }
                });
            }
            for _ in 0..2000 {
                for launch in health.launches(|_| true) {
                    assert_eq!(launch.config, config(launch.config.grid[0]), "{launch:?}");
                }
            }
        });
    }
}
