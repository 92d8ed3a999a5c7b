//! [`Owners`]: owners of foreign memory, which wait for the work that uses it.
//!
//! Guarantees: an owner is dropped when every stream that used its memory has passed its last use, or, on a lost
//! device, when nothing runs there any more. It is dropped on the thread that drops the buffer if nothing uses the
//! memory, else on a thread that may call drivers and wait; never in a host function. The thread that drops the buffer
//! does not wait, unless the driver refuses the host function that ends a use.
//!
//! While a stream of a device is captured, what is enqueued on its streams might become part of the graph, so uses end behind
//! the capture's end.
//!
//! An entry of the table is removed by the host function behind the use, which holds only its number: a driver may
//! keep the function of a stopped context for as long as the context, and the entry holds the device.

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

/// The owner of foreign memory, which frees it when dropped. In a box, because every buffer has the place of one, which is
/// smaller to move so.
pub(crate) struct Owner(Box<Held>);

struct Held {
    owner: Box<dyn Any + Send>,
    may_use: Option<Condition>,
}

/// Says whether memory may be used.
type Condition = Box<dyn Fn() -> Result<()> + Send + Sync>;

// SAFETY: of a shared owner the condition alone is accessed, which is `Sync`; the rest is taken or dropped by value only.
unsafe impl Sync for Owner {}

impl Owner {
    pub fn new(owner: impl Any + Send) -> Self {
        Self(Box::new(Held { owner: Box::new(owner), may_use: None }))
    }

    /// Of memory that may be used as long as this is no error.
    pub fn with_condition(owner: impl Any + Send, may_use: Condition) -> Self {
        Self(Box::new(Held { owner: Box::new(owner), may_use: Some(may_use) }))
    }

    /// Whether the memory may be used at any time.
    pub fn is_unconditional(&self) -> bool {
        self.0.may_use.is_none()
    }

    /// Fails if the memory may not be used now.
    pub fn check(&self) -> Result<()> {
        self.0.may_use.as_ref().map_or(Ok(()), |may_use| may_use())
    }

    /// The value it was made of, if that is an `O`.
    pub fn downcast<O: Any>(self) -> Option<O> {
        self.0.owner.downcast().ok().map(|owner| *owner)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// The owners whose memory streams of one device may still use. See the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The number of active captures of the device's streams. Held while a use is ended, so that none begins meanwhile.
    captures: RwLock<u32>,
    table: Arc<Mutex<Table>>,
}

/// A use of an owner's memory that has not ended, on a stream.
type Use = (Stream, Arc<Owner>);

#[derive(Debug, Default)]
struct Table {
    /// The number of the next entry.
    next: u64,
    /// Those with a host function enqueued behind them.
    waiting: HashMap<u64, Use>,
    /// Those that wait for captures of the device to end.
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
        // Its entries hold the device, so there are none.
    }
}

/// Uses on streams of a lost device. Dropping them waits until nothing runs there.
struct Lost(Vec<Use>);

impl Drop for Lost {
    fn drop(&mut self) {
        self.0.iter().for_each(|(stream, _)| stream.wait_idle());
    }
}

/// Drops an owner when `users` have passed what is enqueued on them.
pub(super) fn release(owner: Owner, users: Vec<Stream>) {
    let owner = Arc::new(owner);
    users.into_iter().for_each(|user| end_use(user, Arc::clone(&owner)));
}

/// Keeps an owner until a stream has passed what is enqueued on it.
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
        // Without a host function the host has to wait.
        let waited = stream.wait();
        ended = lock(&owners.table).waiting.remove(&number);
        if waited.is_err() && !device.is_lost() {
            // Work may still use the memory, and nothing marks its end.
            std::mem::forget(ended.take());
            device.0.health.record_drop(Err(error));
        }
    }
    drop(captures);
    drop(ended);
    if device.is_lost() {
        // It may have been found to be lost before the entry was made.
        owners.lost(&device);
    }
}

impl Owners {
    /// Says that a stream of the device is about to be captured.
    pub fn capture_begins(&self) {
        *self.captures.write().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Says that the capture has ended. With the last one, the uses end that were deferred.
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
