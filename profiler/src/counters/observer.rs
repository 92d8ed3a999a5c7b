//! [`CountingObserver`]: counts each operation separately.
//!
//! CUPTI reports kernels by index instead of by name. Therefore, only one operation at a time may enqueue kernels,
//! between its own begin and end, so that all counts in between belong to this operation. An operation that would wait
//! too long runs uncounted, for example if its thread and another thread wait for each other. The report lists such
//! operations. CUPTI makes calls that invalidate a capture, even on another stream, so nothing is counted during a
//! capture.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::counters::{CounterError, CounterResult};
use warpsmith_runtime::extension::{
    Ended, Observed, Observer, Operation, WeakDevice, is_any_stream_capturing,
};
use warpsmith_trace::counters::{CounterDevice, CounterReport};

use super::source::Source;
use super::tally::{Key, Tally, What};
use crate::names;
use crate::recording::address_of;

/// Maximum time that an operation waits for another operation whose counters are being collected.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Key of a device: the address of its driver, and its ordinal within that driver.
type DeviceKey = (usize, u32);

/// Counting state of a process.
pub(super) struct Counting {
    source: Box<dyn Source>,
    /// Devices on which to count. If the list is empty, all devices are counted.
    only: Vec<DeviceKey>,
    /// Number of launches that are counted per kernel.
    launches: u64,
    /// Substrings that select the kernels to count: a kernel's name must contain one of them. If the list is empty, all
    /// kernels are counted.
    kernels: Vec<String>,
    turn: Mutex<Turn>,
    freed: Condvar,
    devices: Mutex<HashMap<DeviceKey, Opened>>,
    tally: Mutex<Tally>,
}

/// Exclusive right of one operation to enqueue kernels.
#[derive(Default)]
struct Turn {
    holder: Option<Holder>,
    /// True once counting has stopped.
    is_over: bool,
}

struct Holder {
    /// ID of the operation; 0 when counting ends.
    operation: u64,
    thread: ThreadId,
    /// Key of the operation, if it is counted.
    counted: Option<Key>,
}

/// A prepared device, or the reason why the device could not be prepared.
enum Opened {
    Ready(WeakDevice),
    Failed(String),
}

/// Result of waiting for an operation's turn.
enum Entry {
    Mine,
    /// The operation is nested in another operation of this thread.
    Nested,
    TooLate,
    Over,
}

/// Guard that ends a turn when it is dropped.
pub(super) struct Held<'a>(&'a Counting);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(device: &Device) -> DeviceKey {
    // SAFETY: only the address of the driver is used.
    let (driver, _) = unsafe { device.driver() };
    (address_of(driver), device.id().ordinal())
}

impl Counting {
    pub(super) fn new(
        source: Box<dyn Source>,
        only: Vec<Device>,
        launches: u64,
        kernels: Vec<String>,
    ) -> Self {
        Self {
            source,
            only: only.iter().map(key_of).collect(),
            launches,
            kernels,
            turn: Mutex::default(),
            freed: Condvar::new(),
            devices: Mutex::default(),
            tally: Mutex::default(),
        }
    }

    /// Prepares a device that has not been prepared yet.
    pub(super) fn open(&self, device: &Device) -> CounterResult<()> {
        let mut devices = lock(&self.devices);
        let key = key_of(device);
        if devices.contains_key(&key) {
            return Ok(());
        }
        let opened = self.source.open(device);
        let kept = match &opened {
            Ok(setup) => {
                let properties = device.properties();
                let about = CounterDevice {
                    device: key.1,
                    name: properties.name.clone(),
                    chip: setup.chip.clone(),
                    source: setup.source.clone(),
                    bandwidth: properties.memory_bandwidth,
                    passes: setup.passes as u64,
                };
                lock(&self.tally).add_device(about, setup.counters.clone());
                Opened::Ready(device.downgrade())
            }
            Err(error) => Opened::Failed(error.to_string()),
        };
        devices.insert(key, kept);
        opened.map(|_| ())
    }

