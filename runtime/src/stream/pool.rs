//! Streams that outlive their handles (a device's default stream and pools) and adopted streams.
//!
//! There is one pool per priority, for up to [`PRIORITIES`] priorities. Pool streams are created on first use, selected
//! round-robin, and kept until the device is closed, so their driver handles are never reused.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::Stream;
use super::captures::Captures;
use super::core::{Ownership, Shared, StreamCore};
use super::round_robin::RoundRobin;
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver, StreamHandle};
use crate::error::{Error, Result, code};

pub(crate) const POOL_STREAMS: usize = 32;
/// CUDA's handle for the per-thread default stream.
const PER_THREAD: StreamHandle = StreamHandle(2);
/// Number of priorities with a pool: 0 to -3.
const PRIORITIES: usize = 4;

/// A device's default, pool and adopted streams.
pub(crate) struct Streams {
    default: OnceLock<Shared>,
    pools: [RoundRobin<Shared, POOL_STREAMS>; PRIORITIES],
    /// Least and most urgent priority.
    range: (i32, i32),
    /// Callback of the module that owns stream memory, called when a stream ends.
    on_end: fn(&Device, &StreamCore),
    /// Adopted streams, each with the driver's stream ID. An entry whose stream has no handles is about to be removed.
    adopted: Mutex<Vec<(u64, Entry)>>,
}

struct Entry(NonNull<Shared>);

// SAFETY: the pointer is dereferenced only under the table's lock, and an ending stream first removes itself from the
// table.
unsafe impl Send for Entry {}

impl Part for Streams {
    const PLACE: usize = 4;

    fn close(&mut self, driver: &dyn Driver, context: Context, _: &EventPool) {
        // The device's work has finished, and no handles exist.
        let pooled = self.pools.iter_mut().flat_map(RoundRobin::take);
        for stream in self.default.take().into_iter().chain(pooled) {
            stream.core.destroy(driver, context, false);
        }
    }
}

impl Streams {
    /// Creates the streams of a device. Fails with any [driver error](crate::Error::Driver).
    pub fn new(driver: &dyn Driver, context: Context, on_end: fn(&Device, &StreamCore)) -> Result<Self> {
        Ok(Self {
            default: OnceLock::new(),
            pools: std::array::from_fn(|_| RoundRobin::new()),
            range: driver.stream_priorities(context)?,
            on_end,
            adopted: Mutex::default(),
        })
    }

    /// Makes `core` the default stream of the device that owns these streams.
    pub fn set_default(&self, device: &Device, core: StreamCore) -> &Shared {
        self.default.get_or_init(|| Shared::kept(device, core))
    }

    /// Notifies the module that owns stream memory when a stream ends.
    pub(super) fn ended(&self, device: &Device, core: &StreamCore) {
        (self.on_end)(device, core);
    }

    fn adopted(&self) -> MutexGuard<'_, Vec<(u64, Entry)>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes an adopted stream that is ending.
    pub(super) fn forget_adopted(&self, number: u64, stream: NonNull<Shared>) {
        self.adopted().retain(|(of, Entry(entry))| *of != number || *entry != stream);
    }
}

impl Device {
    /// Returns the default stream, for work that needs no separate stream. Every call returns the same stream.
    pub fn default_stream(&self) -> Stream {
        let streams = &self.part::<Streams>();
        let Some(shared) = streams.default.get() else { unreachable!("set when the device was opened") };
        Stream(shared.first_handle(self))
    }

    /// Returns the range of stream priorities of the device: (least urgent, most urgent). Lower numbers are more
    /// urgent.
    pub fn stream_priorities(&self) -> (i32, i32) {
        self.part::<Streams>().range
    }
}

impl Stream {
    /// Returns a stream from the device's lowest-priority pool. A pool contains 32 streams, which are assigned
    /// round-robin, so the 33rd call returns the first stream again. Capturing streams are skipped. Work of several
    /// users on the same stream is serialized, which does not affect results. Pool streams live as long as the device.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    #[inline]
    pub fn from_pool(device: &Device) -> Result<Self> {
        Self::from_pool_with_priority(device, 0)
    }

