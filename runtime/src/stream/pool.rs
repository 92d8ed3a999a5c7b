//! The streams of a device that outlive their handles: its default stream and its pools; and those it has adopted.
//!
//! There is a pool for each of up to [`PRIORITIES`] priorities. Its streams are made when their turn first comes,
//! are selected in turn, and are never destroyed before the device, so a handle of the driver's never means
//! another stream than before.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::Stream;
use super::captures::Captures;
use super::core::{Ownership, Shared, StreamCore};
use super::round_robin::RoundRobin;
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver, StreamHandle};
use crate::error::{Error, Result, code};

/// Streams in a pool.
pub(crate) const POOL_STREAMS: usize = 32;
/// CUDA's handle for the default stream of whichever thread calls.
const PER_THREAD: StreamHandle = StreamHandle(2);
/// Priorities that have a pool: 0 to -3.
const PRIORITIES: usize = 4;

/// The streams that a device keeps or has adopted.
pub(crate) struct Streams {
    default: OnceLock<Shared>,
    pools: [RoundRobin<Shared, POOL_STREAMS>; PRIORITIES],
    /// Least and most urgent.
    range: (i32, i32),
    /// Called when a stream has ended, by the module that has its memory.
    on_end: fn(&Device, &StreamCore),
    /// By the driver's number of the stream. An entry whose stream has no handle any more is about to be removed.
    adopted: Mutex<Vec<(u64, Entry)>>,
}

struct Entry(NonNull<Shared>);

// SAFETY: the pointer is only followed under the lock of the table, in which the stream is until it ends.
unsafe impl Send for Entry {}

impl Part for Streams {
    const PLACE: usize = 4;

    fn close(&mut self, driver: &dyn Driver, context: Context, _: &EventPool) {
        // The device's work was waited for, and there are no handles.
        let pooled = self.pools.iter_mut().flat_map(RoundRobin::take);
        for stream in self.default.take().into_iter().chain(pooled) {
            stream.core.destroy(driver, context, false);
        }
    }
}

impl Streams {
    /// Fails with what the driver reports.
    pub fn new(driver: &dyn Driver, context: Context, on_end: fn(&Device, &StreamCore)) -> Result<Self> {
        Ok(Self {
            default: OnceLock::new(),
            pools: std::array::from_fn(|_| RoundRobin::new()),
            range: driver.stream_priorities(context)?,
            on_end,
            adopted: Mutex::default(),
        })
    }

    /// Makes `core` the default stream of the device, which has these streams.
    pub fn set_default(&self, device: &Device, core: StreamCore) -> &Shared {
        self.default.get_or_init(|| Shared::kept(device, core))
    }

    /// Notifies the module that owns streams' memory that a stream ends.
    pub(super) fn ended(&self, device: &Device, core: &StreamCore) {
        (self.on_end)(device, core);
    }

    fn adopted(&self) -> MutexGuard<'_, Vec<(u64, Entry)>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets an adopted stream that ends.
    pub(super) fn forget_adopted(&self, number: u64, stream: NonNull<Shared>) {
        self.adopted().retain(|(of, Entry(entry))| *of != number || *entry != stream);
    }
}

impl Device {
    /// The stream for work that needs no other. Every call gives the same one.
    pub fn default_stream(&self) -> Stream {
        let streams = &self.part::<Streams>();
        let Some(shared) = streams.default.get() else { unreachable!("set when the device was opened") };
        Stream(shared.first_handle(self))
    }

    /// The priorities that streams of the device can have: (least urgent, most urgent). Lower numbers are more
    /// urgent.
    pub fn stream_priorities(&self) -> (i32, i32) {
        self.part::<Streams>().range
    }
}

impl Stream {
    /// A stream from the device's pool of least urgent streams.
    ///
    /// A pool has 32 streams. They are assigned in turn, except those that are being captured: the 33rd is the first
    /// again. Users of the same stream wait for each other's work; results are unaffected. They are never destroyed.
    ///
    /// # Errors
    /// Whatever the driver reports.
    #[inline]
    pub fn from_pool(device: &Device) -> Result<Self> {
        Self::from_pool_with_priority(device, 0)
    }

    /// A stream from the device's pool of that priority. Lower numbers are more urgent. There are pools for 0 to -3, as
    /// far as the device has the priorities ([`Device::stream_priorities`]); what is beyond counts as the nearest.
    ///
    /// # Errors
    /// As [`Stream::from_pool`].
    #[inline]
    pub fn from_pool_with_priority(device: &Device, priority: i32) -> Result<Self> {
        let streams = &device.part::<Streams>();
        let (least, greatest) = streams.range;
        let most_urgent = greatest.max(least - (PRIORITIES as i32 - 1)).min(least);
        let priority = priority.clamp(most_urgent, least);
        let pool = &streams.pools[(least - priority) as usize];
        device.check()?;
        let next = || {
            pool.next(|| {
                let core = device.call(|driver, context| StreamCore::create(driver, context, priority))?;
                Ok::<_, Error>(Shared::kept(device, core))
            })
        };
        let mut shared = next()?;
        // The caller wants a stream that is not being captured.
        for _ in 1..POOL_STREAMS {
            if !Captures::is_capturing(shared.core.captures.count()) {
                break;
            }
            shared = next()?;
        }
        Ok(Self(shared.first_handle(device)))
    }

    /// A handle of a stream that other code made, for example `cudarc`, `cust` or C++. It is identified by
    /// the driver's number of the stream, so that a second adoption returns the same stream, and one of another
    /// stream that happens to have the same handle does not.
    ///
    /// When the owner has destroyed the stream against the promise below, calls fail with [`Error::StreamDestroyed`] if
    /// another stream has its handle by then, or if the driver says that there is none; CUDA may also crash.
    ///
    /// # Errors
    /// [`Error::StreamDestroyed`] for a handle that the driver does not know, [`Error::PerThreadStream`] for CUDA's
    /// default stream of each thread; whatever else the driver reports.
    ///
    /// # Safety
    /// The stream is of this device's primary context. It is not destroyed before every handle of it and every buffer
    /// that was used on it is dropped, and it is not being captured into a graph.
    pub unsafe fn adopt(device: &Device, handle: StreamHandle) -> Result<Self> {
        if handle == PER_THREAD && !device.is_emulated() {
            return Err(Error::PerThreadStream);
        }
        let read = device.check().and_then(|()| {
            let (driver, context) = device.raw();
            let number = driver.stream_unique_id(context, handle)?;
            Ok((number, driver.stream_priority(context, handle)?))
        });
        let (number, priority) = read.map_err(|error| match error.driver_code() {
            Some(code::INVALID_HANDLE | code::CONTEXT_IS_DESTROYED | code::INVALID_VALUE) => {
                Error::StreamDestroyed { device: device.id() }
            }
            _ => error,
        })?;
        let mut adopted = device.part::<Streams>().adopted();
        for (of, Entry(entry)) in adopted.iter() {
            // SAFETY: it is in the table, so it has not ended; see `Entry`.
            if *of == number && unsafe { entry.as_ref() }.handles().add_unless_none() {
                return Ok(Self(*entry));
            }
        }
        let shared =
            Shared::boxed(device.clone(), Ownership::Adopted(number), StreamCore::new(handle, priority));
        adopted.push((number, Entry(shared)));
        Ok(Self(shared))
    }
}