    /// Waits for the operation that is being counted, and stops counting. Returns `None` if that operation does not end
    /// in time.
    pub(super) fn shut(&self) -> Option<Held<'_>> {
        let entry = self.enter(0);
        lock(&self.turn).is_over = true;
        matches!(entry, Entry::Mine).then_some(Held(self))
    }

    /// Stops counting on the devices.
    pub(super) fn close(&self) {
        let devices = std::mem::take(&mut *lock(&self.devices));
        for device in devices.into_values() {
            if let Opened::Ready(device) = device
                && let Some(device) = device.upgrade()
            {
                self.source.close(&device);
            }
        }
    }

    pub(super) fn report(&self) -> CounterReport {
        lock(&self.tally).report()
    }

    /// Waits until it is the turn of an operation.
    fn enter(&self, operation: u64) -> Entry {
        let (me, begun) = (thread::current().id(), Instant::now());
        let mut turn = lock(&self.turn);
        loop {
            match &turn.holder {
                _ if turn.is_over => return Entry::Over,
                None => break,
                Some(holder) if holder.thread == me => return Entry::Nested,
                Some(_) => {}
            }
            let Some(left) = LONGEST_WAIT.checked_sub(begun.elapsed()) else { return Entry::TooLate };
            turn = self.freed.wait_timeout(turn, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        turn.holder = Some(Holder { operation, thread: me, counted: None });
        Entry::Mine
    }

    /// Takes the key of an operation if it is the operation's turn and the operation is counted.
    fn counted(&self, operation: u64) -> Option<Key> {
        let mut turn = lock(&self.turn);
        turn.holder.as_mut().filter(|holder| holder.operation == operation)?.counted.take()
    }

    /// Ends the turn of an operation, if it is the operation's turn.
    fn leave(&self, operation: u64) {
        let mut turn = lock(&self.turn);
        if turn.holder.as_ref().is_some_and(|holder| holder.operation == operation) {
            turn.holder = None;
            drop(turn);
            self.freed.notify_all();
        }
    }

    /// Returns true if the options select an operation for counting.
    fn is_chosen(&self, key: &Key) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|part| key.name.contains(part))
    }

    /// Starts counting an operation whose turn it is. If the operation cannot be counted, returns the reason as an
    /// error.
    fn begin(&self, device: &Device, key: &Key) -> Result<(), String> {
        if is_any_stream_capturing() {
            return Err("a stream was being captured, and counting would invalidate the capture".to_owned());
        }
        if lock(&self.tally).counted(key) >= self.launches {
            return Err(format!("beyond the limit of {} launches per kernel", self.launches));
        }
        self.prepared(device)?;
        match self.source.begin(device) {
            // The device has been closed and reopened in the meantime.
            Err(CounterError::Misuse(_)) => {
                lock(&self.devices).remove(&key_of(device));
                self.prepared(device)?;
                self.source.begin(device).map_err(|error| error.to_string())
            }
            begun => begun.map_err(|error| error.to_string()),
        }
    }

    /// Prepares a device if necessary. If the preparation fails, or has failed before, returns the reason.
    fn prepared(&self, device: &Device) -> Result<(), String> {
        self.open(device).map_err(|error| error.to_string())?;
        match lock(&self.devices).get(&key_of(device)) {
            Some(Opened::Failed(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.leave(0);
    }
}

/// Counts each operation separately. See the [module documentation](self).
pub(super) struct CountingObserver(pub(super) Arc<Counting>);

impl CountingObserver {
    /// Returns the key of an operation, provided that it enqueues kernels on a counted device.
    fn key(&self, observed: &Observed<'_>) -> Option<Key> {
        if observed.stream.is_some_and(|stream| stream.is_capturing) {
            return None;
        }
        let device = key_of(observed.device);
        if !self.0.only.is_empty() && !self.0.only.contains(&device) {
            return None;
        }
        let line = observed.site.map(names::line);
        let mut symbol = None;
        let (what, name) = match observed.operation {
            Operation::Launch { spec, .. } => {
                symbol = Some(spec.symbol);
                (What::Kernel, names::kernel(spec))
            }
            Operation::GraphLaunch { .. } => {
                let name =
                    line.as_ref().map_or("graph".to_owned(), |line| format!("graph launched at {line}"));
                (What::Graph, name)
            }
            Operation::Extension { name } => (What::Several, name.to_owned()),
            _ => return None,
        };
        Some(Key { device: device.1, what, name, symbol, line })
    }
}

impl Observer for CountingObserver {
    fn begin(&self, observed: &Observed<'_>) {
        let counting = &*self.0;
        if matches!(observed.operation, Operation::CaptureBegin) {
            // Kernels are counted only after the counting of this operation has begun.
            counting.enter(observed.id);
            return;
        }
        let Some(key) = self.key(observed) else { return };
        match counting.enter(observed.id) {
            Entry::Mine => {}
            Entry::Nested | Entry::Over => return,
            Entry::TooLate => {
                let reason = "another operation was being counted for more than 30 s";
                return lock(&counting.tally).leave_out(&key, reason);
            }
        }
        if !counting.is_chosen(&key) {
            return lock(&counting.tally).pass_over();
        }
        if key.what == What::Graph {
            // CUPTI does not count the kernels of this graph. If the graph ran while counting was active, CUPTI would
            // not count later kernels either.
            let reason = "kernels in graphs cannot be counted; launch them without a graph";
            return lock(&counting.tally).leave_out(&key, reason);
        }
        match counting.begin(observed.device, &key) {
            Ok(()) => {
                if let Some(holder) = &mut lock(&counting.turn).holder {
                    holder.counted = Some(key);
                }
            }
            Err(reason) => lock(&counting.tally).leave_out(&key, &reason),
        }
    }

    fn end(&self, observed: &Observed<'_>, ended: Ended) {
        let counting = &*self.0;
        if let Some(key) = counting.counted(observed.id) {
            let counted = counting.source.end(observed.device);
            let mut tally = lock(&counting.tally);
            match counted {
                _ if !ended.succeeded => tally.leave_out(&key, "the call failed"),
                Ok(counted) => tally.add(&key, &counted),
                Err(error) => tally.leave_out(&key, &error.to_string()),
            }
        }
        counting.leave(observed.id);
    }
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counting")
    }
}
