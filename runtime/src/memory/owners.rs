//! [`Owners`]: owners of foreign memory, kept until the work that uses their memory has finished.
//!
//! An owner is dropped when every stream that used its memory has finished the last use or, on a lost device, when no
//! work is running on the device. If the memory is not in use, the owner is dropped on the thread that drops the
//! buffer. Otherwise, it is dropped on a thread that may call drivers and wait, never in a host function. The thread
//! that drops the buffer does not wait, unless the driver rejects the host function that marks the end of a use.
//!
//! While a stream of a device is being captured, a host function enqueued on the device's streams could become part of
//! the graph. It is therefore enqueued only after the capture.
//!
//! The host function enqueued after a use removes the use's entry from the table. The function contains only the
//! entry's number, not the entry, which keeps the device open: a driver may keep functions that were enqueued on a lost
//! context until the context is destroyed.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::device::observe::Operation;
use crate::device::{Device, EventPool, Part};
use crate::driver::host_function::drop_elsewhere;
use crate::driver::{Context, Driver};
use crate::error::Result;
use crate::stream::Stream;

/// Owner of foreign memory, which frees the memory when dropped. Boxed to keep buffers small, because every buffer has
/// an owner field.
pub(crate) struct Owner(Box<Held>);

struct Held {
    owner: Box<dyn Any + Send>,
    may_use: Option<Condition>,
    is_stream_ordered: bool,
}

/// Returns an error while the memory must not be used.
type Condition = Box<dyn Fn() -> Result<()> + Send + Sync>;

// SAFETY: a shared reference provides access only to the condition, which is `Sync`; the owner value is only taken out
// or dropped by value.
unsafe impl Sync for Owner {}

impl Owner {
    pub fn new(owner: impl Any + Send) -> Self {
        Self(Box::new(Held { owner: Box::new(owner), may_use: None, is_stream_ordered: false }))
    }

    /// Creates an owner that frees the memory in stream order, on the buffer's home stream.
    pub fn stream_ordered(owner: impl Any + Send) -> Self {
        Self(Box::new(Held { owner: Box::new(owner), may_use: None, is_stream_ordered: true }))
    }

    /// Creates the owner of memory that may be used while `may_use` returns no error.
    pub fn with_condition(owner: impl Any + Send, may_use: Condition) -> Self {
        Self(Box::new(Held { owner: Box::new(owner), may_use: Some(may_use), is_stream_ordered: false }))
    }

    /// Returns true if the memory may be used at any time.
    pub fn is_unconditional(&self) -> bool {
        self.0.may_use.is_none()
    }

    /// Returns true if the owner was created by [`Self::stream_ordered`].
    pub fn is_stream_ordered(&self) -> bool {
        self.0.is_stream_ordered
    }

    /// Returns an error if the memory must not be used now.
    pub fn check(&self) -> Result<()> {
        self.0.may_use.as_ref().map_or(Ok(()), |may_use| may_use())
    }

    /// Returns the owner value, if it is an `O`.
    pub fn downcast<O: Any>(self) -> Option<O> {
        self.0.owner.downcast().ok().map(|owner| *owner)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// Owners of memory that streams of one device may still use; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Number of active captures of the device's streams. The lock is held while a host function is enqueued, so that
    /// no capture starts meanwhile.
    captures: RwLock<u32>,
    table: Arc<Mutex<Table>>,
}

/// An unfinished use of an owner's memory on a stream.
type Use = (Stream, Arc<Owner>);

#[derive(Debug, Default)]
struct Table {
    /// Number that the next entry will receive.
    next: u64,
    /// Uses after which a host function was enqueued.
    waiting: HashMap<u64, Use>,
    /// Uses whose host function is not enqueued until the device's captures have ended.
    deferred: Vec<Use>,
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part for Owners {
    const PLACE: usize = 5;

    fn lost(&self, device: &Device) {
        let left: Vec<Use> = {
            let mut table = lock(&self.table);
            let waiting = std::mem::take(&mut table.waiting).into_values();
            waiting.chain(std::mem::take(&mut table.deferred)).collect()
        };
        if !left.is_empty() && !device.is_forked() {
            drop_elsewhere(Box::new(Lost(left)));
        }
    }

    fn close(&mut self, _: &dyn Driver, _: Context, _: &EventPool) {
        // The table is empty here, because entries keep the device open.
    }
}

/// Uses on streams of a lost device. Dropping this value first waits until no work is running on the device.
struct Lost(Vec<Use>);

impl Drop for Lost {
    fn drop(&mut self) {
        self.0.iter().for_each(|(stream, _)| stream.wait_idle());
    }
}

/// Drops an owner once each stream in `users` has finished the work enqueued so far.
pub(super) fn release(owner: Owner, users: Vec<Stream>) {
    let owner = Arc::new(owner);
    users.into_iter().for_each(|user| end_use(user, Arc::clone(&owner)));
}

/// Like [`release`], but for memory whose home stream is `home`. A stream-ordered owner is dropped as soon as `home`
/// waits for the other users.
pub(super) fn release_at(home: &Stream, owner: Owner, mut users: Vec<Stream>) {
    if owner.is_stream_ordered() {
        users.retain(|user| user != home && home.wait_stream(user).is_err());
    }
    release(owner, users);
}

/// Keeps an owner until a stream has finished the work enqueued so far.
fn end_use(stream: Stream, owner: Arc<Owner>) {
    let device = stream.device().clone();
    let owners = device.part::<Owners>();
    let captures = owners.captures.read().unwrap_or_else(PoisonError::into_inner);
    if *captures > 0 {
        return lock(&owners.table).deferred.push((stream, owner));
    }
    let number = {
        let mut table = lock(&owners.table);
        let number = table.next;
        table.next += 1;
        table.waiting.insert(number, (stream.clone(), owner));
        number
    };
    let table = Arc::clone(&owners.table);
    let function = move || {
        let ended = lock(&table).waiting.remove(&number);
        if let Some(ended) = ended {
            drop_elsewhere(Box::new(ended));
        }
    };
    let handle = stream.handle();
    let enqueued = stream.observed(
        || Operation::HostFunction,
        || stream.call(|driver, context| driver.host_function(context, handle, Box::new(function))),
    );
    let mut ended = None;
    if let Err(error) = enqueued
        && !device.is_lost()
    {
        // The host function could not be enqueued, so the host must wait.
        let waited = stream.wait();
        ended = lock(&owners.table).waiting.remove(&number);
        if waited.is_err() && !device.is_lost() {
            // Leak the owner: work may still use the memory, and its end cannot be detected.
            std::mem::forget(ended.take());
            device.0.health.record_drop(Err(error));
        }
    }
    drop(captures);
    drop(ended);
    if device.is_lost() {
        // The device may have been marked lost before the entry was created.
        owners.lost(&device);
    }
}

impl Owners {
    /// Called when a stream of the device is about to be captured.
    pub fn capture_begins(&self) {
        *self.captures.write().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Called when the capture has ended. After the last active capture, enqueues the deferred host functions.
    pub fn capture_ends(&self) {
        let deferred = {
            let mut captures = self.captures.write().unwrap_or_else(PoisonError::into_inner);
            *captures = captures.saturating_sub(1);
            if *captures > 0 {
                return;
            }
            std::mem::take(&mut lock(&self.table).deferred)
        };
        deferred.into_iter().for_each(|(stream, owner)| end_use(stream, owner));
    }
}