    /// Returns a stream from the device's pool of that priority. Lower numbers are more urgent. There is a pool per
    /// supported priority ([`Device::stream_priorities`]) from 0 to -3; other values are clamped to this range.
    ///
    /// # Errors
    /// Returns the same errors as [`Stream::from_pool`].
    #[inline]
    pub fn from_pool_with_priority(device: &Device, priority: i32) -> Result<Self> {
        let streams = &device.part::<Streams>();
        let (lowest, highest) = streams.range;
        let most_urgent = highest.max(lowest - (PRIORITIES as i32 - 1)).min(lowest);
        let priority = priority.clamp(most_urgent, lowest);
        let pool = &streams.pools[(lowest - priority) as usize];
        device.check()?;
        let next = || {
            pool.next(|| {
                let core = device.call(|driver, context| StreamCore::create(driver, context, priority))?;
                Ok::<_, Error>(Shared::kept(device, core))
            })
        };
        let mut shared = next()?;
        // Streams that are being captured are skipped.
        for _ in 1..POOL_STREAMS {
            if !Captures::is_capturing(shared.core.captures.count()) {
                break;
            }
            shared = next()?;
        }
        Ok(Self(shared.first_handle(device)))
    }

    /// Adopts a stream created by other code, such as `cudarc`, `cust` or a C++ library. `owner` is kept until the last
    /// handle to the stream and the last buffer used on it are dropped; it can be an `Arc` of the other library's
    /// stream. Pass `()` for a stream that outlives every use.
    ///
    /// The stream is identified by the driver's stream ID: a second adoption returns the same stream, and another
    /// stream that reuses the handle is not mistaken for it. The owner is dropped immediately if the call fails, or if
    /// the stream was already adopted with an owner.
    ///
    /// If the stream is destroyed too early, in violation of the safety requirements below, later calls fail with
    /// [`Error::StreamDestroyed`] if the handle belongs to another stream or the driver reports it as invalid. CUDA may
    /// also crash.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let theirs = Arc::new(Stream::new(&device)?);
    /// // SAFETY: the owner keeps the stream alive.
    /// let ours = unsafe { Stream::adopt(&device, theirs.handle(), theirs.clone()) }?;
    /// let buffer = DeviceBuffer::from_host(&ours, &[1.0f32])?;
    /// drop(ours);
    /// assert_eq!(Arc::strong_count(&theirs), 2);
    /// drop(buffer);
    /// assert_eq!(Arc::strong_count(&theirs), 1);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::StreamDestroyed`] for a handle that is unknown to the driver, [`Error::PerThreadStream`] for
    /// CUDA's per-thread default stream, or any other driver error.
    ///
    /// # Safety
    /// The stream must belong to this device's primary context, and must exist until the owner is dropped. With `()` as
    /// the owner, it must exist until every handle to it and every buffer used on it is dropped. The stream must not be
    /// capturing when this function is called.
    pub unsafe fn adopt(device: &Device, handle: StreamHandle, owner: impl Any + Send) -> Result<Self> {
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
            // SAFETY: the stream is in the table, so it has not ended; see `Entry`.
            if *of == number && unsafe { entry.as_ref() }.handles().add_unless_none() {
                let found = Self(*entry);
                drop(adopted);
                // A surplus owner is dropped here, without holding the lock.
                drop(found.shared().keep(Box::new(owner)));
                return Ok(found);
            }
        }
        let shared =
            Shared::boxed(device.clone(), Ownership::Adopted(number), StreamCore::new(handle, priority));
        adopted.push((number, Entry(shared)));
        drop(adopted);
        let stream = Self(shared);
        stream.shared().keep(Box::new(owner));
        Ok(stream)
    }

    /// Like [`Self::adopt`], but makes no driver call. The stream's owner may be capturing it, and later calls do not
    /// check whether the stream was destroyed. Each call returns a new `Stream` with priority 0. Reuse it: the runtime
    /// synchronizes two `Stream` values with events even if they have the same handle.
    ///
    /// During a capture by the stream's owner, kernels that use only the owner's memory can be launched on the stream.
    /// Allocations fail with [`GraphError::CapturedElsewhere`](crate::GraphError::CapturedElsewhere), except from a
    /// [`MemoryPool`](crate::MemoryPool) that lives as long as the graph.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let theirs = Stream::new(&device)?;
    /// // SAFETY: `theirs` is dropped after `ours` and the buffer.
    /// let ours = unsafe { Stream::adopt_unchecked(&device, theirs.handle()) }?;
    /// let buffer = DeviceBuffer::from_host(&ours, &[1.0_f32])?;
    /// assert_eq!(buffer.to_host()?, [1.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::PerThreadStream`] for CUDA's per-thread default stream, or [`Error::DeviceLost`].
    ///
    /// # Safety
    /// The stream must belong to this device's primary context. It must exist until every handle to it and every buffer
    /// used on it is dropped.
    pub unsafe fn adopt_unchecked(device: &Device, handle: StreamHandle) -> Result<Self> {
        if handle == PER_THREAD && !device.is_emulated() {
            return Err(Error::PerThreadStream);
        }
        device.check()?;
        Ok(Self(Shared::boxed(device.clone(), Ownership::Borrowed, StreamCore::new(handle, 0))))
    }
}
